#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/mesh.md, command by command: two homes and a rented machine from nothing to a running job,
# by ssh and without, each machine a network namespace. And links inside one home use its own
# network. Without TEST_LONG only whether the page still has these commands. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
. tests/support/wan.sh
# ---- what the page says ----
# section TITLE: the lines of it that are indented by four columns and more
section() {
	awk -v t="## $1" '$0 == t { on = 1; next } /^## / { on = 0 } on && /^    / {
		sub(/^ +/, ""); print }' docs/mesh.md
}
homes() { section "Two homes and a rented machine" | grep '^heteroshard'; }
[ "$(homes | tr '\n' ';')" = "heteroshard mesh cluster.yaml --apply --dry-run;\
heteroshard mesh cluster.yaml --apply;heteroshard up cluster.yaml;\
heteroshard train cluster.yaml;" ] && grep -q '`heteroshard mesh cluster.yaml --check`' \
	docs/mesh.md && grep -q '^`heteroshard mesh cluster.yaml --down`' docs/mesh.md
check "the commands of the page are those that are tried here"
awk '/^       base_model: / { on = 1 } on && /^ *$/ { exit } on { sub(/^       /, ""); print }' \
	docs/mesh.md >"$tmp/page.yaml"
[ "$(wc -l <"$tmp/page.yaml")" = 9 ]
check "its configuration is found"

# ---- two homes and a rented machine ----
if [ -z "${TEST_LONG:-}" ] || ! wan_possible; then
	echo "1..$n"
	exit $failed
fi
trap 'net_down; rm -rf "$tmp"' EXIT
net_up
ssh_user
wan_ssh h 198.51.100.10 198.51.100.10
wan_ssh b 192.168.1.2 198.51.100.2
wan_ssh a 192.168.1.3 192.168.1.3
for x in a b c h; do # who needs no password for sudo
	printf '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n' \
		>"$tmp/$x/bin/sudo"
	chmod 755 "$tmp/$x/bin/sudo"
done
net_job "$tmp/c"
# other addresses, a small model and few steps; keys that the page leaves to their defaults
sed "s|^base_model: .*|base_model: $golden/smollm2|; s/type: alpaca/type: text/
	s/203.0.113.9/198.51.100.10/g; s/me@home2.example.org/root@198.51.100.2/" \
	"$tmp/page.yaml" >"$tmp/c/cluster.yaml"
printf 'max_steps: 3\nsequence_len: 32\n' >>"$tmp/c/cluster.yaml"
say() { # COMMAND of the page
	# shellcheck disable=SC2086
	on c env PATH="$tmp/c/bin:$PATH" timeout 200 $1 >"$tmp/out" 2>"$tmp/err" </dev/null
}
say "heteroshard mesh cluster.yaml --apply --dry-run"
[ $? -eq 2 ] && grep -q "has no wg_public_key" "$tmp/err" && [ "$(wc -l <"$tmp/err")" -eq 1 ]
check "the first --dry-run ends with the name of a machine that has no key yet"
say "heteroshard mesh cluster.yaml --apply" && [ -e "$tmp/b/etc/hsmesh.conf" ] &&
	[ -e "$tmp/b/etc/heteroshard.key" ] && [ -e "$tmp/c/mesh/home2.conf" ]
check "--apply"
until_ok 20 reaches b home1.mesh && until_ok 20 reaches c rented.mesh
say "heteroshard mesh cluster.yaml --apply --dry-run"
check "and a --dry-run after it"
say "heteroshard mesh cluster.yaml --check --no-bandwidth" && [ -s "$tmp/c/mesh/mesh.png" ]
check "--check"
say "heteroshard up cluster.yaml" && [ "$(grep -c ': started' "$tmp/out")" = 2 ]
check "up"
say "heteroshard train cluster.yaml" && [ -s "$tmp/c/run/adapter_model.safetensors" ]
check "train"

# ---- inside one home ----
say "heteroshard down cluster.yaml"
sed -i "s/^  - {id: home2.*/&\n  - {id: laptop, ssh: root@192.168.1.3}/" "$tmp/c/cluster.yaml"
say "heteroshard mesh cluster.yaml --apply" && until_ok 20 reaches a home1.mesh &&
	until_ok 20 reaches a home2.mesh
check "a machine more in the first home"
say "heteroshard up cluster.yaml" && say "heteroshard profile cluster.yaml" &&
	! grep -q 'configured address' "$tmp/err"
check "profile"
# way BETWEEN: the addresses that are used there
way() { sed -n "/^$1 /,/^[a-z]/ s/^  \\(.*\\), used.*/\\1/p" "$tmp/out"; }
[ "$(way 'home1 - laptop')" = "192.168.1.2 - 192.168.1.3" ]
check "two machines of one home use their own network, which is faster than the mesh"
# home1 and home2 have the same address in their homes
[ "$(way 'home2 - laptop')" = "10.77.0.3 - 10.77.0.4" ] &&
	[ "$(way 'rented - laptop')" = "10.77.0.2 - 10.77.0.4" ]
check "others use the mesh"
say "heteroshard down cluster.yaml"
say "heteroshard mesh cluster.yaml --down" && ! grep -q mesh "$tmp/b/hosts"
check "--down"

# ---- without ssh ----
for x in c h b; do
	on $x env PATH="$tmp/c/bin:$PATH" sudo heteroshard mesh key >"$tmp/$x/wg.pub" 2>"$tmp/err"
done
cat >"$tmp/c/plain.yaml" <<END
coordinator: {hostname: home1, wg_public_key: '$(cat "$tmp/c/wg.pub")'}
workers:
  - {id: rented, hostname: rented.mesh, wg_public_key: '$(cat "$tmp/h/wg.pub")',
     endpoint: 198.51.100.10}
  - {id: home2, hostname: home2.mesh, wg_public_key: '$(cat "$tmp/b/wg.pub")'}
mesh: {range: 10.77.0.0/24, dir: plain}
END
say "heteroshard mesh plain.yaml" && [ -s "$tmp/c/plain/home2.conf" ]
check "files for machines without ssh"
for x in c:home1 h:rented b:home2; do
	cp "$tmp/c/plain/${x#*:}.conf" "$tmp/${x%:*}/etc/hsmesh.conf"
	cat "$tmp/c/plain/hosts" >>"$tmp/${x%:*}/hosts"
	on "${x%:*}" env PATH="$tmp/c/bin:$PATH" sudo wg-quick up hsmesh >"$tmp/out" 2>"$tmp/err"
done
until_ok 20 reaches b home1.mesh && until_ok 20 reaches c rented.mesh
check "wg-quick up"
echo "1..$n"
exit $failed
