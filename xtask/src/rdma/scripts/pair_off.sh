# The memory node's machine loses power without a message to the client, which must detect it by its timeout.
code=0
began=$(date +%s)
(sleep 3; request off server) &
FARFIELD_STALL=500ms timeout 40 intset --structure lazy-list --threads 2 --tasks 4 --num-ops 10000000 \
    --cluster "rdma://10.0.0.1:7001?timeout=3s" >/dev/null 2>error.txt || code=$?
took=$(($(date +%s) - began))
cat error.txt
[ $code = 2 ]
grep -q "memory node 0 did not answer within 3000000 us" error.txt
[ $took -le 15 ]
# Long before its timeout the client reports what it waits for: an operation, and the lane's requests in flight.
grep -q "farfield: stalled: thread [01] .* in flight; the lane to memory node 0" error.txt
grep -q "farfield: stalled: .* in flight; the lane to memory node 0, whose queue pair is .*, without a completion for" error.txt
grep -q "requests posted in all, [0-9]* of them in flight; .* credits in use: [0-9]* of [0-9]* requests" error.txt
refuses "10.0.0.1:7001: " farfield ping "rdma://10.0.0.1:7001?timeout=2s"
