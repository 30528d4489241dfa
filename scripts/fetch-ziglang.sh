#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The PyPI package ziglang has a clang 22 that makes code for every AMD card; the tests compile the
# kernels with it. Prints the path of the program.
exec "$(dirname "$0")/fetch-wheel.sh" ziglang 0.17.1 \
	ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54 ziglang/zig
