#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# invite --mesh: machines get a place in the mesh by a token, and the others learn it while a job
# runs. The coordinator is the rented machine "h"; "b" has ssh; "a" (behind a router) and "s" (IPv6
# only) are invited. With TEST_LONG also what --check says of one with IPv6 only. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
. tests/support/wan.sh
wan_begin
first=h
ssh_user
wan_ssh b 192.168.1.2 198.51.100.2
# token NAME ARGUMENTS OF INVITE: $token, and the process that waits
token() {
	local name=$1
	shift
	begin "$tmp/token" h env PATH="$tmp/c/bin:$PATH" timeout 100 "$hs" invite --name "$name" \
		--mesh cluster.yaml --address 198.51.100.10,2001:db8:1::10 "$@"
	inviting=$!
	until_ok 40 test -s "$tmp/token"
	token=$(head -n 1 "$tmp/token")
}
join() { # MACHINE
	on "$1" timeout 60 "$hs" worker --join "$token" >"$tmp/out" 2>"$tmp/err"
}

steps=4000 # more than the job gets
net_job "$tmp/h"
{
	sed "s/^max_steps: .*/max_steps: $steps/" "$tmp/h/job.yaml"
	echo "reduce_order: exact"
} >"$tmp/h/alone.yaml"
cat "$tmp/h/alone.yaml" - >"$tmp/h/cluster.yaml" <<END
coordinator: {hostname: rented, endpoint: [198.51.100.10, '2001:db8:1::10'], device: cpu,
              threads: 1}
workers:
  - {id: home2, ssh: root@198.51.100.2, device: cpu, threads: 1}
mesh: {range: [10.77.0.0/24, fd77::/64]}
shard_plan:
  - {id: home2, start: 0, end: 2}
  - {id: local, start: 2, end: 3}
END
run mesh cluster.yaml --apply && until_ok 20 reaches b rented.mesh
check "a mesh of two"
run up cluster.yaml && grep -q '^home2: started' "$tmp/out"
check "up"

