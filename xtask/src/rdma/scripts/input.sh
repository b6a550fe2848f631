# Invalid input is an error of one line that names it, with exit code 2.
cluster=rdma://$RDMA_ADDRESS:7001
refuses "$RDMA_ADDRESS:7001: no memory node listens there" farfield ping $cluster
refuses "10.9.9.9:7001: " farfield ping "rdma://10.9.9.9:7001?timeout=1s"
refuses "10.0.0.77:7001: " farfield ping "rdma://10.0.0.77:7001?timeout=1s"
refuses "listening address is 10.0.0.77:7001: no RDMA device" farfield memnode --listen rdma://10.0.0.77:7001
refuses "no-such-host:7001: " farfield ping rdma://no-such-host:7001
refuses "\`x\` is not HOST:PORT" farfield ping rdma://x
refuses "unknown option \`colour\`" farfield ping "$cluster?colour=red"
refuses "lane-policy=all is none of" farfield ping "$cluster?lane-policy=all"
refuses "secret file is nowhere: there is no such file" farfield memnode --listen rdma://$RDMA_ADDRESS:7001 --secret-file nowhere
echo "open sesame" >secret
chmod 644 secret
refuses "chmod 600" farfield memnode --listen rdma://$RDMA_ADDRESS:7001 --secret-file secret
refuses "chmod 600" farfield ping "$cluster?secret-file=secret"
chmod 600 secret
echo "open barley" >other
chmod 600 other
memnode 7001 --secret-file secret
refuses "listening address is $RDMA_ADDRESS:7001: another program listens there already" farfield memnode --listen rdma://$RDMA_ADDRESS:7001
refuses "does not know the cluster's secret" farfield ping "$cluster"
refuses "does not know the cluster's secret" farfield ping "$cluster?secret-file=other"
refuses "number of segments is 1 times 0" farfield memnode --listen rdma://$RDMA_ADDRESS:7002 --segments 0
refuses "segment size is 64" farfield memnode --listen rdma://$RDMA_ADDRESS:7002 --segment-size 64
# A client with another protocol does not disturb the memory node.
timeout 10 ib_read_lat -R -p 7001 $PERFTEST "$RDMA_ADDRESS" >/dev/null 2>&1 && exit 1
farfield ping "$cluster?secret-file=secret" --count 20 >/dev/null
# A user with fewer permissions.
echo "nobody:x:65534:65534:nobody:/tmp:/bin/sh" >>/etc/passwd
chmod 600 /dev/infiniband/*
refuses "no permission for /dev/infiniband" su nobody -s /bin/sh -c "farfield devices"
chmod 666 /dev/infiniband/*
refuses "RLIMIT_MEMLOCK, 1048576 bytes" su nobody -s /bin/sh -c "ulimit -l 1024; farfield memnode --listen rdma://$RDMA_ADDRESS:7003 --segment-size 16MiB"
# The device is removed while a memory node uses it. Afterwards the machine has no device.
rdma link delete rxe0
code=0
wait $memnode || code=$?
[ $code = 2 ]
grep "the RDMA device rxe0 was removed" "$log"
refuses "this machine has no RDMA device" farfield devices
refuses "this machine has no RDMA device" farfield memnode --listen rdma://$RDMA_ADDRESS:7001
refuses "this machine has no RDMA device" farfield ping $cluster
