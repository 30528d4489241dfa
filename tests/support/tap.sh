# SPDX-License-Identifier: Apache-2.0
# The opening of a test in shell: it stands in the root of the repository, has a folder of its own
# in $tmp, and prints TAP. To be sourced first, from tests/.
# shellcheck shell=bash
set -u
cd "$(dirname "$0")/.." || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
n=0 failed=0

# check NAME: the status of the command before is the verdict. When it failed, $tmp/out and $tmp/err
# are shown.
check() {
	local rc=$? f
	n=$((n + 1))
	if [ $rc -eq 0 ]; then
		echo "ok $n $1"
		return
	fi
	echo "not ok $n $1"
	for f in "$tmp/out" "$tmp/err"; do
		[ -f "$f" ] && sed 's/^/# /' "$f"
	done
	failed=1
}

# free_ports FIRST LAST COUNT: `port` is the first of COUNT ports from FIRST to LAST where nobody
# listens. The search begins at a block that follows from the number of this process.
free_ports() {
	local blocks=$((($2 - $1 + 1) / $3)) i k
	for ((i = 0; i < blocks; i++)); do
		port=$(($1 + ($$ + i) % blocks * $3))
		for ((k = 0; k < $3; k++)); do
			(: <>"/dev/tcp/127.0.0.1/$((port + k))") 2>/dev/null && continue 2
		done
		return 0
	done
	echo "all ports from $1 to $2 are taken" >&2
	exit 1
}
