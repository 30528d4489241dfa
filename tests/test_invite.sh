#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Invitations, and workers that connect to the coordinator: machines are network namespaces, one of
# them behind a router that lets nothing in. With TEST_LONG also what takes waiting. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
. tests/support/net.sh
if ! net_possible || ! command -v nft >/dev/null; then
	echo "1..1"
	echo "ok 1 # SKIP network namespaces need root, iproute2 and nftables"
	exit 0
fi
trap 'net_down; rm -rf "$tmp"' EXIT
net_up

token() { # ARGUMENTS OF INVITE: $token, and the process that waits
	begin "$tmp/token" c timeout 100 "$hs" invite "$@"
	inviting=$!
	until_ok 20 test -s "$tmp/token"
	token=$(head -n 1 "$tmp/token")
}
# refused MACHINE TEXT TOKEN: one line, and nothing else
refused() {
	on "$1" timeout 30 "$hs" worker --join "$3" ${4:+--name "$4"} >"$tmp/out" 2>"$tmp/err"
	[ $? -ne 0 ] && [ "$(wc -l <"$tmp/err")" -eq 1 ] && grep -qF "$2" "$tmp/err"
}

# ---- joining ----
token
on b timeout 30 "$hs" worker --join "$token" --name box2 >"$tmp/out" 2>"$tmp/err"
check "a machine joins"
wait $inviting && grep -q '^box2 has joined$' "$tmp/token"
check "invite says who came, and ends"
[ "$(stat -c %a "$tmp/c/.config/heteroshard/peers" "$tmp/c/.config/heteroshard/invitations" \
	"$tmp/b/.config/heteroshard/coordinator" | sort -u)" = 600 ]
check "what is kept is the user's alone"
token --name attic
old=$token
changed=${token:0:20}$(echo "${token:20:1}" | tr a-z2-7 b-z2-7a)${token:21}
refused n "this is no invitation" "$changed" &&
	refused n "this is no invitation" "${token%????????}" && refused n "this is no invitation" x
check "a token that was changed or cut short"
! printf 'a%.0s' {1..5000} | on n timeout 30 "$hs" worker --join - >"$tmp/out" 2>"$tmp/err" &&
	grep -q '^error: this is no invitation' "$tmp/err"
check "much too long a text on standard input is no token"
if [ -n "${TEST_LONG:-}" ]; then
	begin "$tmp/alien" b timeout 100 "$hs" invite --port 9990
	alien=$!
	until_ok 20 test -s "$tmp/alien"
	kill $alien
	wait $alien
	refused n "was not reached" "$(cat "$tmp/alien")"
	check "a token of another cluster that is not there"
fi
echo "$token" | on n timeout 30 "$hs" worker --join - >"$tmp/out" 2>"$tmp/err"
check "a machine behind a router joins, with the token on standard input"
wait $inviting && on c "$hs" peers >"$tmp/out" 2>"$tmp/err" && grep -q '^attic ' "$tmp/out" &&
	grep -q '^box2 ' "$tmp/out"
check "peers lists both, by the names that were given"
token
refused d "does not accept this invitation" "$old"
check "a used token is refused while another invitation is open"
refused d "the name 'box2' is taken" "$token" box2 && kill -0 $inviting
check "a name that is taken is said, and the invitation stays open"
kill $inviting
wait $inviting
if [ -n "${TEST_LONG:-}" ]; then
	token --minutes 1
	sed -i -E "s/^([0-9a-f]+) [0-9]+ - -\$/\1 1000 - -/" \
		"$tmp/c/.config/heteroshard/invitations"
	refused d "the coordinator " "$token"
	check "a late token is refused"
	wait $inviting
	[ $? -ne 0 ] && grep -q 'nobody used the invitation in its time' "$tmp/token.err"
	check "and invite says that nobody came"
fi
on c "$hs" peers rename box2 cellar && on c "$hs" peers --json >"$tmp/out" &&
	grep -q '"name": "cellar"' "$tmp/out"
check "a peer is renamed"

if [ -n "${TEST_LONG:-}" ]; then
	refused d "was not reached" "$token" other
	check "with nobody listening the token does nothing"
fi

# ---- a job ----
net_job "$tmp/c"
cat >"$tmp/c/cluster.yaml" <<END
$(cat "$tmp/c/job.yaml")
workers: [cellar, attic]
links_per_peer: 2
shard_plan:
  - {id: cellar, start: 0, end: 1}
  - {id: attic, start: 1, end: 2}
  - {id: local, start: 2, end: 3}
