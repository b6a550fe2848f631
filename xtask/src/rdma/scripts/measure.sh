# Measures times and rates in one boot; the host parses a line for each. Measurements that are compared are adjacent.
export FARFIELD_STALL=0
memnode 7001
cluster=rdma://$RDMA_ADDRESS:7001
figure() {
    echo "@ $*"
}
for round in 1 2 3; do
    figure raw "$(raw_verbs "$RDMA_ADDRESS" 1000)"
    figure ping "$(farfield ping $cluster --count 1000 --rate 16 --format json)"
    perftest ib_read_bw -s 64 -n 20000 >table.txt
    figure bandwidth "$(grep '^ *64 ' table.txt)"
    perftest ib_read_lat -s 8 -n 1000 >table.txt
    figure read_lat "$(grep '^ *8 ' table.txt)"
    perftest ib_atomic_lat -n 1000 >table.txt
    figure atomic_lat "$(grep '^ *8 ' table.txt)"
done
set_figure() {
    share=$1
    threads=$2
    tasks=$3
    figure set "$share/$share" "$threads" "$tasks" "$(intset --structure lazy-list --key-ub 256 --prefill 50 \
        --threads "$threads" --tasks "$tasks" --num-ops $((400 + 100 * tasks)) --insert "$share" --remove "$share" \
        --cluster $cluster --format json)"
}
for round in 1 2 3; do
    for share in 0 10 50; do
        for tasks in 1 16; do
            figure raw "$(raw_verbs "$RDMA_ADDRESS" 500)"
            set_figure $share 1 $tasks
        done
    done
    for tasks in 1 16; do
        figure raw "$(raw_verbs "$RDMA_ADDRESS" 500)"
        set_figure 10 2 $tasks
    done
    figure raw "$(raw_verbs "$RDMA_ADDRESS" 500)"
done
