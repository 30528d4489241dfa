#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The library as it is installed: what it shows, its header in C11 and C++17, and the examples of
# examples/api, which learn what they should and give the same bits over several workers. Prints
# TAP.
. "$(dirname "$0")/support/tap.sh"
build=${HS_BUILD:-$PWD/build}
hs=${HS_BIN:-$build/heteroshard}
unset MAKEFLAGS MFLAGS MAKEOVERRIDES
so=$build/libheteroshard.so.0
if [ ! -f "$so" ]; then
	echo "ok 1 # SKIP there is no shared library in a sanitizer's build"
	echo "1..1"
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
	own=$(realpath --relative-to=. "$tmp/own")
	make -s install-lib BUILD="$build" BIN="$hs" PREFIX="$own" -o "$hs" -o "$so" \
		-o "$build/libheteroshard.a" >"$tmp/out" 2>"$tmp/err" &&
		export PKG_CONFIG_PATH=$tmp/own/lib/pkgconfig && # shellcheck disable=SC2046
		sed -n '/^```c$/,/^```$/p' README.md | sed '/^```/d' >"$tmp/ten.c" &&
		${CC:-cc} "$tmp/ten.c" -o "$tmp/ten" $(pkg-config --cflags --libs heteroshard) \
			-Wl,-rpath,"$(pkg-config --variable=libdir heteroshard)" \
			>"$tmp/out" 2>"$tmp/err" && (cd "$tmp" && ./ten) >"$tmp/out" 2>"$tmp/err"
	check "and a program finds it under a prefix of one's own"
fi
for f in examples/api/*.c; do
	name=$(basename "$f" .c)
	${CC:-cc} -std=c11 $flags "$f" -o "$tmp/$name" -L"$lib" -lheteroshard -lm >"$tmp/out" \
		2>"$tmp/err"
	check "$name.c in C11"
	[ "$(wc -l <"$f")" -lt 150 ]
	check "$name.c is shorter than 150 lines"
	if command -v c++ >/dev/null; then
		c++ -x c++ -std=c++17 $flags "$f" -o "$tmp/$name++" -L"$lib" -lheteroshard -lm \
			>"$tmp/out" 2>"$tmp/err"
		check "$name.c in C++17"
	fi
done
export LD_LIBRARY_PATH=$lib
run() { "$@" >"$tmp/out" 2>"$tmp/err"; }

# The ten lines with which docs/api.md begins, and README's.
for f in docs/api.md README.md; do
	sed -n '/^```c$/,/^```$/p' $f | sed '/^```/d' >"$tmp/ten.c"
	[ "$(wc -l <"$tmp/ten.c")" -eq 10 ] &&
		${CC:-cc} $flags "$tmp/ten.c" -o "$tmp/ten" -L"$lib" -lheteroshard >"$tmp/out" \
			2>"$tmp/err"
	check "the ten lines of $f"
	# under the name that the document gives to the program
	name=$(sed -nE 's/^ *cc line.c -o ([a-z]+) .*/\1/p' $f)
	mkdir "$tmp/ten.d" && cp "$tmp/ten" "$tmp/ten.d/${name:-ten}"
	(cd "$tmp/ten.d" && ./"${name:-ten}" >out 2>err && [ ! -s out ] && [ ! -s err ] &&
		"$hs" info line >out && grep -q "blocks.* tanh" out && ! grep -q vocab out &&
		[ -s line/model.safetensors ])
	check "train something"
	rm -rf "$tmp/ten.d"
done
# Members of structs stay where they are (of machines whose pointers have 64 bits).
${CC:-cc} -std=c11 $flags tests/golden/own/layout.c -o "$tmp/layout" >"$tmp/out" 2>"$tmp/err" &&
	"$tmp/layout" | diff - tests/golden/own/layout.txt >"$tmp/out"
check "members of the public structs are where tests/golden/own/layout.txt has them"
# What is to go is told by the compiler, with what to use.
printf '#include <heteroshard.h>\nHS_DEPRECATED("use hs_new()") int hs_old(void);\n%s\n' \
	'int hs_old(void) { return 0; }' >"$tmp/declared.c"
