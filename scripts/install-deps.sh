#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian/Ubuntu packages the build needs (or those named as arguments), when they are
# missing. Does nothing, and needs no rights, when they are there.
set -euo pipefail
packages="${*:-gcc make pkg-config libdnnl-dev libzmq3-dev libsodium-dev libjansson-dev
libyaml-dev libpcre2-dev libutf8proc-dev libgraphviz-dev
graphviz libcairo2-dev libcmocka-dev python3}"
missing=""
for p in $packages; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' ||
		missing="$missing $p"
done
[ -n "$missing" ] || exit 0
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