END
# --foreground: timeout passes a signal on once, not twice
begin "$tmp/worker.b" b timeout --foreground 150 "$hs" worker --device cpu
one=$!
begin "$tmp/worker.n" n timeout --foreground 150 "$hs" worker --device cpu
two=$!
on c timeout 60 "$hs" train job.yaml output_dir=alone >"$tmp/out" 2>"$tmp/err"
check "a run on one machine, to compare with"
on c timeout 60 "$hs" train cluster.yaml >"$tmp/out" 2>"$tmp/err"
check "a job over invited workers, one of them behind a router"
[ "$(losses run)" = "$(losses alone)" ] && [ -n "$(losses run)" ]
check "with the losses of one machine, bit for bit"
grep -q ": 2 connections carry this link" "$tmp/worker.b.err" &&
	grep -q ": 2 connections carry this link" "$tmp/worker.n.err"
check "over two connections each, as the coordinator's configuration says"
grep -q "'cellar' and 'attic' do not reach each other: what they say goes through this machine" \
	"$tmp/err"
check "the two that do not reach each other are relayed, in one line"
on c timeout 60 "$hs" train cluster.yaml workers=all "shard_plan=" plan= profile=none \
	output_dir=again >"$tmp/out" 2>"$tmp/err"
check "the same workers serve the next job: workers: all"
rm -rf "$tmp/b/.cache" # it learns from PLAN who may connect, and has to fetch its layers
on c timeout 60 "$hs" train job.yaml "workers=[cellar]" output_dir=local \
	'shard_plan=[{id: local, start: 0, end: 1}, {id: cellar, start: 1, end: 3}]' \
	>"$tmp/out" 2>"$tmp/err" && [ "$(losses local)" = "$(losses alone)" ] &&
	! grep -E "warning|reach each other" "$tmp/err"
check "the coordinator's device waits for an invited worker that loads, and is not relayed"
cp "$tmp/worker.n.err" "$tmp/err"
kill -0 $two && ! grep "it was removed" "$tmp/err"
check "a peer that a job does not name waits for the next one"
# ---- an invited worker is lost, and dials in again ----
begin "$tmp/lost" c timeout --foreground 90 "$hs" train cluster.yaml workers=all shard_plan= plan= \
	profile=none max_steps=9999 save_steps=0 output_dir=lost
job=$!
until_ok 60 reached lost 5
ip netns pids "$net-b" | xargs -r kill -9
wait $one 2>/dev/null
until_ok 30 grep -q "'cellar' is gone" "$tmp/lost.err"
begin "$tmp/worker.b" b timeout --foreground 150 "$hs" worker --device cpu
one=$!
until_ok 30 grep -q "'cellar' is back" "$tmp/lost.err"
came=$?
cp "$tmp/lost.err" "$tmp/err"
kill -INT $job
wait $job
[ $came = 0 ] && grep -q "interrupted after step" "$tmp/err" "$tmp/lost.err"
check "one that was killed dials in again, and takes part again"

on c "$hs" peers remove attic
if [ -n "${TEST_LONG:-}" ]; then
	for k in 1 2 3 4; do
		on c timeout 60 "$hs" train cluster.yaml workers=all shard_plan= \
			output_dir=third$k >"$tmp/out" 2>"$tmp/err"
		grep -q "does not know this machine's key" "$tmp/worker.n.err" && break
	done
	grep -q "does not know this machine's key: it was removed" "$tmp/worker.n.err"
	check "a worker that was removed is told so, in one line"
fi
on c timeout 60 "$hs" train cluster.yaml >"$tmp/out" 2>"$tmp/err"
grep -q "'workers' names 'attic', and no peer has this name" "$tmp/err"
check "a configuration that names a peer that was removed"
kill $one
wait $one || { cp "$tmp/worker.b.err" "$tmp/err"; false; }
check "Ctrl-C ends a worker that waits"
kill $two 2>/dev/null
wait $two 2>/dev/null

# ---- a token in other hands: 'n' has got the one that was meant for 'd' ----
token --name study
on n timeout 30 "$hs" worker --join "$token" >"$tmp/out" 2>"$tmp/err" && wait $inviting
check "who has the token joins with it, once"
grep -q '^study has joined$' "$tmp/token"
check "and invite says that somebody has"
stolen=$token
token
refused d "does not accept this invitation" "$stolen"
check "the machine that was meant is refused, and so knows that another one was there"
on c "$hs" peers remove study && on c "$hs" peers >"$tmp/out" && ! grep -q study "$tmp/out"
check "and the other one is taken out of the peers again"
kill $inviting 2>/dev/null
wait $inviting 2>/dev/null
echo "1..$n"
exit $failed
