#!/bin/busybox sh
# The first process of a guest. The kernel hands it, as variables from its command line: FARFIELD_MARK, the word of this
# run's marks (xtask/src/rdma/console.rs lists them); FARFIELD_GUEST, the name of the folder below /plan with its
# tests or service; FARFIELD_ADDRESS; and FARFIELD_WIRE, which is 1 if there is a wire to another guest.
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
    # The kernel panics if its first process ends.
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
    insmod "/modules/$module.ko" || give_up "the kernel can not load the module $module"
done </modules/order

netdev=eth0
if [ "$FARFIELD_WIRE" != 1 ]; then
    netdev=d0
    ip link add d0 type dummy || give_up "no dummy network device"
fi
ip link set lo up
ip address add "$FARFIELD_ADDRESS/24" dev $netdev || give_up "no address for $netdev"
ip link set $netdev up || give_up "can not activate $netdev"
rdma link add rxe0 type rxe netdev $netdev || give_up "no RDMA device on $netdev"

# The global identifier of the IPv4 address has this form. Its index depends on the order in which addresses were added.
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

# Long waits are reported before a test reaches its limit.
export FARFIELD_STALL=5s

# Messages of the kernel would mix with the programs' output. A failing test prints the last ones.
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
    # Kills all processes that the test has left running. The kernel exempts the first process.
    kill -9 -1 2>/dev/null
    if [ $code != 0 ]; then
        echo "the kernel's last messages:"
        dmesg | tail -n 10
    fi
    mark end $test $code ${spent}0
    test=$((test + 1))
done
end done
