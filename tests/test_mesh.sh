#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mesh: keys, files, --apply, --check and --down over a real sshd and wireguard-go, and a job over
# the mesh of two homes and a rented machine, each a network namespace. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
. tests/support/wan.sh
wan_begin
ssh_user
key() { wg genkey | wg pubkey; }

# ---- keys ----
umask 022
pub=$(on c "$hs" mesh key 2>"$tmp/err") && [ "$(stat -c %a "$tmp/c/etc/heteroshard.key")" = 600 ] &&
	[ "$pub" = "$(wg pubkey <"$tmp/c/etc/heteroshard.key")" ]
check "mesh key: mode 0600, and the public key that wg computes"
[ "$(on c "$hs" mesh key 2>"$tmp/err")" = "$pub" ] && grep -q 'it was there already' "$tmp/err"
check "a key is never overwritten"
chmod 644 "$tmp/c/etc/heteroshard.key"
run mesh key
[ $? -eq 1 ] && line "heteroshard.key: others can read this private key: 'chmod 600 "
check "a key file that others can read"
chmod 600 "$tmp/c/etc/heteroshard.key"
echo nonsense >"$tmp/c/bad" && chmod 600 "$tmp/c/bad"
run mesh key bad
[ $? -eq 1 ] && line "bad: it holds no key of WireGuard"
check "a file that holds no key"
mkfifo "$tmp/c/pipe"
run mesh key pipe
[ $? -eq 1 ] && line "pipe: is a pipe, a file was expected"
check "a pipe in the place of a key is not waited for"

# ---- files ----
mkdir "$tmp/c/plain"
kh=$(key) kb=$(key) ks=$(key)
config() { # LINE ... of the mesh; h, b and s with their keys, without ssh
	printf '%s\n' "coordinator: {hostname: home1, wg_public_key: '$pub'}" \
		"workers:" \
		"  - {id: rented, hostname: rented.mesh, wg_public_key: '$kh'," \
		"     endpoint: [198.51.100.10, '2001:db8:1::10']}" \
		"  - {id: home2, hostname: home2.mesh, wg_public_key: '$kb'}" \
		"  - {id: six, hostname: six.mesh, wg_public_key: '$ks', family: ipv6}" "$@" \
		>"$tmp/c/plain.yaml"
}
config 'mesh: {range: [10.77.0.0/24, fd77::/64], dir: plain}' 'peer_timeout: 12'
run mesh plain.yaml && [ "$(ls "$tmp/c/plain" | tr '\n' ' ')" = \
	"home1.conf home2.conf hosts keys mesh.dot rented.conf six.conf " ]
