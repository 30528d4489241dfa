#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# doctor: each check finds a fault that was planted, prints the command that mends it, and no longer
# finds it when that command was run. Faults of hardware are planted as files below a folder
# (--root), with stand-ins for the programs that would change hardware or install packages; the
# others are real ones in network namespaces. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
. tests/support/net.sh
. tests/support/sshd.sh
hs=${HS_BIN:-$PWD/build/heteroshard}
root=$tmp/root
mkdir -p "$root" "$tmp/bin" "$tmp/a home"
cd "$tmp" || exit 1
export HOME="$tmp/a home" XDG_CACHE_HOME="$tmp/a home/cache" PATH=$tmp/bin:$PATH
unset XDG_CONFIG_HOME
stand_in() { # NAME: the script on standard input
	{
		echo '#!/bin/bash'
		cat
	} >"$tmp/bin/$1"
	chmod 755 "$tmp/bin/$1"
}
stand_in sudo <<'END'
[ "$1" != -H ] || shift
exec "$@"
END
seen=""
# finds CHECK TEXT [OPTION ...]: the finding, and *mend, its command
finds() {
	local check=$1 text=$2
	shift 2
	"$hs" doctor "$@" --root "$root" >"$tmp/out" 2>"$tmp/err"
	mend=$(grep -A 1 -E "^([a-z0-9]+: )?$check: .*" "$tmp/out" | sed -n '2s/^    //p')
	seen="$seen $check"
	grep -qE "^([a-z0-9]+: )?$check: .*$text" "$tmp/out" && [ -n "$mend" ]
}
# mends CHECK [OPTION ...]: the command that was printed is run, and the finding is gone
mends() {
	local check=$1
	shift
	eval "$mend" >"$tmp/err" 2>&1
	"$hs" doctor "$@" --root "$root" >"$tmp/out" 2>>"$tmp/err"
	! grep -qE "^([a-z0-9]+: )?$check: " "$tmp/out"
}
pci() { # ADDRESS VENDOR: a display controller
	mkdir -p "$root/sys/bus/pci/devices/$1"
	echo "$2" >"$root/sys/bus/pci/devices/$1/vendor"
	echo 0x030000 >"$root/sys/bus/pci/devices/$1/class"
}

# ---- names ----
"$hs" doctor --reach no..name:9 --root "$root" >"$tmp/out" 2>"$tmp/err"
grep -q '^reach: no..name:9: no address is known of that name$' "$tmp/out" &&
	! "$hs" doctor --reach nowhere >"$tmp/out" 2>"$tmp/err" &&
	grep -q '^error: --reach nowhere: write ADDRESS:PORT$' "$tmp/err"
check "a name without an address, and no port"

# ---- cards ----
pci 0000:01:00.0 0x10de
stand_in apt-get <<END
case \$3 in
nvidia-driver) mkdir -p "$root/proc/driver/nvidia" && touch "$root/proc/driver/nvidia/version" ;;
intel-opencl-icd) mkdir -p "$root/etc/OpenCL/vendors" && touch "$root/etc/OpenCL/vendors/i.icd" ;;
esac
END
finds nvidia "the NVIDIA card at 0000:01:00.0 has no driver" && mends nvidia
check "an NVIDIA card without its driver"
pci 0000:02:00.0 0x1002
stand_in modprobe <<END
[ "\$1" = amdgpu ] && mkdir -p "$root/dev" && touch "$root/dev/kfd"
END
finds amd "has no /dev/kfd" && mends amd
check "an AMD card without its driver"
pci 0000:00:02.0 0x8086
finds intel "has no OpenCL driver" && mends intel
check "an Intel card without its driver"
rm -rf "$root/sys/bus"

# ---- files ----
"$hs" keygen >/dev/null 2>&1
chmod 644 "$HOME/.config/heteroshard/key"
finds key "others can read this machine's private key" && mends key
check "a private key that others can read"
mkdir -p "$root/run/systemd/timesync"
stand_in timedatectl <<END
[ "\$*" = "set-ntp true" ] && touch "$root/run/systemd/timesync/synchronized"
END
finds clock "the clock is not set from the network" && mends clock
check "a clock that nobody sets"
(
	ulimit -S -l 64
	finds locked "64 KiB of memory may be locked" && mends locked
)
check "little memory that may be locked"
seen="$seen locked"
for k in 0 1; do
	mkdir -p "$root/sys/devices/system/cpu/cpu$k/cpufreq"
	echo powersave >"$root/sys/devices/system/cpu/cpu$k/cpufreq/scaling_governor"
	echo acpi-cpufreq >"$root/sys/devices/system/cpu/cpu$k/cpufreq/scaling_driver"
