#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the tarball of one architecture: the program with all libraries but glibc's, licences of
# each, manual pages. Runs on any Linux with glibc 2.28 or later. The libraries are Debian's
# packages of this machine's release; for another architecture they are unpacked into a folder of
# their own, the program is compiled with Debian's cross compiler, and its manual pages are written
# by it under qemu.
#   scripts/package/dist.sh ARCH OUT VERSION      ARCH: x86_64, aarch64
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=$1 out=$(mkdir -p "$2" && realpath "$2") version=$3
epoch=${SOURCE_DATE_EPOCH:?}
triple=$arch-linux-gnu
case $arch in
x86_64) deb=amd64 ;;
aarch64) deb=arm64 ;;
*) echo "dist: $arch: x86_64 and aarch64 are made" >&2; exit 1 ;;
esac
name=heteroshard-$version-linux-$arch
cache=${XDG_CACHE_HOME:-$HOME/.cache}/heteroshard
here=$(dpkg --print-architecture)
root="" cc=${CC:-gcc}
packages="$(grep -o '[a-z]*lib[a-z0-9.-]*-dev' scripts/install-deps.sh | grep -v cmocka | sort -u)
	libedit-dev libgomp1 libstdc++6 libc6-dev"

# ---- the libraries of another architecture ----
if [ "$deb" != "$here" ]; then
	scripts/install-deps.sh "gcc-$(echo $arch | tr _ -)-linux-gnu" qemu-user-static
	sum=$(echo "$packages" | cat - /etc/os-release | sha256sum | cut -c1-12)
	root=$cache/sysroot-$deb-$sum
	cc="$triple-gcc --sysroot=$root"
	[ -z "$(command -v ccache)" ] || cc="ccache $cc"
	if [ ! -e "$root/.done" ]; then
		rm -rf "$root"
		mkdir -p "$root/apt/state/lists/partial" "$root/apt/cache/archives/partial"
		: >"$root/apt/status"
		conf=(-o "APT::Architecture=$deb" -o "APT::Architectures::=$deb"
			-o "Dir::State=$root/apt/state" -o "Dir::State::status=$root/apt/status"
			-o "Dir::Cache=$root/apt/cache" -o APT::Install-Recommends=false
			-o APT::Sandbox::User=root -o Debug::NoLocking=true -q)
		apt-get "${conf[@]}" update >"$root/log" 2>&1 || true
		# shellcheck disable=SC2086
		apt-get "${conf[@]}" install -y --download-only $packages >>"$root/log" 2>&1 || {
			tail -n 3 "$root/log" >&2
			echo "dist: the packages of $deb cannot be had" >&2
			exit 1
		}
		for f in "$root"/apt/cache/archives/*.deb; do
			dpkg-deb -x "$f" "$root"
			p=$(dpkg-deb -f "$f" Package)
			dpkg-deb -c "$f" | awk -v p="$p" '/\.so/ {
				n = split($6, part, "/"); print p, part[n] }' >>"$root/owners"
		done
		rm -rf "$root/apt"
		touch "$root/.done"
	fi
fi

# ---- the program ----
build=build-dist-$arch
compat=$build/libheteroshard-compat.so
mkdir -p "$build"
${cc#ccache } -O2 -fPIC -shared -nostdlib -w -fvisibility=hidden \
	-Wl,-soname,libheteroshard-compat.so scripts/package/compat.c -o "$compat" -lc
# The libraries that were apart before glibc 2.34 are named: the program does not use them itself.
old="-Wl,--no-as-needed $PWD/$compat -l:libpthread.so.0 -l:libdl.so.2 -l:librt.so.1"
# The program finds its libraries beside its folder, and libheteroshard.so.0 those beside itself.
place="-Wl,--as-needed -Wl,--disable-new-dtags"
place="$place,-rpath,'\$\$ORIGIN/../lib/heteroshard',-rpath,'\$\$ORIGIN'"
flags=(CC="$cc" MPI=0 EDIT_PKG=libedit DEPS_OK= OPT="-O2 -g1" LINK_FIRST="$old $place")
make --no-print-directory -j"$(nproc)" BUILD="$build" "${flags[@]}" "$build/heteroshard" \
	"$build/libheteroshard.so.0" \
	>"$build/log" 2>&1 || {
	tail -n 20 "$build/log" >&2
	exit 1
}

# ---- the names that glibc 2.28 has ----
zig=$(scripts/fetch-ziglang.sh)
stubs=$cache/glibc-2.28-$arch
if [ ! -e "$stubs/libc.so.6" ]; then
	tmp=$(mktemp -d)
	echo 'int main(void){return 0;}' >"$tmp/a.c"
	ZIG_GLOBAL_CACHE_DIR=$tmp/g ZIG_LOCAL_CACHE_DIR=$tmp/l "$zig" cc -target "$triple.2.28" \
		"$tmp/a.c" -lm -lpthread -ldl -lrt -lresolv -o "$tmp/a"
	mkdir -p "$stubs"
	find "$tmp/g" -name 'lib*.so.*' -exec cp {} "$stubs/" \;
	find "$tmp/g" -name 'ld.so.*' -exec cp {} "$stubs/" \;
	rm -rf "$tmp"
fi

# ---- one folder ----
tree=$build/$name
rm -rf "$tree"
mkdir -p "$tree"
plugins=$root/usr/lib/$triple/graphviz
extra=()
for p in core dot_layout pango; do
	f=$(find "$plugins" -name "libgvplugin_$p.so.*" -type f | head -n 1)
	extra+=(--extra "$f=lib/heteroshard/graphviz/libgvplugin_$p.so.6")
done
cp "$build/heteroshard" "$build/stripped"
cp "$build/libheteroshard.so.0" "$build/stripped.so"
strip=$triple-strip
command -v "$strip" >/dev/null || strip=strip
"$strip" --strip-unneeded "$build/stripped" "$build/stripped.so"
extra+=(--extra "$build/stripped.so=lib/heteroshard/libheteroshard.so.0")
scripts/package/lower.py "$build/stripped" "$tree" --lib "$build" \
	--lib "$root/usr/lib/$triple" --lib "$root/lib/$triple" --lib "$root/usr/lib/$triple/blas" \
	"${extra[@]}" --known "$stubs"/* >"$build/files"
awk '/^libgvplugin_/ { on = $1 ~ /_(core|dot_layout|pango)\.so/ } on' \
	/usr/lib/"$(dpkg-architecture -qDEB_HOST_MULTIARCH)"/graphviz/config6a \
	>"$tree/lib/heteroshard/graphviz/config6a"

# ---- what belongs beside it, and licences ----
run=$tree/bin/heteroshard
[ "$arch" = "$(uname -m)" ] || run="qemu-$arch-static -L $root $run"
cp include/heteroshard.h "$tree/lib/heteroshard/"
make --no-print-directory install-data BUILD="$build" "${flags[@]}" PAGES_BY="$run" \
	DESTDIR="$tree" PREFIX= >/dev/null
package_of() { # FILE: the package that it is from
	local file=${1#"$root"} p
	if [ -n "$root" ]; then
		p=$(awk -v f="$(basename "$file")" '$2 == f { print $1; exit }' "$root/owners")
	else
		p=$(dpkg -S "$file" "${file#/usr}" 2>/dev/null | head -n 1 | cut -d: -f1)
	fi
	echo "$p"
}
mkdir -p "$tree/licences"
cp LICENSE "$tree/licences/heteroshard"
{
	echo "heteroshard $version, $arch: Apache-2.0 (licences/heteroshard). The libraries in"
	echo "lib/heteroshard are those of Debian packages; the licence of each is in licences/."
	echo
	while read -r target source; do
		case $target in *compat* | bin/* | */libheteroshard.so*) continue ;; esac
		package=$(package_of "$source")
		copyright=$root/usr/share/doc/$package/copyright
		[ -f "$copyright" ] || { echo "dist: no licence of $source" >&2; exit 1; }
		cp "$copyright" "$tree/licences/$package"
		echo "$(basename "$target") $package"
	done <"$build/files"
} >"$tree/LICENCES"
cat >"$tree/README" <<END
heteroshard $version for Linux on $arch, glibc 2.28 or later.

    bin/heteroshard --help          it runs from any folder; nothing has to be installed
    cp -r bin lib share ~/.local/   for one user; man pages and completion come along

lib/heteroshard is found beside bin; drivers of cards are those of the machine. Licences: LICENCES.
END
find "$tree" -exec touch -h -d "@$epoch" {} +
tar -C "$build" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -cf - "$name" |
	xz -T1 -6 >"$out/$name.tar.xz"
echo "$out/$name.tar.xz"
