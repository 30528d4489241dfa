#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The hub of a mesh loses power in the middle of a job and comes back: the machine in the
# coordinator's home goes on, the others take part again. For `make test-long`. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
. tests/support/wan.sh
wan_begin
ssh_user
wan_ssh h 198.51.100.10 198.51.100.10
wan_ssh b 192.168.1.2 198.51.100.2
wan_ssh a 192.168.1.3 192.168.1.3
patience=20 # peer_timeout
net_job "$tmp/c"
{
	sed 's/^max_steps: .*/max_steps: 12000/; s/^visualize: .*/&\nsave_steps: 50/' \
		"$tmp/c/job.yaml"
	echo "reduce_order: exact"
} >"$tmp/c/alone.yaml"
cat "$tmp/c/alone.yaml" - >"$tmp/c/cluster.yaml" <<END
peer_timeout: $patience
min_workers: 1
coordinator: {hostname: home1, device: none}
workers:
  - {id: rented, ssh: root@198.51.100.10, device: cpu, threads: 1, endpoint: 198.51.100.10}
  - {id: home2, ssh: root@198.51.100.2, device: cpu, threads: 1}
  - {id: laptop, ssh: root@192.168.1.3, device: cpu, threads: 1}
mesh: {range: 10.77.0.0/24}
shard_plan:
  - {id: home2, start: 0, end: 1}
  - {id: rented, start: 1, end: 2}
  - {id: laptop, start: 2, end: 3}
END
at() { grep -cs '"loss"' "$tmp/c/run/metrics.jsonl"; }
says() { grep -q "$1" "$tmp/job.err"; }

on c "$hs" train alone.yaml output_dir=alone >"$tmp/out" 2>"$tmp/err"
check "one process"
run mesh cluster.yaml --apply && until_ok 20 reaches b home1.mesh
check "a mesh with a hub"
run up cluster.yaml && [ "$(grep -c ': started' "$tmp/out")" = 3 ]
check "up"
begin "$tmp/job" c timeout --foreground 200 "$hs" train cluster.yaml
job=$!
watch run "$tmp/gap"
until_ok 60 reached run 60
check "the job runs"
ip netns pids "$net-h" | xargs -r kill -9 # and so is its WireGuard
until_ok 60 says "'rented' is gone" && until_ok 60 says "'home2' is gone"
check "the hub dies: it and who is behind it are gone"
k=$(at)
until_ok 60 reached run $((k + 60))
check "the machine in the coordinator's home goes on"
on h env WG_QUICK_USERSPACE_IMPLEMENTATION=wireguard-go wg-quick up hsmesh >"$tmp/out" \
	2>"$tmp/err" && until_ok 30 reaches b home1.mesh
check "the hub comes back"
wan_ssh h 198.51.100.10 198.51.100.10
run up cluster.yaml && grep -q '^rented: started' "$tmp/out"
check "up starts its worker again, beside the job"
until_ok 40 says "'rented' is back" && until_ok 40 says "'home2' is back"
check "both take part again"
k=$(at)
until_ok 60 reached run $((k + 60))
check "and the job goes on"
kill -INT $job
wait $job
rc=$?
wait $watcher
read -r longest _ <"$tmp/gap"
cp "$tmp/job.err" "$tmp/err"
: >"$tmp/out"
k=$(losses run | wc -l)
[ "$k" -gt 200 ] && [ "$(losses run)" = "$(losses alone | head -n "$k")" ]
check "with the losses of one process, bit for bit"
echo "# $k steps, status $rc; the longest time without one was $longest s (peer_timeout \
$patience s)"
awk -v g="$longest" -v p=$patience 'BEGIN { exit !(g < p + 10) }'
check "the longest time between two steps is below peer_timeout + 10 s"
run down cluster.yaml
grep -v ' loss ' "$tmp/job.err" | sed 's/^/# /' | head -n 60
echo "1..$n"
exit $failed
