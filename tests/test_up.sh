#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# up, status, logs and down over a real sshd: machines are network namespaces with a home folder
# each. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
. tests/support/net.sh
. tests/support/sshd.sh
if ! net_possible || ! ssh_possible || ! command -v nft >/dev/null; then
	echo "1..1"
	echo "ok 1 # SKIP this needs root, iproute2, nftables and the programs of OpenSSH"
	exit 0
fi
trap 'net_down; rm -rf "$tmp"' EXIT
net_up
ssh_user
sshd_on b 10.91.0.3
sshd_on d 10.91.0.4
cpath=$tmp/c/bin:$PATH

# ---- a tarball of the program that is tested ----
version=$("$hs" --version | sed 's/^heteroshard \([^,]*\).*/\1/')
name=heteroshard-$version-linux-$(uname -m)
mkdir -p "$tmp/c/dist" "$tmp/$name/bin"
ln "$hs" "$tmp/$name/bin/heteroshard" 2>/dev/null || cp "$hs" "$tmp/$name/bin/heteroshard"
tar -C "$tmp" -c "$name" | xz -0 >"$tmp/c/dist/$name.tar.xz"

net_job "$tmp/c"
cat >"$tmp/c/cluster.yaml" <<END
$(cat "$tmp/c/job.yaml")
coordinator: {ip: 10.91.0.1}
workers:
  - {id: box2, ssh: root@10.91.0.3, device: cpu, threads: 1, nice: 3}
  - {id: box3, ssh: 'root@10.91.0.4:22', device: cpu, memory: 2}
shard_plan:
  - {id: box2, start: 0, end: 1}
  - {id: box3, start: 1, end: 2}
  - {id: local, start: 2, end: 3}
END

# ---- what stands against it, each in one line ----
one() { # TEXT [WORDS OF UP]: of box2 alone
	local text=$1
	shift
	run up "$@" cluster.yaml box2
	[ $? -eq 1 ] && line "$text"
}
one "box2: heteroshard is not there: 'heteroshard up --install' copies it"
check "the program is not there"
one "$name.tar.xz is not in $tmp: 'make dist ARCH=$(uname -m)' makes it, and --from says" \
	--install --from "$tmp"
check "no tarball for it"
mkdir -p "$tmp/b/bin"
printf '#!/bin/sh\necho heteroshard 0.0.9\n' >"$tmp/b/bin/heteroshard"
chmod 755 "$tmp/b/bin/heteroshard"
one "version 0.0.9 in $tmp/b/bin/heteroshard is there, and $version here: 'heteroshard up"
check "another version is there"
printf '#!/bin/sh\necho ppc64\n' >"$tmp/b/bin/uname"
chmod 755 "$tmp/b/bin/uname"
one "it is a machine of the kind ppc64, and there are programs for x86_64 and aarch64" --install
check "a machine that there is no program for"
rm "$tmp/b/bin/uname"
printf '#!/bin/sh\necho x x x x x x\necho /dev/x 9 9 2048 0 /\n' >"$tmp/b/bin/df"
chmod 755 "$tmp/b/bin/df"
one "2 MiB are free in the home folder there, and the program needs" --install --from dist
check "no space there"
rm "$tmp/b/bin/df"
mkdir -p "$tmp/b/.local/share/heteroshard"
ln -s /dev/full "$tmp/b/.local/share/heteroshard/new-box2.tar.xz"
one "no space is left there: make room in the home folder of root@10.91.0.3" --install --from dist
check "no space there, noticed while it is written"
rm "$tmp/b/.local/share/heteroshard/new-box2.tar.xz"
mkdir -p "$tmp/c/wrong" "$tmp/w/$name/bin"
printf '\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\2\0\363\0' >"$tmp/w/$name/bin/heteroshard"
chmod 755 "$tmp/w/$name/bin/heteroshard"
tar -C "$tmp/w" -c "$name" | xz -0 >"$tmp/c/wrong/$name.tar.xz"
one "the program of the tarball does not run there: " --install --from wrong
check "a tarball for another architecture"
mv "$tmp/c/ssh/key" "$tmp/c/ssh/key.away"
one "ssh asks for a password: 'ssh-copy-id root@10.91.0.3' lets this machine in by key"
check "ssh asks for a password"
mv "$tmp/c/ssh/key.away" "$tmp/c/ssh/key"
cp "$tmp/c/ssh/known_hosts" "$tmp/known"
sed -i "s|^10.91.0.3 .*|10.91.0.3 $(cut -d' ' -f1,2 "$tmp/d/sshd/key.pub")|" \
	"$tmp/c/ssh/known_hosts"