check "a file for each machine, names and keys"
cd "$tmp/c/plain" || exit 1
! grep -qi privatekey ./*.conf && grep -q 'PostUp = wg set %i private-key /etc/wireguard/hetero' \
	home2.conf && [ "$(grep -c '^\[Peer\]' home2.conf)" = 1 ] &&
	[ "$(grep -c '^\[Peer\]' rented.conf)" = 3 ]
check "no private key; two behind routers are joined through the rented one"
grep -q '^AllowedIPs = 10.77.0.2/32, fd77::2/128, 10.77.0.1/32, fd77::1/128, 10.77.0.4/32' \
	home2.conf && grep -q '^Endpoint = 198.51.100.10:51820$' home2.conf &&
	grep -q '^Endpoint = \[2001:db8:1::10\]:51820$' six.conf
check "the hub carries the others; the endpoint is of a family that the machine has"
grep -q '^PersistentKeepalive = 4$' home2.conf && ! grep -q Persistent rented.conf
check "keepalive a third of peer_timeout, only from behind a router"
grep -q 'net.ipv4.conf.%i.forwarding=1' rented.conf && ! grep -q sysctl home2.conf
check "only the hub passes on"
strips() { # every file is read back by wg-quick and wg
	local f
	ip -n "$net-s" link show dev hsread >/dev/null 2>&1 || on s wireguard-go hsread 2>/dev/null
	for f in "$tmp/c/plain"/*.conf; do
		wg-quick strip "$f" >"$tmp/s/read.conf" 2>/dev/null &&
			on s wg setconf hsread "$tmp/s/read.conf" &&
			on s wg show hsread peers >"$tmp/peers" &&
			[ "$(wc -l <"$tmp/peers")" = "$(grep -c '^\[Peer\]' "$f")" ] || return
	done
}
strips
check "wg-quick strip and wg setconf read them"
ip -n "$net-s" link del hsread 2>/dev/null
cp -r . ../before
config "  - {id: attic, hostname: attic.mesh, wg_public_key: '$(key)'," \
	"     endpoint: attic.example.org}" \
	'mesh: {range: [10.77.0.0/24, fd77::/64], dir: plain}' 'peer_timeout: 12'
run mesh plain.yaml && diff hosts ../before/hosts | grep -c '^>' >"$tmp/n"
! diff hosts ../before/hosts | grep -q '^>' && diff ../before/home2.conf home2.conf >"$tmp/diff"
! grep -q '^<' "$tmp/diff" && [ "$(grep -c '^>' "$tmp/diff")" = 8 ] &&
	grep -q 'Endpoint = attic.example.org:51820' home2.conf
check "a new machine adds its own lines to the others and changes none"
config 'mesh: {range: [10.77.0.0/24, fd77::/64], dir: plain}' 'peer_timeout: 12'
run mesh plain.yaml && grep -q '^4 of 4 files written, 1 removed' "$tmp/out" &&
	diff -r ../before . >/dev/null
check "and leaves nothing behind"
mkfifo old.conf
run mesh plain.yaml && grep -q '^0 of 4 files written, 0 removed' "$tmp/out" && [ -p old.conf ]
check "what is right already is not written; a pipe beside it is not waited for"
cd - >/dev/null || exit 1
rm -rf "$tmp/c/plain"

# ---- what is wrong with a configuration, each in one line ----
bad() { # NAME TEXT LINE ...
	local name=$1 text=$2
	shift 2
	config "$@"
	run mesh plain.yaml
	[ $? -eq 2 ] && line "$text"
	check "$name"
	rm -rf "$tmp/c/plain" "$tmp/c/mesh"
}
bad "a range that is too small" "range 10.77.0.0/30 is too small: 2 addresses for 4 machines" \
	'mesh: {range: 10.77.0.0/30}'
bad "a range that is none" "range '10.77.0.0': an address and a length" 'mesh: {range: 10.77.0.0}'
bad "an address in place of a range" "write 10.77.0.0/24" 'mesh: {range: 10.77.0.9/24}'
bad "an endpoint within the range" "endpoint '198.51.100.10' of 'rented' is within the range" \
	'mesh: {range: 198.51.100.0/24}'
bad "a hub that is no machine" "hub 'nobody' is none of the machines" 'mesh: {hub: nobody}'
bad "a hub that does not reach" "the hub 'home2' is not joined to both" 'mesh: {hub: home2}'
bad "no mesh" "there is no 'mesh': add" 'peer_timeout: 20'
bad "two machines with one key" "have the same wg_public_key" \
	"  - {id: x, hostname: x, wg_public_key: '$kb', mesh_ip: 10.77.0.9}" \
	"  - {id: y, hostname: y, wg_public_key: '$pub'}" 'mesh: {}'
bad "a key that is none" "wg_public_key of 'x' is not one" \
	"  - {id: x, hostname: x, wg_public_key: 'abc'}" 'mesh: {}'
bad "no key" "'x' has no wg_public_key: 'heteroshard mesh key'" \
	"  - {id: x, hostname: x}" 'mesh: {}'
bad "two machines with one address" "'x' and 'y' have the same address 10.77.0.9 inside" \
	"  - {id: x, hostname: x, wg_public_key: '$(key)', mesh_ip: 10.77.0.9}" \
	"  - {id: y, hostname: y, wg_public_key: '$(key)', mesh_ip: 10.77.0.9}" 'mesh: {}'
bad "two machines with one endpoint" "have the same endpoint 198.51.100.10:51820" \
	"  - {id: x, hostname: x, wg_public_key: '$(key)', endpoint: 198.51.100.10}" 'mesh: {}'
bad "a name that wg-quick does not take" "cannot name a file of wg-quick" \
	"  - {id: a-very-long-name, hostname: x, wg_public_key: '$(key)'}" 'mesh: {}'
config 'mesh: {}'
sed -i '/^     endpoint: /s/.*/    }/' "$tmp/c/plain.yaml"
run mesh plain.yaml
[ $? -eq 2 ] && line "neither of 'home1' and 'rented' has an endpoint that the other reaches"
check "no pair is reachable"

