#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Models with linear attention (Qwen3.5, dense and with experts) or short convolutions (LFM2)
# through the commands: one process and a pipeline have the same bits, a run goes on from its
# middle, results have the shapes that other programs read, and what cannot be written is named.
# Prints TAP.
. "$(dirname "$0")/support/tap.sh"
. tests/support/golden_job.sh
golden_job qwen3_5 3 5
conv='linear_attn.conv1d.weight":{"dtype":"[A-Z0-9]*","shape":\[108,1,4\]'

run train job.yaml output_dir=one && run train two.yaml output_dir=two &&
	cmp one/model.safetensors two/model.safetensors
check "all parameters: two stages have the bits of one process"
grep -qa "$conv" one/model.safetensors
check "weights of the convolution are written as other programs read them"
mkdir half && cp -r one/. half && rm -r half/checkpoints/step-000004 half/model.safetensors &&
	run train job.yaml output_dir=half resume_from_checkpoint=half/checkpoints/step-000002 &&
	cmp one/model.safetensors half/model.safetensors
check "a run that goes on from its middle ends with the same bits"
run train job.yaml output_dir=lora adapter=lora lora_r=4 lora_target_linear=true &&
	grep -q '"in_proj_qkv"' lora/adapter_config.json &&
	run merge model lora merged && grep -qa "$conv" merged/model.safetensors
check "LoRA on all modules, merged into a folder"
run eval merged --data data.jsonl && mv out merged.txt && run eval model --adapter lora \
	--data data.jsonl && grep -q loss out
check "the merged folder is read"
run generate one --prompt "What is 3?" --max-new-tokens 4 --temperature 0
check "generate"
run train job.yaml output_dir=again gradient_checkpointing=true max_steps=2 adapter=qlora \
	lora_r=4 lora_target_linear=true
check "in 4 bits, recomputed"
run merge model lora out.gguf
[ $? -ne 0 ] && grep -q "'linear_value_head_dim' cannot be written into a GGUF" err &&
	[ ! -e out.gguf ]
check "a GGUF with keys and values of two widths is refused with one line"
cp -r "$golden/qwen3_5-gguf" even && cp model/tokenizer*.json even &&
	run train job.yaml base_model=even output_dir=on-even adapter=lora lora_r=4 \
		lora_target_linear=true && run merge even on-even even.gguf --type f32 &&
	run merge even on-even folder --type f32 &&
	run eval folder --data data.jsonl && grep -o "loss [0-9.]*" out >folder.txt &&
	run eval even.gguf --data data.jsonl && grep -o "loss [0-9.]*" out | cmp - folder.txt
check "merged into a GGUF: the loss is that of the merged folder"
mv even/tokenizer*.json . && run merge even on-even plain.gguf --type f32 &&
	run merge plain.gguf on-even plain --type f32 && [ ! -e plain/tokenizer.json ] &&
	grep -q "has no tokenizer" err
check "a GGUF without a tokenizer becomes a folder without one"
run train job.yaml base_model=even.gguf output_dir=from-gguf &&
	run train job.yaml base_model=folder output_dir=from-folder &&
	a=$(tail -1 from-gguf/metrics.jsonl | grep -o '"loss": [0-9.]\{6\}') &&
	b=$(tail -1 from-folder/metrics.jsonl | grep -o '"loss": [0-9.]\{6\}') && [ "$a" = "$b" ]
check "all parameters are trained from a GGUF as from the folder"
run profile job.yaml output_dir=none --out measured &&
	run plan --profile measured/profile.json && grep -q "^local limits the job" out
check "measured and planned"

# with experts, as the folder of a model for pictures has them: one tensor for those of a layer
cp -r "$golden/qwen3_5-moe-vision" mixture
cp "$golden"/smollm2/tokenizer*.json mixture
sed -i 's/^base_model: model/base_model: mixture/
	s/end: 3}/end: 1}/; s/start: 3, end: 5/start: 1, end: 2/' job.yaml two.yaml
run train job.yaml output_dir=mix-one && run train two.yaml output_dir=mix-two &&
	cmp mix-one/model.safetensors mix-two/model.safetensors &&
	grep -qa 'model.layers.1.mlp.experts.5.up_proj.weight' mix-one/model.safetensors
check "experts: two stages have the bits of one process"
run train two.yaml output_dir=mix-lora adapter=qlora lora_r=4 lora_target_linear=true \
	max_steps=2 && run merge mixture mix-lora mixed &&
	run eval mixed --data data.jsonl && grep -q loss out &&
	run merge mixture mix-lora joined --adapter-only &&
	grep -qa 'language_model.layers.1.mlp.experts.lora_A' joined/adapter_model.safetensors &&
	run generate mixture --adapter joined \
	--prompt "What is 3?" --max-new-tokens 4 --temperature 0