(cat "$tmp/declared.c" && echo 'int main(void) { return hs_old(); }') >"$tmp/used.c"
for how in "${CC:-cc} -std=c11" "c++ -x c++ -std=c++17"; do
	$how $flags -c "$tmp/declared.c" -o "$tmp/declared.o" >"$tmp/out" 2>"$tmp/err" &&
		! $how $flags -c "$tmp/used.c" -o "$tmp/used.o" >"$tmp/out" 2>"$tmp/err" &&
		grep -q "deprecated.*use hs_new()" "$tmp/err"
	check "a use of what is deprecated is a warning that says what to use: $how"
done
[ -z "$(comm -3 <(grep -ohE '\bhs_[a-z_]+\(' include/heteroshard.h | tr -d '(' | LC_ALL=C sort -u |
	grep -vxE 'hs_[a-z]+_init|hs_plugin|hs_plugin_optimizers') "$tmp/symbols")" ]
check "each name of the library is declared in the header, and each function there is in it"

run "$tmp/regression"
check "regression learns"
[ ! -s "$tmp/err" ]
check "and nothing was printed by the library"

for name in regression block optimizer kernel; do
	[ ! -x "$tmp/$name++" ] || run "$tmp/$name++"
	check "$name as C++ learns"
done

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
# A block of one's own, in the program and in a plugin of workers that are plain ones.
${CC:-cc} -std=c11 $flags -shared -fPIC -DPLUGIN examples/api/block.c -o "$tmp/bend.so" -lm \
	>"$tmp/out" 2>"$tmp/err"
check "block.c as a plugin"
sed 's/k.version = "1"/k.version = "2"/' examples/api/block.c >"$tmp/other.c"
${CC:-cc} -std=c11 $flags -shared -fPIC -DPLUGIN "$tmp/other.c" -o "$tmp/other.so" -lm
run "$tmp/block"
check "block learns"
last=$(sed -n 's/^last loss //p' "$tmp/out")
cat >"$tmp/two.yaml" <<END
{compute_dtype: float32, wire_dtype: float32, profile: none, output_dir: $tmp/two,
coordinator: {ip: 127.0.0.1, port: 23880, device: none},
workers: [{id: a, ip: 127.0.0.1, port: 23881, device: cpu},
  {id: b, ip: 127.0.0.1, port: 23882, device: cpu}]}
END
run "$tmp/block" "$tmp/two.yaml" "$hs" "$tmp/bend.so"
[ -n "$last" ] && [ "$(sed -n 's/^last loss //p' "$tmp/out")" = "$last" ]
check "two processes with the plugin give the bits of one"
sed "s,output_dir: $tmp/two,output_dir: $tmp/three," "$tmp/two.yaml" >"$tmp/three.yaml"
run "$tmp/block" "$tmp/three.yaml" "$hs" "$tmp/other.so"
[ $? -ne 0 ] && grep -q "the block 'bend' of this program is another one" "$tmp/err"
check "workers with another version of it are refused, by its name"
run "$hs" worker --plugin "$tmp/nowhere.so" "$tmp/two.yaml"
[ $? -eq 1 ] && [ "$(wc -l <"$tmp/err")" -eq 1 ] && grep -q nowhere.so "$tmp/err"
check "a plugin that is not there is named in one line"

# A block as a text: in the program, on unlike devices, in a plugin.
${CC:-cc} -std=c11 $flags -shared -fPIC -DPLUGIN examples/api/kernel.c -o "$tmp/clip.so" -lm \
	>"$tmp/out" 2>"$tmp/err"
