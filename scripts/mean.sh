#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Mean things: commands that a careless user types, one after the other, in a folder of files that
# matter. Each must end with one clear line, and a hash of the whole tree before and after shows
# that only the files named for it have changed.
#   scripts/mean.sh [--short] [PROGRAM]     --short: without those that take seconds
# Output is TAP: one line each. Exit status 1 when anything was not as it should be.
set -uf # names are patterns only where a test says so
short=""
[ "${1:-}" = --short ] && short=1 && shift
cd "$(dirname "$0")/.." || exit 1
here=$PWD
hs=${1:-${HS_BIN:-build/heteroshard}}
case $hs in /*) ;; *) hs=$here/$hs ;; esac
top=$(mktemp -d) || exit 1
export HOME=$top/home XDG_CACHE_HOME=$top/cache OMP_WAIT_POLICY=passive
export TERM=dumb
mkdir -p "$top/home" "$top/cache" "$top/w" "$top/disk"
mounted=""
clean() {
	[ -n "$mounted" ] && umount "$top/disk"
	rm -rf "$top"
}
trap clean EXIT
cd "$top/w" || exit 1
n=0 bad=0

# ---- the judge ----

tree() { # of everything in the folder: kind, name, contents
	find . -mindepth 1 -type f -exec sha256sum {} + -o -mindepth 1 -printf '%y %p %l\n' | sort
}

changed() {
	diff "$top/before" "$top/after" | sed -nE 's/^[<>] [^ ]+ +(\.[^ ]*).*/\1/p' | sort -u
}

