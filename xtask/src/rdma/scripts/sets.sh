# A memory node and a compute node, two processes: every structure, with one and two threads, one and eight tasks. The timeout allows for a
# busy machine: the connection manager resends a lost message after four seconds.
memnode 7001
for structure in lazy-list lazy-list-naive harris-list hash-set; do
    for threads in 1 2; do
        for tasks in 1 8; do
            set_is_sound --structure $structure --threads $threads --tasks $tasks --num-ops 400 \
                --cluster "rdma://$RDMA_ADDRESS:7001?timeout=10s"
        done
    done
done
