#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ERNIE 4.5 with experts through the commands: the correction of routers, a matrix of one row in
# files, has its values in every result. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
. tests/support/golden_job.sh
golden_job ernie4_5-moe 2 3
# The values of a tensor of layer 2, as hexadecimal text.
values() {
	local head at name='layers\.2\.mlp\.moe_statics\.e_score_correction_bias'
	head=$(od -An -tu8 -N8 "$1" | tr -d ' ')
	at=$(head -c $((8 + head)) "$1" |
		grep -aoP "$name\":\{[^}]*\[\K[0-9]+(?=,[0-9]+\]\})")
	tail -c +$((9 + head + at)) "$1" | head -c 24 | od -An -tx1
}
shape='moe_statics.e_score_correction_bias":{"dtype":"F32","shape":\[1,6\]'

run train job.yaml output_dir=one && run train two.yaml output_dir=two &&
	cmp one/model.safetensors two/model.safetensors
check "all parameters: two stages have the bits of one process"
grep -qa "$shape" one/model.safetensors &&
	[ "$(values one/model.safetensors)" = "$(values model/model.safetensors)" ] &&
	[ -n "$(values one/model.safetensors)" ]
check "the correction is written as it was, with its shape"
mkdir half && cp -r one/. half && rm -r half/checkpoints/step-000004 half/model.safetensors &&
	run train job.yaml output_dir=half resume_from_checkpoint=half/checkpoints/step-000002 &&
	cmp one/model.safetensors half/model.safetensors
check "a run that goes on from its middle ends with the same bits"
run train job.yaml output_dir=lora adapter=lora lora_r=4 lora_target_linear=true &&
	run merge model lora merged && grep -qa "$shape" merged/model.safetensors &&
	[ "$(values merged/model.safetensors)" = "$(values model/model.safetensors)" ]
check "so it is in a merged folder"
run train two.yaml output_dir=quarter adapter=qlora lora_r=4 lora_target_linear=true \
	max_steps=2 && run generate model --adapter quarter --prompt "What is 3?" \
	--max-new-tokens 4 --temperature 0
check "in 4 bits over two stages, and generate"
run merge model lora merged.gguf --type f32 && run merge model lora folder --type f32 &&
	run eval folder --data data.jsonl && grep -o "loss [0-9.]*" out >folder.txt &&
	run eval merged.gguf --data data.jsonl && grep -o "loss [0-9.]*" out | cmp - folder.txt
check "merged into a GGUF: the loss is that of the merged folder"
sed 's/"moe_layer_end_index": 2/"moe_layer_end_index": 1/' model/config.json >c
cp -r model early && mv c early/config.json
run merge early lora out.gguf
[ $? -ne 0 ] && [ "$(wc -l <err)" = 1 ] && [ ! -e out.gguf ]
check "tensors that the configuration does not explain: one line"
sed 's/"use_bias": false/"use_bias": true/' model/config.json >c && mv c model/config.json
run train job.yaml output_dir=biases
[ $? -ne 0 ] && grep -q "'use_bias' is true" err
check "biases are refused"
echo "1..$n"
exit $failed
