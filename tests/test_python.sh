#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python package over the library: training, callbacks, data by index, errors, memory. Prints
# TAP.
. "$(dirname "$0")/support/tap.sh"
build=${HS_BUILD:-$PWD/build}
export HETEROSHARD_LIBRARY=$build/libheteroshard.so.0 PYTHONPATH=$PWD/python
python=
for p in "${HS_PYTHON:-}" python3 /usr/bin/python3; do
	[ -z "$python" ] && [ -n "$p" ] && "$p" -c 'import cffi, numpy' 2>/dev/null && python=$p
done
if [ ! -f "$HETEROSHARD_LIBRARY" ]; then
	echo "ok 1 # SKIP there is no shared library in a sanitizer's build"
	echo "1..1"
	exit 0
fi
if [ -z "$python" ]; then
	echo "ok 1 # SKIP cffi and numpy are not installed"
	echo "1..1"
	exit 0
fi
"$python" tests/support/python_package.py >"$tmp/out" 2>"$tmp/err"
check "tests/support/python_package.py"
sed 's/^/# /' "$tmp/out"
echo "1..$n"
exit $failed