# ---- on the machines ----
wan_ssh h 198.51.100.10 198.51.100.10
wan_ssh b 192.168.1.2 198.51.100.2
wan_names 198.51.100.10 c b
net_job "$tmp/c"
cat >"$tmp/c/cluster.yaml" <<END
$(cat "$tmp/c/job.yaml")
coordinator: {hostname: home1}
workers:
  - {id: rented, ssh: root@198.51.100.10, device: cpu, threads: 1, endpoint: rented.example.org}
  - {id: home2, ssh: root@198.51.100.2, device: cpu, threads: 1}
mesh: {range: 10.77.0.0/24}
shard_plan:
  - {id: home2, start: 0, end: 1}
  - {id: rented, start: 1, end: 2}
  - {id: local, start: 2, end: 3}
END
fails_at() { # NAME TEXT: --apply fails on one machine with TEXT, and changes nothing
	run mesh cluster.yaml --apply
	[ $? -eq 1 ] && line "$2" && [ ! -e "$tmp/h/etc/hsmesh.conf" ] && [ ! -e "$tmp/c/mesh" ]
	check "$1"
}
run mesh cluster.yaml --apply --dry-run
[ $? -eq 2 ] && line "has no wg_public_key" && [ ! -e "$tmp/b/etc/heteroshard.key" ]
check "--dry-run makes no keys"
mkdir "$tmp/b/lack" && for p in sh id grep ip ss stat dirname; do
	ln -s "$(command -v $p)" "$tmp/b/lack/"
done
sed -i "s|PATH=$tmp/b/bin:$PATH|PATH=$tmp/b/lack|" "$tmp/b/sshd/config"
restart_b() {
	ip netns pids "$net-b" | xargs -r kill -9 2>/dev/null
	until_ok 20 sh -c "! ip netns exec $net-b ss -ltn | grep -q ':22 '"
	begin "$tmp/sshd.b" b /usr/sbin/sshd -D -e -f "$tmp/b/sshd/config"
	until_ok 20 sh -c "ip netns exec $net-b ss -ltn | grep -q ':22 '"
}
restart_b
fails_at "wg is missing" "home2: wg is not there: install wireguard-tools"
ln -s "$(command -v wg)" "$tmp/b/lack/"
fails_at "wg-quick is missing" "home2: wg-quick is not there: install wireguard-tools"
if ! { ip link add "$net-t" type wireguard && ip link del "$net-t"; } 2>/dev/null; then
	ln -s "$(command -v wg-quick)" "$tmp/b/lack/"
	fails_at "neither the kernel nor a program" \
		"home2: its kernel has no WireGuard: install wireguard-go (it needs /dev/net/tun)"
fi
rm -f "$tmp/b/etc/heteroshard.key" # wg has made one
sed -i "s|PATH=$tmp/b/lack|PATH=$tmp/b/bin:$PATH|" "$tmp/b/sshd/config"
restart_b
(umask 027 && wg genkey >"$tmp/b/etc/heteroshard.key")
fails_at "a key file that others can read, there" "home2: others can read /etc/wireguard/hetero"
chmod 600 "$tmp/b/etc/heteroshard.key"
begin "$tmp/nc" h python3 -c 'import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 51820))
time.sleep(100)'
nc=$!
until_ok 20 sh -c "ip netns exec $net-h ss -lun | grep -q ':51820 '"
fails_at "the port is in use" "rented: UDP port 51820 is in use there: choose another"
kill $nc
wait $nc 2>/dev/null
ip -n "$net-b" route add 10.64.0.0/11 via 192.168.1.1
fails_at "a range that collides" \
	"range 10.77.0.0/24 collides with the route 10.64.0.0/11 of 'home2'"
ip -n "$net-b" route del 10.64.0.0/11
ip -n "$net-h" link add hsmesh type bridge
fails_at "an interface of that name" \
	"rented: there is an interface 'hsmesh' that heteroshard did not"
ip -n "$net-h" link del hsmesh
echo '[Interface]' >"$tmp/h/etc/hsmesh.conf"
run mesh cluster.yaml --apply
[ $? -eq 1 ] && line "rented: there is a file of WireGuard, 'hsmesh.conf' that heteroshard" &&
	[ "$(cat "$tmp/h/etc/hsmesh.conf")" = '[Interface]' ] && [ ! -e "$tmp/c/mesh" ]
