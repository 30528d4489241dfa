#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The library as it is installed: what it shows, its header in C11 and C++17, and the examples of
# examples/api, which learn what they should and give the same bits over several workers. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
build=${HS_BUILD:-$PWD/build}
hs=${HS_BIN:-$build/heteroshard}
unset MAKEFLAGS MFLAGS MAKEOVERRIDES
so=$build/libheteroshard.so.0
if [ ! -f "$so" ]; then
	echo "1..0 # SKIP there is no shared library in a sanitizer's build"
	exit 0
fi

make -s install-lib BUILD="$build" BIN="$hs" DESTDIR="$tmp/root" PREFIX=/usr -o "$hs" -o "$so" \
	-o "$build/libheteroshard.a" >"$tmp/out" 2>"$tmp/err"
check "make install-lib"
lib=$tmp/root/usr/lib

# A change here is a change of the interface: add to the list, take nothing away.
nm -D --defined-only "$lib/libheteroshard.so" | awk '$2 == "T" { print $3 }' | sed 's/@.*//' |
	LC_ALL=C sort >"$tmp/symbols"
diff "$tmp/symbols" tests/golden/own/symbols.txt >"$tmp/out" 2>&1
check "the library shows the names of tests/golden/own/symbols.txt and no others"
readelf -d "$lib/libheteroshard.so" | grep -q 'SONAME.*libheteroshard.so.0' &&
	! readelf -d "$lib/libheteroshard.so" | grep -q TEXTREL
check "its soname is libheteroshard.so.0, and its code is not changed when it is loaded"

flags="-I$tmp/root/usr/include -Wall -Wextra -pedantic -Werror -O1"
if command -v pkg-config >/dev/null; then
	PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --libs heteroshard >"$tmp/out" 2>"$tmp/err" &&
		grep -q -- -lheteroshard "$tmp/out"
	check "pkg-config knows it"
fi
for f in examples/api/*.c; do
	name=$(basename "$f" .c)
	${CC:-cc} -std=c11 $flags "$f" -o "$tmp/$name" -L"$lib" -lheteroshard -lm >"$tmp/out" \
		2>"$tmp/err"
	check "$name.c in C11"
	[ "$(wc -l <"$f")" -lt 150 ]
	check "$name.c is shorter than 150 lines"
	if command -v c++ >/dev/null; then
		c++ -x c++ -std=c++17 $flags -fsyntax-only "$f" >"$tmp/out" 2>"$tmp/err"
		check "$name.c in C++17"
	fi
done
export LD_LIBRARY_PATH=$lib
run() { "$@" >"$tmp/out" 2>"$tmp/err"; }

run "$tmp/regression"
check "regression learns"
[ ! -s "$tmp/err" ]
check "and nothing was printed by the library"

run "$tmp/mlp" examples/api/digits.u8
check "mlp reads digits that it never saw"
last=$(sed -n 's/.*last loss //p' "$tmp/out")
run "$tmp/mlp" examples/api/digits.u8 cpu cpu cpu
[ -n "$last" ] && [ "$(sed -n 's/.*last loss //p' "$tmp/out")" = "$last" ]
check "with three workers its last loss has the same bits"

run "$tmp/cnn" examples/api/digits.u8 "$tmp/cnn1"
check "cnn reads digits that it never saw"
last=$(sed -n 's/^last loss //p' "$tmp/out")
[ -f "$tmp/cnn1/model.safetensors" ] && [ -d "$tmp/cnn1/checkpoints" ] &&
	"$hs" info "$tmp/cnn1" >"$tmp/out" 2>"$tmp/err"
check "its folder has the model and its checkpoints, and heteroshard info reads it"
run "$tmp/cnn" examples/api/digits.u8 "$tmp/cnn2" cpu cpu
[ -n "$last" ] && [ "$(sed -n 's/^last loss //p' "$tmp/out")" = "$last" ]
check "with two workers its last loss has the same bits"

run "$tmp/charlm" README.md 30
check "charlm learns from a text"
last=$(sed -n 's/^last loss //p' "$tmp/out")
run "$tmp/charlm" README.md 30 cpu cpu
[ -n "$last" ] && [ "$(sed -n 's/^last loss //p' "$tmp/out")" = "$last" ]
check "with two workers its last loss has the same bits"
if "$hs" devices 2>/dev/null | grep -q opencl:0; then
	run "$tmp/charlm" README.md 10 cpu opencl:0
	check "charlm over two unlike workers, cpu and opencl:0"
fi
run "$tmp/mlp" /nowhere
[ $? -ne 0 ] && [ "$(wc -l <"$tmp/err")" -eq 1 ]
check "without its data one line says so"

echo "1..$n"
exit $failed