check "experts: adapters on them in 4 bits, merged, joined for PEFT"
cp -r "$golden/qwen3_5-moe-gguf" even-mixture && cp mixture/tokenizer*.json even-mixture &&
	run train job.yaml base_model=even-mixture output_dir=mix-even adapter=lora lora_r=4 \
		lora_target_linear=true max_steps=2 &&
	run merge even-mixture mix-even mixed.gguf --type f32 &&
	run merge even-mixture mix-even mix-folder --type f32 &&
	run eval mix-folder --data data.jsonl && grep -o "loss [0-9.]*" out >folder.txt &&
	run eval mixed.gguf --data data.jsonl && grep -o "loss [0-9.]*" out | cmp - folder.txt
check "experts: merged into a GGUF: the loss is that of the merged folder"
run profile job.yaml output_dir=none --out mixed-measured &&
	run plan --profile mixed-measured/profile.json && grep -q "^local limits the job" out
check "experts: measured and planned, each second layer with linear attention"

# short convolutions
cp -r "$golden/lfm2" short
cp "$golden"/smollm2/tokenizer*.json short
sed -i 's/^base_model: mixture/base_model: short/; s/end: 2,/end: 3,/' job.yaml two.yaml
conv='conv.conv.weight":{"dtype":"[A-Z0-9]*","shape":\[48,1,3\]'
run train job.yaml output_dir=short-one && run train two.yaml output_dir=short-two &&
	cmp short-one/model.safetensors short-two/model.safetensors &&
	grep -qa "$conv" short-one/model.safetensors &&
	grep -qa '"model.embedding_norm.weight"' short-one/model.safetensors
check "short convolutions: two stages have the bits of one process"
run train two.yaml output_dir=short-lora adapter=qlora lora_r=4 lora_target_linear=true \
	max_steps=2 gradient_checkpointing=true &&
	grep -q '"in_proj"' short-lora/adapter_config.json && run merge short short-lora shorter &&
	grep -qa "$conv" shorter/model.safetensors &&
	run eval shorter --data data.jsonl && grep -q loss out &&
	run generate short --adapter short-lora --prompt "What is 3?" --max-new-tokens 4 \
		--temperature 0
check "short convolutions: LoRA on all modules in 4 bits, recomputed, merged; generate"
run profile job.yaml output_dir=none --out short-measured &&
	run plan --profile short-measured/profile.json && grep -q "^local limits the job" out
check "short convolutions: measured and planned"
cp -r "$golden/lfm2-moe" sparse
cp "$golden"/smollm2/tokenizer*.json sparse
sed -i 's/^base_model: short/base_model: sparse/; s/end: 3,/end: 4,/' job.yaml two.yaml
run train job.yaml output_dir=sparse-one max_steps=2 &&
	run train two.yaml output_dir=sparse-two max_steps=2 &&
	cmp sparse-one/model.safetensors sparse-two/model.safetensors &&
	grep -qa 'feed_forward.expert_bias":{"dtype":"F32"' sparse-one/model.safetensors
check "short convolutions with experts: two stages have the bits of one process"
run train two.yaml output_dir=sparse-lora adapter=qlora lora_r=4 lora_target_linear=true \
	max_steps=2 && run merge sparse sparse-lora sparser --type f32 &&
	run eval sparser --data data.jsonl && grep -o "loss [0-9.]*" out >folder.txt &&
	run merge sparse sparse-lora sparser.gguf --type f32 &&
	run eval sparser.gguf --data data.jsonl && grep -o "loss [0-9.]*" out | cmp - folder.txt
check "short convolutions with experts: LoRA, merged into a folder and a GGUF: one loss"

# short convolutions, windows, a gate of each head
cp -r "$golden/lfm3" gated
cp "$golden"/smollm2/tokenizer*.json gated
sed -i 's/^base_model: sparse/base_model: gated/' job.yaml two.yaml
run train two.yaml output_dir=gated-lora adapter=qlora lora_r=4 lora_target_linear=true \
	max_steps=2 && grep -q '"g_proj"' gated-lora/adapter_config.json &&
	run merge gated gated-lora merged-gated --type f32 &&
	run eval merged-gated --data data.jsonl && grep -q "loss [0-9]" out
check "gates of heads: LoRA on all modules over two stages, merged"
# the measured layer in the middle keeps more than the last one with the head
run profile job.yaml output_dir=none adapter=lora lora_r=4 lora_target_linear=true \
	peft_layers_to_transform=[0,2] --out gated-measured &&
	run plan --profile gated-measured/profile.json && grep -q "^local limits the job" out
check "gates of heads: measured with adapters on some layers, planned"
echo "1..$n"
exit $failed
