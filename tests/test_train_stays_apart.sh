#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two workers that reach the coordinator but not each other, in network namespaces (root): the job
# goes on around them, and the result is that of one process. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
if ! ip link add hsapart type bridge 2>/dev/null; then
	echo "1..0 # SKIP no right to make network namespaces"
	exit 0
fi
ip link del hsapart
echo "1..2"
scripts/chaos.py --only apart --workers 3 --steps 200 --gap 0.3 --seed 3 --verbose \
	>"$tmp/out" 2>"$tmp/err"
check "the job ends, and its result is that of one process"
grep -q "'w[123]' and 'w[123]' do not reach each other: they are planned around" "$tmp/out"
check "they are planned around"
exit $failed
