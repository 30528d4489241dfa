#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every test program of a build folder and every script tests/test_*.sh, each with a timeout:
# three at a time, because most of them wait for half of their time, and those that compare speeds
# alone at the end. Prints one line for each, the output of those that fail, and the sums.
# Exit status 0 only when something ran and nothing failed; with CI=true nothing may be skipped
# either.
#   scripts/run-tests.sh BUILD [PATTERN]     PATTERN: only programs whose name contains it
#   TEST_TIMEOUT=1200                        seconds a program may take
#   TEST_LANES=3                             programs at a time
#   HS_SEED=1                                the seed of random inputs; a program started by hand
#                                            draws a new one each time and prints it
set -u
build=${1:?usage: scripts/run-tests.sh BUILD [PATTERN]}
pattern=${2:-}
limit=${TEST_TIMEOUT:-1200}
cd "$(dirname "$0")/.." || exit 1
case $build in /*) ;; *) build=$PWD/$build ;; esac
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export HS_SEED=${HS_SEED:-1}
export HS_ZIG=${XDG_CACHE_HOME:-$HOME/.cache}/heteroshard/ziglang-0.17.1/ziglang/zig
export HS_BIN=$build/heteroshard HS_BUILD=$build HS_SOURCE=$PWD CMOCKA_MESSAGE_OUTPUT=TAP
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$PWD/tests/support/lsan.supp:print_suppressions=0}
# OpenMP threads that spin for long while they wait slow down every other process. Threads that
# never spin (OMP_WAIT_POLICY=passive) make a test with several workers in a process 3 times slower.
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000}
tsan=suppressions=$PWD/tests/support/tsan.supp
tsan=$tsan:ignore_noninstrumented_modules=1:allocator_may_return_null=1
export TSAN_OPTIONS=${TSAN_OPTIONS:-$tsan}
# OpenMP's runtime is not instrumented, so its barriers look like races: with one OpenMP thread only
# the program's own threads are checked. OpenCL drivers are not instrumented either, and very slow
# under the sanitizer.
case ${build##*/} in
build-*thread*) export OMP_NUM_THREADS=1 OCL_ICD_VENDORS=/nonexistent; limit=$((limit * 4)) ;;
build-*address*) export OCL_ICD_VENDORS=/nonexistent; limit=$((limit * 2)) ;;
esac
# Kernels and products are tested on Mesa's OpenCL driver for the processor too (it takes 0.3 s to
# load); with RUSTICL_ENABLE=llvmpipe all tests are.
mesa=${RUSTICL_ENABLE:-}
mesa_tests=" test_dev_gemm test_dev_kernels test_tensor_devices "
lanes=${TEST_LANES:-3}
# These compare speeds, so nothing may run beside them.
alone=" test_attack_job test_train_stays test_train_stays_speed "

# How often a line beginning with $1 stands in file $2.
count() { grep -acE "^$1" "$2"; }

# Runs program $1 with name $2. Prints its report in one piece, and keeps its figures for the sums.
run_one() {
	local t=$1 name=$2 out=$tmp/$2.out begin rc seconds
	local skip_ok skip_not skip ok bad planned lost
	local why="" verdict="ok  " note=""
	case $mesa_tests in
	*" $name "*) export RUSTICL_ENABLE=llvmpipe ;;
	*) export RUSTICL_ENABLE=$mesa ;;
	esac
	begin=$(date +%s.%N)
	# the braces keep the shell from announcing a crash a second time
	{ timeout -k 10 "$limit" "$t" >"$out" 2>&1 </dev/null; } 2>/dev/null
	rc=$?
	seconds=$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "%.2f", b - a }')
	skip_ok=$(count 'ok [0-9]+ # SKIP' "$out")
	skip_not=$(count 'not ok [0-9]+ # SKIP' "$out") # written by cmocka before 1.1.6
	skip=$((skip_ok + skip_not))
	ok=$(($(count 'ok [0-9]+' "$out") - skip_ok))
	bad=$(($(count 'not ok [0-9]+' "$out") - skip_not))
	planned=$(awk '/^1\.\.[0-9]+/ { sub(/^1\.\./, ""); n += $1 }
		END { print n + 0 }' "$out")
	lost=$((planned - ok - bad - skip))
	[ "$lost" -gt 0 ] && bad=$((bad + lost)) # planned, but the program ended before
	if [ $rc -eq 124 ] || [ $rc -eq 137 ]; then
		why=" (stopped after $limit s)"
	elif [ $rc -gt 128 ]; then
		why=" (killed by signal $((rc - 128)))"
	elif [ $rc -ne 0 ] && [ "$bad" -eq 0 ]; then
		why=" (exit status $rc)"
	elif [ $((ok + bad + skip)) -eq 0 ]; then
		why=" (no test ran)"
	fi
	[ -n "$why" ] && [ "$bad" -eq 0 ] && bad=1
	[ "$bad" -gt 0 ] && verdict=FAIL && note=", $bad failed"
	[ "$skip" -gt 0 ] && note="$note, $skip skipped"
	{
		printf '%s  %8s s  %-32s %3d passed%s%s\n' \
			"$verdict" "$seconds" "$name" "$ok" "$note" "$why"
		if [ "$bad" -gt 0 ]; then
			tail -n 60 "$out" | sed 's/^/    | /'
		elif [ "$skip" -gt 0 ]; then
			sed -nE 's/^(not )?ok [0-9]+ # SKIP/      skipped:/p' "$out"
		fi
	} >"$tmp/$name.report"
	flock "$tmp" cat "$tmp/$name.report"
	echo "$name $ok $bad $skip" >"$tmp/$name.sum"
	rm -f "$out"
}

# Runs the programs of the list $1 (lines: name, path), at most $2 at a time.
run_list() {
	local t name running=0
	while read -r name t; do
		[ -n "$name" ] || continue
		if [ "$running" -ge "$2" ]; then
			wait -n
			running=$((running - 1))
		fi
		run_one "$t" "$name" &
		running=$((running + 1))
	done <<<"$1"
	wait
}

beside="" last=""
for t in "$build"/tests/test_* tests/test_*.sh; do
	[ -f "$t" ] || continue
	name=${t##*/}
	[ "$t" = "tests/$name" ] && name=${name%.sh}
	case $name in *.*) continue ;; *"$pattern"*) ;; *) continue ;; esac
	if [ ! -x "$t" ]; then
		echo "FAIL              $name is not executable: chmod +x $t"
		echo "$name 0 1 0" >"$tmp/$name.sum"
		continue
	fi
	case $alone in
	*" $name "*) last="$last$name $t"$'\n' ;;
	*) beside="$beside$name $t"$'\n' ;;
	esac
done
run_list "$beside" "$lanes"
run_list "$last" 1

passed=0 failed=0 skipped=0 failing=""
for f in "$tmp"/*.sum; do
	[ -f "$f" ] || continue
	read -r name ok bad skip <"$f"
	passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
	[ "$bad" -gt 0 ] && failing="$failing $name"
done
[ -n "$failing" ] && echo "failing:$failing"
sum="$passed passed, $failed failed"
[ "$skipped" -gt 0 ] && sum="$sum, $skipped skipped"
echo "$sum"
case ${CI:-} in
"" | false | 0) ;;
*)
	if [ "$skipped" -gt 0 ]; then
		echo "CI is set: a skipped test counts as a failed one"
		exit 1
	fi
	;;
esac
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
