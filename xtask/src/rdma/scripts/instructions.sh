# Counts instructions: callgrind counts those of the library and of the loop of raw_verbs between the marks of each. A program under callgrind is
# so slow that the device has completed a request before its poll, so no count contains the time of the device. With a long lease the thread sends no
# heartbeats meanwhile.
export FARFIELD_STALL=0 VALGRIND_LIB=/usr/libexec/valgrind
memnode 7001 --lease 600000
# A multiple of the tasks.
count=480
instructions() {
    name=$1
    shift
    valgrind.bin --tool=callgrind --callgrind-out-file="$name" --zero-before='*::count_begins' --dump-before='*::count_ends' "$@" \
        >log.txt 2>&1 || { cat log.txt; return 1; }
    part=1
    totals=
    while [ -e "$name.$part" ]; do
        if grep -q '^desc: Trigger: --dump-before' "$name.$part"; then
            totals="$totals $(sed -n 's/^totals: //p' "$name.$part")"
        fi
        part=$((part + 1))
    done
    echo "@ $name $count$totals"
}
instructions raw_instructions raw_verbs "$RDMA_ADDRESS" $count --counted
instructions instructions counted_verbs "rdma://$RDMA_ADDRESS:7001?timeout=20s" $count
