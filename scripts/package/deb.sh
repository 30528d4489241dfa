#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a Debian package from an installed tree: dependencies of its program, control files, and
# the same bytes for the same tree. Prints the path of the package.
#   scripts/package/deb.sh TREE OUT VERSION    TREE: of `make install DESTDIR=TREE PREFIX=/usr`
set -euo pipefail
tree=$(realpath "$1") version=$3
mkdir -p "$2"
out=$(realpath "$2")
epoch=${SOURCE_DATE_EPOCH:?}
arch=$(dpkg --print-architecture)
doc=$tree/usr/share/doc/heteroshard
mkdir -p "$tree/DEBIAN" "$doc"

# dpkg-shlibdeps wants a source package around it.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/debian"
printf 'Source: heteroshard\n\nPackage: heteroshard\nArchitecture: any\n' >"$work/debian/control"
strip --strip-unneeded "$tree/usr/bin/heteroshard"
depends=$(cd "$work" && dpkg-shlibdeps -O "$tree/usr/bin/heteroshard" 2>/dev/null |
	sed -n 's/^shlibs:Depends=//p')

{
	cat <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: HeteroShard

Files: *
Copyright: 2026 The HeteroShard authors
License: Apache-2.0
 On Debian systems the text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
END
} >"$doc/copyright"
{
	echo "heteroshard ($version) unstable; urgency=medium"
	echo
	echo "  * See docs/ of the source for what this version does."
	echo
	day=$(LC_ALL=C date -u -R -d "@$epoch")
	echo " -- HeteroShard <heteroshard@heteroshard.invalid>  $day"
} | gzip -9n >"$doc/changelog.gz"
find "$tree/usr/share/man" -name '*.1' -exec gzip -9nf {} +
size=$(find "$tree/usr" "$tree/lib" -type f -printf '%s\n' 2>/dev/null |
	awk '{ n += int(($1 + 1023) / 1024) } END { print n }')
cat >"$tree/DEBIAN/control" <<END
Package: heteroshard
Version: $version
Architecture: $arch
Maintainer: HeteroShard <heteroshard@heteroshard.invalid>
Installed-Size: $size
Depends: $depends, adduser
Recommends: graphviz, openssh-client
Suggests: pocl-opencl-icd
Section: science
Priority: optional
Description: fine-tune large language models across unlike devices
 HeteroShard trains one model over the cards of several machines, new and old,
 of any vendor, over ordinary Ethernet: LoRA, LoRA on 4-bit weights, or all
 parameters. It plans which device gets which layers and predicts the speed.
 .
 Drivers of cards (CUDA, HIP, OpenCL) are opened when they are there; none is
 needed to install or to run on the processor.
END
cat >"$tree/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
	getent group render >/dev/null || addgroup --quiet --system render
	if ! getent passwd heteroshard >/dev/null; then
		adduser --quiet --system --group --home /var/lib/heteroshard \
			--gecos "HeteroShard worker" heteroshard
	fi
	mkdir -p /var/lib/heteroshard
	chown heteroshard:heteroshard /var/lib/heteroshard
	chmod 700 /var/lib/heteroshard
	if [ -d /run/systemd/system ]; then
		systemctl --system daemon-reload || true
	fi
fi
END
cat >"$tree/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	deb-systemd-invoke stop heteroshard-worker.service || true
fi
END
cat >"$tree/DEBIAN/postrm" <<'END'
#!/bin/sh
set -e
if [ "$1" = purge ]; then
	rm -rf /var/lib/heteroshard
fi
END
chmod 755 "$tree"/DEBIAN/p*
(cd "$tree" && find usr lib -type f | LC_ALL=C sort | xargs md5sum) >"$tree/DEBIAN/md5sums"
find "$tree" -exec touch -h -d "@$epoch" {} +
chmod -R g-w,o-w "$tree"
file=$out/heteroshard_${version}_$arch.deb
dpkg-deb --root-owner-group -Zxz --build "$tree" "$file" >/dev/null
echo "$file"
