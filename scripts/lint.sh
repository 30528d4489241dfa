#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All rules that can be checked without running tests: layout, width, folder ranks, registries,
# circles between files, banned functions, the help and its page.
#   scripts/lint.sh BINARY
set -u
cd "$(dirname "$0")/.." || exit 1
bin=${1:?usage: scripts/lint.sh BINARY}
status=0

# clang-format 14: other versions lay out a few constructs differently.
formatter() {
	local f
	for f in clang-format-14 clang-format; do
		command -v $f >/dev/null || continue
		$f --version | grep -q 'version 14\.' && echo $f && return
	done
}
format=$(formatter)
if [ -z "$format" ]; then
	sudo=""
	[ "$(id -u)" = 0 ] || sudo="sudo -n"
	DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -q --no-install-recommends \
		clang-format-14 >/dev/null 2>&1
	format=$(formatter)
fi
if [ -z "$format" ]; then
	echo "lint: layout not checked: clang-format 14 cannot be installed here"
else
	files=$(git ls-files 'src/*.[ch]' 'tests/*.[ch]' 'include/*.h' | grep -v '^src/dev/kernel/')
	# shellcheck disable=SC2086
	$format --dry-run $files 2>&1 | grep -E '^[^ ].*: warning:' |
		sed -E 's/: warning: code should be clang-form.*/: layout differs (make format)/' |
		awk -F: '!seen[$1]++' >/tmp/lint.$$
	[ -s /tmp/lint.$$ ] && cat /tmp/lint.$$ && status=1
	rm -f /tmp/lint.$$
fi

scripts/lint.py "$(dirname "$bin")" || status=1

# What other systems than Linux get must compile here too (scripts/compile-macos.sh: for a Mac).
${CC:-cc} -std=gnu11 -D_GNU_SOURCE -DHS_OS_OTHER -Isrc -Wall -Wextra -Werror -fsyntax-only \
	src/base/os_other.c src/base/os_calls_other.c src/base/os_calls_gnu.c \
	src/net/watch_poll.c || status=1

if ! "$bin" help config --markdown | diff -q - docs/configuration.md >/dev/null; then
	echo "docs/configuration.md: not what '$bin help config --markdown' prints (make docs)"
	status=1
fi
for c in $(sed -nE 's/^COMMAND\(([a-z_]+),.*/\1/p' src/cli/command.def); do
	text=$("$bin" "$c" --help) || { echo "heteroshard $c --help: exit status $?"; status=1; }
	case $text in
	"usage: heteroshard $c"*) ;;
	*) echo "heteroshard $c --help: does not begin with 'usage: heteroshard $c'"; status=1 ;;
	esac
	echo "$text" | awk -v c="$c" '
		length($0) > 110 {
			print "heteroshard " c " --help: a line of " length($0) " columns"
			bad = 1
		}
		END { exit bad }' || status=1
done
for s in scripts/*.sh tests/*.sh bench/*.sh bench/net bench/pipeline .ci/run; do
	[ -f "$s" ] && { bash -n "$s" || status=1; }
done
[ $status -eq 0 ] && echo "lint: nothing found"
exit $status