# ---- what is wrong, in one line ----
run invite --mesh cluster.yaml
[ $? -eq 2 ] && line "invite: --mesh needs --name"
check "--mesh without a name"
run invite --mesh cluster.yaml --name home2
[ $? -eq 2 ] && line "'home2' is a machine of the mesh already"
check "a name that the mesh has"
run invite --name laptop --endpoint 198.51.100.3
[ $? -eq 2 ] && line "--endpoint goes with --mesh"
check "--endpoint without a mesh"
run invite --mesh job.yaml --name laptop
[ $? -eq 2 ] && line "there is no 'mesh': add"
check "a configuration without a mesh"
run invite --mesh cluster.yaml --name laptop --endpoint 10.77.0.9
[ $? -eq 2 ] && line "is within the range 10.77.0.0/24"
check "an endpoint within the range"
sed 's/^coordinator: .*/coordinator: {hostname: rented, device: cpu,/
	s/ ssh: root/ endpoint: 198.51.100.2, ssh: root/
	s/^mesh: {/mesh: {hub: rented, /' "$tmp/h/cluster.yaml" >"$tmp/h/no.yaml"
run invite --mesh no.yaml --name laptop
[ $? -eq 2 ] && line "invited machines need one machine that all others reach: give 'rented' an"
check "no machine that all others reach"
token laptop
[ "$(sed -n 's/ *laptop.mesh.*//p' "$tmp/h/mesh/hosts" | wc -l)" = 2 ] &&
	[ ! -e "$tmp/h/mesh/laptop.conf" ] && ! grep -q laptop "$tmp/h/mesh/rented.conf"
check "an open invitation keeps an address, and nobody knows it yet"
mkdir "$tmp/a/lack" && for p in sh id env timeout; do
	ln -s "$(command -v $p)" "$tmp/a/lack/"
done
on a env PATH="$tmp/a/lack" timeout 60 "$hs" worker --join "$token" >"$tmp/out" 2>"$tmp/err"
[ $? -eq 2 ] && line "cannot take: wg is not there: install" && kill -0 $inviting
check "a machine without wg keeps the invitation open"
printf '#!/bin/sh\necho 1000\n' >"$tmp/a/bin/id"
printf '#!/bin/sh\necho "sudo: a password is required" >&2\nexit 1\n' >"$tmp/a/bin/sudo"
chmod 755 "$tmp/a/bin/id" "$tmp/a/bin/sudo"
on a env PATH="$tmp/a/bin:$PATH" timeout 60 "$hs" worker --join "$token" >"$tmp/out" 2>"$tmp/err"
[ $? -eq 2 ] && line "cannot take: sudo asks for a password there: this needs root" &&
	kill -0 $inviting
check "one where sudo asks for a password too"
rm "$tmp/a/bin/id" "$tmp/a/bin/sudo"
kill $inviting
wait $inviting
run mesh cluster.yaml && ! grep -q laptop "$tmp/h/mesh/hosts" &&
	! ls "$tmp/h/.config/heteroshard" | grep -q '^mesh-'
check "an invitation that was taken back leaves no address behind"

# ---- two machines come while a job runs ----
begin "$tmp/alone" h timeout 100 "$hs" train alone.yaml output_dir=alone
alone=$!
begin "$tmp/job" h timeout --foreground 200 "$hs" train cluster.yaml
job=$!
until_ok 60 reached run 5
shake=$(on b wg show hsmesh latest-handshakes)
token laptop
join a && grep -q '^In the mesh this machine is laptop.mesh, 10.77.0.3.$' "$tmp/err"
check "a machine behind a router joins with a place in the mesh"
cp "$tmp/token" "$tmp/out"
wait $inviting && grep -q '^laptop has joined$' "$tmp/token" &&
	grep -q '^home2: is up, other peers now' "$tmp/token" &&
	grep -q '^rented: is up, other peers now' "$tmp/token"
check "the others learn it, and keep their links"
[ "$(stat -c %a "$tmp/a/etc/heteroshard.key" "$tmp/a/etc/hsmesh.conf" | sort -u)" = 600 ] &&
	! grep -qi privatekey "$tmp/a/etc/hsmesh.conf" &&
	grep -q 'AllowedIPs = 10.77.0.0/24, fd77::/64' "$tmp/a/etc/hsmesh.conf" &&
	[ "$(on b wg show hsmesh latest-handshakes)" = "$shake" ]
check "its key stays there; the range leads to the machine that all others reach"
until_ok 20 reaches a home2.mesh && until_ok 20 reaches b laptop.mesh
check "two homes reach each other, by name"
cp "$tmp/a/etc/hsmesh.conf" "$tmp/before"
token six
join s && wait $inviting
check "a machine with IPv6 only joins"
until_ok 20 reaches s laptop.mesh && until_ok 20 reaches a fd77::4 &&
	cmp -s "$tmp/before" "$tmp/a/etc/hsmesh.conf"
check "who came before reaches it too, with the file it had"
! reached run $steps && kill -0 $job
check "all of it while the job runs"
kill -INT $job
wait $job
cp "$tmp/job.err" "$tmp/err"
wait $alone # one process, to compare with
k=$(losses run | wc -l)
echo "# $k steps"
[ "$k" -gt 20 ] && [ "$(losses run)" = "$(losses alone | head -n "$k")" ]
check "the job has the losses of one process, bit for bit"

# ---- the next job has them all ----
on h timeout 100 "$hs" train alone.yaml output_dir=three max_steps=3 >"$tmp/out" 2>"$tmp/err"
sed '/^shard_plan:/,$d; /^workers:/,/^  - /d; s/^max_steps: .*/max_steps: 3/' \
	"$tmp/h/cluster.yaml" >"$tmp/h/all.yaml"
cat >>"$tmp/h/all.yaml" <<'END'
workers: all
shard_plan:
  - {id: laptop, start: 0, end: 1}
  - {id: six, start: 1, end: 2}
  - {id: home2, start: 2, end: 3}
END
begin "$tmp/worker.a" a timeout --foreground 100 "$hs" worker --device cpu
begin "$tmp/worker.s" s timeout --foreground 100 "$hs" worker --device cpu
run train all.yaml output_dir=all
[ $? -eq 0 ] && [ "$(losses all)" = "$(losses three)" ] && [ -n "$(losses all)" ] &&
	! grep -q 'do not reach each other' "$tmp/err"
check "a job over the invited machines goes through the mesh, and is not relayed"

# ---- and out again ----
run peers remove laptop && run mesh cluster.yaml --apply && [ ! -e "$tmp/h/mesh/laptop.conf" ] &&
	! on h wg show hsmesh peers | grep -qF "$(wg pubkey <"$tmp/a/etc/heteroshard.key")" &&
	! reaches a rented.mesh
check "a peer that is removed is out of the mesh with the next --apply"
ip -n "$net-a" route add 10.64.0.0/11 via 192.168.1.1
ip -n "$net-a" link del hsmesh
token laptop
join a
[ $? -ne 0 ] && grep -q "the mesh does not come up here: .*collides with the route" "$tmp/err"
check "a route there that collides with the range"
run down cluster.yaml

# ---- WireGuard by another program, and an endpoint of the wrong family ----
# boringtun gives up root unless WG_SUDO says no, and fails where nobody has logged in
ip -n "$net-s" link del hsmesh
mkdir "$tmp/s/tools" "$tmp/s/real"
ln -sf /usr/sbin/* /usr/bin/* "$tmp/s/tools/"
rm "$tmp/s/tools/wireguard-go"
cp "$(command -v wireguard-go)" "$tmp/s/real/boringtun-cli"
cat >"$tmp/s/tools/boringtun-cli" <<END
#!/bin/sh
[ "\$WG_SUDO" = 1 ] || { echo "NULL from getlogin" >&2; exit 1; }
exec $tmp/s/real/boringtun-cli "\$@"
END
chmod 755 "$tmp/s/tools/boringtun-cli"
rmdir "$tmp/s/bin" 2>/dev/null
(PATH=$tmp/s/tools && sshd_on s 2001:db8:1::20)
cat "$tmp/h/alone.yaml" - >"$tmp/h/six.yaml" <<END
coordinator: {hostname: rented, endpoint: 198.51.100.10}
workers: [{id: six, ssh: 'root@[2001:db8:1::20]', family: both}]
mesh: {range: 10.78.0.0/24, port: 51830, interface: hssix, dir: six}
END
run mesh six.yaml --apply && grep -q '^six: is up now' "$tmp/out"
check "boringtun in place of wireguard-go"
if [ -n "${TEST_LONG:-}" ]; then
	run mesh six.yaml --check --no-bandwidth
	[ $? -eq 1 ] && grep -q '^six: WireGuard of boringtun-cli; IPv6$' "$tmp/out" &&
		grep -q "^six to rented: 198.51.100.10:51830 is an address of IPv4, and 'six' has" \
			"$tmp/out"
	check "--check names the program, the families, and an endpoint of one that is not there"
fi
sed -i 's/, family: both//' "$tmp/h/six.yaml"
run mesh six.yaml --apply
[ $? -eq 2 ] && line "neither of 'rented' and 'six' has an endpoint that the other reaches"
check "--apply takes the families that are there"
sed -i "s/endpoint: 198.51.100.10/endpoint: [198.51.100.10, '2001:db8:1::10']/" "$tmp/h/six.yaml"
run mesh six.yaml --apply && run mesh six.yaml && grep -q '^0 of 2 files written' "$tmp/out" &&
	until_ok 20 reaches s 10.78.0.1
check "and remembers them"
if [ -n "${TEST_LONG:-}" ]; then
	run mesh six.yaml --check --no-bandwidth && [ "$(grep -c ' direct ' "$tmp/out")" = 2 ]
	check "--check says so"
fi
run mesh six.yaml --down
check "down"
echo "1..$n"
exit $failed