one "is not the one that ssh knows: if the machine was installed anew, 'ssh-keygen -R 10.91.0.3'"
check "a host key that changed"
ssh_forget 10.91.0.3
one "ssh does not know its host key yet: run 'ssh root@10.91.0.3' once and accept it"
check "a host key that is not known"
cp "$tmp/known" "$tmp/c/ssh/known_hosts"
sed 's/10.91.0.3/10.91.0.3:23/' "$tmp/c/cluster.yaml" >"$tmp/c/port.yaml"
run up port.yaml box2
line "nothing listens at its ssh port: does sshd run there? ('ssh -p 23 root@10.91.0.3')"
check "no sshd there"
sed 's/root@10.91.0.3/-oProxyCommand=x/' "$tmp/c/cluster.yaml" >"$tmp/c/option.yaml"
run up option.yaml box2
[ $? -eq 2 ] && line "worker 'box2': ssh: '-oProxyCommand=x': user@host or user@host:port"
check "an option in place of a machine"
sed '/id: box3/s/ssh:/ip: 10.91.0.4, ssh:/' "$tmp/c/cluster.yaml" >"$tmp/c/mixed.yaml"
echo "min_workers: 1" >>"$tmp/c/mixed.yaml"
mixed="some workers have 'ip' or 'hostname', and others none: give all of them an address, or none"
run up mixed.yaml
[ $? -eq 2 ] && line "$mixed" && ! run train mixed.yaml && line "$mixed"
check "workers with an address and invited ones in one configuration"
run up job.yaml
[ $? -eq 2 ] && line "no worker has 'ssh'"
check "a configuration without machines"
run up cluster.yaml box9
[ $? -eq 2 ] && line "there is no worker 'box9' in cluster.yaml"
check "a worker that is not in it"
run down
[ $? -eq 2 ] && line "no configuration was named, and 'heteroshard up' has started none"
check "down before any up"

# ---- up ----
asked() { # ANSWER: up of box2 on a terminal
	echo "$1" >"$tmp/answer"
	on c env PATH="$cpath" script -qec "$hs up --from dist cluster.yaml box2" /dev/null \
		<"$tmp/answer" >"$tmp/out" 2>"$tmp/err"
}
if command -v script >/dev/null; then
	asked n
	grep -qF '[y/N]' "$tmp/out" && [ ! -e "$tmp/b/.local/share/heteroshard/$version" ]
	check "on a terminal up asks before it copies the program; no is no"
fi
run up --install --from dist cluster.yaml && grep -q '^box2: started' "$tmp/out" &&
	grep -q '^box3: started' "$tmp/out"
check "up --install copies the program, invites both and starts them"
[ -x "$tmp/b/.local/share/heteroshard/$version/bin/heteroshard" ] &&
	[ -z "$(ls "$tmp/b/.local/share/heteroshard" | grep -v "^$version\$")" ]
check "beside the other version, and nothing is left over"
pid=$(cat "$tmp/b/.local/state/heteroshard/box2/pid")
[ "$(ps -o ni= -p "$pid" | tr -d ' ')" = 3 ]
check "nice"
run up cluster.yaml && grep -q '^box2: runs already$' "$tmp/out" &&
	[ "$pid" = "$(cat "$tmp/b/.local/state/heteroshard/box2/pid")" ]
