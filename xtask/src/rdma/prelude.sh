# Identifier, device; with -F perftest does not complain of a processor whose clock it cannot tell.
PERFTEST="-d $RDMA_DEVICE -x $RDMA_GID_INDEX -F"

await_port() {
    tries=0
    # 4853 is perftest's port, 18515; 0A is the state of a socket that listens.
    until cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q ':4853 [0:]* 0A'; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || { echo "nobody listens on port 18515"; return 1; }
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
        echo "the server said:"
        cat "$log"
        rm "$log"
        kill $server 2>/dev/null
        return 1
    fi
}

perftest_client() {
    program=$1
    shift
    log=$(mktemp)
    tries=0
    # A server that does not listen yet; any other error is final.
    while ! $program $PERFTEST "$@" >"$log" 2>&1; do
        tries=$((tries + 1))
cat $log
        if [ $tries -ge 50 ] || ! grep -q "Couldn't connect" "$log"; then
            cat "$log"
            return 1
        fi
        sleep 0.2
    done
    cat "$log"
}

tell() {
    echo "@@$FARFIELD_MARK tell $*"
}
