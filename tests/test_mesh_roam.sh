#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A job over a mesh of five machines (two homes behind different routers, a rented machine with both
# families, one with IPv6 only), while a router forgets its mapping. With TEST_LONG 240 steps in
# place of 40, a machine moves to another network, the rented one gets other addresses (the homes
# know it by name, the one with IPv6 by a number), the longest time between two steps is held
# against peer_timeout + 10 s, and in a second job the hub dies. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
. tests/support/wan.sh
wan_begin
steps=40
[ -z "${TEST_LONG:-}" ] || steps=240
patience=20 # peer_timeout
net_job "$tmp/c"
{
	sed "s/^max_steps: .*/max_steps: $steps/" "$tmp/c/job.yaml"
	echo "reduce_order: exact"
} >"$tmp/c/alone.yaml"

# ---- the machines: c home1, h rented, b home2, s six, a laptop ----
declare -A id=([c]=home1 [h]=rented [b]=home2 [s]=six [a]=laptop)
for x in c h b s a; do
	(umask 077 && wg genkey >"$tmp/$x/etc/heteroshard.key")
	wg[0]=$(wg pubkey <"$tmp/$x/etc/heteroshard.key")
	declare "wg_$x=${wg[0]}" "key_$x=$(on $x "$hs" keygen 2>/dev/null)"
done
# shellcheck disable=SC2154 # the keys are declared above
cat "$tmp/c/alone.yaml" - >"$tmp/c/cluster.yaml" <<END
peer_timeout: $patience
rejoin_timeout: 4
mesh: {range: [10.77.0.0/24, fd77::/64]}
coordinator: {hostname: home1, ip: 10.77.0.1, device: none, mesh_ip: 10.77.0.1,
              family: ipv4, public_key: '$key_c', wg_public_key: '$wg_c'}
workers:
  - {id: rented, ip: 10.77.0.2, public_key: '$key_h', wg_public_key: '$wg_h', mesh_ip: 10.77.0.2,
     endpoint: ['2001:db8:1::10', rented.example.org], device: cpu, threads: 1}
  - {id: home2, ip: 10.77.0.3, public_key: '$key_b', wg_public_key: '$wg_b', mesh_ip: 10.77.0.3,
     family: ipv4, device: cpu, threads: 1}
  - {id: six, ip: 10.77.0.4, public_key: '$key_s', wg_public_key: '$wg_s', mesh_ip: 10.77.0.4,
     endpoint: '2001:db8:1::20', family: ipv6, device: cpu, threads: 1}
  - {id: laptop, ip: 10.77.0.5, public_key: '$key_a', wg_public_key: '$wg_a', mesh_ip: 10.77.0.5,
     family: ipv4, device: cpu, threads: 1}
shard_plan:
  - {id: [home2, laptop], share: [1, 1], start: 0, end: 1}
  - {id: rented, start: 1, end: 2}
  - {id: six, start: 2, end: 3}
END
wan_names 198.51.100.10 c b a
on c "$hs" mesh cluster.yaml >"$tmp/out" 2>"$tmp/err"
check "files for five machines"
for x in h c b s a; do # the hub first: a handshake that is not answered is repeated after 5 s
	cp "$tmp/c/mesh/${id[$x]}.conf" "$tmp/$x/etc/hsmesh.conf"
	cat "$tmp/c/mesh/hosts" >>"$tmp/$x/hosts"
	[ $x = c ] || cp "$tmp/c/cluster.yaml" "$tmp/$x/"
	chmod 600 "$tmp/$x/etc/hsmesh.conf"
	on $x env WG_QUICK_USERSPACE_IMPLEMENTATION=wireguard-go wg-quick up hsmesh \
		>"$tmp/out" 2>"$tmp/err" || echo "# ${id[$x]}: wg-quick"
done
until_ok 20 reaches c six.mesh && until_ok 20 reaches a home2.mesh &&
	until_ok 20 reaches s laptop.mesh && until_ok 20 reaches s fd77::5
check "wg-quick brings them up; homes and the machine with IPv6 only reach each other"

