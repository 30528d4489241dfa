#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian/Ubuntu packages the build needs (or those named as arguments), when they are
# missing. Does nothing, and needs no rights, when they are there.
#   scripts/install-deps.sh [PACKAGE ...]
#   scripts/install-deps.sh --check      installs nothing: names what is missing, and fails
set -euo pipefail
check=""
if [ "${1:-}" = --check ]; then
	check=1
	shift
fi
packages="${*:-gcc make pkg-config libdnnl-dev libssl-dev libsodium-dev
libjansson-dev libyaml-dev libpcre2-dev libutf8proc-dev libgraphviz-dev
graphviz libcairo2-dev zlib1g-dev libzstd-dev libpng-dev libturbojpeg0-dev libcurl4-openssl-dev
libcmocka-dev python3}"

# Other distributions: the libraries are looked for, and installed by hand.
if ! command -v dpkg-query >/dev/null; then
	missing=""
	if [ -z "$*" ]; then
		for p in dnnl jansson yaml-0.1 libpcre2-8 libutf8proc cairo libcgraph libgvc \
			openssl libsodium zlib libzstd libpng libturbojpeg libcurl cmocka; do
			pkg-config --exists "$p" || missing="$missing $p"
		done
	fi
	[ -n "$missing$*" ] || exit 0
	echo "error: not Debian or Ubuntu: install with this system's package manager:" \
		"${*:-development files of$missing (names of pkg-config)}" >&2
	exit 1
fi

missing=""
for p in $packages; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' ||
		missing="$missing $p"
done
[ -n "$missing" ] || exit 0
if [ -n "$check" ]; then
	echo "error: these packages are missing:$missing" >&2
	echo "'make deps' installs them (with apt-get, as root or by sudo)" >&2
	exit 1
fi
# one at a time: `make -j` begins several
exec 9<"$0"
flock 9
echo "installing:$missing"
sudo=""
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null || {
		echo "error: these packages are missing and need root to install:$missing" >&2
		exit 1
	}
	sudo=sudo
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get -q update >/dev/null
# shellcheck disable=SC2086
$sudo apt-get install -y -q --no-install-recommends $missing >/dev/null