check "a second up starts nothing"
sed 's/threads: 1/threads: 2/' "$tmp/c/cluster.yaml" >"$tmp/c/other.yaml"
run up other.yaml && grep -q '^box2: runs already, as it was started: ' "$tmp/out" &&
	grep -q '^box3: runs already$' "$tmp/out"
check "and says when the configuration of one has changed"
sed -i 's/^[^ ]*/0.0.9/' "$tmp/d/.local/state/heteroshard/box3/words"
run up cluster.yaml && grep -q '^box3: runs already, as it was started: ' "$tmp/out"
check "or its version"
run status && grep -q '^no job runs on this machine$' "$tmp/out" &&
	grep -qE "^box2  *yes  *$version .* free  *none  *waits" "$tmp/out" &&
	grep -qE '^box3 .* free' "$tmp/out"
check "status: reachable, version, device, memory"

# ---- a job ----
on c timeout 60 "$hs" train job.yaml output_dir=alone >"$tmp/out" 2>"$tmp/err"
run train cluster.yaml
check "a job over them"
[ "$(losses run)" = "$(losses alone)" ] && [ -n "$(losses run)" ]
check "with the losses of one machine, bit for bit"
! grep -q 'do not reach each other' "$tmp/err"
check "machines of one network reach each other directly"
begin "$tmp/long" c timeout 100 "$hs" train cluster.yaml max_steps=100000 output_dir=long
job=$!
until_ok 40 grep -q . "$tmp/c/long/metrics.jsonl" 2>/dev/null
run status cluster.yaml --json && python3 - "$tmp/out" <<'END'
import json, sys
s = json.load(open(sys.argv[1]))
job = s["jobs"][0]
assert job["step"] >= 1 and job["steps"] == 100000 and job["loss"] > 0, job
assert [w["id"] for w in job["workers"]] == ["box2", "box3", "local"], job
for w in s["workers"]:
    assert w["reachable"] == "yes" and "/long, layers " in w["job"], w
    assert w["last"].startswith("step ") and w["last"].endswith(" of 100000"), w
END
check "status of a job that runs, by its control socket: step, loss, who holds what"
[ "$(stat -c %a "$tmp/c/run/heteroshard")" = 700 ] && ls "$tmp/c/run/heteroshard" |
	grep -q '^long-[0-9]*\.sock$'
check "the socket is in the user's own folder"

# ---- an invitation while the job runs ----
sshd_on n 192.168.9.2
begin "$tmp/token" c timeout 60 "$hs" invite --name attic
inviting=$!
until_ok 20 test -s "$tmp/token"
grep -q 'if that is a job, it takes the invitation' "$tmp/token.err" &&
	on n timeout 30 "$hs" worker --join "$(head -n 1 "$tmp/token")" >"$tmp/out" 2>"$tmp/err" &&
	wait $inviting && grep -q '^attic has joined$' "$tmp/token"
check "a job that runs lets a new machine join"
kill -0 $job && run peers && grep -q '^attic ' "$tmp/out"
check "and goes on; peers lists it"
run logs box2 && grep -q '^box2: .*step' "$tmp/out" && ! grep -q '^box3:' "$tmp/out"
check "logs of one worker"
grep -q "'box3' has joined .*, 2\.0 GiB$" "$tmp/d/.local/state/heteroshard/box3/log"
check "memory: the worker says that it has so much"
begin "$tmp/follow" c env PATH="$cpath" timeout 60 "$hs" logs -f
follow=$!
until_ok 20 grep -q '^box3: .*step' "$tmp/follow" && until_ok 20 grep -q '^box2: ' "$tmp/follow"
check "logs -f of all of them"
for p in $(ip netns pids "$net-d"); do
	[ "$(cat "/proc/$p/comm")" = tail ] && kill "$p"
done
until_ok 20 grep -q '^error: box3: ' "$tmp/follow.err" && kill -0 $follow
check "and says at once when those of one end"
kill $follow
wait $follow 2>/dev/null

