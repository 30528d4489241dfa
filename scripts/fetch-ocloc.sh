#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts Intel's offline OpenCL compiler, of Debian 12's package intel-opencl-icd, into the cache
# folder without installing it (installed, it would be a driver of its own). bench/registers
# compiles the kernels with it. Prints the path of a program to call. Exit status 1, with one line,
# when it cannot be had.
set -euo pipefail
dir=${XDG_CACHE_HOME:-$HOME/.cache}/heteroshard/ocloc
packages='intel-opencl-icd libigc1 libigdfcl1 libigdgmm12 libopencl-clang14 libllvmspirvlib14'
if [ ! -x "$dir/ocloc" ]; then
	mkdir -p "$(dirname "$dir")"
	tmp=$(mktemp -d "$dir.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	# shellcheck disable=SC2086
	if ! (cd "$tmp" && apt-get download -q $packages) >"$tmp/log" 2>&1; then
		why=$(grep '^E:' "$tmp/log" | head -n 1)
		echo "fetch-ocloc: apt-get could not download $packages: ${why:-no apt-get}" >&2
		exit 1
	fi
	for p in "$tmp"/*.deb; do
		dpkg -x "$p" "$tmp/root"
		rm "$p"
	done
	cat >"$tmp/ocloc" <<-END
		#!/bin/sh
		export LD_LIBRARY_PATH=$dir/root/usr/lib/x86_64-linux-gnu
		exec $dir/root/usr/bin/ocloc "\$@"
	END
	chmod +x "$tmp/ocloc"
	rm -rf "$dir"
	mv "$tmp" "$dir"
	trap - EXIT
fi
echo "$dir/ocloc"
