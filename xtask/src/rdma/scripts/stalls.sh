# What stalls says so. A process is stopped that holds locks: who waits for them says who holds them, and that it is alive. A memory node
# is stopped: who wants to connect says what it waits for.
memnode 7001
first=$memnode
cluster=rdma://$RDMA_ADDRESS:7001
intset --structure lazy-list --key-ub 4 --insert 50 --remove 50 --threads 2 --tasks 8 --num-ops 10000000 \
    --cluster $cluster >/dev/null 2>&1 &
stopped=$!
sleep 3
kill -STOP $stopped
FARFIELD_STALL=200ms intset --structure lazy-list --key-ub 4 --insert 50 --remove 50 --threads 2 --tasks 8 --num-ops 10000000 \
    --cluster $cluster >/dev/null 2>stalls.txt &
waits=$!
for look in 1 2 3 4 5 6 7 8 9 10; do
    sleep 1
    if grep -q "farfield: stalled: thread [01] .* task [0-7]: has waited for .*: the lock at .* held by thread 0x.* of process .* which is alive" stalls.txt; then
        break
    fi
done
cat stalls.txt
grep -q "farfield: stalled: thread [01] .* task [0-7]: has waited for .*: the lock at .* held by thread 0x.* of process .* which is alive" stalls.txt
kill -9 $waits
kill -9 $stopped
memnode 7002
kill -STOP $memnode
FARFIELD_STALL=200ms timeout 20 farfield ping "rdma://$RDMA_ADDRESS:7002?timeout=2s" >/dev/null 2>stalls.txt && exit 1
cat stalls.txt
grep -q "farfield: stalled: has waited for .*: the connection manager to make a connection, which blocks the thread" stalls.txt
kill -CONT $memnode
kill -0 $first
