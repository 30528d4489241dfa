#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# encrypt: mesh: a link between two machines of a mesh leaves its encryption to WireGuard, where the
# file of both machines says so, and an attacker on the network between them gains nothing by it.
# Two network namespaces, wireguard-go, and a third that carries the cable and attacks. Without
# TEST_LONG only the first, the second and the last of them. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
. tests/support/net.sh
packets=$PWD/tests/support/packets.py
long=${TEST_LONG:-}
if ! net_possible || ! [ -c /dev/net/tun ] || ! command -v wg wireguard-go >/dev/null; then
	echo "1..1"
	echo "ok 1 # SKIP this needs root, iproute2 and wireguard-go"
	exit 0
fi
down() {
	local x
	for x in a b x; do
		ip netns pids "$net-$x" 2>/dev/null | xargs -r kill -9 2>/dev/null
		ip netns del "$net-$x" 2>/dev/null
	done
	rm -rf "$tmp"
}
trap down EXIT
# they stay: without them what is mounted there in another test would be gone
mkdir -p /etc/heteroshard /run/wireguard
for x in a b x; do
	mkdir -m 755 "$tmp/$x" "$tmp/$x/inside"
	mkdir -m 700 "$tmp/$x/run" "$tmp/$x/wg"
	ip netns add "$net-$x"
	ip -n "$net-$x" link set lo up
	ip netns exec "$net-$x" sh -c 'echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
		echo 0 >/proc/sys/net/ipv4/conf/default/rp_filter'
done
exec_on() {
	local x=$1
	shift
	cd "$tmp/$x" || exit 1
	# shellcheck disable=SC2016
	exec ip netns exec "$net-$x" env -u XDG_CONFIG_HOME HOME="$tmp/$x" \
		XDG_RUNTIME_DIR="$tmp/$x/run" AT="$tmp/$x" sh -c '
		mount --bind "$AT/wg" /run/wireguard &&
			mount --bind "$AT/inside" /etc/heteroshard && exec "$@"' sh "$@"
}
# the cable: a bridge in the attacker's namespace
ip -n "$net-x" link add cable type bridge
ip -n "$net-x" link set cable up
i=0
for x in a b; do
	i=$((i + 1))
	ip -n "$net-x" link add "to$x" type veth peer name eth0 netns "$net-$x"
	ip -n "$net-x" link set "to$x" master cable up
	ip -n "$net-$x" addr add 10.92.0.$i/24 dev eth0
	ip -n "$net-$x" link set eth0 up
	(umask 077 && wg genkey >"$tmp/$x/wg.key")
	on $x "$hs" keygen key >"$tmp/$x/pub" 2>/dev/null
done
mesh_up() {
	local x i=0 k
	for x in a b; do
		i=$((i + 1)) k=$((3 - i))
		on $x wireguard-go hsmesh >/dev/null 2>&1
		other=$([ $x = a ] && echo b || echo a)
		on $x wg set hsmesh private-key "$tmp/$x/wg.key" listen-port 51820 \
			peer "$(wg pubkey <"$tmp/$other/wg.key")" endpoint 10.92.0.$k:51820 \
			allowed-ips 10.77.0.$k/32
		ip -n "$net-$x" addr add 10.77.0.$i/24 dev hsmesh
		ip -n "$net-$x" link set hsmesh mtu 1420 up
	done
}
# says INTERFACE: the file of both machines, as `mesh --apply` writes it
says() {
	printf 'interface %s\npeer 10.77.0.2\n' "$1" >"$tmp/a/inside/mesh"
	printf 'interface %s\npeer 10.77.0.1\n' "$1" >"$tmp/b/inside/mesh"
	chmod 644 "$tmp/a/inside/mesh" "$tmp/b/inside/mesh"
}
# bench [KEY]: measures a link from b to a over the inside addresses; the cable and hsmesh of b are
# watched for the heads of a link in the clear. The result is in $tmp/out, $cable and $inside.
# Without TEST_LONG no longer than until $seek (missing: tls) is seen; a handshake has such records
# too.
bench() {
	begin "$tmp/cable" x python3 "$packets" count tob
	local cable_pid=$! inside_pid
	begin "$tmp/inside" b python3 "$packets" count "${watched:-hsmesh}"
	inside_pid=$!
	until_ok 20 grep -q ready "$tmp/cable.err" && until_ok 20 grep -q ready "$tmp/inside.err"
	begin "$tmp/serve" a "$hs" bench --serve 10.77.0.1:9990 --peer "$(cat "$tmp/b/pub")" \
		--key-file key
	local serve=$!
	until_ok 10 sh -c "ip netns exec $net-a ss -ltn | grep -q ':9990 '"
	begin "$tmp/to" b timeout 30 "$hs" bench --to 10.77.0.1:9990 \
		--peer "${1:-$(cat "$tmp/a/pub")}" --key-file key --json
	local to=$!
	if [ -z "$long" ]; then
		until_ok 25 grep -q "${seek:-tls}" "$tmp/inside.err"
		kill $to
	fi
	wait $to
	status=$?
	cp "$tmp/to" "$tmp/out" && cp "$tmp/to.err" "$tmp/err"
	kill $serve $cable_pid $inside_pid 2>/dev/null
	wait $serve $cable_pid $inside_pid 2>/dev/null
	cable=$(cat "$tmp/cable") inside=$(cat "$tmp/inside")
	echo "clear: $cable on the cable, $inside inside;" $(cat "$tmp/inside.err") >>"$tmp/err"
}
is() { # mesh|tls: how the link went
	[ "$cable" = 0 ] &&
		{ [ -z "$long" ] ||
			{ [ $status -eq 0 ] && grep -q "\"link\": \"$1\"" "$tmp/out"; }; } &&
		if [ "$1" = mesh ]; then
			[ "$inside" -gt 0 ]
		else
			[ "$inside" = 0 ] && grep -q tls "$tmp/inside.err"
		fi
}