# ---- down ----
run down && grep -q '^box2: stopped$' "$tmp/out" && grep -q '^box3: stopped$' "$tmp/out"
check "down ends them"
left() { # WORKER
	grep -qE "'$1'.* (has|have) left" "$tmp/long.err"
}
until_ok 40 left box2 && until_ok 40 left box3
kill $job # it goes on with the coordinator's own worker
wait $job
status=$?
cp "$tmp/long.err" "$tmp/err"
[ $status -eq 1 ] && grep -q saved "$tmp/long.err" && ls "$tmp/c/long/checkpoints" | grep -q step
check "and the job has saved and ended"
! grep -q . "/proc/$pid/cmdline" 2>/dev/null && run down && grep -q '^box2: did not run$' "$tmp/out"
check "nothing is left there"
run status
grep -qE '^box2 .*does not run' "$tmp/out"
check "status says that they do not run"

# ---- a machine that is removed while it works ----
run up cluster.yaml
begin "$tmp/third" c timeout 100 "$hs" train cluster.yaml max_steps=100000 output_dir=third \
	min_workers=3 rejoin_timeout=0
job=$!
until_ok 40 grep -q . "$tmp/c/third/metrics.jsonl" 2>/dev/null
run peers remove box3
until_ok 30 sh -c "! kill -0 $job 2>/dev/null"
wait $job
[ $? -eq 1 ] && cp "$tmp/third.err" "$tmp/err" &&
	grep -q "^error: .*'box3'.*its machine was removed from the peers here" "$tmp/err"
check "a peer that is removed is thrown out of a job that runs"
until_ok 30 grep -q '^warning: the job ended: ' "$tmp/d/.local/state/heteroshard/box3/log"
check "its worker says that the job ended"
run up cluster.yaml && grep -q '^box3: started' "$tmp/out" && run peers &&
	grep -q '^box3 ' "$tmp/out"
check "up lets it join anew"
run down

# ---- several times at once, on a machine that is slow between looking and starting ----
printf '#!/bin/sh\nsleep 1\nexec /bin/mkdir "$@"\n' >"$tmp/b/bin/mkdir"
chmod 755 "$tmp/b/bin/mkdir"
ups=()
for k in 1 2 3; do
	begin "$tmp/up$k" c env PATH="$cpath" timeout 60 "$hs" up cluster.yaml box2
	ups+=($!)
done
wait "${ups[@]}" && [ "$(cat "$tmp"/up? | grep -c '^box2: started')" = 1 ] &&
	[ "$(cat "$tmp"/up? | grep -c '^box2: runs already$')" = 2 ] &&
	[ "$(for p in $(ip netns pids "$net-b"); do tr '\0' ' ' <"/proc/$p/cmdline"; echo; done |
		grep -c 'heteroshard worker ')" = 1 ]
check "up three times at once starts one worker"
run down
begin "$tmp/up1" c env PATH="$cpath" "$hs" up cluster.yaml box2
up=$!
until_ok 20 test -e "$tmp/b/.local/state/heteroshard/box2/starting"
kill -INT $up
wait $up
cp "$tmp/up1.err" "$tmp/err"
line "error: box2: interrupted" && run down && grep -q '^box2: stopped$' "$tmp/out"
check "down ends a worker that an interrupted up still starts"
rm "$tmp/b/bin/mkdir"

# ---- two workers of one machine ----
cat >"$tmp/c/two.yaml" <<END
$(cat "$tmp/c/job.yaml")
coordinator: {ip: 10.91.0.1, device: none}
workers:
  - {id: first, ssh: root@10.91.0.3, device: cpu, threads: 1}
  - {id: second, ssh: root@10.91.0.3, device: cpu, threads: 1}
END
run up two.yaml && grep -q '^first: started' "$tmp/out" && grep -q '^second: started' "$tmp/out"
check "two workers of one machine, each with a key of its own"
mask() { # ID: the processors that it keeps to
	sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' \
		"/proc/$(cat "$tmp/b/.local/state/heteroshard/$1/pid")/status"
}
[ "$(nproc)" -lt 2 ] || { [ "$(mask first)" != "$(mask second)" ] &&
	[[ $(mask first) =~ ^[0-9]+$ ]] && [[ $(mask second) =~ ^[0-9]+$ ]]; }
