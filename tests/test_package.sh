#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What packages hold: installing into a folder, manual pages, completion, the unit, the commit, the
# Debian package. With TEST_LONG: each package is installed in a fresh root and trains there, also
# in an older Debian, and two builds in two places give the same bytes. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
hs=${HS_BIN:-$PWD/build/heteroshard}
build=${HS_BUILD:-$PWD/build}
golden=$PWD/tests/golden/models
unset MAKEFLAGS MFLAGS MAKEOVERRIDES
long=${TEST_LONG:-}

# The program that the tests run is what is installed: nothing is compiled.
make -s install-data BUILD="$build" BIN="$hs" DESTDIR="$tmp/root" PREFIX=/usr UNITS=/units \
	-o "$hs" >"$tmp/out" 2>"$tmp/err"
check "make install-data"
share=$tmp/root/usr/share
missing=""
for c in $(sed -nE 's/^COMMAND\(([a-z_]+),.*/\1/p' src/cli/command.def); do
	page=$share/man/man1/heteroshard-$c.1
	grep -q "^heteroshard.*-$c .*- " "$page" 2>/dev/null || missing="$missing $c"
	for o in $("$hs" "$c" --help | sed -nE 's/^  --([a-z-]+).*/\1/p' | grep -v '^help$'); do
		tr -d '\\' <"$page" | grep -q -- "--.*$o" || missing="$missing $c:$o"
	done
