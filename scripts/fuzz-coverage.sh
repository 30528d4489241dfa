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

# target, then the files that it reads with
readers() {
	sed -e :a -e '/\\$/N; s/ *\\\n\t*/ /; ta' <<'ROWS'
frame src/net/frame.c
wire src/net/wire.c
link src/net/tls_conn.c src/net/tls_crypt.c src/net/tls_head.c
protocol src/proto/protocol.c src/proto/hello.c src/proto/link_probe_wire.c
measure src/proto/measure_wire.c
session src/coord/session.c src/coord/session_begin.c src/coord/session_state.c \
	src/coord/weights_out.c
worker src/worker/worker.c src/worker/exchange.c src/worker/orders.c src/worker/weights_in.c
ROWS
}

flags="-O1 -fprofile-instr-generate -fcoverage-mapping -fsanitize=fuzzer-no-link"
flags="$flags -Wno-unknown-warning-option"
make -s -j2 CC="${FUZZ_CC:-clang}" BUILD=$build EXTRA_CFLAGS="$flags" $build/libheteroshard.a \
	>/dev/null || { echo "fuzz-coverage: the library does not build with clang"; exit 1; }
mkdir -p $build/fuzz
export OMP_NUM_THREADS=1
status=0
while read -r target files; do
	case $target in *"$pattern"*) ;; *) continue ;; esac
	[ -f "tests/fuzz/fuzz_$target.c" ] || continue
	# shellcheck disable=SC2046
	clang -std=gnu11 -g $flags -fsanitize=fuzzer -fopenmp -D_GNU_SOURCE \
		-Isrc -Iinclude -Itests -I$build/gen "tests/fuzz/fuzz_$target.c" $build/libheteroshard.a \
		$(make -s -f Makefile BUILD=$build print-libs) -o "$build/fuzz/$target" || exit 1
	corpus=build-fuzz/corpus/$target
	mkdir -p "$corpus"
	rm -f "$build/fuzz/$target".*prof*
	LLVM_PROFILE_FILE=$build/fuzz/$target.%p.profraw "$build/fuzz/$target" -timeout=60 \
		-rss_limit_mb=4000 -max_len=65536 -max_total_time="$seconds" \
		$([ "$seconds" = 0 ] && echo -runs=0) "$corpus" "tests/fuzz/seeds/$target" \
		>"$build/fuzz/$target.log" 2>&1 || { echo "FAIL  $target"; status=1; continue; }
	llvm-profdata merge -o "$build/fuzz/$target.prof" "$build/fuzz/$target".*.profraw || exit 1
	for f in $files; do
		llvm-cov export -summary-only -instr-profile "$build/fuzz/$target.prof" \
			"$build/fuzz/$target" "$f" 2>/dev/null |
			python3 -c 'import json, sys
t = json.load(sys.stdin)["data"][0]["totals"]["lines"]
print("%-10s %-28s %5d of %5d lines %5.1f %%" % (sys.argv[1], sys.argv[2], t["covered"],
      t["count"], t["percent"]))' "$target" "$f"
		[ -z "$lines" ] || llvm-cov show -instr-profile "$build/fuzz/$target.prof" \
			"$build/fuzz/$target" "$f" 2>/dev/null | grep -E '^ *[0-9]+\| +0\|'
	done
done < <(readers)
exit $status
