# A memory node for the machine at the other end of the wire.
memnode 7001
cat "$log"
wait $memnode
