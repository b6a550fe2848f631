# A trustee, and clients in its process and in another: their requests lie in mailboxes on the memory node.
memnode 7001
cluster=rdma://$RDMA_ADDRESS:7001
for program in delegated_counter bank; do
    timeout 60 $program --variant delegated --threads 3 --tasks 4 --ops 100 --cluster $cluster >alone.txt
    grep -q "verified *true" alone.txt || { cat alone.txt; exit 1; }
    echo "sound: $program"
done
pids=
for node in 0 1; do
    timeout 60 delegated_counter --variant delegated --nodes 2 --node-id $node --threads 2 --tasks 4 --ops 100 \
        --cluster $cluster >node$node.txt &
    pids="$pids $!"
done
for pid in $pids; do wait $pid; done
cat node0.txt node1.txt >both.txt
grep -q "verified *true" both.txt || { cat both.txt; exit 1; }
echo "sound: delegated_counter of two processes"
kill -0 $memnode
