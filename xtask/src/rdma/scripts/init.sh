#!/bin/busybox sh
# The first process of a guest. The kernel hands it, as variables from its command line: FARFIELD_MARK, the word of this
# run's marks (xtask/src/rdma/console.rs lists them); FARFIELD_GUEST, whose folder below /plan says what to do;
# FARFIELD_ADDRESS; and FARFIELD_WIRE, which is 1 if there is a wire to another guest.
export PATH=/usr/bin:/bin HOME=/tmp
/bin/busybox --install -s /bin
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
mkdir -p /dev/shm
mount -t tmpfs none /dev/shm
mount -t tmpfs none /tmp
exec </dev/null >/dev/console 2>&1
cd /tmp || exit

mark() {
    echo "@@$FARFIELD_MARK $*"
}

end() {
    mark "$@"
    poweroff -f
    # The last process must not end before the machine does.
    sleep 60
}

give_up() {
    dmesg | tail -n 20
    end broken "$*"
}

# Hundredths of a second since the start.
now() {
    read -r up _ </proc/uptime
    echo "${up%.*}${up#*.}"
}

while read -r module; do
    insmod "/modules/$module.ko" || give_up "the kernel does not take the module $module"
done </modules/order

netdev=eth0
if [ "$FARFIELD_WIRE" != 1 ]; then
    netdev=d0
    ip link add d0 type dummy || give_up "no dummy network device"
fi
ip link set lo up
ip address add "$FARFIELD_ADDRESS/24" dev $netdev || give_up "no address for $netdev"
ip link set $netdev up || give_up "$netdev does not come up"
rdma link add rxe0 type rxe netdev $netdev || give_up "no RDMA device on $netdev"

# Only an address of IPv4 gives a global identifier of this form, and which has it depends on what came before.
index=
for try in 1 2 3 4 5 6 7 8 9 10; do
    for file in /sys/class/infiniband/rxe0/ports/1/gids/*; do
        case $(cat "$file" 2>/dev/null) in
        0000:0000:0000:0000:0000:ffff:*) index=${file##*/} ;;
        esac
    done
    [ -n "$index" ] && break
    sleep 0.5
done
[ -n "$index" ] || give_up "rxe0 has no global identifier for $FARFIELD_ADDRESS"
export RDMA_DEVICE=rxe0 RDMA_GID_INDEX=$index RDMA_ADDRESS=$FARFIELD_ADDRESS
# A test that does not find the device fails.
export FARFIELD_REQUIRE=rdma

# What waits for too long says so, before a test's limit ends it.
export FARFIELD_STALL=5s

# Messages of the kernel would fall into what the programs print; a test that fails shows the last ones.
dmesg -n 1
mark ready
plan=/plan/$FARFIELD_GUEST

if [ -f "$plan/service" ]; then
    sh -e "$plan/service"
    echo "the service ended with exit code $?"
    while :; do sleep 3600; done
fi

test=0
while [ -f "$plan/$test" ]; do
    mark begin $test
    start=$(now)
    timeout -s KILL "$(cat "$plan/$test.limit")" sh -e "$plan/$test"
    code=$?
    spent=$(($(now) - start))
    # Whatever the test has left running; it does not reach the first process.
    kill -9 -1 2>/dev/null
    if [ $code != 0 ]; then
        echo "the kernel's last messages:"
        dmesg | tail -n 10
    fi
    mark end $test $code ${spent}0
    test=$((test + 1))
done
end done
