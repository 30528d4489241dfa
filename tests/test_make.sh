#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Makefile and its scripts: what is missing is named and not installed unasked, what is compiled
# follows the flags, a skipped test fails in CI. No package is touched: apt-get, sudo, dpkg-query
# and pkg-config are stand-ins. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
unset MAKEFLAGS MFLAGS MAKEOVERRIDES
stub() { # stub NAME: a program from standard input
	{ echo '#!/bin/sh'; cat; } >"$tmp/bin/$1"
	chmod +x "$tmp/bin/$1"
}
mkdir -p "$tmp/bin"
real=$PATH
pkg_config=$(command -v pkg-config)
export PATH=$tmp/bin:$PATH
echo "1..9"

stub dpkg-query <<'END'
case "$*" in *libssl-dev*) exit 1 ;; esac
echo 'install ok installed'
END
for p in apt-get sudo; do
	echo "echo $p \"\$@\" >>$tmp/called" | stub $p
done

make BUILD="$tmp/b" "$tmp/b/base/stat.o" >"$tmp/out" 2>&1
[ $? -ne 0 ] && grep -q 'these packages are missing: libssl-dev$' "$tmp/out" &&
	grep -q "'make deps' installs them" "$tmp/out"
check "a missing package is named, with the command that installs it"
[ ! -e "$tmp/called" ]
check "make alone calls neither sudo nor apt-get"
make BUILD="$tmp/b" deps >"$tmp/out" 2>&1 &&
	grep -q 'apt-get install .*libssl-dev' "$tmp/called"
check "make deps installs it"
rm "$tmp/bin/dpkg-query" "$tmp/bin/apt-get" "$tmp/bin/sudo"

# A library that is found from now on.
stub pkg-config <<END
case "\$*" in
*mpi-c*)
	[ -e $tmp/found ] || exit 1
	case "\$1" in --cflags) echo -DMPI_STANDS_HERE ;; --libs) echo ;; esac
	;;
*mpi*) exit 1 ;;
*) exec $pkg_config "\$@" ;;
esac
END
stub dpkg-query <<'END'
echo 'install ok installed'
END
compile() { make BUILD="$tmp/b" CC="${CC:-cc}" "$@" "$tmp/b/base/stat.o" >"$tmp/out" 2>&1; }
compile && grep -q 'CC src/base/stat.c' "$tmp/out"
check "an object is compiled"
compile && ! grep -q 'CC src/base/stat.c' "$tmp/out"
check "and not again"
touch "$tmp/found"
compile && grep -q 'CC src/base/stat.c' "$tmp/out" && grep -q MPI_STANDS_HERE "$tmp/b/.flags"
check "a library that was installed since compiles it again"
compile EXTRA_CFLAGS=-DOTHER && grep -q 'CC src/base/stat.c' "$tmp/out"
check "so do other flags"
export PATH=$real

mkdir -p "$tmp/run/tests"
printf '#!/bin/sh\necho 1..2\necho ok 1 one\necho "ok 2 # SKIP two"\n' >"$tmp/run/tests/test_skips"
chmod +x "$tmp/run/tests/test_skips"
CI="" scripts/run-tests.sh "$tmp/run" test_skips >"$tmp/out" 2>&1
check "a skipped test is no failure"
! CI=true scripts/run-tests.sh "$tmp/run" test_skips >"$tmp/out" 2>&1 &&
	grep -q 'a skipped test counts as a failed one' "$tmp/out"
check "but it is one in CI"
exit $failed
