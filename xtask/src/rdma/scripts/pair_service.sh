# Memory nodes for the machine at the other end of the wire, over TCP and over RDMA.
slow_tcp
echo "open sesame" >secret
chmod 600 secret
for port in 7002 7003; do
    farfield memnode --listen "tcp://10.0.0.1:$port" --segments 2 --segment-size 16MiB --secret-file secret &
done
memnode 7001
cat "$log"
wait $memnode
