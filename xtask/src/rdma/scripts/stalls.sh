# Stalls are reported over RDMA. Tasks that contend for a few locks wait for longer than a short limit, and report the locks' owners. A client
# that connects to a stopped memory node reports what it waits for. (pair_off.sh checks the report of a lane's requests in flight.)
memnode 7001
cluster=rdma://$RDMA_ADDRESS:7001
FARFIELD_STALL=20ms timeout 50 intset --structure lazy-list --key-ub 4 --insert 50 --remove 50 --threads 2 --tasks 8 --num-ops 2000 \
    --cluster $cluster >/dev/null 2>stalls.txt
grep "the lock at" stalls.txt | head -n 3
grep -Eq "farfield: stalled: thread [01] .*, task [0-7]: has waited for .*: the lock at [01]:0x[0-9a-f]+, held by thread 0x[0-9a-f]+ of this process, which runs" stalls.txt
kill -STOP $memnode
FARFIELD_STALL=200ms timeout 20 farfield ping "$cluster?timeout=2s" >/dev/null 2>stalls.txt && exit 1
cat stalls.txt
grep -q "farfield: stalled: has waited for .*: the connection manager to make a connection, which blocks the thread" stalls.txt
kill -CONT $memnode
