#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/lint.py finds circles between files by what their objects refer to. Two files are put into
# a scratch copy of src: first one calls the other, then each calls the other, then one is only
# named in the other's table of functions. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
echo "1..3"

cp -r src docs scripts "$tmp"
mkdir -p "$tmp/build/base"
head='/* SPDX-License-Identifier: Apache-2.0 */
/* for a test */'
lint() { # lint A B: the texts of base/trial_a.c and base/trial_b.c
	printf '%s\n%s\n' "$head" "$1" >"$tmp/src/base/trial_a.c"
	printf '%s\n%s\n' "$head" "$2" >"$tmp/src/base/trial_b.c"
	for f in trial_a trial_b; do
		${CC:-cc} -c "$tmp/src/base/$f.c" -o "$tmp/build/base/$f.o" || return 2
	done
	"$tmp/scripts/lint.py" "$tmp/build" >"$tmp/out" 2>&1
}
below='int trial_b(void); int trial_b(void) { return 1; }'
circle='src/base/trial_a.c:1: a circle of files: base/trial_a -> trial_b of base/trial_b'

lint 'int trial_b(void); int trial_a(void) { return trial_b(); }' "$below"
[ $? -le 1 ] && ! grep -qE "trial|Traceback" "$tmp/out"
check "a file that calls another is no circle"

lint 'int trial_b(void); int trial_a(void) { return trial_b(); }' \
	'int trial_a(void); int trial_b(void) { return trial_a(); }'
[ $? -eq 1 ] && grep -qF "$circle -> trial_a of base/trial_a" "$tmp/out"
check "two files that call each other are one"

lint 'int trial_b(void); int (*const rows[])(void) = { trial_b }; int trial_a(void) { return 0; }' \
	'int trial_a(void); int trial_b(void) { return trial_a(); }'
[ $? -eq 1 ] && grep -qF "$circle -> trial_a of base/trial_a" "$tmp/out"
check "so is a table with a row that calls back"
exit $failed
