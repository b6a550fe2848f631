# Two memory nodes in one machine and a compute node in the other, over TCP. Each machine delays its packets by 10 ms, and loses one in a hundred.
slow_tcp
echo "open sesame" >secret
chmod 600 secret
cluster="tcp://10.0.0.1:7002,10.0.0.1:7003?secret-file=secret,timeout=20s"
farfield ping "$cluster" --count 20 | tee ping.txt
# The shortest round trip takes more than 20 ms.
awk '$1 == "read" && $2 < 20000 { exit 1 }' ping.txt
for structure in lazy-list lazy-list-naive harris-list hash-set; do
    for tasks in 1 8; do
        intset --structure $structure --threads 2 --tasks $tasks --num-ops $((8 + 4 * tasks)) --key-ub 15 --insert 20 --remove 20 \
            --cluster "$cluster" >set.txt
        grep -q "verified *true" set.txt || { cat set.txt; exit 1; }
        echo "sound: $structure with $tasks task(s), after $(cut -d ' ' -f 1 /proc/uptime) s"
    done
done
# Packets were lost.
/usr/bin/tc -s qdisc show dev eth0 | tee netem.txt
grep -A 1 netem netem.txt | grep -q 'dropped [1-9]'
