# A memory node in one machine and a compute node in the other.
tries=0
until farfield ping rdma://10.0.0.1:7001 --count 100 >ping.txt 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 30 ] || { cat ping.txt; exit 1; }
    sleep 1
done
cat ping.txt
for structure in lazy-list harris-list hash-set; do
    for threads in 1 2; do
        for tasks in 1 8; do
            set_is_sound --structure $structure --threads $threads --tasks $tasks --num-ops 400 \
                --cluster "rdma://10.0.0.1:7001?timeout=10s"
        done
    done
done
