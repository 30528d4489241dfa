#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the kernels, in every dtype, for every card that a compiler in reach knows: NVIDIA's by
# the NVRTC that is installed and, for those from sm_50 on, by NVRTC 12.9 (a wheel of PyPI); AMD's
# from gfx900 to gfx1201 by hipRTC and clang 22; Intel's Arc A and Max by Intel's own compiler
# (Debian 12's package). No card is needed. It takes an hour on two cores.
#   scripts/compile-all.sh [BUILD]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
HS_ZIG=$(scripts/fetch-ziglang.sh)
HS_OCLOC=$(scripts/fetch-ocloc.sh) || HS_OCLOC=
export HS_ZIG HS_OCLOC HS_COMPILE_ALL=1
"$build/tests/test_dev_compile"
HS_NVRTC_LIBRARY=$(scripts/fetch-wheel.sh nvidia-cuda-nvrtc-cu12 12.9.86 \
	210cf05005a447e29214e9ce50851e83fc5f4358df8b453155d5e1918094dcb4 \
	nvidia/cuda_nvrtc/lib/libnvrtc.so.12) || {
	echo "NVRTC 12.9 cannot be had: nothing was compiled for cards older than sm_75" >&2
	exit 1
}
export HS_NVRTC_LIBRARY
HS_COMPILE=nvidia HS_COMPILE_SM=50-74 "$build/tests/test_dev_compile"
