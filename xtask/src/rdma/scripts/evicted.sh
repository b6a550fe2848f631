# A process without a heartbeat is evicted when its lease expires, so that the others continue. When it runs again its operations fail
# with an error, and requests that it had posted have no effect.
memnode 7001 --lease 500 --sweep
memnode 7002 --sweep
cluster=rdma://$RDMA_ADDRESS:7001,$RDMA_ADDRESS:7002
intset --structure lazy-list --key-ub 64 --insert 50 --remove 50 --tasks 4 --num-ops 10000000 \
    --cluster $cluster >/dev/null 2>stopped.txt &
stopped=$!
sleep 3
# Only a process that is connected for longer than a lease can detect that another is silent.
farfield status $cluster --watch --format json >/dev/null &
watch=$!
sleep 1
kill -STOP $stopped
set_is_sound --structure lazy-list --threads 2 --tasks 8 --num-ops 400 --cluster $cluster
for look in 1 2 3 4 5 6 7 8 9 10; do
    farfield status $cluster --format json >status.json
    grep -q '"evictions":1' status.json && break
    sleep 1
done
grep -q '"evictions":1' status.json
# The watch sweeps the memory of the evicted process.
for look in 1 2 3 4 5 6 7 8 9 10; do
    grep -q '"uncollected":0' status.json && break
    sleep 1
    farfield status $cluster --format json >status.json
done
cat status.json
grep -q '"uncollected":0' status.json
grep -q '"swept_bytes":[1-9]' status.json
kill -9 $watch
kill -CONT $stopped
code=0
wait $stopped || code=$?
cat stopped.txt
[ $code = 2 ]
grep -q "has been evicted" stopped.txt
# The program can join again as another process.
set_is_sound --structure lazy-list --threads 2 --tasks 8 --num-ops 400 --cluster $cluster
# A killed process is evicted before its lease expires.
intset --structure lazy-list --key-ub 64 --insert 50 --remove 50 --tasks 4 --num-ops 10000000 \
    --cluster $cluster >/dev/null 2>&1 &
sleep 3
kill -9 $!
wait $! && exit 1
farfield ping $cluster --count 100
# The evictions of the stopped, the watching and the killed process.
farfield status $cluster --format json | tee status.json
grep -q '"evictions":3' status.json
