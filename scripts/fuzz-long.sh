#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes in pieces that add up: target after target for PIECE seconds, until all pieces of this
# run have taken LIMIT seconds of processor time, or Ctrl-C or SIGTERM. One process at a time, which
# runs when nobody else wants the core. Several calls may run side by side, for unlike targets.
#   scripts/fuzz-long.sh [-p PIECE] [-l LIMIT] [-n] [-o] [PATTERN]
#     -n: with what is built already; -o: at ordinary priority; PATTERN: an extended expression
# What is found stays in build-fuzz/corpus. After each round of the targets, inputs of at most 4 KiB
# that reach code which the seeds do not reach are added to tests/fuzz/seeds, and the sums in
# tests/fuzz/HOURS.md go on: this script alone writes that file. A crash leaves its input in
# build-fuzz/crash and makes the exit status 1.
set -u
piece=120 limit=86400 built='' ordinary=''
while getopts p:l:no o; do
	case $o in
	p) piece=$OPTARG ;;
	l) limit=$OPTARG ;;
	n) built=1 ;;
	o) ordinary=1 ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
pattern=${1:-}
cd "$(dirname "$0")/.." || exit 1
build=build-fuzz ledger=tests/fuzz/HOURS.md
if [ -z "$ordinary" ]; then
	chrt -i -p 0 $$ 2>/dev/null
	renice -n 19 -p $$ >/dev/null 2>&1
fi

# Builds, and tries every seed once.
[ -n "$built" ] || scripts/fuzz.sh 0 "$pattern" || exit 1

export ASAN_OPTIONS=${ASAN_OPTIONS:-allocator_may_return_null=1:detect_leaks=1}
export UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=1
child='' over='' status=0
stop() {
	over=1
	[ -z "$child" ] || kill -TERM "$child" 2>/dev/null
}
trap stop INT TERM

# Processor seconds of the children that have ended, into $spent_now. (Not in a subshell, which has
# no children.)
cpu() {
	times >"$build/fuzz/times.$$"
	spent_now=$(awk -F'[ms ]+' 'NR == 2 { printf "%.1f", $1 * 60 + $2 + $3 * 60 + $4 }' \
		"$build/fuzz/times.$$")
}

# Adds to a target's row: seconds, inputs run, inputs kept, crashes.
account() {
	local old lock
	exec {lock}>"$build/fuzz/ledger.lock"
	flock "$lock"
	old=$(grep "^| $1 |" "$ledger" 2>/dev/null | tr -d '|')
	{
		cat <<'HEAD'
# Hours of fuzzing

Written by `make fuzz-long` (`scripts/fuzz-long.sh`), which adds to it. Processor time with address
and undefined-behaviour checks; inputs kept are those in `seeds` that such runs added.

| target | CPU seconds | inputs run | inputs kept | crashes |
|---|---|---|---|---|
HEAD
		{
			grep '^| [a-z_]* | [0-9]' "$ledger" 2>/dev/null | grep -v "^| $1 |"
			# shellcheck disable=SC2086
			set -- "$1" "$2" "$3" "$4" "$5" $old
			awk -v t="$1" -v s="$2" -v r="$3" -v k="$4" -v c="$5" \
				-v s0="${7:-0}" -v r0="${8:-0}" -v k0="${9:-0}" -v c0="${10:-0}" \
				'BEGIN { printf "| %s | %.0f | %.0f | %d | %d |\n",
					t, s + s0, r + r0, k + k0, c + c0 }'
		} | sort | tee "$build/fuzz/rows"
		awk -F'|' '{ s += $3 } END { printf "\nIn all %.2f CPU hours.\n", s / 3600 }' \
			"$build/fuzz/rows"
	} >"$ledger.new"
	rm -f "$build/fuzz/rows"
	mv "$ledger.new" "$ledger"
	exec {lock}>&-
}

# Runs the fuzzer of a target with these arguments, so that it can be stopped.
run() {
	local target=$1
	shift
	"$build/fuzz/fuzz_$target" -timeout=60 -rss_limit_mb=2500 "$@" \
		>"$build/fuzz/long_$target.log" 2>&1 &
	child=$!
	while kill -0 $child 2>/dev/null; do wait $child; done
	wait $child
	local rc=$?
	child=
	return $rc
}

one() {
	local target=$1 seeds=tests/fuzz/seeds/$1 corpus=$build/corpus/$1 before after runs crash=0
	mkdir -p "$corpus" "$seeds" $build/crash
	cpu
	before=$spent_now
	run "$target" -max_len=65536 -max_total_time="$piece" -print_final_stats=1 \
		-artifact_prefix="$build/crash/$target-" "$corpus" "$seeds"
	local rc=$?
	# 72: stopped by a signal; 143 before it could answer one
	if [ $rc != 0 ] && [ $rc != 72 ] && { [ -z "$over" ] || [ $rc != 143 ]; }; then
		crash=1 status=1
		echo "FAIL  $target: $(grep -aE 'SUMMARY|ERROR' "$build/fuzz/long_$target.log" |
			head -1)"
		cp "$build/fuzz/long_$target.log" "$build/crash/$target-$(date -u +%H%M%S).log"
	fi
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/fuzz/long_$target.log")
	cpu
	after=$spent_now
	spent=$(awk -v a="$spent" -v x="$after" -v y="$before" 'BEGIN { print a + x - y }')
	account "$target" "$(awk -v x="$after" -v y="$before" 'BEGIN { print x - y }')" \
		"${runs:-0}" 0 $crash
}

# Inputs that reach code which the seeds do not reach become seeds.
keep() {
	local target=$1 seeds=tests/fuzz/seeds/$1 corpus=$build/corpus/$1 new=$build/fuzz/new_$1 n=0
	rm -rf "$new"
	mkdir -p "$new"
	cp "$seeds"/* "$new"/ 2>/dev/null
	run "$target" -set_cover_merge=1 -use_counters=0 -max_len=4096 "$new" "$corpus" || return
	for f in "$new"/*; do
		[ -f "$f" ] && [ ! -f "$seeds/${f##*/}" ] && cp "$f" "$seeds/" && n=$((n + 1))
	done
	rm -rf "$new"
	[ $n = 0 ] || account "$target" 0 0 $n 0
}

targets=$(cd tests/fuzz && ls fuzz_*.c | sed 's/^fuzz_//; s/\.c$//' | grep -E -e "$pattern")
spent=0
while [ -z "$over" ] && awk -v a="$spent" -v b="$limit" 'BEGIN { exit !(a < b) }'; do
	for t in $targets; do
		[ -n "$over" ] || one "$t"
	done
	for t in $targets; do
		[ -n "$over" ] || keep "$t"
	done
done
rm -f "$build/fuzz/times.$$"
tail -1 "$ledger"
exit $status