done
finds governor "kept at its lowest clock" && mends governor &&
	grep -q performance "$root/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor"
check "a processor at its lowest clock"
mkdir -p "$root/etc/ufw"
echo ENABLED=yes >"$root/etc/ufw/ufw.conf"
: >"$root/etc/ufw/user.rules"
stand_in ufw <<END
[ "\$1" = allow ] && echo "### tuple ### allow tcp \${2%/tcp} 0.0.0.0/0 any 0.0.0.0/0 in" \
	>>"$root/etc/ufw/user.rules"
END
echo 'coordinator: {ip: 127.0.0.1, port: 29998}' >one.yaml
finds firewall "does not let port 29998 through" --cluster one.yaml &&
	mends firewall --cluster one.yaml
check "a firewall of rules in files"
rm -rf "$root/etc/ufw"
mkdir -p "$root/sys/class/net/wlan0/wireless" "$root/sys/class/net/enp1s0" "$root/proc/net"
echo 1 | tee "$root/sys/class/net/wlan0/type" "$root/sys/class/net/enp1s0/type" \
	"$root/sys/class/net/enp1s0/carrier" >/dev/null
printf 'Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n%s\n%s\n' \
	"wlan0 00000000 0101A8C0 0003 0 0 100 00000000 0 0 0" \
	"enp1s0 00000000 0101A8C0 0003 0 0 600 00000000 0 0 0" >"$root/proc/net/route"
stand_in ip <<END
[ "\$*" = "link set dev wlan0 down" ] && sed -i /^wlan0/d "$root/proc/net/route"
END
finds wifi "traffic goes over Wi-Fi .wlan0., and enp1s0 has a cable plugged in" && mends wifi
check "Wi-Fi where a cable is"
rm "$tmp/bin/ip"
python3 - held <<'END' &
import socket, sys, time
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen()
open(sys.argv[1], "w").write("%d\n" % s.getsockname()[1])
time.sleep(60)
END
holder=$!
until_ok 20 grep -qs '[0-9]$' held
port=$(cat held)
echo "coordinator: {ip: 127.0.0.1, port: $port}" >two.yaml
finds ports "port $port is taken by the program python3" --cluster two.yaml &&
	[ "$mend" = "kill $holder" ] && mends ports --cluster two.yaml
check "a port that another program has"
wait $holder 2>/dev/null

# ---- as another user; a full disk ----
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null && command -v setpriv usermod >/dev/null; then
	mkdir -p "$root/dev/dri"
	touch "$root/dev/dri/renderD128"
	chgrp video "$root/dev/dri/renderD128"
	chmod 660 "$root/dev/dri/renderD128"
	rm -f "$root/dev/kfd"
	chmod 711 "$tmp"
	cp "$hs" "$tmp/bin/heteroshard-copy"
	cat >"$tmp/as-other" <<END
cp -a /etc "$tmp/etc"
mount --bind "$tmp/etc" /etc
other() {
	setpriv --reuid=nobody --regid=nogroup --init-groups env HOME=/nonexistent \
		"$tmp/bin/heteroshard-copy" doctor --root "$root"
}
other >"$tmp/out"
mend=\$(grep -A 1 '^access: /dev/dri/renderD128: this user may not open it' "$tmp/out" |
	sed -n '2s/^    //p')
[ "\$mend" = "sudo usermod -aG video nobody" ] || exit 1
\$mend
other >"$tmp/out"
! grep -q '^access: ' "$tmp/out"
END
	unshare -m --propagation private bash "$tmp/as-other" 2>"$tmp/err"
	check "a device that this user may not open"
	seen="$seen access"
	rm -r "$root/dev/dri"
	cat >"$tmp/full" <<END
mkdir -p "$XDG_CACHE_HOME/heteroshard"
mount -t tmpfs -o size=8m none "$XDG_CACHE_HOME/heteroshard"
mkdir "$XDG_CACHE_HOME/heteroshard/weights"
head -c 6M /dev/zero >"$XDG_CACHE_HOME/heteroshard/weights/x"
"$hs" doctor --root "$root" --cluster "$tmp/disk.yaml" >"$tmp/out"
mend=\$(grep -A 1 '^disk: 2 MiB are free for the layers in .*, 4 are wanted' "$tmp/out" |
	sed -n '2s/^    //p')