verdict() { # ok or the reason; what
	n=$((n + 1))
	if [ "$1" = ok ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		echo "#   $1"
		sed 's/^/#   | /' "$top/out" | tail -n 8
		bad=$((bad + 1))
	fi
}

# Names (patterns) of files that may change, "" for none; a word of the line; the command's words.
# It must fail with exactly one line "error: ..." that has the word.
mean() {
	local may=$1 word=$2 rc why=ok f lines
	shift 2
	tree >"$top/before"
	timeout 60 "$hs" "$@" >"$top/out" 2>&1 </dev/null
	rc=$?
	tree >"$top/after"
	lines=$(grep -ac '^error: ' "$top/out")
	if [ $rc -eq 0 ]; then
		why="it went through"
	elif [ $rc -gt 2 ]; then
		why="exit status $rc"
	elif [ "$lines" -ne 1 ]; then
		why="$lines lines begin with 'error: '"
	elif ! grep -a '^error: ' "$top/out" | grep -qaF -- "$word"; then
		why="the line does not say '$word'"
	fi
	check_changed "$may"
	verdict "$why" "$* ($word)"
}

check_changed() {
	local p hit
	for f in $(changed); do
		hit=""
		for p in $1; do
			# shellcheck disable=SC2053
			[[ $f == ./$p ]] && hit=1
		done
		[ -z "$hit" ] && why="'$f' has changed" && return
	done
}

# The same for what must go through, with a word of what it says.
fine() {
	local may=$1 word=$2 rc why=ok f
	shift 2
	tree >"$top/before"
	timeout 60 "$hs" "$@" >"$top/out" 2>&1 </dev/null
	rc=$?
	tree >"$top/after"
	[ $rc -ne 0 ] && why="exit status $rc"
	[ -n "$word" ] && ! grep -qaF -- "$word" "$top/out" && why="it does not say '$word'"
	check_changed "$may"
	verdict "$why" "$* (goes through)"
}

must() { "$@" >"$top/out" 2>&1 </dev/null || { cat "$top/out"; echo "Bail out! $*"; exit 1; }; }

flip() { # one bit of a file, 40 bytes before its end
	python3 - "$1" <<-'END'
		import sys
		with open(sys.argv[1], "r+b") as f:
		    f.seek(-40, 2)
		    c = f.read(1)[0]
		    f.seek(-40, 2)
		    f.write(bytes([c ^ 1]))
	END
}

# ---- what is at stake ----

cp -r "$here/tests/golden/models/llama31" model
rm model/expect.safetensors
chmod -R u+w model
cp -r model other
flip other/model.safetensors
cp "$here/tests/golden/models/llama31-f16.gguf" foreign.gguf
chmod u+w foreign.gguf
for i in 1 2 3 4 5 6; do
	echo "{\"prompt\": \"Question $i?\", \"completion\": \" It is $i.\"}"
done >data.jsonl
echo '{"prompt": 7' >torn.jsonl
cat >c.yaml <<-END
	base_model: model
	adapter: lora
	lora_r: 2
	compute_dtype: float32
	datasets: [{path: data.jsonl, type: completion}]
	sequence_len: 64
	gradient_accumulation_steps: 1
	max_steps: 2
	save_steps: 1
	learning_rate: 1e-3
	profile: none
	visualize: false
	tensorboard: false
	trace: false
	output_dir: run
END
cat >two.yaml <<-END
	$(cat c.yaml)
	insecure: true
	join_timeout: 1
	coordinator: {ip: 127.0.0.1, port: 23998, device: none}
	workers: [{id: far, port: 23999, hostname: nobody.invalid}]
	shard_plan: [{id: far, start: 0, end: 2, is_last: true}]
END
cat >group.yaml <<-END
	$(cat c.yaml)
	insecure: true
	coordinator: {ip: 127.0.0.1, port: 23995, device: none}
	workers:
	- {id: a, ip: 127.0.0.1, port: 23996, device: cpu}
	- {id: b, ip: 127.0.0.1, port: 23997, device: cpu}
	- {id: c, ip: 127.0.0.1, port: 23998, device: cpu}
END
mkdir mine empty
echo mine >mine/adapter_config.json
echo mine >notes.txt
mkdir own
echo '{"plan": "to the sea"}' >own/plan.json
echo '{"profile": "a face"}' >own/profile.json
must "$hs" train c.yaml
grep -v lora_r c.yaml >full.yaml
must "$hs" train full.yaml output_dir=full adapter=none
must "$hs" merge model run merged.gguf
must "$hs" merge model run folder
must "$hs" keygen key
ln foreign.gguf link.gguf
ln -s foreign.gguf soft.gguf
ln -s nowhere dangling
cp -r run branch
rm -rf branch/checkpoints/step-000002
cp -r run broken
long=$(printf 'x%.0s' $(seq 300))/$(printf 'y%.0s' $(seq 300))

# ---- train: where it writes ----

mean "" "already holds a run" train c.yaml
mean "" "already holds a run" train c.yaml resume_from_checkpoint=run/checkpoints/step-000001 \
	output_dir=full adapter=lora
mean "" "holds base_model" train c.yaml output_dir=model
mean "" "holds base_model" train c.yaml output_dir=model overwrite_output_dir=true
mean "" "holds base_model" train c.yaml base_model=full output_dir=full overwrite_output_dir=true
mean "" "which is not of a run" train c.yaml output_dir=mine
mean "" "which is not of a run" train c.yaml output_dir=mine overwrite_output_dir=true
mean "" "own/plan.json" train c.yaml output_dir=own
mean "" "own/plan.json" train c.yaml output_dir=own overwrite_output_dir=true
mean "" "is a file" train c.yaml output_dir=notes.txt
mean "" "dangling" train c.yaml output_dir=dangling
mean "" "/proc/none" train c.yaml output_dir=/proc/none
mean "" "File name too long" train c.yaml "output_dir=$long"
echo mine >run/notes.txt
mean "" "'notes.txt'" train c.yaml overwrite_output_dir=true
rm run/notes.txt
echo mine >run/checkpoints/step-000002/mine.bin
mean "" "mine.bin" train c.yaml overwrite_output_dir=true
rm run/checkpoints/step-000002/mine.bin
cp data.jsonl run/
mean "" "holds datasets" train c.yaml overwrite_output_dir=true datasets=run/data.jsonl
rm run/data.jsonl
ln -s ../model run/checkpoints/step-000009
mean "" "step-000009" train c.yaml overwrite_output_dir=true
rm run/checkpoints/step-000009
mkdir run.old
mean "" "run.old" train c.yaml overwrite_output_dir=true
rmdir run.old
exec 9>run/run.lock
flock 9
echo '{"host": "box", "pid": 4711, "started": 1700000000}' >run/run.lock
mean "" "process 4711 on box" train c.yaml overwrite_output_dir=true
mean "" "process 4711 on box" train c.yaml resume_from_checkpoint=latest
exec 9>&-
rm -f run/run.lock

# ---- train: what cannot begin leaves the old run as it was ----

mean "" "cuda:99" train c.yaml overwrite_output_dir=true device=cuda:99
mean "" "nofile.jsonl" train c.yaml overwrite_output_dir=true datasets=nofile.jsonl
mean "" "torn.jsonl" train c.yaml overwrite_output_dir=true datasets=torn.jsonl
mean "" "nomodel" train c.yaml overwrite_output_dir=true base_model=nomodel
mean "" "learning_rate" train c.yaml overwrite_output_dir=true learning_rate=fast
mean "" "overwrite_output_dirr" train c.yaml overwrite_output_dirr=true
mean "" "save_minutes" train c.yaml output_dir=new save_minutes=never
mean "" "save_minutes" train c.yaml output_dir=new save_minutes=-1
mean "" "contradict" train c.yaml overwrite_output_dir=true resume_from_checkpoint=latest
[ -z "$short" ] && mean "" "nobody.invalid" train two.yaml overwrite_output_dir=true

# ---- train: groups that are none ----

group() { # the rest of a shard_plan's entry; a word of the line; more keys
	local entry=$1 word=$2
	shift 2
	mean "" "$word" train group.yaml output_dir=new \
		"shard_plan=[{start: 0, end: 2, is_last: true, $entry}]" "$@"
}
group "id: [a, b], share: [0, 0]" "the numbers of 'share' are all 0"
group "id: a, share: 0" "the numbers of 'share' are all 0"
group "id: [a, b], share: [1, 2, 3]" "'share' lists 3 and 'id' lists 2"
group "id: [a, b], share: 3" "'share' lists 1 and 'id' lists 2"
group "id: [a, b], share: [-1, 3]" "'-1': a whole number from 0 to 1000000"
group "id: [a, b], share: [3, 1000001]" "'share' of 'b' is '1000001'"
group "id: [a, b], share: [99999999999999999999999, 1]" "a whole number from 0 to 1000000"
group "id: [a, b], share: [1.5, 1]" "'1.5': a whole number"
group "id: [a, a]" "names 'a' twice"
group "id: [a, z]" "'z', which is no worker's id"
group "id: []" "has no 'id'"
group "id: [a, '']" "has an empty 'id'"
group "id: [a, b]" "'reduce: ring' cannot keep the order 'exact'" reduce=ring reduce_order=exact
group "id: [a, b]" "'reduce: tree' cannot keep the order 'exact'" reduce=tree reduce_order=exact
group "id: [a, b]" "allowed are: auto, direct, ring, tree" reduce=star
mean "" "names 'b' twice" train group.yaml output_dir=new \
	"shard_plan=[{id: [a, b], start: 0, end: 1}, {id: [b, c], start: 1, end: 2, is_last: true}]"

# ---- train: going on ----

mean "" "no checkpoint to resume from" train c.yaml output_dir=empty resume_from_checkpoint=latest
mean "" "run/checkpoints/step-9" train c.yaml resume_from_checkpoint=run/checkpoints/step-9
mean "" "'learning_rate' was 0.001" train c.yaml resume_from_checkpoint=latest learning_rate=2e-3
mean "" "'seed'" train c.yaml resume_from_checkpoint=latest seed=7
mean "" "base model is another one" train c.yaml resume_from_checkpoint=latest base_model=other
mean "" "'lora_r'" train --allow-changes c.yaml resume_from_checkpoint=latest lora_r=4
mean "" "'optimizer'" train --allow-changes c.yaml resume_from_checkpoint=latest optimizer=sgd
mean "" "is missing" train c.yaml output_dir=branch resume_from_checkpoint=latest
last=broken/checkpoints/step-000002
flip $last/optimizer.safetensors
mean "" "step-000001 is whole" train c.yaml output_dir=broken resume_from_checkpoint=latest
flip $last/optimizer.safetensors
truncate -s -9 $last/adapter_model.safetensors
mean "" "adapter_model.safetensors" train c.yaml output_dir=broken resume_from_checkpoint=latest
rm $last/adapter_model.safetensors
mean "" "adapter_model.safetensors" train c.yaml output_dir=broken resume_from_checkpoint=latest
truncate -s 300 $last/trainer_state.json
mean "" "trainer_state.json" train c.yaml output_dir=broken resume_from_checkpoint=latest
echo torn >broken/checkpoints/latest.json
mean "" "latest.json" train c.yaml output_dir=broken resume_from_checkpoint=latest

# ---- merge ----

mean "" "is read by this command" merge foreign.gguf run foreign.gguf
mean "" "is read by this command" merge foreign.gguf run foreign.gguf --force
mean "" "is read by this command" merge foreign.gguf run link.gguf --force
mean "" "is read by this command" merge foreign.gguf run soft.gguf --force
mean "" "is read by this command" merge model run model
mean "" "is read by this command" merge model run run --force
mean "" "is read by this command" merge model run . --force
mean "" "--force replaces it" merge model run merged.gguf
mean "" "--force replaces it" merge model run folder
mean "" "was not written by merge" merge model run foreign.gguf --force
mean "" "was not written by merge" merge model run notes.txt --force
mean "" "was not written by merge" merge model run mine --force
mean "" "was not written by merge" merge model run empty
echo mine >folder/notes.txt
mean "" "was not written by merge" merge model run folder --force
rm folder/notes.txt
mean "" "ends in .gguf" merge model run new --type q4_k_m
mean "" "ends in .gguf" merge model run new --adapter-only
mean "" "--adapter-only" merge model run new.gguf --adapter-only --type q8_0
mean "" "q9_0" merge model run new.gguf --type q9_0
mean "" "noadapter" merge model noadapter new.gguf
mean "" "nomodel" merge nomodel run new.gguf
mean "" "nofolder" merge model run nofolder/new.gguf
mkdir model/vocab.json
mean "" "vocab.json" merge model run new
rmdir model/vocab.json
cp -r model cut
truncate -s -100 cut/model.safetensors
mean "" "cut/model.safetensors" merge cut run new
rm -r cut

# ---- the other commands that write or read ----

mean "" "own/plan.json" plan c.yaml --out own
mean "" "own/profile.json" profile c.yaml --out own
mean "" "is a file" plan c.yaml --out notes.txt
mean "" "key" keygen key
mean "" "nofolder" keygen nofolder/key
mean "" "nokey" keygen --show nokey
mean "" "nomodel" generate nomodel --prompt x
mean "" "noadapter" generate model --adapter noadapter --prompt x
mean "" "nodata" eval model --data nodata
mean "" "nofile" info nofile
mean "" "nomodel" tokenize nomodel

# ---- what is named is what changes ----

fine "" "family" info run
fine "" "base model" info full
fine "merged.gguf" "" merge model run merged.gguf --force --type q8_0
fine "folder/*" "" merge model run folder --force
fine "adapter.gguf" "" merge model run adapter.gguf --adapter-only
fine "run/*" "saved" train c.yaml overwrite_output_dir=true max_steps=1
fine "run/*" "saved" train c.yaml resume_from_checkpoint=latest
fine "run/*" "'learning_rate' was" train --allow-changes c.yaml resume_from_checkpoint=latest \
	learning_rate=2e-3 max_steps=3
echo '{"host": "box", "pid": 4711, "started": 1700000000}' >run/run.lock
fine "run/*" "process 4711 on box" train c.yaml resume_from_checkpoint=latest max_steps=4 \
	learning_rate=2e-3
fine "two two/*" "gives no layers to 'c': this worker is not used" train group.yaml \
	output_dir=two "shard_plan=[{id: [a, b], start: 0, end: 2, share: [2, 1], is_last: true}]"
# A run that is lost names its newest checkpoint and the command.
mean "lost lost/*" "not finite" train full.yaml output_dir=lost learning_rate=10 max_steps=60 \
	weight_decay=10 max_grad_norm=0 max_nonfinite_steps=3 optimizer=sgd save_steps=2
grep -q "newest checkpoint is lost/checkpoints/step-.*: heteroshard train full.yaml .*latest" \
	"$top/out" && why=ok || why="no command to go on with"
verdict "$why" "a lost run says how to go on"
# A terminal that is closed.
"$hs" train c.yaml output_dir=hup max_steps=100000 save_steps=0 >"$top/out" 2>&1 </dev/null &
for _ in $(seq 200); do grep -qE '^step +2/' "$top/out" && break; sleep 0.1; done
kill -HUP $!
wait $!
why=ok
grep -q "interrupted after step .* heteroshard train c.yaml .*latest" "$top/out" || why="not said"
[ -n "$(find hup -name trainer_state.json)" ] || why="not saved"
verdict "$why" "SIGHUP saves"

# ---- full disks ----

full() {
	mount -t tmpfs -o size="$1" tmpfs "$top/disk" 2>/dev/null && mounted=1
}
if [ "$(id -u)" = 0 ] && full 64k; then
	mean "" "make room" train c.yaml output_dir="$top/disk/run" lora_r=64
	mean "" "make room" merge model run "$top/disk/new.gguf" --type f32
	mean "" "make room" merge model run "$top/disk/new"
	why=ok
	[ -z "$(ls -A "$top/disk")" ] || why="something is left: $(ls -A "$top/disk")"
	verdict "$why" "nothing is left on the full disk"
fi
# A disk that fills up while training: the run goes on, waits at its end, and loses nothing.
if [ -z "$short" ] && [ -n "$mounted" ]; then
	mount -o remount,size=1500k "$top/disk"
	"$hs" train c.yaml output_dir="$top/disk/run" max_steps=1500 save_steps=0 \
		>"$top/out" 2>&1 </dev/null &
	for _ in $(seq 200); do grep -qE '^step +2/' "$top/out" && break; sleep 0.05; done
	kill -STOP $!
	cat /dev/zero >"$top/disk/fill" 2>"$top/ls"
	kill -CONT $!
	for _ in $(seq 300); do grep -q 'tried again every' "$top/out" && break; sleep 0.1; done
	grep -q 'tried again every' "$top/out" && why=ok || why="it does not wait"
	rm "$top/disk/fill"
	wait $! || why="exit status $?"
	[ -s "$top/disk/run/adapter_model.safetensors" ] || why="no adapter"
	[ "$(wc -l <"$top/disk/run/metrics.jsonl")" = 1500 ] || why="not all lines of metrics.jsonl"
	verdict "$why" "a disk that fills up while training"
fi
echo "1..$n"
[ $bad -eq 0 ]
