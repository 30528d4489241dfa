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
