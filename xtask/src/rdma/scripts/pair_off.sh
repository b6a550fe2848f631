# The memory node's machine loses its power: nobody tells the client, who must find out by itself.
code=0
began=$(date +%s)
(sleep 3; tell off server) &
timeout 40 intset --structure lazy-list --threads 2 --tasks 4 --num-ops 10000000 \
    --cluster "rdma://10.0.0.1:7001?timeout=3s" >/dev/null 2>error.txt || code=$?
took=$(($(date +%s) - began))
cat error.txt
[ $code = 2 ]
grep -q "memory node 0 did not answer within 3000000 us" error.txt
[ $took -le 15 ]
refuses "10.0.0.1:7001: " farfield ping "rdma://10.0.0.1:7001?timeout=2s"
