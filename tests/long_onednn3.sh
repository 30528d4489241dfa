#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Products with oneDNN 3, which newer distributions have in place of 2: the tests of products, and
# that no product of a LoRA step takes the library's slow reference code. The library and its
# headers come as wheels. For `make test-long`. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
unset MAKEFLAGS MFLAGS MAKEOVERRIDES
headers=$(scripts/fetch-wheel.sh onednn-devel 2026.1.0 \
	5dc592efaed768834ac02d9086b350e08440501b11ea3f6b230a66551c9b5fac \
	include/oneapi/dnnl/dnnl.h 2>"$tmp/err") &&
	# not by fetch-wheel.sh: what pip installs into a folder lacks the wheel's lib
	echo "onednn-cpu-gomp==2023.2.0 --hash=sha256:$(
	)2f22a54d6a890ed14bfa185d42a4be65d8b5b1df85dc1f0f3a9abe31620416fb" >"$tmp/wanted" &&
	python3 -m pip download -q --no-deps --require-hashes -d "$tmp" -r "$tmp/wanted" \
		>"$tmp/out" 2>"$tmp/err" &&
	python3 -m zipfile -e "$tmp"/onednn_cpu_gomp-*.whl "$tmp/wheel"
check "oneDNN 3 from PyPI"
[ $failed = 0 ] || { echo "1..$n"; exit 1; }
lib=$(echo "$tmp"/wheel/*.data/data/lib)
ln -sf libdnnl.so.3 "$lib/libdnnl.so" # a wheel has no links
export CPATH=${headers%/oneapi/*} LIBRARY_PATH=$lib LD_LIBRARY_PATH=$lib
b=$tmp/build
make -s -j"$(nproc)" BUILD="$b" "$b/heteroshard" "$b/tests/test_dev_gemm" \
	>"$tmp/out" 2>"$tmp/err"
check "compiled with its headers"
HS_BACKENDS=cpu ONEDNN_VERBOSE=1 "$b/tests/test_dev_gemm" >"$tmp/verbose" 2>&1
rc=$?
grep -av '^onednn_verbose' "$tmp/verbose" >"$tmp/out"
: >"$tmp/err"
[ $rc = 0 ]
check "products"
grep -aq 'oneDNN v3' "$tmp/verbose"
check "by oneDNN 3"
ONEDNN_VERBOSE=1 "$b/heteroshard" bench --no-ops --no-links --weights plain --layers 1 --repeat 1 \
	>"$tmp/verbose" 2>"$tmp/err"
grep -a ',exec,.*,matmul,' "$tmp/verbose" >"$tmp/products"
grep -a ',ref:' "$tmp/products" | head -5 >"$tmp/out"
[ -s "$tmp/products" ] && ! [ -s "$tmp/out" ]
check "none of a step's $(wc -l <"$tmp/products") products by reference code"
echo "1..$n"
exit $failed
