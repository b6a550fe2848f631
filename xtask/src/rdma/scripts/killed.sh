# A compute process is killed while it holds locks. The memory node continues to serve other processes, which find the structures intact and
# take over the locks.
memnode 7001
cluster=rdma://$RDMA_ADDRESS:7001
for round in 1 2 3; do
    intset --structure lazy-list --key-ub 64 --insert 50 --remove 50 --tasks 8 --num-ops 10000000 \
        --cluster $cluster >/dev/null 2>&1 &
    sleep 1.$round
    kill -9 $!
    wait $! && exit 1
    set_is_sound --structure lazy-list --threads 2 --tasks 8 --num-ops 400 --cluster $cluster
    set_is_sound --structure harris-list --threads 2 --tasks 8 --num-ops 400 --cluster $cluster
done
kill -0 $memnode
