#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# init: a first configuration from options or answers, which trains as it is. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
hs=${HS_BIN:-$PWD/build/heteroshard}
golden=$PWD/tests/golden/models
export HOME=$tmp XDG_RUNTIME_DIR=$tmp OMP_NUM_THREADS=1 OCL_ICD_VENDORS=/nonexistent
unset XDG_CONFIG_HOME XDG_CACHE_HOME
cd "$tmp" || exit 1
for i in $(seq 40); do
	echo "{\"text\": \"one two three four five six seven eight $i\"}"
done >"it's data.jsonl"
run() { "$hs" "$@" >out 2>err </dev/null; }
refuses() { # TEXT WORDS ...: one line
	local text=$1
	shift
	run init "$@"
	[ $? -eq 2 ] && [ "$(wc -l <err)" -eq 1 ] && grep -qF -- "$text" err
}
run init --model "$golden/smollm2" --data "it's data.jsonl" --minutes 5 &&
	grep -q '^max_minutes: 5 ' cluster.yaml && grep -q '^sequence_len: 256 ' cluster.yaml &&
	grep -q '^# this machine has cpu:0: ' cluster.yaml
check "a configuration from options, for a model of 256 positions"
[ "$(grep -c '#' cluster.yaml)" -ge 10 ]
check "with comments"
run train cluster.yaml visualize=false profile=none compute_dtype=float32 &&
	[ -d "runs/it-s-data" ]
check "it trains as it is"
run train cluster.yaml visualize=false profile=none compute_dtype=float32 num_epochs=1000 \
	output_dir=short max_minutes=0.02 &&
	grep -q '^its time is over (max_minutes) after step' err
check "max_minutes: saved, and a status of 0"
before=$(grep -c . short/metrics.jsonl)
run train cluster.yaml visualize=false profile=none compute_dtype=float32 num_epochs=1000 \
	output_dir=short max_minutes=0.02 resume_from_checkpoint=latest &&
	[ "$(grep -c . short/metrics.jsonl)" -gt "$before" ]
check "and it goes on from there"
cp cluster.yaml was
refuses "cluster.yaml is there already, and is not changed: name another file" \
	--model "$golden/smollm2" --data "it's data.jsonl" && cmp -s was cluster.yaml
check "it never writes over a file"
refuses "the data is missing: give --data PATH" --model "$golden/smollm2" x.yaml
check "data that was not named"
refuses "there is no file or folder nothing" --model nothing --data d x.yaml
check "a model that is not there"
refuses "no peer has the name 'box2'" --model "$golden/smollm2" --data "it's data.jsonl" \
	--workers box2 x.yaml
check "a worker that is no peer"
refuses "'-oX@y'" --model "$golden/smollm2" --data "it's data.jsonl" --workers -oX@y x.yaml
check "a worker that is an option of ssh"
[ ! -e x.yaml ]
check "nothing was written"
run init --model "$golden/smollm2" --data "it's data.jsonl" \
	--workers me@box2,me@10.0.0.7:2222 x.yaml &&
	grep -qF "  - {id: box2, ssh: 'me@box2', device: auto}" x.yaml &&
	grep -qF "  - {id: 10.0.0.7, ssh: 'me@10.0.0.7:2222', device: auto}" x.yaml
check "machines over ssh"
if command -v script >/dev/null; then
	printf '%s\n%s\n\n0\n' "$golden/smollm2" "it's data.jsonl" >answers
	script -qec "$hs init asked.yaml" /dev/null <answers >out 2>err
	grep -q "^base_model: '$golden/smollm2'" asked.yaml && ! grep -q '^workers' asked.yaml
	check "a configuration from answers"
fi
echo "1..$n"
exit $failed
