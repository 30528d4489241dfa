#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Random events over the members of a job, in a short form: one job, in which everything that
# scripts/chaos.py can do happens, every 1.5 seconds or so. With TEST_LONG 1,000 events, and the
# table of docs/measurements.md. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
echo "1..2"
if [ -n "${TEST_LONG:-}" ]; then
	size="--events 1000 --steps 400 --gap 1.5"
else
	size="--steps 250 --gap 1.5"
fi
# shellcheck disable=SC2086
scripts/chaos.py $size >"$tmp/out" 2>"$tmp/err"
check "no job hangs or ends, and every result is that of one process"
grep -q '^| all | [1-9]' "$tmp/out"
check "something happened"
[ -z "${TEST_LONG:-}" ] || sed 's/^/# /' "$tmp/out"
exit $failed
