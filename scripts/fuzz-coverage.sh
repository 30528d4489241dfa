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

# The target, which functions of its files are no reader (they match the second column), or which
# ones are it (they match what follows a +), the files. Not counted is what no input reaches by
# itself: what writes what the reader reads (frame_encode; wire_put_*, *_write, *_send, put_*), what
# waits for time to pass, and calls of a user that has its own data (session_send and others that
# only send, begin, end or answer questions of the run), or what needs a device that computes beside
# the host (look_ahead).
readers() {
	cat <<'ROWS'
frame    frame_encode|:put$             src/net/frame.c
wire     wire_(write|put)|:(put|room|put_raw)$  src/net/wire.c
link     -                              src/net/tls_conn.c src/net/tls_out.c
link     -                              src/net/tls_life.c src/net/tls_crypt.c
link     -                              src/net/tls_head.c src/net/tls_others.c
link     parallel_(cut|up|shut|ready)$|:piece_done$ src/net/tls_parallel.c
link     -                              src/net/shm_pass.c src/net/shm_proof.c src/net/shm_memory.c
protocol (_write|_size|_put|:put_.*)$   src/proto/protocol.c
protocol (_send|_refuse|:send_fields)$  src/proto/hello.c
protocol (_write|:put_.*)$              src/proto/link_probe_wire.c
measure  (_write|:put_.*)$              src/proto/measure_wire.c
session  +_(live|lost|blame|next|hear|recv|aborted|all|culprit|one|of_member)$ src/coord/session.c
session  session_(send_record|epoch)$   src/coord/session_state.c src/coord/session_kept.c
worker   -                              src/worker/worker.c
worker   look_ahead$                    src/engine/exchange.c
worker   -                              src/engine/orders.c src/worker/weights_in.c
peers    -                              src/peers/token.c src/peers/peer_list.c
peers    -                              src/base/base32.c
guests   -                              src/peers/guests.c src/peers/reception.c
mesh     (_write|_key|_up)$             src/mesh/mesh_part.c
guests   -                              src/peers/join.c src/peers/relay.c
hub      :tell$|http_post$|drop_data$   src/hub/hub.c src/hub/http.c
fleet    control_(leave|close)$         src/ops/control.c src/ops/ssh.c
fleet    fleet_(open|remember|remembered)$ src/ops/fleet.c
fleet    -                              src/cli/cmd_status.c
gguf     -          src/file/gguf.c src/file/format_gguf.c src/file/gguf_config.c
gguf     -          src/file/ggml_blocks.c
gguf     -          src/file/gguf_keys.c src/file/gguf_config_gemma4.c
safetensors -       src/file/safetensors.c src/base/json_each.c
config   config_load(_as)?$                  src/config/config.c
config   config_(is_plain|profile|complete|refers_first|names_ranks)$ src/config/config_check.c
config   config_names_ranks$                 src/config/config_cluster.c
config   yaml_(parse_file|find)$             src/base/yaml.c
tokenizer -         src/data/token_json.c src/data/token_gguf.c src/data/token_vocab.c
tokenizer -         src/data/token_merge.c src/data/token_split.c src/data/token_normal.c
tokenizer -         src/data/token_added.c src/data/tokenizer_bytebpe.c
tokenizer -         src/data/tokenizer_spm.c src/data/tokenizer.c
prepared +(take_prepared|spans_fit|example_fits) src/data/dataset.c
prepared +(prepared_open|:wrong|:map|check_of) src/data/prepared.c
dataset  -          src/data/records.c src/data/dataset_kind.c
dataset  :(begin_|take_|keep_)prepared$|spans_fit$|example_fits$ src/data/dataset.c
dataset  -          src/data/turns.c src/data/dataset_alpaca.c src/data/dataset_completion.c
dataset  -          src/data/dataset_messages.c src/data/dataset_sharegpt.c
dataset  -          src/data/dataset_text.c
dataset  -          src/data/fields.c
readers  -          src/data/parquet.c src/data/parquet_page.c src/data/thrift.c
readers  -          src/data/csv.c src/data/stream.c
jinja    -          src/data/jinja_lex.c src/data/jinja_parse.c src/data/jinja_value.c
jinja    -          src/data/jinja_print.c src/data/jinja_method.c src/data/jinja_filter.c
jinja    -          src/data/jinja_run.c src/data/jinja_math.c src/data/jinja.c
jinja    -          src/data/jinja_mark.c src/data/jinja_render.c
model_folder -      src/file/format_safetensors.c src/file/bnb.c src/file/peft.c
model_folder -      src/file/text_part.c
model_folder model_file_untie$ src/file/model_file.c
profile  -          src/plan/profile_json.c src/plan/profile_ways.c
plan     -          src/plan/plan_json.c
own_text -          src/model/own_text.c
ROWS
}

flags="-O1 -fprofile-instr-generate -fcoverage-mapping -fsanitize=fuzzer-no-link"
flags="$flags -Wno-unknown-warning-option"
make -s -j2 CC="${FUZZ_CC:-clang}" BUILD=$build EXTRA_CFLAGS="$flags" $build/libheteroshard.a \
	>/dev/null || { echo "fuzz-coverage: the library does not build with clang"; exit 1; }
mkdir -p $build/fuzz
export OMP_NUM_THREADS=1
status=0 ran=
: >"$build/fuzz/sums"
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
		llvm-cov report -show-functions -compilation-dir="$PWD" \
			-instr-profile "$build/fuzz/$target.prof" \
			"$build/fuzz/$target" "$f" 2>/dev/null |
			awk -v leave="$leave" -v name="$target  $f" '
			NF == 10 && $6 ~ /^[0-9]/ && $1 != "TOTAL" &&
				(leave ~ /^[+]/ ? $1 ~ substr(leave, 2) : $1 !~ leave) {
				all += $5; missed += $6 }
			END { printf "%-44s %5d of %5d lines %6.1f %%\n", name, all - missed, all,
				all ? 100 * (all - missed) / all : 0 }' | tee -a "$build/fuzz/sums"
		[ -z "$lines" ] || llvm-cov show -compilation-dir="$PWD" \
			-instr-profile "$build/fuzz/$target.prof" \
			"$build/fuzz/$target" "$f" 2>/dev/null | grep -E '^ *[0-9]+\| +0\|'
	done
done < <(readers)
# Each target as a whole; below 90 % the exit status is 1.
awk '{ hit[$1] += $3; all[$1] += $5 }
	END {
		for (t in all) {
			p = all[t] ? 100 * hit[t] / all[t] : 0
			printf "%s %-14s %6.1f %%\n", p < 90 ? "LOW" : "ok ", t, p
			low = low || p < 90
		}
		exit low
	}' "$build/fuzz/sums" || status=1
exit $status
