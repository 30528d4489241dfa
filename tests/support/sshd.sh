# SPDX-License-Identifier: Apache-2.0
# sshd on the machines of net.sh, and the user's ssh on the coordinator. To be sourced behind
# net.sh, with $tmp/c there already.
# shellcheck shell=bash

ssh_possible() { [ -x /usr/sbin/sshd ] && command -v ssh ssh-keygen >/dev/null; }

# A key for the coordinator, and `ssh` in its PATH that reads its own configuration: OpenSSH takes
# the home folder from the list of users, where all machines here are the same user.
ssh_user() {
	mkdir -p "$tmp/c/ssh" "$tmp/c/bin" /run/sshd
	ssh-keygen -q -t ed25519 -N '' -f "$tmp/c/ssh/key"
	printf '%s\n' "IdentityFile $tmp/c/ssh/key" "IdentitiesOnly yes" "IdentityAgent none" \
		"UserKnownHostsFile $tmp/c/ssh/known_hosts" "GlobalKnownHostsFile /dev/null" \
		"HashKnownHosts no" >"$tmp/c/ssh/config"
	printf '#!/bin/sh\nexec %s -F %s "$@"\n' "$(command -v ssh)" "$tmp/c/ssh/config" \
		>"$tmp/c/bin/ssh"
	chmod 755 "$tmp/c/bin/ssh"
}

# sshd_on MACHINE ADDRESS [LINE ...]: with lines of sshd_config; known to the coordinator
sshd_on() {
	local x=$1 at=$2
	shift 2
	mkdir -p "$tmp/$x/sshd"
	[ -e "$tmp/$x/sshd/key" ] ||
		ssh-keygen -q -t ed25519 -N '' -f "$tmp/$x/sshd/key"
	cp "$tmp/c/ssh/key.pub" "$tmp/$x/sshd/authorized"
	chmod 600 "$tmp/$x/sshd/authorized"
	printf '%s\n' "ListenAddress $at" "HostKey $tmp/$x/sshd/key" "PidFile none" \
		"AuthorizedKeysFile $tmp/$x/sshd/authorized" "StrictModes no" "UsePAM no" \
		"PermitRootLogin prohibit-password" "PasswordAuthentication yes" \
		"SetEnv HOME=$tmp/$x XDG_RUNTIME_DIR=$tmp/$x/run PATH=$tmp/$x/bin:$PATH \
OMP_NUM_THREADS=1 OCL_ICD_VENDORS=/nonexistent" "$@" >"$tmp/$x/sshd/config"
	ssh_forget "$at"
	echo "$at $(cut -d' ' -f1,2 "$tmp/$x/sshd/key.pub")" >>"$tmp/c/ssh/known_hosts"
	begin "$tmp/sshd.$x" "$x" /usr/sbin/sshd -D -e -f "$tmp/$x/sshd/config"
	until_ok 20 sh -c "ip netns exec $net-$x ss -ltn | grep -q ':22 '"
}

ssh_forget() { # ADDRESS
	touch "$tmp/c/ssh/known_hosts"
	sed -i "/^$1 /d" "$tmp/c/ssh/known_hosts"
}
