#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How many lines of its reader each fuzz target reaches, with its seeds and what was found so far
# (build-fuzz/corpus). The aim is 90 %.
#   scripts/fuzz-coverage.sh [-s SECONDS] [-u] [PATTERN]
#     -s SECONDS   let each target look for new inputs first
#     -u           print the lines that are not reached
# Needs clang with libFuzzer, llvm-profdata and llvm-cov; builds into build-coverage.
set -u
seconds=0 lines=
while getopts s:u o; do
	case $o in
	s) seconds=$OPTARG ;;
	u) lines=1 ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
pattern=${1:-}
cd "$(dirname "$0")/.." || exit 1
build=build-coverage

# The target, what is no reader in its files (functions whose names match), the files.
readers() {
	cat <<'ROWS'
frame    -                              src/net/frame.c
wire     wire_(write|put)|:(put|room|put_raw)$  src/net/wire.c
link     -                              src/net/tls_conn.c src/net/tls_crypt.c src/net/tls_head.c
protocol (_write|_size|_put|:put_.*)$   src/proto/protocol.c
protocol (_send|_refuse|:send_fields)$  src/proto/hello.c
protocol (_write|:put_.*)$              src/proto/link_probe_wire.c
measure  (_write|:put_.*)$              src/proto/measure_wire.c
session  -                              src/coord/session.c src/coord/session_state.c
worker   -                              src/worker/worker.c src/worker/exchange.c
worker   -                              src/worker/orders.c src/worker/weights_in.c
ROWS
}

flags="-O1 -fprofile-instr-generate -fcoverage-mapping -fsanitize=fuzzer-no-link"
flags="$flags -Wno-unknown-warning-option"
make -s -j2 CC="${FUZZ_CC:-clang}" BUILD=$build EXTRA_CFLAGS="$flags" $build/libheteroshard.a \
	>/dev/null || { echo "fuzz-coverage: the library does not build with clang"; exit 1; }
mkdir -p $build/fuzz
export OMP_NUM_THREADS=1
status=0 ran=
while read -r target leave files; do
	case $target in *"$pattern"*) ;; *) continue ;; esac
	if [ "$ran" != "$target" ]; then
		ran=$target
		# shellcheck disable=SC2046
		clang -std=gnu11 -g $flags -fsanitize=fuzzer -fopenmp -D_GNU_SOURCE \
			-Isrc -Iinclude -Itests -I$build/gen \
			"tests/fuzz/fuzz_$target.c" $build/libheteroshard.a \
			$(make -s -f Makefile BUILD=$build print-libs) \
			-o "$build/fuzz/$target" || exit 1
		corpus=build-fuzz/corpus/$target
		mkdir -p "$corpus"
		rm -f "$build/fuzz/$target".*prof*
		LLVM_PROFILE_FILE=$build/fuzz/$target.%p.profraw "$build/fuzz/$target" -timeout=60 \
			-rss_limit_mb=4000 -max_len=65536 -max_total_time="$seconds" \
			$([ "$seconds" = 0 ] && echo -runs=0) "$corpus" "tests/fuzz/seeds/$target" \
			>"$build/fuzz/$target.log" 2>&1 || { echo "FAIL  $target"; status=1; }
		llvm-profdata merge -o "$build/fuzz/$target.prof" \
			"$build/fuzz/$target".*.profraw || exit 1
	fi
	for f in $files; do
		llvm-cov report -show-functions -instr-profile "$build/fuzz/$target.prof" \
			"$build/fuzz/$target" "$f" 2>/dev/null |
			awk -v leave="$leave" -v name="$target  $f" '
			NF == 10 && $6 ~ /^[0-9]/ && $1 !~ leave && $1 != "TOTAL" {
				all += $5; missed += $6 }
			END { printf "%-44s %5d of %5d lines %6.1f %%\n", name, all - missed, all,
				all ? 100 * (all - missed) / all : 0 }'
		[ -z "$lines" ] || llvm-cov show -instr-profile "$build/fuzz/$target.prof" \
			"$build/fuzz/$target" "$f" 2>/dev/null | grep -E '^ *[0-9]+\| +0\|'
	done
done < <(readers)
exit $status