mesh_up
says hsmesh
seek=clear bench
is mesh
check "with it, it is in the clear inside the mesh; the cable shows nothing of it"
rm "$tmp/a/inside/mesh"
bench
is tls
check "with the file of one machine it is encrypted"
if [ -n "$long" ]; then
	rm "$tmp/b/inside/mesh"
	bench
	is tls
	check "without the file of the mesh a link inside it is encrypted"
	says hsmesh
	chmod 666 "$tmp/b/inside/mesh"
	bench
	is tls
	check "a file that others can change does not count"
	says eth0
	bench
	is tls
	check "an interface that is not WireGuard's does not count"
	says hsmesh
	other=$(on b "$hs" keygen other 2>/dev/null)
	bench "$other"
	[ $status -ne 0 ] && grep -q 'its key is not the expected one' "$tmp/err"
	check "another key than the expected one is refused inside the mesh as well"

	# An attacker on the cable who can write any packet sends a reset that fits the connection.
	# attack: 0 when the link lives on
	attack() {
		begin "$tmp/hold" a "$hs" bench --serve 10.77.0.1:9990 \
			--peer "$(cat "$tmp/b/pub")" --key-file key
		local serve=$! to
		until_ok 10 sh -c "ip netns exec $net-a ss -ltn | grep -q ':9990 '"
		begin "$tmp/to" b timeout 60 "$hs" bench --to 10.77.0.1:9990 \
			--peer "$(cat "$tmp/a/pub")" --key-file key --json
		to=$!
		# from within b it reads where the connection stands, on the cable it says so to b
		ip netns exec "$net-b" timeout 4 python3 "$packets" watch hsmesh 9992 |
			ip netns exec "$net-x" python3 "$packets" reset tob \
				"$(ip netns exec "$net-b" cat /sys/class/net/eth0/address)" \
				>"$tmp/reset"
		wait $to
		local rc=$?
		kill $serve 2>/dev/null
		wait $serve 2>/dev/null
		cp "$tmp/to.err" "$tmp/err"
		[ "$(cat "$tmp/reset")" -gt 2 ] && return $rc
		return 99
	}
	rm "$tmp/a/inside/mesh" "$tmp/b/inside/mesh"
	attack
	rc=$?
	[ $rc -ne 0 ] && [ $rc -ne 99 ]
	check "a forged reset on the cable ends a connection that is not bound to the mesh"
	says hsmesh
	attack
	check "and does not reach one that is"
fi

says hsmesh
# the mesh is down, and the network answers for its addresses.
for x in a b; do
	ip -n "$net-$x" link del hsmesh
done
ip -n "$net-a" addr add 10.77.0.1/24 dev eth0
ip -n "$net-b" addr add 10.77.0.2/24 dev eth0
watched=eth0
bench
is tls
check "when the mesh is down, a link between the same addresses is encrypted"
echo "1..$n"
exit $failed
