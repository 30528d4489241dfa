#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a mesh costs: raw TCP, links without and with encryption, each on the plain path and through
# WireGuard (wireguard-go, or the kernel's where it has it), between two network namespaces in one
# run. CPU seconds are those of both processes of the bench, and beside them those of WireGuard's
# own processes, for each gigabyte that was sent. Needs root, wireguard-tools, wireguard-go.
# Rounds alternate between the paths; the table has medians and, in brackets, least and most.
#   bench/mesh/overhead.sh [PROGRAM] [ROUNDS [RATE]]     RATE of the cable, as tc takes it: 100mbit
set -euo pipefail
cd "$(dirname "$0")/../.."
hs=$(readlink -f "${1:-build/heteroshard}")
rounds=${2:-5} rate=${3:-}
tmp=$(mktemp -d)
tag=m_$$
mkdir -p /run/wireguard
down() {
	local i
	for i in 1 2; do
		ip netns pids "$tag-$i" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
		ip netns del "$tag-$i" 2>/dev/null || true
	done
	rm -rf "$tmp"
}
trap down EXIT
. bench/boxes.sh
for i in 1 2; do
	ip netns add "$tag-$i"
	ip -n "$tag-$i" link set lo up
done
ip link add cable netns "$tag-1" type veth peer name cable netns "$tag-2"
for i in 1 2; do
	ip -n "$tag-$i" addr add "10.92.0.$i/24" dev cable
	ip -n "$tag-$i" link set cable up
	[ -z "$rate" ] || tc -n "$tag-$i" qdisc add dev cable root tbf rate "$rate" burst 256k \
		latency 50ms
	(umask 077 && wg genkey >"$tmp/wg$i")
	in_box "$tag" $i wireguard-go "$tag$i" >/dev/null 2>&1
	ip -n "$tag-$i" addr add "10.77.0.$i/24" dev "$tag$i"
	ip -n "$tag-$i" link set "$tag$i" mtu 1420 up
	"$hs" keygen "$tmp/key$i" >"$tmp/pub$i" 2>/dev/null
done
for i in 1 2; do
	k=$((3 - i))
	wg set "$tag$i" private-key "$tmp/wg$i" listen-port 51820 peer "$(wg pubkey <"$tmp/wg$k")" \
		endpoint "10.92.0.$k:51820" allowed-ips "10.77.0.$k/32"
done
ticks() { # of WireGuard's processes, in 1/100 s
	cat /proc/*/stat 2>/dev/null |
		awk '$2 == "(wireguard-go)" { n += $14 + $15 } END { print n + 0 }'
}
sent() { # bytes that box 1 has sent into the cable
	ip -n "$tag-1" -s -j link show cable | python3 -c 'import json, sys
print(json.load(sys.stdin)[0]["stats64"]["tx"]["bytes"])'
}
# One line of JSON for each row of the bench, and one of {"path", "ping", "wg"} for each path.
for round in $(seq "$rounds"); do
	paths="plain wireguard"
	[ $((round % 2)) = 1 ] || paths="wireguard plain"
	for path in $paths; do
		net=10.92.0
		[ $path = plain ] || net=10.77.0
		ping=$(ip netns exec "$tag-1" ping -n -c 20 -i 0.05 "$net.2" |
			sed -n 's,^rtt [^=]*= [^/]*/\([^/]*\)/.*,\1,p')
		before=$(ticks) b0=$(sent)
		in_box "$tag" 2 "$hs" bench --serve "$net.2:9990" --peer "$(cat "$tmp/pub1")" \
			--key-file "$tmp/key2" --plain >/dev/null &
		serving=$!
		sleep 1
		in_box "$tag" 1 "$hs" bench --to "$net.2:9990" --peer "$(cat "$tmp/pub2")" \
			--key-file "$tmp/key1" --plain --json |
			sed "s/^{/{\"path\": \"$path\", /" >>"$tmp/rows"
		wait $serving
		python3 -c "
s, gb = ($(ticks) - $before) / 100, ($(sent) - $b0) / 1e9
print('{\"path\": \"$path\", \"ping\": %s, \"wg\": %.3f}' % ('$ping', s / gb))" >>"$tmp/rows"
		echo "round $round: $path" >&2
	done
done
python3 bench/mesh/table.py "$tmp/rows"
