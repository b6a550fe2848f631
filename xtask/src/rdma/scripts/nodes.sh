# Several memory nodes, a secret, and each policy for sharing queue pairs.
echo "open sesame" >secret
chmod 600 secret
memnode 7001 --secret-file secret
memnode 7002 --secret-file secret
memnode 7003 --secret-file secret
nodes=rdma://$RDMA_ADDRESS:7001,$RDMA_ADDRESS:7002,$RDMA_ADDRESS:7003
for structure in lazy-list harris-list hash-set; do
    set_is_sound --structure $structure --threads 2 --tasks 4 --num-ops 400 --cluster "$nodes?secret-file=secret"
done
for policy in one-to-one mod rr rand; do
    set_is_sound --structure hash-set --threads 3 --tasks 4 --num-ops 400 \
        --cluster "$nodes?secret-file=secret,lane-policy=$policy"
done
set_is_sound --structure lazy-list --threads 3 --tasks 4 --num-ops 400 \
    --cluster "$nodes?secret-file=secret,lanes=1"
FARFIELD_SECRET_FILE=secret farfield ping "$nodes" --count 20