done
[ -z "$missing" ] || echo "# not in the pages:$missing"
[ -z "$missing" ]
check "every command has its page, and every option its place in it"
if command -v groff >/dev/null; then
	for f in "$share"/man/man1/*.1; do
		groff -man -Tutf8 -ww -z "$f" 2>&1 | grep -v "cannot adjust line"
	done >"$tmp/out"
	[ ! -s "$tmp/out" ]
	check "groff has no complaint about them"
fi
complete() { # WORDS ...: what bash offers for the last one
	bash -c '. "$0"; compopt() { :; }; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _heteroshard
		echo "${COMPREPLY[*]}"' "$share/bash-completion/completions/heteroshard" "$@"
}
[ "$(complete heteroshard inv)" = invite ] && [ "$(complete heteroshard worker --jo)" = --join ] &&
	[ "$(complete heteroshard -v train --allow)" = --allow-changes ] &&
	[ "$(complete heteroshard train a.yaml learning_r)" = learning_rate= ] &&
	[ "$(complete heteroshard plan --json a.yaml max_s)" = max_steps= ] &&
	[ -z "$(complete heteroshard train learning_r)" ] &&
	[ -z "$(complete heteroshard train a.yaml base_model = max_s)" ] &&
	[ -z "$(complete heteroshard info a max_s)" ]
check "completion in bash"
if command -v zsh >/dev/null; then
	zsh -n "$share/zsh/vendor-completions/_heteroshard"
	check "zsh reads its completion"
	offers() { # PREFIX WORDS ...: what zsh offers behind these words
		zsh -fc 'compadd() { print -r -- $@ }; _describe() { print commands }
			_files() { print files }
			f() { local PREFIX=$2 CURRENT=$(($# - 1))
				words=("${@[3,-1]}" "$2"); . $1 }
			f "$@"' zsh "$share/zsh/vendor-completions/_heteroshard" "$@"
	}
	[ "$(offers '' heteroshard)" = commands ] && [ "$(offers i heteroshard -v)" = commands ] &&
		[[ $(offers --al heteroshard train) == *--allow-changes* ]] &&
		[[ $(offers --al heteroshard -v train) == *--allow-changes* ]] &&
		[[ $(offers -- heteroshard) == *--version* ]] &&
		[ "$(offers a heteroshard train)" = files ] &&
		[[ $(offers max heteroshard train a.yaml) == *" max_steps="*files ]] &&
		[ "$(offers max heteroshard info a)" = files ]
	check "and completes with it"
fi
make -s install-data BUILD="$build" BIN="$hs" DESTDIR="$tmp/local" UNITS=/units -o "$hs" \
	>"$tmp/out" 2>"$tmp/err" &&
	[ -s "$tmp/local/usr/local/share/zsh/site-functions/_heteroshard" ]
check "and under /usr/local it lies where zsh looks"
grep -q "^ExecStart=/usr/bin/heteroshard worker$" "$tmp/root/units/heteroshard-worker.service"
check "the unit starts the installed program"
if command -v systemd-analyze >/dev/null; then
	systemd-analyze security --offline=true --threshold=50 \
		"$tmp/root/units/heteroshard-worker.service" >"$tmp/out" 2>"$tmp/err"
	check "systemd-analyze security: at most 5.0"
fi
"$hs" --version | grep -qE '^heteroshard [0-9.]+(, commit [0-9a-f]{12}.*)?$'
check "--version"

# ---- the Debian package ----
if command -v dpkg-shlibdeps >/dev/null; then
	export SOURCE_DATE_EPOCH=1700000000
	for k in 1 2; do
		cp -r "$tmp/root" "$tmp/tree$k"
		mkdir -p "$tmp/tree$k/lib/systemd/system"
		mv "$tmp/tree$k/units/"* "$tmp/tree$k/lib/systemd/system/"
		rmdir "$tmp/tree$k/units"
		install -D -m 755 "$hs" "$tmp/tree$k/usr/bin/heteroshard"
		scripts/package/deb.sh "$tmp/tree$k" "$tmp/deb$k" 0.1.0 >"$tmp/out" 2>"$tmp/err"
	done
	deb=$(echo "$tmp"/deb1/*.deb)
	[ -s "$deb" ] && cmp "$deb" "$tmp"/deb2/*.deb
	check "a Debian package, the same bytes from the same files"
	dpkg-deb -f "$deb" Depends | grep -q 'libssl3.*\|libjansson4'
	check "it names the libraries that it needs"
	if command -v lintian >/dev/null; then
		lintian --fail-on error --allow-root "$deb" >"$tmp/out" 2>"$tmp/err"
		check "lintian finds no errors"
	fi
fi

# ---- the same bytes, wherever the source lies ----
for k in 1 2; do
	mkdir "$tmp/place$k"
	cp -r Makefile src scripts "$tmp/place$k/"
	(cd "$tmp/place$k" && CCACHE_DISABLE=1 make DEPS_OK= BUILD=b b/base/stat.o b/base/opt.o \
		b/net/frame.o ${long:+-j4 b/heteroshard} >"$tmp/out" 2>&1)
done
for f in base/stat.o base/opt.o net/frame.o ${long:+heteroshard}; do
	cmp "$tmp/place1/b/$f" "$tmp/place2/b/$f" || break
done
check "two builds in two places give the same bytes"

# ---- the rewriting of libraries ----
cat >"$tmp/new.c" <<'END'
#include <sys/stat.h>
#include <pthread.h>
int probe(void) { struct stat s; return stat("/", &s) || pthread_once == 0; }
int main(void) { return probe(); }
END
gcc -O0 -o "$tmp/new" "$tmp/new.c" 2>"$tmp/err"
needs() { readelf -V "$1" | grep -o 'Name: GLIBC_2\.3[0-9].*'; }
# A root is entered with a /proc of its own, which goes with the command.
inside() {
	local root=$1
	shift
	unshare -m sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' "$root" "$@"
}
if needs "$tmp/new" >/dev/null; then
	scripts/package/lower.py "$tmp/new" "$tmp/low" --known >"$tmp/out" 2>"$tmp/err"
	grep -q 'glibc 2.28 does not have .*stat' "$tmp/err"
	check "a name that glibc 2.28 lacks ends the packing"
	gcc -O2 -fPIC -shared -nostdlib -w -fvisibility=hidden \
		-Wl,-soname,libheteroshard-compat.so scripts/package/compat.c \
		-o "$tmp/libheteroshard-compat.so" -lc
	gcc -O0 -o "$tmp/new" "$tmp/new.c" "$tmp/libheteroshard-compat.so" 2>"$tmp/err"
	echo 'int __libc_start_main(void) { return 0; } int pthread_once(void) { return 0; }
		int abort(void) { return 0; } int dlopen(void) { return 0; }
		int dlvsym(void) { return 0; }' | gcc -w -fno-builtin -shared -fPIC -xc - \
		-o "$tmp/known.so"
	scripts/package/lower.py "$tmp/new" "$tmp/low" --lib "$tmp" --known "$tmp/known.so" \
		>"$tmp/out" 2>"$tmp/err" && ! needs "$tmp/low/bin/heteroshard" | grep -v WEAK &&
		LD_LIBRARY_PATH=$tmp/low/lib/heteroshard "$tmp/low/bin/heteroshard"
	check "a program that needs no new glibc afterwards, and runs"
fi

if [ -z "$long" ]; then
	echo "1..$n"
	exit $failed
fi

# ---- fresh roots ----
sizes() { # ROOT: what a job there needs
	mkdir -p "$1/job"
	cp -r "$golden/smollm2" "$1/job/model"
	for i in 1 2 3 4 5 6; do
		echo "{\"text\": \"one two three four five six seven eight $i\"}"
	done >"$1/job/data.jsonl"
	cat >"$1/job/job.yaml" <<-END
		base_model: /job/model
		datasets: [{path: /job/data.jsonl, type: text}]
		adapter: lora
		output_dir: /job/run
		sequence_len: 32
		max_steps: 2
		device: cpu
		overwrite_output_dir: true
	END
}
fresh() { # NAME SUITE: a root in $tmp/NAME
	debootstrap --variant=minbase "$2" "$tmp/$1" >"$tmp/out" 2>"$tmp/err" && sizes "$tmp/$1"
}
trained() {
	local run=$tmp/$1/job/run
	[ -s "$run/adapter_model.safetensors" ] && [ -s "$run/loss.png" ]
}
fresh root-new "$(. /etc/os-release; echo "$VERSION_CODENAME")"
check "a fresh root"
cp "$deb" "$tmp/root-new/job/"
cp /etc/apt/sources.list.d/debian.sources "$tmp/root-new/etc/apt/sources.list.d/" 2>/dev/null
inside "$tmp/root-new" sh -c 'apt-get update &&
	apt-get install -y --no-install-recommends /job/*.deb' \
	>"$tmp/out" 2>"$tmp/err"
check "apt installs the package with its dependencies"
inside "$tmp/root-new" heteroshard train /job/job.yaml >"$tmp/out" 2>"$tmp/err" && trained root-new
check "and it trains there"
tarball=$(ls build/package/heteroshard-*-linux-x86_64.tar.xz | tail -n 1)
fresh root-old bullseye
check "a root of an older Debian"
tar -C "$tmp/root-old/job" -xf "$tarball"
# glibc 2.28 itself is in no release that can be installed here: the versions that are asked for
asks() { # TREE: symbols of a newer glibc that must be there (U, and not weak)
	find "$1" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec objdump -T {} + 2>/dev/null |
		grep -E '\*UND\*' | grep -v ' w ' | grep -E 'GLIBC_2\.(29|[3-9][0-9])'
}
objdump -T "$hs" | grep -qE 'GLIBC_2\.(29|3[0-9])' && ! asks "$tmp/root-old/job" >"$tmp/out"
check "nothing in the tarball asks for a glibc above 2.28, as this build does"
inside "$tmp/root-old" sh -c '/job/heteroshard-*/bin/heteroshard train /job/job.yaml' \
	>"$tmp/out" 2>"$tmp/err" && trained root-old
