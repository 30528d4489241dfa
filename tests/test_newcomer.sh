#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a newcomer types: each mistake gets one line that says what to do, and the commands of the
# documents do what they say. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
hs=${HS_BIN:-$PWD/build/heteroshard}
golden=$PWD/tests/golden/models
export XDG_CONFIG_HOME=$tmp/config XDG_CACHE_HOME=$tmp/cache OMP_NUM_THREADS=1
# refuses NAME TEXT COMMAND ...: exit status 1 or 2, and one line, an error that holds TEXT
refuses() {
	local name=$1 text=$2 rc
	shift 2
	(cd "$tmp" && "$hs" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null)
	rc=$?
	[ $rc -eq 1 ] || [ $rc -eq 2 ] &&
		[ "$(wc -l <"$tmp/err")" -eq 1 ] && grep -q '^error: ' "$tmp/err" &&
		grep -qF -- "$text" "$tmp/err"
	check "$name"
}
# works NAME TEXT COMMAND ...: exit status 0, and TEXT in what it printed
works() {
	local name=$1 text=$2
	shift 2
	(cd "$tmp" && "$hs" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null) &&
		cat "$tmp/out" "$tmp/err" | grep -qF -- "$text"
	check "$name"
}
for i in 1 2 3 4 5 6; do
	echo "{\"text\": \"one two three four five six seven eight $i\"}"
done >"$tmp/data.jsonl"
cat >"$tmp/job.yaml" <<END
base_model: $golden/smollm2
datasets: [{path: data.jsonl, type: text}]
output_dir: run
sequence_len: 32
max_steps: 2
device: cpu
compute_dtype: float32
profile: none
visualize: false
overwrite_output_dir: true
END

# ---- plan, of jobs that do not say 'profile' ----
grep -v '^profile' "$tmp/job.yaml" >"$tmp/measured.yaml"
cat "$tmp/measured.yaml" - >"$tmp/two.yaml" <<END
coordinator: {ip: 127.0.0.1}
workers: [{id: w, ip: 127.0.0.1, device: cpu}]
shard_plan: [{id: w, start: 0, end: 1}, {id: local, start: 1, end: 3}]
END
works "plan measures and explains" "limits the job" plan measured.yaml output_dir=planned
works "plan of a shard_plan predicts it" "planner manual" plan two.yaml output_dir=planned2

# ---- a model and data by name, of what the cache of a hub has ----
commit=0123456789abcdef0123456789abcdef01234567
for what in models--me--tiny datasets--me--data; do
	mkdir -p "$tmp/hub/$what/refs" "$tmp/hub/$what/snapshots/$commit"
	printf %s $commit >"$tmp/hub/$what/refs/main"
