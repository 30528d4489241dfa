#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds every tests/fuzz/fuzz_*.c with clang's libFuzzer and the sanitizers, and runs each for
# SECONDS on its seeds.
#   scripts/fuzz.sh SECONDS [PATTERN]        PATTERN: an extended expression
# SECONDS 0: only the seeds and what was found before, each once. Two targets run at a time. With
# FUZZ_SAN=thread the thread sanitizer takes the place of the others, and that is all: the fuzzer's
# own counters would race. A crash leaves its input in build-fuzz/crash/ and makes the exit status
# 1. Without a usable clang the script says so and does nothing.
set -u
seconds=${1:-60} pattern=${2:-}
cd "$(dirname "$0")/.." || exit 1
san=${FUZZ_SAN:-address,undefined}
build=build-fuzz${FUZZ_SAN:+-$FUZZ_SAN}

usable() {
	command -v clang >/dev/null || return 1
	local d
	d=$(mktemp -d)
	cat >"$d/t.c" <<'C'
#include <omp.h>
int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n);
int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n)
{
	(void)p;
	return n > 1u << 30;
}
C
	clang -fopenmp -fsanitize=fuzzer,$san "$d/t.c" -o "$d/t" 2>/dev/null
	local rc=$?
	rm -rf "$d"
	return $rc
}

install_clang() {
	local sudo="" version
	[ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo=sudo || return 1; }
	echo "installing: clang libomp-dev"
	export DEBIAN_FRONTEND=noninteractive
	$sudo apt-get -q update >/dev/null 2>&1
	$sudo apt-get install -y -q --no-install-recommends clang libomp-dev >/dev/null 2>&1
	version=$(clang -dumpversion 2>/dev/null | cut -d. -f1)
	[ -n "$version" ] && $sudo apt-get install -y -q --no-install-recommends \
		"libclang-rt-$version-dev" "libomp-$version-dev" >/dev/null 2>&1
}

if ! usable; then
	install_clang
	usable || {
		echo "fuzz: skipped: clang with libFuzzer and libomp cannot be installed here"
		exit 0
	}
fi

scripts/install-deps.sh || exit 1
counters=fuzzer-no-link,
[ "$san" != thread ] || counters='' seconds=0
flags="-O1 -fsanitize=$counters$san -fno-sanitize-recover=undefined"
flags="$flags -fno-omit-frame-pointer -Wno-unknown-warning-option"
make -s -j2 CC=clang BUILD=$build EXTRA_CFLAGS="$flags" $build/libheteroshard.a >/dev/null || {
	echo "fuzz: the library does not build with clang"
	exit 1
}
mkdir -p $build/fuzz $build/crash
export ASAN_OPTIONS=${ASAN_OPTIONS:-allocator_may_return_null=1:detect_leaks=1}
export UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=1
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$PWD/tests/support/tsan.supp:halt_on_error=1}

# Builds the target of this source and runs it. Its report goes to the standard output.
one() {
	local source=$1 name subject corpus seeds="" log how runs cover
	name=$(basename "$source" .c)
	subject=${name#fuzz_}
	# shellcheck disable=SC2046,SC2086
	if ! { clang -std=gnu11 -g $flags -fopenmp -D_GNU_SOURCE -Isrc -Iinclude -Itests \
		-I$build/gen -c "$source" -o "$build/fuzz/$name.o" &&
		clang $flags -fsanitize=fuzzer -fopenmp "$build/fuzz/$name.o" \
			$build/libheteroshard.a $libs -o "$build/fuzz/$name"; }; then
		echo "FAIL  $name does not build"
		return 1
	fi
	corpus=$build/corpus/$subject
	mkdir -p "$corpus"
	[ -d "tests/fuzz/seeds/$subject" ] && seeds=tests/fuzz/seeds/$subject
	log=$build/fuzz/$name.log
	how=-max_total_time=$seconds
	[ "$seconds" != 0 ] || how=-runs=0
	if [ "$san" = thread ]; then # file after file; nothing is counted
		# shellcheck disable=SC2086
		how='' corpus='' seeds=$(find $seeds $build/corpus/$subject -type f)
	fi
	# shellcheck disable=SC2086
	if "$build/fuzz/$name" $how -timeout=20 -rss_limit_mb=2500 \
		-max_len=65536 -print_final_stats=1 ${CI:+-seed=1} \
		-artifact_prefix="$build/crash/$subject-" $corpus $seeds >"$log" 2>&1; then
		runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
		[ "$san" != thread ] || runs=$(grep -c '^Executed' "$log")
		cover=$(grep -aoE 'cov: [0-9]+' "$log" | tail -1)
		printf 'ok    %-24s %9s inputs in %s s, %s\n' "$name" "$runs" "$seconds" "$cover"
		return 0
	fi
	printf 'FAIL  %s (input in %s/crash/, log in %s)\n' "$name" "$build" "$log"
	grep -aE 'ERROR|SUMMARY|runtime error|#[0-9]+ .* in ' "$log" | head -25 | sed 's/^/    | /'
	return 1
}

libs=$(make -s -f Makefile BUILD=$build print-libs)
failed=$build/fuzz/failed ran=0
rm -f "$failed"
for source in tests/fuzz/fuzz_*.c; do
	[ -f "$source" ] || continue
	grep -qE -e "$pattern" <<<"$(basename "$source" .c)" || continue
	[ $ran -lt 2 ] || wait -n # two at a time
	{
		report=$(one "$source" 2>&1) || touch "$failed"
		echo "$report"
	} &
	ran=$((ran + 1))
done
wait
[ $ran -gt 0 ] || { echo "fuzz: no target matches"; exit 1; }
[ ! -e "$failed" ]
