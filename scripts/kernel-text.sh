#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The kernels of src/dev/kernel as C strings, one array a file: kernel_NAME for NAME.k.
#   scripts/kernel-text.sh FILE.k ... >dev/kernel_text.h
set -eu
for f in "$@"; do
	name=$(basename "$f" .k)
	echo "static const char kernel_$name[] ="
	sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/\t"/' -e 's/$/\\n"/' "$f"
	echo ";"
done