check "a file of that name, of an interface that is down"
rm "$tmp/h/etc/hsmesh.conf"
printf '#!/bin/sh\nexit 1\n' >"$tmp/c/bin/id" && chmod 755 "$tmp/c/bin/id"
printf '#!/bin/sh\necho "sudo: a password is required" >&2\nexit 1\n' >"$tmp/c/bin/sudo"
chmod 755 "$tmp/c/bin/sudo"
fails_at "no root" "home1: sudo asks for a password there: this needs root"
rm "$tmp/c/bin/id" "$tmp/c/bin/sudo"

run mesh cluster.yaml --apply && grep -q '^home2: is up now' "$tmp/out" &&
	grep -q '^rented: is up now' "$tmp/out" && grep -q '^home1: is up now' "$tmp/out"
check "--apply makes keys, files and interfaces"
[ "$(cd "$tmp/b/etc" && stat -c %a heteroshard.key hsmesh.conf | tr '\n' ' ')" = "600 600 " ] &&
	grep -q "^$(wg pubkey <"$tmp/b/etc/heteroshard.key") home2 ipv4$" "$tmp/c/mesh/keys" &&
	! grep -rqF "$(cat "$tmp/b/etc/heteroshard.key")" "$tmp/c"
check "private keys stay where they are"
run mesh cluster.yaml --apply --dry-run &&
	grep -q '^# on home2: ssh root@198.51.100.2' "$tmp/out" &&
	grep -q 'quick up' "$tmp/out" && grep -q '^PublicKey = ' "$tmp/out"
check "--dry-run shows the commands"
run mesh cluster.yaml --apply && [ "$(grep -c 'is up, nothing has changed' "$tmp/out")" = 3 ]
check "a second --apply changes nothing"
until_ok 20 reaches b home1.mesh && until_ok 20 reaches c home2.mesh &&
	until_ok 20 reaches h home2.mesh
check "names; two homes reach each other through the rented machine"
shake=$(on b wg show hsmesh latest-handshakes)
sed -i "s/^mesh: .*/mesh: {range: 10.77.0.0\/24, mtu: 1420}\npeer_timeout: 9/" "$tmp/c/cluster.yaml"
run mesh cluster.yaml --apply && grep -q '^home2: is up, other peers now' "$tmp/out" &&
	grep -q '^rented: is up, nothing' "$tmp/out" &&
	on b wg show hsmesh | grep -q 'every 3 sec' &&
	[ "$shake" = "$(on b wg show hsmesh latest-handshakes)" ]
check "other settings of peers reach WireGuard without a new handshake"

# ---- --check ----
run mesh cluster.yaml --check --no-bandwidth
[ $? -eq 0 ] && grep -qE '^home1 +home2 +through rented +[0-9]+ s +[0-9.]+ ms +1420 ' \
	"$tmp/out" && grep -qE '^rented +home2 +direct ' "$tmp/out" &&
	[ -s "$tmp/c/mesh/mesh.png" ] &&
	grep -q '^home2: WireGuard of wireguard-go; IPv4$' "$tmp/out" &&
	grep -q '^rented: WireGuard of wireguard-go; IPv4 and IPv6$' "$tmp/out"
check "--check: a table and a picture"
if [ -n "${TEST_LONG:-}" ]; then
	run mesh cluster.yaml --check
	[ $? -eq 0 ] && [ "$(grep -cE ' [0-9.]+ MB/s *$' "$tmp/out")" = 6 ]
	check "--check measures the rate of each pair over a link of training"
