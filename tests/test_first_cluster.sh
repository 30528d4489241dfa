#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A newcomer's first cluster, by the commands of README and docs/cluster.md: three machines with a
# root of their own, one of them behind a router that lets nothing in. The Debian package is
# installed on each, one machine is invited, the other started over ssh; a job over all of them,
# status, down; the time it took. The roots are those of this machine with everything that is
# written kept apart; with TEST_LONG they are fresh ones, and apt installs the package with its
# dependencies. Prints TAP.
if [ -z "${FIRST_CLUSTER:-}" ] && [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
	# what is mounted goes with this process
	FIRST_CLUSTER=1 exec unshare -m --propagation private "$0" "$@"
fi
. "$(dirname "$0")/support/tap.sh"
. tests/support/net.sh
. tests/support/sshd.sh
build=${HS_BUILD:-$PWD/build}
unset MAKEFLAGS MFLAGS MAKEOVERRIDES
why=""
net_possible && ssh_possible && command -v nft dpkg-shlibdeps >/dev/null ||
	why="this needs root, iproute2, nftables, dpkg-dev and the programs of OpenSSH"
mkdir "$tmp/layers"
if [ -z "$why" ] && ! { mount -t tmpfs none "$tmp/layers" && mkdir "$tmp"/layers/{u,w,m} &&
	mount -t overlay none -o "lowerdir=/,upperdir=$tmp/layers/u,workdir=$tmp/layers/w" \
		"$tmp/layers/m"; } 2>/dev/null; then
	why="file systems cannot be laid over each other here"
fi
if [ -n "$why" ]; then
	echo "1..1"
	echo "ok 1 # SKIP $why"
	exit 0
fi
trap 'net_down; rm -rf --one-file-system "$tmp" 2>/dev/null' EXIT
net_up
here=$(. /etc/os-release; echo "$VERSION_CODENAME")

# ---- the package ----
{
	make -s install-data BUILD="$build" BIN="$hs" DESTDIR="$tmp/tree" PREFIX=/usr \
		UNITS=/lib/systemd/system -o "$hs" &&
		install -D -m 755 "$hs" "$tmp/tree/usr/bin/heteroshard" &&
		SOURCE_DATE_EPOCH=1700000000 scripts/package/deb.sh "$tmp/tree" "$tmp/deb" 0.1.0
} >"$tmp/out" 2>"$tmp/err"
check "the Debian package"

# ---- a root for each machine, with the package ----
layer() { # NAME LOWER: $tmp/layers/NAME, what is written there kept apart
	mkdir "$tmp/layers/$1" "$tmp/layers/u-$1" "$tmp/layers/w-$1"
	mount -t overlay none \
		-o "lowerdir=$2,upperdir=$tmp/layers/u-$1,workdir=$tmp/layers/w-$1" "$tmp/layers/$1"
}
begun=$(date +%s.%N)
if [ -z "${TEST_LONG:-}" ]; then # once for all three
	layer all /
	cp "$tmp"/deb/*.deb "$tmp/layers/all/"
	chroot "$tmp/layers/all" sh -c 'dpkg --no-triggers -i /heteroshard_*.deb' \
		>"$tmp/out" 2>"$tmp/err"
	check "dpkg installs it"
	umount "$tmp/layers/all"
fi
for x in c b n; do
	if [ -n "${TEST_LONG:-}" ]; then
		debootstrap --variant=minbase --include=openssh-server,openssh-client,iproute2 \
			"$here" "$tmp/layers/$x" >"$tmp/out" 2>"$tmp/err"
		check "a fresh root for $x"
		cp /etc/apt/sources.list.d/debian.sources \
			"$tmp/layers/$x/etc/apt/sources.list.d/" 2>/dev/null
		cp "$tmp"/deb/*.deb "$tmp/layers/$x/"
		chroot "$tmp/layers/$x" sh -c 'apt-get update &&
			apt-get install -y --no-install-recommends /heteroshard_*.deb' \
			>"$tmp/out" 2>"$tmp/err"
		check "apt installs the package on $x, with its dependencies"
	else
		layer "$x" "$tmp/layers/u-all:/"
		mount -t tmpfs -o mode=1777 none "$tmp/layers/$x/tmp"
	fi
	mount -t tmpfs -o mode=700 none "$tmp/layers/$x/root"
	mount --bind /dev "$tmp/layers/$x/dev"
	mkdir -p "$tmp/layers/$x/root/job" "$tmp/layers/$x/run/sshd"
done
installed=$(date +%s.%N)

# Commands there: as its root, with a plain environment.
exec_at() {
	local x=$1
	shift
	exec ip netns exec "$net-$x" unshare -m sh -c 'mount -t proc proc "$0/proc" && root=$0 &&
		exec chroot "$root" env -i HOME=/root USER=root LANG=C.UTF-8 OMP_NUM_THREADS=1 \
		OCL_ICD_VENDORS=/nonexistent PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin \
		sh -c "cd /root/job && exec \"\$@\"" sh "$@"' "$tmp/layers/$x" "$@"
}
at() { (exec_at "$@") >"$tmp/out" 2>"$tmp/err" </dev/null; }
# beside FILE MACHINE COMMAND ...: as process $!
beside() {
	local file=$1
	shift
	: >"$file"
	exec_at "$@" >"$file" 2>"$file.err" </dev/null &
}

cp -r "$golden/smollm2" "$tmp/layers/c/root/job/model"
for i in 1 2 3 4 5 6; do
	echo "{\"text\": \"one two three four five six seven eight $i\"}"
done >"$tmp/layers/c/root/job/data.jsonl"

# ---- by invitation, behind a router ----
beside "$tmp/token" c timeout 100 heteroshard invite --name attic
inviting=$!
until_ok 20 test -s "$tmp/token"
at n timeout 30 heteroshard worker --join "$(head -n 1 "$tmp/token")" && wait $inviting
check "heteroshard invite, heteroshard worker --join"
beside "$tmp/worker" n timeout 250 heteroshard worker
worker=$!
at c heteroshard init --model model --data data.jsonl --workers all job.yaml
check "heteroshard init"
short="max_steps=2 sequence_len=32 profile=none visualize=false"
# shellcheck disable=SC2086
at c timeout 100 heteroshard train job.yaml $short &&
	[ -s "$tmp/layers/c/root/job/runs/data/adapter_model.safetensors" ] &&
	grep -q "'attic'" "$tmp/err"
check "heteroshard train job.yaml: workers: all"

# ---- over ssh ----
ssh-keygen -q -t ed25519 -N '' -f "$tmp/key"
mkdir -p -m 700 "$tmp"/layers/{c,b}/root/.ssh
ssh-keygen -q -t ed25519 -N '' -f "$tmp/layers/b/root/hostkey"
cp "$tmp/key" "$tmp/layers/c/root/.ssh/id_ed25519"
cp "$tmp/key.pub" "$tmp/layers/b/root/.ssh/authorized_keys"
chmod 600 "$tmp"/layers/*/root/.ssh/*
echo "10.91.0.3 $(cut -d' ' -f1,2 "$tmp/layers/b/root/hostkey.pub")" \
	>"$tmp/layers/c/root/.ssh/known_hosts"
beside "$tmp/sshd" b /usr/sbin/sshd -D -e -h /root/hostkey -o StrictModes=no -o UsePAM=no \
	-o PidFile=none
until_ok 20 sh -c "ip netns exec $net-b ss -ltn | grep -q ':22 '"
sed '/^workers/d' "$tmp/layers/c/root/job/job.yaml" >"$tmp/layers/c/root/job/cluster.yaml"
cat >>"$tmp/layers/c/root/job/cluster.yaml" <<'END'
workers:
  - {id: box2, ssh: root@10.91.0.3, device: cpu}
  - {id: attic}
END
at c timeout 100 heteroshard up cluster.yaml && grep -q '^box2: started' "$tmp/out" &&
	grep -q "^1 more without 'ssh'" "$tmp/err"
check "heteroshard up cluster.yaml"
# shellcheck disable=SC2086
beside "$tmp/train" c timeout 100 heteroshard train cluster.yaml $short max_steps=100000 \
	overwrite_output_dir=true
job=$!
until_ok 60 grep -q '^step  *[0-9]' "$tmp/train.err"
at c timeout 60 heteroshard status && grep -qE '^/root/job/runs/data .* of 100000 ' "$tmp/out" &&
	grep -qE '^box2 .*step [0-9]+ of 100000' "$tmp/out"
check "heteroshard status: the job, and what the machine does in it"
at c timeout 100 heteroshard down && grep -q '^box2: stopped$' "$tmp/out"
check "heteroshard down"
until_ok 60 grep -q "'box2' has left" "$tmp/train.err"
cp "$tmp/train.err" "$tmp/err"
check "the job goes on without it"
kill $job
wait $job
cp "$tmp/train.err" "$tmp/err"
[ -n "$(ls "$tmp/layers/c/root/job/runs/data/checkpoints" 2>/dev/null)" ]
check "the job has saved"
at c heteroshard peers && grep -q '^attic ' "$tmp/out" && grep -q '^box2 ' "$tmp/out"
check "heteroshard peers"
kill $worker
ended=$(date +%s.%N)
awk -v a="$begun" -v b="$installed" -v c="$ended" 'BEGIN {
	printf "# installing %.1f s, the rest %.1f s\n", b - a, c - b }'
echo "1..$n"
exit $failed