# job FOLDER PEER_TIMEOUT: begins a job of all of them in $tmp/c/FOLDER, process $job
job() {
	local x
	for x in h b s a; do
		begin "$tmp/$x/log" $x "$hs" worker --worker "${id[$x]}" cluster.yaml \
			peer_timeout="$2"
	done
	begin "$tmp/job" c "$hs" train cluster.yaml output_dir="$1" peer_timeout="$2"
	job=$!
	until_ok 60 reached "$1" 5 || sed 's/^/# /' "$tmp/job.err"
}
endpoint() { # MACHINE PEER: where WireGuard sends what is for this peer
	on "$1" wg show hsmesh endpoints | awk -v k="$2" '$1 == k { print $2 }'
}

on c "$hs" train alone.yaml output_dir=alone >"$tmp/out" 2>"$tmp/err"
check "one process"

# ---- a router forgets, a machine moves ----
job moved $patience
watch moved "$tmp/gap.moved"
until_ok 60 reached moved $((steps / 6))
# shellcheck disable=SC2154
was=$(endpoint h "$wg_b")
# a link that goes down takes the router's translations along
ip -n "$net-q" link set eth0 down
ip -n "$net-q" link set eth0 up
# shellcheck disable=SC2317 # called by until_ok
other_endpoint() { [ "$(endpoint h "$wg_b")" != "$was" ]; }
until_ok 40 other_endpoint
check "the router of home2 forgets its mapping: another one within the job"
if [ -n "${TEST_LONG:-}" ]; then
	until_ok 90 reached moved $((steps / 2))
	# shellcheck disable=SC2154
	was=$(endpoint h "$wg_a")
	# the laptop goes from the first home to the second one
	ip -n "$net-a" link del eth0
	wan_home a q 9
	# shellcheck disable=SC2317
	moved() { endpoint h "$wg_a" | grep -q '^198.51.100.2:'; }
	until_ok 40 moved
	check "the laptop moves to the other home: its peers hear of the new address"
	until_ok 90 reached moved $((steps * 3 / 4))
	ip -n "$net-h" addr del 198.51.100.10/24 dev eth0
	ip -n "$net-h" addr add 198.51.100.11/24 dev eth0
	ip -n "$net-h" addr del 2001:db8:1::10/64 dev eth0
	ip -n "$net-h" addr add 2001:db8:1::11/64 dev eth0 nodad
	wan_names 198.51.100.11 c b a
	# shellcheck disable=SC2317,SC2154
	found() { [ "$(endpoint "$1" "$wg_h")" = "${2:-198.51.100.11}:51820" ]; }
	! reached moved $steps && until_ok 40 found c && until_ok 40 found b && until_ok 40 found a
	check "the rented machine gets other addresses: the homes ask for its name again"
	grep -q '^Endpoint = \[2001:db8:1::10\]:51820$' "$tmp/s/etc/hsmesh.conf" &&
		until_ok 40 found s '[2001:db8:1::11]'
	check "a machine with an endpoint of its own hears of the new number from WireGuard"
fi
wait $job
rc=$?
wait $watcher
cp "$tmp/job.err" "$tmp/err"
: >"$tmp/out"
[ $rc -eq 0 ] && [ "$(losses moved)" = "$(losses alone)" ] && [ "$(losses moved | wc -l)" = $steps ]
check "the job goes on, with the losses of one process, bit for bit"
read -r longest _ <"$tmp/gap.moved"
echo "# $steps steps; the longest time between two steps was $longest s (peer_timeout $patience s)"
if [ -n "${TEST_LONG:-}" ]; then
	awk -v g="$longest" -v p=$patience 'BEGIN { exit !(g < p + 10) }'
	check "the longest time between two steps is below peer_timeout + 10 s"
fi

# ---- the hub dies ----
if [ -z "${TEST_LONG:-}" ]; then
	echo "1..$n"
	exit $failed
fi
for x in h b s a; do
	ip netns pids "$net-$x" | while read -r p; do
		grep -qs wireguard "/proc/$p/comm" || kill -9 "$p"
	done
done
job lost 6
watch lost "$tmp/gap.lost"
ip netns pids "$net-h" | xargs -r kill -9
wait $job 2>/dev/null
rc=$?
wait $watcher
cp "$tmp/job.err" "$tmp/err"
[ $rc -eq 1 ] && [ "$(grep -c '^error: ' "$tmp/err")" = 1 ] &&
	grep -q "^warning: .*'rented' is gone" "$tmp/err"
check "without its hub the job waits for rejoin_timeout and ends, and says who is gone"
read -r _ end <"$tmp/gap.lost"
echo "# $end s from the last step to the end: $(grep '^error' "$tmp/err")"
echo "1..$n"
exit $failed