check "the tarball trains there, with glibc 2.31"
! grep -q 'GLIBC\|shared object\|relocation' "$tmp/err"
check "without a word from the loader"
tarball=$(ls build/package/heteroshard-*-linux-aarch64.tar.xz 2>/dev/null | tail -n 1)
root=$(ls -d "${XDG_CACHE_HOME:-$HOME/.cache}"/heteroshard/sysroot-arm64-* 2>/dev/null | tail -n 1)
if [ -n "$tarball" ] && [ -n "$root" ] && command -v qemu-aarch64-static >/dev/null; then
	tar -C "$tmp" -xf "$tarball"
	sizes "$tmp/arm"
	sed -i "s, /job, $tmp/arm/job,g" "$tmp/arm/job/job.yaml"
	qemu-aarch64-static -L "$root" "$tmp"/heteroshard-*-aarch64/bin/heteroshard train \
		"$tmp/arm/job/job.yaml" >"$tmp/out" 2>"$tmp/err" && trained arm
	check "the tarball for aarch64 trains under qemu"
fi
wheel=$(ls build/package/heteroshard-*.whl 2>/dev/null | tail -n 1)
if [ -n "$wheel" ]; then
	python3 -m venv "$tmp/venv" && "$tmp/venv/bin/pip" install -q --no-index "$wheel" &&
		"$tmp/venv/bin/heteroshard" --version >"$tmp/out" 2>"$tmp/err"
	check "pip installs the wheel, and it starts"
	site=$(echo "$tmp"/venv/lib/python3*/site-packages)
	for p in "${HS_PYTHON:-}" python3 /usr/bin/python3; do
		[ -n "$p" ] && "$p" -c 'import cffi, numpy' 2>/dev/null || continue
		(unset HETEROSHARD_LIBRARY && PYTHONPATH=$site "$p" -c 'import heteroshard as hs
m = hs.Model("input 2; linear 1; mse")
r = hs.train(m, [([1.0, 2.0], [3.0])] * 8, max_steps=3)
print(hs.__file__, r.loss)') >"$tmp/out" 2>"$tmp/err"
		check "the wheel's package trains in Python"
		break
	done
fi
echo "1..$n"
exit $failed