check "threads: each keeps to a processor of its own"
run train two.yaml output_dir=two && [ "$(losses two)" = "$(losses alone)" ]
check "and they work together"
run profile two.yaml output_dir=measured && grep -q '"first"' "$tmp/c/measured/profile.json"
check "and what is between them is measured"
run down two.yaml
run train two.yaml output_dir=two join_timeout=1
[ $? -eq 1 ] && line "did not join within 1 s (join_timeout): worker 'first' (first, invited)" &&
	line "Does 'heteroshard worker' run there, and"
check "when they do not run, a job says so"

# ---- one that fails ----
kill $(ip netns pids "$net-d") 2>/dev/null
run up cluster.yaml
[ $? -eq 1 ] && grep -q '^error: box3: nothing listens at its ssh port' "$tmp/err" &&
	grep -q '^box2: started' "$tmp/out"
check "one that fails is named, and the other is started"
echo "min_workers: 1" >>"$tmp/c/cluster.yaml"
run up cluster.yaml && grep -q '^1 of 2 workers run, 1 are needed (min_workers)$' "$tmp/err"
check "min_workers: that is enough"
if [ -n "${TEST_LONG:-}" ]; then
	run train cluster.yaml shard_plan= output_dir=one &&
		grep -q "'box3' is not there" "$tmp/err"
	check "for a job too"
fi
run status
[ $? -eq 1 ] && grep -qE '^box3  *no ' "$tmp/out"
check "status names the machine that does not answer"
run down cluster.yaml box2

# ---- with addresses and keys, the configuration is copied ----
sshd_on d 10.91.0.4
key() { on "$1" "$hs" keygen 2>/dev/null; }
rm -f "$tmp/d/.config/heteroshard/key"*
cat >"$tmp/c/keys.yaml" <<END
$(cat "$tmp/c/job.yaml")
coordinator: {ip: 10.91.0.1, public_key: $(on c "$hs" keygen --show)}
workers:
  - {id: far, ip: 10.91.0.4, ssh: root@10.91.0.4, device: cpu, public_key: $(key d)}
shard_plan: [{id: far, start: 0, end: 2}, {id: local, start: 2, end: 3}]
END
run up --install --from dist keys.yaml && grep -q '^far: started: .*listens at' "$tmp/out"
check "a worker with an address gets the configuration"
run train keys.yaml output_dir=keyed && [ "$(losses keyed)" = "$(losses alone)" ] &&
	run train keys.yaml output_dir=next && [ "$(losses next)" = "$(losses alone)" ]
check "and works, for one job after the other"
rm -f "$tmp/b/.config/heteroshard/key"*
gone="{id: gone, ip: 10.91.0.3, ssh: root@10.91.0.3, device: cpu, public_key: $(key b)}"
sed -e '/shard_plan/d' -e "s/^workers:.*/&\n  - $gone/" "$tmp/c/keys.yaml" >"$tmp/c/some.yaml"
echo "planner: even" >>"$tmp/c/some.yaml"
run up keys.yaml
run train some.yaml output_dir=some join_timeout=1 min_workers=2
[ $? -eq 1 ] && grep -q '^error: 1 of 2 workers answered within 1 s (join_timeout), and min_wo' \
	"$tmp/err"
check "min_workers: too few with an address"
run train some.yaml output_dir=some join_timeout=4 min_workers=1 &&
	[ "$(losses some)" = "$(losses alone)" ] &&
	grep -q "worker 'gone' is not there" "$tmp/err"
check "min_workers: the job goes on with the one that is there"
run down keys.yaml
cp "$tmp/d/.config/heteroshard/key.pub" "$tmp/right"
sed -i "s/public_key: $(cat "$tmp/right")/public_key: $(on c "$hs" keygen --show)/" \
	"$tmp/c/keys.yaml"
run up keys.yaml
[ $? -eq 1 ] && line "this machine's public key is 'hs1-"
check "a key that is not that machine's"
echo "1..$n"
exit $failed
