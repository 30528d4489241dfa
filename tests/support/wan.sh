# SPDX-License-Identifier: Apache-2.0
# Homes and a rented machine for the tests of the mesh: network namespaces with a home folder each,
# and a /run/wireguard, /etc/wireguard, /etc/heteroshard and /etc/hosts of their own. To be sourced
# behind tap.sh; it replaces some functions of net.sh.
#   wan: 198.51.100.0/24 and 2001:db8:1::/64, a bridge
#   "h" rented, 198.51.100.10 and 2001:db8:1::10, no router before it
#   "c" 192.168.1.2 and "a" 192.168.1.3 at home behind the router "r" (198.51.100.1)
#   "b" 192.168.1.2 in another home behind the router "q" (198.51.100.2)
#   "s" 2001:db8:1::20 only
# The routers translate and let nothing in but ssh.
# shellcheck shell=bash
. tests/support/net.sh
. tests/support/sshd.sh
wan_all="c a b h s r q"
declare -A wan_name=([c]=home1 [a]=laptop [b]=home2 [h]=rented [s]=six [r]=router1 [q]=router2)

wan_possible() {
	net_possible && ssh_possible && [ -c /dev/net/tun ] &&
		command -v nft wg wg-quick wireguard-go ping >/dev/null
}

# makes the machines, or ends the test
wan_begin() {
	if ! wan_possible; then
		echo "1..1"
		echo "ok 1 # SKIP this needs root, iproute2, nftables, OpenSSH, wireguard-go, ping"
		exit 0
	fi
	trap 'net_down; rm -rf "$tmp"' EXIT
	net_up
}

# wan_names ADDRESS MACHINE ...: there rented.example.org is ADDRESS from now on
wan_names() {
	local x at=$1
	shift
	for x; do # /etc/hosts there is this very file
		sed '/rented.example.org/d' "$tmp/$x/hosts" >"$tmp/names"
		echo "$at rented.example.org" | cat "$tmp/names" - >"$tmp/$x/hosts"
	done
}

reaches() { on "$1" ping -n -c 1 -W 1 "$2" >/dev/null; }

# watch FOLDER FILE: from beside, as process $watcher, until process $job has ended. FILE then has
# the longest time between two steps of the job in FOLDER, and the time from the last one to its
# end.
watch() {
	python3 - "$tmp/$first/$1/metrics.jsonl" "$2" "$job" <<'END' &
import os, sys, time
path, out, job = sys.argv[1:]
count, at, longest = 0, None, 0.0
while os.path.exists("/proc/" + job):
    try:
        n = open(path).read().count("\n")
    except OSError:
        n = 0
    now = time.monotonic()
    if n != count:
        longest = max(longest, now - at) if at else 0.0
        count, at = n, now
    time.sleep(0.02)
open(out, "w").write("%.1f %.1f\n" % (longest, time.monotonic() - (at or 0)))
END
	watcher=$!
}

wan_plug() { # NAME NUMBER
	ip link add "$net$1" type veth peer name eth0 netns "$net-$1"
	ip link set "$net$1" master "$net" up
	[ "$1" = s ] || ip -n "$net-$1" addr add "198.51.100.$2/24" dev eth0
	[ "$1" != s ] && [ "$1" != h ] ||
		ip -n "$net-$1" addr add "2001:db8:1::$2/64" dev eth0 nodad
	ip -n "$net-$1" link set eth0 up
}

wan_router() { # NAME: of a home, 192.168.1.1 at the bridge eth1
	ip -n "$net-$1" link add eth1 type bridge
	ip -n "$net-$1" addr add 192.168.1.1/24 dev eth1
	ip -n "$net-$1" link set eth1 up
	ip netns exec "$net-$1" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
	ip netns exec "$net-$1" nft -f - <<'END'
table ip t {
	chain in {
		type nat hook prerouting priority -100
		iifname "eth0" tcp dport 22 dnat to 192.168.1.2
	}
	chain out {
		type nat hook postrouting priority 100
		oifname "eth0" masquerade random
	}
	chain through {
		type filter hook forward priority 0
		policy drop
		iifname "eth1" accept
		tcp dport 22 accept
		ct state established,related accept
	}
}
END
}

wan_home() { # NAME ROUTER NUMBER
	ip link add "w$1" netns "$net-$2" type veth peer name eth0 netns "$net-$1"
	ip -n "$net-$2" link set "w$1" master eth1 up
	ip -n "$net-$1" addr add "192.168.1.$3/24" dev eth0
	ip -n "$net-$1" link set eth0 up
	ip -n "$net-$1" route add default via 192.168.1.1
}

net_up() {
	local x
	# they stay: without them what is mounted there in another test would be gone
	mkdir -p /run/wireguard /etc/wireguard /etc/heteroshard
	ip link add "$net" type bridge
	ip link set "$net" up
	for x in $wan_all; do
		ip netns add "$net-$x"
		ip -n "$net-$x" link set lo up
		mkdir -p "$tmp/$x/run" "$tmp/$x/bin" "$tmp/$x/wg" "$tmp/$x/etc" \
			"$tmp/$x/inside"
		chmod 700 "$tmp/$x" "$tmp/$x/run"
		chmod 755 "$tmp/$x/inside"
		# as Debian writes it; without its line a name is asked for, and nobody answers
		printf '%s\n' "127.0.0.1 localhost" "127.0.1.1 ${wan_name[$x]}" >"$tmp/$x/hosts"
		ln -s "$hs" "$tmp/$x/bin/heteroshard"
	done
	wan_plug h 10
	wan_plug s 20
	wan_plug r 1
	wan_plug q 2
	wan_router r
	wan_router q
	wan_home c r 2
	wan_home a r 3
	wan_home b q 2
}

net_down() {
	local x
	for x in $wan_all; do
		ip netns pids "$net-$x" 2>/dev/null | xargs -r kill -9 2>/dev/null
		ip netns del "$net-$x" 2>/dev/null
	done
	ip link del "$net" 2>/dev/null
	true
}

exec_on() {
	local x=$1
	shift
	cd "$tmp/$x" || exit 1
	# shellcheck disable=SC2016
	exec ip netns exec "$net-$x" env -u XDG_CONFIG_HOME -u XDG_CACHE_HOME HOME="$tmp/$x" \
		XDG_RUNTIME_DIR="$tmp/$x/run" OMP_NUM_THREADS=1 AT="$tmp/$x" \
		RES_OPTIONS="timeout:1 attempts:1" sh -c '
		mount --bind "$AT/wg" /run/wireguard && mount --bind "$AT/etc" /etc/wireguard &&
			mount --bind "$AT/inside" /etc/heteroshard &&
			mount --bind "$AT/hosts" /etc/hosts && exec "$@"' sh "$@"
}

# sshd on a machine, at ADDRESS there, known to the coordinator as NAME
wan_ssh() { # MACHINE ADDRESS NAME
	sshd_on "$1" "$2"
	ssh_forget "$3"
	echo "$3 $(cut -d' ' -f1,2 "$tmp/$1/sshd/key.pub")" >>"$tmp/c/ssh/known_hosts"
}