done
cp "$golden"/smollm2/* "$tmp/hub/models--me--tiny/snapshots/$commit"
cp "$tmp/data.jsonl" "$tmp/hub/datasets--me--data/snapshots/$commit"
export HF_HUB_OFFLINE=1 HF_HUB_CACHE=$tmp/hub
works "tokenize takes a name" "0" tokenize me/tiny --count
works "merge takes a name" "named" merge me/tiny "$golden/train-lora/init" named
works "eval takes names of both" "perplexity" eval me/tiny --data me/data --sequence-len 32
unset HF_HUB_OFFLINE HF_HUB_CACHE

# ---- a hetero_config.json ----
lan() { # lan MORE-OF-THE-WORKER
	cat >"$tmp/hetero_config.json" <<END
{"version": "0.1.0", "coordinator": {"hostname": "c", "ip": "203.0.113.1"},
 "workers": [{"id": 1, "hostname": "w", "ip": "203.0.113.2", "port": 9999$1}],
 "shard_plan": [{"id": "local", "start": 0, "end": 1}, {"id": 1, "start": 1, "end": 3,
                "is_last": true}]}
END
}
lan ', "device": "mps"'
refuses "device mps" "on a Mac write opencl or cpu" worker --worker 1 hetero_config.json
lan ', "device": "cuda"'
refuses "addresses of a network without keys" \
	"run 'heteroshard keygen' on each machine (here too)" worker --worker 1 hetero_config.json
refuses "the coordinator says the same" "run 'heteroshard keygen' on each machine" \
	train --role coordinator hetero_config.json base_model=m datasets=d output_dir=o
works "keygen makes a key" "public_key:" keygen
refuses "a key that is there is named" "here 'heteroshard keygen --show': it has a key" \
	worker --worker 1 hetero_config.json
rm -r "$tmp/config"
key=$("$hs" keygen "$tmp/other" 2>/dev/null)
cat >"$tmp/keys.json" <<END
{"coordinator": {"ip": "203.0.113.1", "public_key": "$key"},
 "workers": [{"id": 1, "ip": "203.0.113.2", "device": "cpu", "public_key": "$key"}]}
END
refuses "a machine without a key" "this machine has no key: 'heteroshard keygen' makes one" \
	worker --worker 1 keys.json
refuses "a key_file that is not there" "'heteroshard keygen nowhere' makes one" \
	worker --worker 1 keys.json key_file=nowhere
free_ports 20000 21999 10
cat >"$tmp/cards.json" <<END
{"coordinator": {"ip": "127.0.0.1", "device": "none", "port": $((port + 5))},
 "workers": [{"id": "g", "ip": "127.0.0.1", "port": $port, "device": "cpu", "num_gpus": 2}],
 "shard_plan": [{"id": "g", "start": 0, "end": 3, "is_last": true}]}
END
works "num_gpus: 2 is two workers in a row" "" train cards.json base_model="$golden/smollm2" \
	"datasets=[{path: data.jsonl, type: text}]" output_dir=cards sequence_len=32 max_steps=1 \
	profile=none visualize=false compute_dtype=float32 adapter=lora
tr -d ' \n' <"$tmp/cards/plan.json" >"$tmp/out"
grep -qE '"layers":\[0,2\].*"g\.0".*"layers":\[2,3\].*"g\.1"' "$tmp/out"
check "with the layers dealt out evenly"

# ---- the job of the article, with a model of 32 small layers ----
scripts/make-model.py --shape tiny --layers 32 --out "$tmp/tall" >/dev/null 2>&1
cp examples/hetero_config.json "$tmp/article.json"
sed -i "s/9998/$((port + 7))/; s/9999/$((port + 8))/" "$tmp/article.json"
works "examples/hetero_config.json starts after one command" "" train article.json \
	base_model=tall adapter=qlora datasets=some.jsonl output_dir=article max_steps=1 \
	"datasets=[{path: data.jsonl, type: text, split: 'train[:4]'}]" sequence_len=64 \
	profile=none visualize=false device=cpu compute_dtype=float32
tr -d ' \n' <"$tmp/article/plan.json" >"$tmp/out"
grep -qE '"layers":\[0,16\].*"local".*"layers":\[16,32\].*"1"' "$tmp/out"
check "with 16 layers on each"
cp examples/llama31-8b-two-machines.yaml "$tmp/article.yaml"
refuses "examples/llama31-8b-two-machines.yaml names machines that are invited" \
	"'heteroshard invite' makes one and an invitation" train article.yaml
works "its keys are right" "" train article.yaml workers=[] "shard_plan=" base_model=tall \
	"datasets=[{path: data.jsonl, type: text, split: 'train[:4]'}]" max_steps=1 \
	sequence_len=64 profile=none visualize=false device=cpu warmup_steps=0 \
	chat_template=chatml sample_max_tokens=1 output_dir=article2

# ---- a picture of what is written down ----
lan ', "device": "cuda"'
works "plan draws a shard_plan without any worker" "" plan --role coordinator \
	hetero_config.json profile=none --out picture
grep -q 'layers 1-2\|1 to 2\|1-2' "$tmp/picture/architecture.mmd" &&
	[ -s "$tmp/picture/architecture.png" ]
check "with the layers of each"
refuses "a shard_plan of another model" "ends with layer 2, but" plan --role coordinator \
	hetero_config.json profile=none --out picture base_model="$golden/smollm2" \
	"shard_plan=[{id: local, start: 0, end: 2, is_last: true}]"

# ---- words in the wrong place, and what is not there ----
gguf=$golden/smollm2-f32.gguf
refuses "a key written as an option" \
	"those are written behind the file, without dashes: max_steps=5" \
	train job.yaml --max_steps 5
refuses "with = too" "without dashes: max_steps=5" train --max-steps=5 job.yaml
refuses "a flag" "without dashes: sample_packing=true" train job.yaml --sample-packing
refuses "key=value first" "heteroshard train CONFIG max_steps=5" train max_steps=5 job.yaml
refuses "a key without value" "write max_steps=VALUE" train job.yaml max_steps 5
refuses "an option written as a key" "write --max-new-tokens 4" \
	generate "$gguf" --prompt x max_new_tokens=4
refuses "a model where a configuration belongs" "CONFIG base_model=$gguf" train "$gguf"
refuses "a model folder" "CONFIG base_model=$golden/smollm2" plan "$golden/smollm2"
refuses "data where a configuration belongs" "CONFIG datasets=data.jsonl" train data.jsonl
refuses "another ending" "did you mean 'job.yaml'?" train job.yml
refuses "no configuration" "there is no such file; a configuration was expected" train nothing.yaml
refuses "the name of a hub" "set HF_ENDPOINT to the address of the hub" \
	generate some/model --prompt x
refuses "in a configuration too" "set HF_ENDPOINT to the address of the hub" \
	train job.yaml base_model=some/model
refuses "a model that is not there" "there is no such file or folder" \
	generate models/x.gguf --prompt x
printf 'x,y\na,b\n' >"$tmp/table.csv"
refuses "a table of other columns" "a record of no known kind, its keys: x, y" \
	train job.yaml datasets=table.csv
printf 'version https://git-lfs\noid sha256:1\nsize 9\n' >"$tmp/lfs.jsonl"
refuses "what Git leaves of a large file" "lfs.jsonl: is only a pointer of Git LFS" \
	train job.yaml datasets=lfs.jsonl
mkdir "$tmp/a[1]" && cp "$tmp/data.jsonl" "$tmp/a[1]"
works "a folder whose name looks like a pattern" "" train job.yaml "datasets=[{path: 'a[1]'}]"
works "with files by pattern" "" train job.yaml "datasets=[{path: 'a[1]', data_files: ['*.jsonl']}]"
echo '{"prompt": "a", "chosen": "b", "rejected": "c"}' >"$tmp/pairs.jsonl"
refuses "preference data" "preference data (chosen and rejected) needs 'rl: dpo'" \
	train job.yaml datasets=pairs.jsonl
mkdir "$tmp/job.d"
refuses "a checkpoint that is not there" "name a folder such as" \
	train job.yaml resume_from_checkpoint=none overwrite_output_dir=false
refuses "a folder that is no checkpoint" "job.d is not a checkpoint (no trainer_state.json)" \
	train job.yaml resume_from_checkpoint=job.d overwrite_output_dir=false
refuses "an argument that is empty" "merge: an argument is empty; usage: heteroshard merge" \
	merge "$golden/smollm2" run ""
refuses "an adapter that is not there" "adapter none: there is no such folder; an adapter is a" \
	generate "$golden/smollm2" --adapter none --prompt x
refuses "a folder without an adapter" "it has no adapter_config.json; an adapter is a folder" \
	merge "$golden/smollm2" "$golden/smollm2" out.gguf
refuses "a key file that is not there" "'heteroshard keygen none' makes one" keygen --show none

# ---- help for one key ----
works "help config KEY" "rank of the adapter (1 to 4096; default 8)" help config lora_r
works "its words are explained" "AdamW; two numbers kept for each parameter" help config optimizer
refuses "no such key" "there is no key 'lr', did you mean 'learning_rate'?" help config lr
refuses "a key without config" "heteroshard help config lora_r" help lora_r

# ---- a path with ~ ----
export HOME=$tmp/home
mkdir -p "$HOME/models"
ln -s "$golden/smollm2" "$HOME/models/small"
cp "$tmp/data.jsonl" "$tmp/job.yaml" "$HOME"
works "~ in base_model, datasets and output_dir" "adapter in $HOME/out" \
	train job.yaml adapter=lora 'base_model=~/models/small' \
	'datasets=[{path: ~/data.jsonl, type: text}]' 'output_dir=~/out'
works "~ in the file" "adapter in $HOME/out2" train '~/job.yaml' 'output_dir=~/out2' adapter=lora
works "~ in arguments" "" info '~/models/small'
grep -q "$HOME/models/small" "$tmp/out"
check "and the text of the path is there"
works "~ in options" "" generate '~/models/small' '--adapter=~/out' --prompt x --max-new-tokens 1
works "~ in key_file" "" keygen '~/here'
refuses "no other ~" "~other/models" generate '~other/models' --prompt x

# ---- a run ----
quiet() { # quiet NAME COMMAND ...: exit status 0, and not a word on standard error
	local name=$1
	shift
	(cd "$tmp" && "$hs" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null) && [ ! -s "$tmp/err" ]
	check "$name"
}
quiet "-q before the command" -q train job.yaml
quiet "-q behind the command" train -q job.yaml
quiet "--quiet behind everything" train job.yaml --quiet
quiet "log_level: warning" train job.yaml log_level=warning
works "-v says more" 'debug:   "learning_rate": 0.0002' train job.yaml -v
works "log_level: debug says more" 'debug:   "learning_rate": 0.0002' train job.yaml log_level=debug
quiet "a flag counts more than log_level" train -q job.yaml log_level=debug
works "the header says exactly what is trained" \
	"3,840 of 52,800, 7.27 %" train job.yaml adapter=lora lora_r=8
works "a rank above the width of a layer" \
	"warning: lora_r 64 is above the width of v_proj (16 x 48): a rank above 16 adds" \
	train job.yaml adapter=lora lora_r=64
! "$hs" train "$tmp/job.yaml" adapter=lora lora_r=16 datasets="$tmp/data.jsonl" \
	output_dir="$tmp/run" 2>&1 | grep -q 'above the width' >"$tmp/out"
check "no warning at the width itself"
works "of all parameters too" "all parameters: 48,960 of 48,960, 100.00 %" train job.yaml

(cd "$tmp" && "$hs" train job.yaml output_dir=shut <&- >&- 2>&-) &&
	[ "$(grep -c '^{' "$tmp/shut/metrics.jsonl")" = "$(wc -l <"$tmp/shut/metrics.jsonl")" ]
check "closed streams: no message gets into the run's files"

works "a key of axolotl on the command line is named" "are ignored: tf32, deepspeed" \
	train job.yaml tf32=true deepspeed=zero2.json
works "a template on the command line" "" train job.yaml \
	'chat_template_jinja={% for m in messages %}{{ m.content }}{% endfor %}'
works "the command that goes on says that nothing is overwritten" \
	"max_minutes=0.001 resume_from_checkpoint=latest overwrite_output_dir=false" \
	train job.yaml max_steps=9999 max_minutes=0.001
works "and goes on" "resume  run/checkpoints/step-" train job.yaml max_steps=9999 \
	max_minutes=0.001 resume_from_checkpoint=latest overwrite_output_dir=false
cp "$tmp/run/trace.json" "$tmp/trace.json"
works "plan does not write over a run" "run holds a run: its plan.json, trace.json and arch" \
	plan job.yaml profile=auto --brief
cmp -s "$tmp/run/trace.json" "$tmp/trace.json"
check "whose trace stays"

for w in one two three; do
	echo "{\"prompt\": \"$w\", \"completion\": \"abc abc\"}"
done >"$tmp/some.jsonl"
printf '{"prompt": "%0300d", "completion": "x"}\n' 7 >>"$tmp/some.jsonl"
works "examples left out by the cut are counted" \
	"1 of 4 examples is not used: no token to learn is left within sequence_len 64" \
	train job.yaml datasets=some.jsonl sequence_len=64 max_steps=1 chat_template=qwen_25
grep -q 'chat template qwen_25$' "$tmp/err"
check "the template is the one that was named"
grep -q '^steps   1, 1 sequence; learning rate 0.0002, cosine$' "$tmp/err" &&
	grep -q '^done in [0-9:]*: 1 step, ' "$tmp/err"
check "one step is one step"
works "microbatches are told apart from sequences" \
	"3, each of 4 sequences (2 microbatches of 2); learning rate 0.0002, cosine after 1 step" \
	train job.yaml max_steps=3 gradient_accumulation_steps=2 micro_batch_size=2 warmup_steps=1

fails() { (cd "$tmp" && ! "$hs" "$@" >out 2>err); }
cp -r "$golden/train-lora/init" "$tmp/began"
sed -i 's|"../smollm2"|"runs/x-pissa/base"|' "$tmp/began/adapter_config.json"
mkdir "$tmp/x-pissa" && cp -r "$golden/smollm2" "$tmp/x-pissa/base"
for c in "generate MODEL --adapter began --prompt x" \
	"eval MODEL --adapter began --data some.jsonl" "merge MODEL began whole"; do
	# shellcheck disable=SC2086
	fails ${c/MODEL/$golden\/smollm2} && grep -q "belongs to runs/x-pissa/base" "$tmp/err"
	check "${c%% *}: an adapter of PiSSA with the model that it was taken from"
done
works "and with the base that is left" "merged" merge x-pissa/base began merged

for w in one two three; do
	echo "{\"prompt\": \"$w\", \"completion\": \"abc\", \"label\": true}"
done >"$tmp/wanted.jsonl"
printf '{"prompt": "%0300d", "completion": "x", "label": true}\n' 7 >>"$tmp/wanted.jsonl"
works "answers of which all are wanted" "right 0 %" train job.yaml adapter=lora rl=kto \
	micro_batch_size=2 datasets=wanted.jsonl output_dir=kto max_steps=1 val_set_size=1 \
	sequence_len=64
cat "$tmp/out" "$tmp/err" >"$tmp/seen"
grep -q "1 of 4 examples is not used: too long, or no token to learn is left within" "$tmp/seen"
check "of which one that is too long is not used"
works "and their evaluation" "  right " eval "$golden/smollm2" --adapter kto \
	--data wanted.jsonl --rl kto --sequence-len 64
cat "$tmp/out" "$tmp/err" "$tmp/seen" | grep -q nan
[ $? = 1 ]
check "show no margin"
fails train job.yaml 'datasets=[{path: wanted.jsonl, type: {type: alpaca}}]' &&
	grep -q "'type' of a dataset does not stand in 'type'" "$tmp/err"
check "a key that is known elsewhere"

(cd "$tmp" && TERM=dumb script -qec "$hs train job.yaml output_dir=dumb" /dev/null) </dev/null \
	>"$tmp/out" 2>&1 && grep -q "^step 2/2" "$tmp/out" &&
	! grep -q "$(printf '\033')" "$tmp/out"
check "a terminal that is dumb gets lines"

# ---- interrupted while devices are measured ----
(cd "$tmp" && exec "$hs" profile job.yaml --refresh --out measured) >"$tmp/out" 2>"$tmp/err" &
job=$!
for _ in $(seq 200); do
	grep -q "^measuring 1 device" "$tmp/err" && break
	sleep 0.05
done
kill -TERM $job
wait $job
[ $? -eq 1 ] && grep -q "^error: interrupted while the devices were measured" "$tmp/err" &&
	[ ! -e "$tmp/measured/profile.json" ]
check "profile that is interrupted ends with an error and writes no profile"

# ---- a conversation ----
printf 'hello\n/new\nhello\nand more\n/what\n/exit\nnever read\n' >"$tmp/lines"
script -qec "$hs generate $golden/smollm2 --temperature 0 --max-new-tokens 3 --stats" /dev/null \
	<"$tmp/lines" >"$tmp/out" 2>"$tmp/err" && [ "$(grep -c 'prompt tokens at' "$tmp/out")" = 3 ]
check "generate on a terminal is a conversation, until /exit"
awk '/prompt tokens at/ { sub(/.*> /, ""); t[++n] = $1 }
	END { exit !(n == 3 && t[1] == t[2] && t[3] > t[2] + 5) }' "$tmp/out"
check "that /new forgets, and that remembers otherwise"
grep -q "'/what' is no command" "$tmp/out"
check "other commands are named"
works "a pipe is one prompt, as before" "" generate "$golden/smollm2" --max-new-tokens 1 --raw \
	--prompt x

echo "1..$n"
exit $failed