fi
ip netns exec "$net-h" sh -c 'echo 0 >/proc/sys/net/ipv4/conf/hsmesh/forwarding'
ip -n "$net-c" link set hsmesh mtu 1300
run mesh cluster.yaml --check --no-bandwidth
[ $? -eq 1 ] && grep -q "^home1 to home2: the hub 'rented' does not pass it on" "$tmp/out"
check "--check names a hub that does not pass on"
too_large() {
	grep -qE "^home1 to $1: packets above (129[0-9]|1300) bytes do not get through: 'mesh: {" \
		"$tmp/out"
}
too_large rented
check "--check names the size of packet that gets through"
ip -n "$net-c" link set hsmesh mtu 1420
ip netns exec "$net-h" sh -c 'echo 1 >/proc/sys/net/ipv4/conf/hsmesh/forwarding'
if [ -n "${TEST_LONG:-}" ]; then
	ip -n "$net-h" link set hsmesh mtu 1300
	run mesh cluster.yaml --check --no-bandwidth
	too_large home2
	check "--check names it where the hub has the smaller one"
	ip -n "$net-h" link set hsmesh mtu 1420
	ip netns exec "$net-h" nft add table ip deaf
	ip netns exec "$net-h" nft add chain ip deaf in '{ type filter hook input priority 0; }'
	ip netns exec "$net-h" nft add rule ip deaf in udp dport 51820 drop
	on b env WG_QUICK_USERSPACE_IMPLEMENTATION=wireguard-go sh -c 'wg-quick down hsmesh
		wg-quick up hsmesh' >"$tmp/out" 2>"$tmp/err"
	run mesh cluster.yaml --check --no-bandwidth
	[ $? -eq 1 ] &&
		grep -q "^home2 to rented: no handshake: nothing answers at rented.example.org:" \
			"$tmp/out" &&
		grep -q "^home2 to home1: no handshake with the hub 'rented' yet" "$tmp/out"
	check "--check names a port that is not let in"
	ip netns exec "$net-h" nft delete table ip deaf
	on b wg-quick down hsmesh >"$tmp/out" 2>"$tmp/err"
	run mesh cluster.yaml --check --no-bandwidth
	[ $? -eq 1 ] &&
		grep -q "^error: home2: the mesh is not up there: 'heteroshard mesh --apply'" \
		"$tmp/err"
	check "--check names a machine on which it is not up"
	run mesh cluster.yaml --apply && until_ok 20 reaches b home1.mesh
	check "and --apply brings it up again"
fi
ip -n "$net-h" addr add 198.51.100.11/24 dev eth0
wan_names 198.51.100.11 c b
found() { on "$1" wg show hsmesh endpoints | grep -q '198.51.100.11:51820'; }
until_ok 20 found c && until_ok 20 found b && until_ok 20 reaches b home1.mesh
check "an endpoint that is a name is asked for again while the mesh is up"

# ---- a job ----
on c timeout 60 "$hs" train job.yaml output_dir=alone >"$tmp/out" 2>"$tmp/err"
run up cluster.yaml && grep -q '^home2: started' "$tmp/out"
check "up: two homes, one of them behind the other's kind of router"
run train cluster.yaml
[ $? -eq 0 ] && [ "$(losses run)" = "$(losses alone)" ] && [ -n "$(losses run)" ] &&
	! grep -q 'do not reach each other' "$tmp/err"
check "a job over the mesh has the losses of one machine, bit for bit, and is not relayed"
sed -i 's/^mesh: /encrypt: mesh\nmesh: /' "$tmp/c/cluster.yaml"
run mesh cluster.yaml --apply && [ "$(grep -c ^peer "$tmp/h/inside/mesh")" = 2 ] &&
	[ "$(sed -n 's/^peer //p' "$tmp/b/inside/mesh")" = 10.77.0.2 ] &&
	[ "$(stat -c %a "$tmp/b/inside/mesh")" = 644 ] &&
	grep -q '^10.77.0.2	rented.mesh$' "$tmp/b/hosts"
check "encrypt: mesh: each machine has a list of those that it reaches without a hub"
run train cluster.yaml output_dir=inside-run
[ $? -eq 0 ] && [ "$(losses inside-run)" = "$(losses alone)" ] &&
	grep -qs "sends to worker 'rented' (rented): TCP in the mesh" \
		"$tmp/b/.local/state/heteroshard/home2/log"
check "a job whose links leave encryption to the mesh has the same losses"
run down cluster.yaml
run mesh cluster.yaml --down && grep -q '^home2: is down' "$tmp/out" &&
	! ip -n "$net-b" link show hsmesh >/dev/null 2>&1 && ! grep -q mesh "$tmp/b/hosts" &&
	[ ! -e "$tmp/b/inside/mesh" ] &&
	[ -e "$tmp/b/etc/heteroshard.key" ]
check "--down takes it down and leaves the keys"
run mesh cluster.yaml --down && grep -q '^home2: was not up$' "$tmp/out"
check "a second --down"
echo "1..$n"
exit $failed
