# SPDX-License-Identifier: Apache-2.0
# For scripts that use a model of tests/golden/models through the commands: to be sourced after
# tap.sh.
# shellcheck shell=bash disable=SC2034,SC2154

# golden_job MODEL SPLIT LAYERS: goes into $tmp and makes there the folder `model`, with a
# tokenizer; data.jsonl; job.yaml, four steps; and two.yaml, the same in two processes, a worker
# with the first SPLIT of all LAYERS and the coordinator with the others.
# run COMMAND...: calls the program; what it prints is in `out` and `err`.
hs=${HS_BIN:-$PWD/build/heteroshard}
golden=$PWD/tests/golden/models
export HOME=$tmp XDG_RUNTIME_DIR=$tmp OMP_NUM_THREADS=1 OCL_ICD_VENDORS=/nonexistent
unset XDG_CONFIG_HOME XDG_CACHE_HOME

golden_job() {
	local i port
	free_ports 30000 32699 2
	cd "$tmp" || exit 1
	cp -r "$golden/$1" model
	cp "$golden"/smollm2/tokenizer*.json model
	for i in $(seq 12); do
		echo "{\"instruction\": \"What is $i?\", \"output\": \"One more than before.\"}"
	done >data.jsonl
	cat >job.yaml <<EOF
base_model: model
datasets: [{path: data.jsonl, type: alpaca}]
sequence_len: 128
micro_batch_size: 2
gradient_accumulation_steps: 2
max_steps: 4
save_steps: 2
learning_rate: 1e-3
compute_dtype: float32
profile: none
visualize: false
EOF
	cat >two.yaml <<EOF
$(cat job.yaml)
wire_dtype: float32
coordinator: {ip: 127.0.0.1, port: $port, device: cpu}
workers: [{id: other, ip: 127.0.0.1, port: $((port + 1)), device: cpu}]
shard_plan:
  - {id: other, start: 0, end: $2}
  - {id: local, start: $2, end: $3, is_last: true}
EOF
}

run() { "$hs" "$@" >out 2>err </dev/null; }