check "kernel.c as a plugin"
sed 's/s0 \* TANH/s0 * 1.0f * TANH/' examples/api/kernel.c >"$tmp/other.c"
${CC:-cc} -std=c11 $flags -shared -fPIC -DPLUGIN "$tmp/other.c" -o "$tmp/other_clip.so" -lm
run "$tmp/kernel"
check "kernel learns"
last=$(sed -n 's/^last loss //p' "$tmp/out")
sed "s,output_dir: $tmp/two,output_dir: $tmp/five," "$tmp/two.yaml" >"$tmp/five.yaml"
run "$tmp/kernel" "$tmp/five.yaml" "$hs" "$tmp/clip.so"
[ -n "$last" ] && [ "$(sed -n 's/^last loss //p' "$tmp/out")" = "$last" ]
check "two processes with the plugin give the bits of one"
sed "s,output_dir: $tmp/two,output_dir: $tmp/six," "$tmp/two.yaml" >"$tmp/six.yaml"
run "$tmp/kernel" "$tmp/six.yaml" "$hs" "$tmp/other_clip.so"
[ $? -ne 0 ] && grep -q "the block 'clip' of this program is another one" "$tmp/err"
check "workers with another text are refused, by its name"
if "$hs" devices 2>/dev/null | grep -q opencl:0; then
	run "$tmp/kernel" cpu opencl:0
	check "kernel learns over two unlike workers, cpu and opencl:0"
fi

# An optimizer of one's own: a group that divides its state, and a pipeline.
${CC:-cc} -std=c11 $flags -shared -fPIC -DPLUGIN examples/api/optimizer.c -o "$tmp/signum.so" -lm \
	>"$tmp/out" 2>"$tmp/err"
check "optimizer.c as a plugin"
sed 's/o.version = "1"/o.version = "2"/' examples/api/optimizer.c >"$tmp/other.c"
${CC:-cc} -std=c11 $flags -shared -fPIC -DPLUGIN "$tmp/other.c" -o "$tmp/other_signum.so" -lm
run "$tmp/optimizer"
check "optimizer learns"
last=$(sed -n 's/^last loss //p' "$tmp/out")
for plan in "[{id: [a, b], share: [1, 1], state_share: [0.4, 0.6], start: 0, end: 5}]" \
	"[{id: a, start: 0, end: 3}, {id: b, start: 3, end: 5}]"; do
	cat >"$tmp/four.yaml" <<END
{compute_dtype: float32, wire_dtype: float32, profile: none, shard: optimizer,
coordinator: {ip: 127.0.0.1, port: 23885, device: none}, shard_plan: $plan,
workers: [{id: a, ip: 127.0.0.1, port: 23886, device: cpu},
  {id: b, ip: 127.0.0.1, port: 23887, device: cpu}]}
END
	run "$tmp/optimizer" "$tmp/four.yaml" "$hs" "$tmp/signum.so"
	[ -n "$last" ] && [ "$(sed -n 's/^last loss //p' "$tmp/out")" = "$last" ]
	check "two processes with it give the bits of one: $plan"
done
run "$tmp/optimizer" "$tmp/four.yaml" "$hs" "$tmp/other_signum.so"
[ $? -ne 0 ] && grep -q "there is no optimizer 'signum-" "$tmp/err"
check "workers with another version of it are refused, by its name"
sed 's/HS_CUT_BLOCK;/HS_CUT_NONE;/' examples/api/optimizer.c >"$tmp/uncut.c"
${CC:-cc} -std=c11 $flags "$tmp/uncut.c" -o "$tmp/uncut" -L"$lib" -lheteroshard -lm
sed -i "s/shard_plan: .*,\$/shard_plan: [{id: [a, b], share: [1, 1], start: 0, end: 5}],/" \
	"$tmp/four.yaml"
run "$tmp/uncut" "$tmp/four.yaml" "$hs" "$tmp/signum.so"
[ $? -ne 0 ] && [ "$(wc -l <"$tmp/err")" -eq 1 ]
check "one that says that its state cannot be cut is not sharded: $(cat "$tmp/err")"

run "$tmp/server" examples/api/digits.u8 examples/api/server.yaml "$hs"
check "a parameter server and two others, with the losses of one process"
[ "$(grep -c '^ *[0-9]' "$tmp/out")" -eq 6 ] && grep -q "^the same losses" "$tmp/out"
check "in each step"

run "$tmp/mlp" /nowhere
[ $? -ne 0 ] && [ "$(wc -l <"$tmp/err")" -eq 1 ]
check "without its data one line says so"

echo "1..$n"
exit $failed
