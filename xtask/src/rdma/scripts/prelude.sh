# Device and global identifier. With -F perftest accepts a processor of unknown clock frequency.
PERFTEST="-d $RDMA_DEVICE -x $RDMA_GID_INDEX -F"

await_port() {
    tries=0
    # 4853 is perftest's port, 18515; 0A is the state of a socket that listens.
    until cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q ':4853 [0:]* 0A'; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || { echo "no process listens on port 18515"; return 1; }
        sleep 0.1
    done
}

perftest() {
    program=$1
    shift
    log=$(mktemp)
    $program $PERFTEST "$@" >"$log" 2>&1 &
    server=$!
    if await_port && $program $PERFTEST "$@" "$RDMA_ADDRESS" && wait $server; then
        rm "$log"
    else
        echo "output of the server:"
        cat "$log"
        rm "$log"
        kill $server 2>/dev/null
        return 1
    fi
}

# Starts a memory node on this port, and waits until it listens. Its process id is in $memnode.
memnode() {
    port=$1
    shift
    log=$(mktemp)
    farfield memnode --listen "rdma://$RDMA_ADDRESS:$port" --segments 2 --segment-size 16MiB "$@" >"$log" 2>&1 &
    memnode=$!
    tries=0
    until grep -q "^memory node on" "$log"; do
        tries=$((tries + 1))
        if [ $tries -ge 100 ] || ! kill -0 $memnode 2>/dev/null; then
            cat "$log"
            return 1
        fi
        sleep 0.1
    done
}

# Delays the TCP packets that this machine sends on its wire by 10 ms, and loses one in a hundred. Other packets pass as before: they are in the
# first three bands, whatever their priority. The shell has a `tc` of its own, without these.
slow_tcp() {
    /usr/bin/tc qdisc add dev eth0 root handle 1: prio bands 4
    /usr/bin/tc qdisc add dev eth0 parent 1:4 handle 40: netem delay 10ms loss 1%
    /usr/bin/tc filter add dev eth0 parent 1: protocol ip u32 match ip protocol 6 0xff flowid 1:4
}

# Runs operations on a set. The program must report that the set is verified.
set_is_sound() {
    intset --key-ub 64 --prefill 50 --insert 20 --remove 20 "$@" >set.txt
    grep -q "verified *true" set.txt || { cat set.txt; return 1; }
    echo "sound: $*"
}

# A command must end with exit code 2 and this text in its only line on stderr, within ten seconds.
refuses() {
    text=$1
    shift
    code=0
    timeout 10 "$@" >/dev/null 2>refusal.txt || code=$?
    if [ $code != 2 ] || [ "$(wc -l <refusal.txt)" != 1 ] || ! grep -qF "$text" refusal.txt; then
        echo "exit code $code where \"$text\" was expected of: $*"
        cat refusal.txt
        return 1
    fi
    echo "refused: $(cat refusal.txt)"
}

request() {
    echo "@@$FARFIELD_MARK request $*"
}
