#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles every source file for macOS on arm64 and x86-64, with clang 22 and macOS's headers of the
# wheel ziglang and the other libraries' headers of this machine. Nothing is linked, and no Mac is
# needed. It takes a minute.
#   scripts/compile-macos.sh [BUILD]     BUILD: a folder in which `make` has run
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
zig=$(scripts/fetch-ziglang.sh)
lib=${zig%/*}/lib
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# only those: the other headers of this machine are Linux's
for name in jansson.h jansson_config.h yaml.h sodium.h sodium utf8proc.h zlib.h zconf.h zstd.h \
	zstd_errors.h png.h pngconf.h pnglibconf.h libpng16 pcre2.h turbojpeg.h cairo graphviz \
	oneapi curl; do
	for from in /usr/include /usr/include/*-linux-gnu; do
		[ ! -e "$from/$name" ] || ln -sfn "$from/$name" "$tmp/$name"
	done
done
mkdir "$tmp/openssl"
for from in /usr/include/openssl /usr/include/*-linux-gnu/openssl; do
	[ ! -d "$from" ] || ln -sf "$from"/* "$tmp/openssl/"
done
ln -s "$(${CC:-cc} -print-file-name=include/omp.h)" "$tmp/omp.h"
for arch in arm64 x86_64; do
	find src -name '*.c' ! -path 'src/dev/kernel/*' -print0 |
		ZIG_LOCAL_CACHE_DIR=$tmp/zig ZIG_GLOBAL_CACHE_DIR=$tmp/zig xargs -0 -P2 -n1 \
			"$zig" clang -target $arch-apple-macos13 -fsyntax-only -std=gnu11 \
			-fopenmp=libomp \
			-D_GNU_SOURCE -D_DARWIN_C_SOURCE -nostdlibinc -isystem "$lib/include" \
			-isystem "$lib/libc/include/any-darwin-any" -isystem "$tmp" \
			-DCPU_ISA=base -Isrc -Iinclude -I"$build/gen" -Wall -Wextra -Werror
	echo "every file compiles for macOS on $arch"
done
