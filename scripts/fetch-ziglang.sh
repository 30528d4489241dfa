#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts the PyPI package ziglang 0.17.1 into the cache folder: it has a clang 22 that makes code
# for every AMD card; the tests compile the kernels with it. The package is checked against its
# SHA-256. Prints the path of the program. Exit status 1, with one line, when it cannot be had.
set -euo pipefail
version=0.17.1
sum=ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54 # x86-64
dir=${XDG_CACHE_HOME:-$HOME/.cache}/heteroshard/ziglang-$version
if [ ! -x "$dir/ziglang/zig" ]; then
	if [ "$(uname -m)" != x86_64 ]; then
		echo "fetch-ziglang: no checksum is known for $(uname -m)" >&2
		exit 1
	fi
	python3 -m pip --version >/dev/null 2>&1 ||
		"$(dirname "$0")/install-deps.sh" python3-pip || true
	mkdir -p "$(dirname "$dir")"
	tmp=$(mktemp -d "$dir.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	echo "ziglang==$version --hash=sha256:$sum" >"$tmp/wanted"
	if ! python3 -m pip install -q --no-deps --no-cache-dir --require-hashes \
		--target "$tmp/lib" -r "$tmp/wanted" >"$tmp/log" 2>&1; then
		why=$(grep -v '^$' "$tmp/log" | tail -n 1)
		echo "fetch-ziglang: pip could not install ziglang $version: $why" >&2
		exit 1
	fi
	rm -rf "$dir"
	mv "$tmp/lib" "$dir"
fi
echo "$dir/ziglang/zig"
