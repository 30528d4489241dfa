#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `make demo`: fine-tunes a real model on this machine and shows what changed.
#   scripts/demo.sh [PROGRAM]
set -euo pipefail
cd "$(dirname "$0")/.."
hs=${1:-build/heteroshard}
out=runs/demo
question='Why does my GPU slow down after ten minutes of training, and what should I check first?'

say() { printf '\n== %s\n' "$*"; }
answer() {
	"$hs" generate "$model" --prompt "$question" --temperature 0.6 --top-p 0.9 --seed 3 \
		--max-new-tokens 90 --load-in-4bit "$@"
}

if scripts/fetch-smollm2.sh; then
	model=models/SmolLM2-135M-Instruct.Q4_1.gguf
else
	say "SmolLM2 cannot be fetched: a small model is trained from examples/primer.txt instead"
	rm -rf runs/demo-base runs/demo-seed
	python3 scripts/make-model.py --shape small --out runs/demo-seed
	"$hs" train examples/pretrain.yaml base_model=runs/demo-seed output_dir=runs/demo-base \
		overwrite_output_dir=true
	cp runs/demo-seed/tokenizer*.json runs/demo-base/
	model=runs/demo-base
fi

say "Before: $question"
answer

say "Fine-tuning: LoRA on 4-bit weights, 25 steps (examples/smollm2.yaml)"
"$hs" train examples/smollm2.yaml base_model="$model" output_dir=$out overwrite_output_dir=true

say "After: $question"
answer --adapter $out

say "What was made"
cat <<EOT
  $out/adapter_model.safetensors   the adapter; PEFT loads it with adapter_config.json
  $out/metrics.jsonl               one line a step
  $out/loss.png                    the loss curve
  $out/architecture.png            where the layers are
  $out/checkpoints/                checkpoints, from which training can go on
  go on:    $hs train examples/smollm2.yaml base_model=$model output_dir=$out \\
            max_steps=50 resume_from_checkpoint=latest
  try it:   $hs generate $model --adapter $out --prompt 'What does NF4 mean?'
  one file: $hs merge $model $out merged.gguf --type q8_0
EOT