[ -n "\$mend" ] || exit 1
eval "\$mend"
"$hs" doctor --root "$root" --cluster "$tmp/disk.yaml" >"$tmp/out"
! grep -q '^disk: ' "$tmp/out"
END
	printf 'cache_limit_gib: 0.0039\n' >"$tmp/disk.yaml"
	unshare -m --propagation private bash "$tmp/full" 2>"$tmp/err"
	check "no room for layers"
	seen="$seen disk"
fi

# ---- the network ----
cd "$OLDPWD" || exit 1
if net_possible && ssh_possible && command -v nft >/dev/null; then
	trap 'net_down; rm -rf "$tmp"' EXIT
	net_up
	ssh_user
	sshd_on b 10.91.0.3
	cp "$tmp/bin/sudo" "$tmp/c/bin/"
	mkdir -p "$tmp/b/bin" "$tmp/no-root"
	cp "$tmp/bin/sudo" "$tmp/b/bin/"
	root=$tmp/no-root
	cat >"$tmp/c/doctor" <<END
#!/bin/sh
cd "$tmp/c" && exec ip netns exec "$net-c" env HOME="$tmp/c" PATH="$tmp/c/bin:$PATH" \
	XDG_RUNTIME_DIR="$tmp/c/run" OCL_ICD_VENDORS=/nonexistent "$hs" "\$@"
END
	chmod 755 "$tmp/c/doctor"
	program=$hs
	hs=$tmp/c/doctor
	in_c() { ip netns exec "$net-c" env PATH="$tmp/c/bin:$PATH" bash -c "$mend"; }
	# heals CHECK [OPTION ...]: as mends, with the command run on the coordinator
	heals() {
		local check=$1
		shift
		in_c >"$tmp/err" 2>&1
		"$hs" doctor "$@" --root "" >"$tmp/out" 2>>"$tmp/err"
		! grep -qE "^([a-z0-9]+: )?$check: " "$tmp/out"
	}
	root=""
	ip -n "$net-c" link set eth0 mtu 1280
	finds mtu "eth0 has an MTU of 1280" && heals mtu
	check "a small MTU"
	key=$("$hs" keygen 2>/dev/null)
	cat >"$tmp/c/far.yaml" <<END
coordinator: {ip: 10.91.0.1, public_key: $key}
workers: [{id: far, ip: 10.91.0.3, port: 9999, ssh: root@10.91.0.3, public_key: $key}]
END
	finds machines "heteroshard is not there, and " --cluster far.yaml &&
		[ "$mend" = "heteroshard up --install far.yaml far" ]
	check "the program is missing on another machine"
	ln -s "$program" "$tmp/b/bin/heteroshard"
	"$hs" doctor --cluster far.yaml >"$tmp/out"
	! grep -q '^far: machines: ' "$tmp/out"
	check "and is there"
	ip netns exec "$net-b" nft -f - <<'END'
table inet filter {
	chain input {
		type filter hook input priority 0
		policy accept
		tcp dport 9999 drop
	}
}
END
	finds reach "10.91.0.3:9999 does not answer: a firewall there drops the packets" \
		--cluster far.yaml && heals reach --cluster far.yaml
	check "a firewall on another machine"
	mkdir -p "$tmp/b/.config/heteroshard"
	ip netns exec "$net-b" env HOME="$tmp/b" "$program" keygen >/dev/null 2>&1
	chmod 640 "$tmp/b/.config/heteroshard/key"
	finds key "others can read this machine's private key" --cluster far.yaml &&
		heals key --cluster far.yaml
	check "a finding of another machine, mended from here"
	echo "workers: [{id: near, ssh: root@10.91.0.3}]
coordinator: {ip: 10.91.0.1, port: 9990}" >"$tmp/c/near.yaml"
	ip netns exec "$net-c" nft -f - <<'END'
table inet filter {
	chain input {
		type filter hook input priority 0
		policy accept
		tcp dport 9990 drop
	}
}
END
	finds reach "10.91.0.1:9990 does not answer" --cluster near.yaml &&
		heals reach --cluster near.yaml
	check "a firewall here, seen by an invited machine"
	hs=$program
	missing=""
	for k in $("$hs" doctor --list | cut -d' ' -f1); do
		case " $seen " in *" $k "*) ;; *) missing="$missing $k" ;; esac
	done
	[ -z "$missing" ] || echo "# not tested:$missing"
	[ -z "$missing" ]
	check "every check has been seen to find something"
fi
echo "1..$n"
exit $failed
