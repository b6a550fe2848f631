# Measures the maps in one boot; the host parses a line for each measurement.
export FARFIELD_STALL=0
memnode 7001
map_verbs "rdma://$RDMA_ADDRESS:7001" "$RDMA_ADDRESS" >maps.txt
sed 's/^/@ /' maps.txt
