# A memory node ends, by SIGKILL or SIGTERM. Its clients fail within their timeout.
for signal in KILL TERM; do
    memnode 7001
    code=0
    began=$(date +%s)
    (sleep 2; kill -$signal $memnode) &
    timeout 20 intset --structure lazy-list --threads 2 --tasks 4 --num-ops 10000000 \
        --cluster "rdma://$RDMA_ADDRESS:7001?timeout=1s" >/dev/null 2>error.txt || code=$?
    took=$(($(date +%s) - began))
    cat error.txt
    [ $code = 2 ]
    grep -q "memory node 0 did not answer within 1000000 us" error.txt
    [ $took -le 8 ]
    wait $memnode || [ $signal = KILL ]
done
# A new memory node at the same address serves new programs.
memnode 7001
set_is_sound --structure lazy-list --num-ops 400 --cluster rdma://$RDMA_ADDRESS:7001
