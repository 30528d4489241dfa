# SPDX-License-Identifier: Apache-2.0
# Machines for tests in shell: network namespaces with a home folder each. To be sourced behind
# tap.sh.
#   coordinator "c" 10.91.0.1, "b" 10.91.0.3, "d" 10.91.0.4, and "n" 192.168.9.2 behind the router
#   "r" (masquerade; nothing comes in from outside)
# shellcheck shell=bash
net=hst$$
hs=${HS_BIN:-$PWD/build/heteroshard}
golden=$PWD/tests/golden/models
first=c # where the coordinator is

# Whether this user may make them.
net_possible() {
	[ "$(id -u)" = 0 ] && ip netns add "$net-try" 2>/dev/null && ip netns del "$net-try"
}

net_plug() { # NAME NUMBER: on the common cable
	ip link add "$net$1" type veth peer name eth0 netns "$net-$1"
	ip link set "$net$1" master "$net" up
	ip -n "$net-$1" addr add "10.91.0.$2/24" dev eth0
	ip -n "$net-$1" link set eth0 up
}

net_up() {
	local x
	ip link add "$net" type bridge
	ip link set "$net" up
	for x in c r b d n; do
		ip netns add "$net-$x"
		ip -n "$net-$x" link set lo up
		mkdir -p "$tmp/$x/run"
		chmod 700 "$tmp/$x" "$tmp/$x/run"
	done
	net_plug c 1
	net_plug r 2
	net_plug b 3
	net_plug d 4
	ip link add eth1 netns "$net-r" type veth peer name eth0 netns "$net-n"
	ip -n "$net-r" addr add 192.168.9.1/24 dev eth1
	ip -n "$net-r" link set eth1 up
	ip -n "$net-n" addr add 192.168.9.2/24 dev eth0
	ip -n "$net-n" link set eth0 up
	ip -n "$net-n" route add default via 192.168.9.1
	ip netns exec "$net-r" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
	ip netns exec "$net-r" nft -f - <<'END'
table ip t {
	chain out {
		type nat hook postrouting priority 100
		oifname "eth0" masquerade
	}
	chain through {
		type filter hook forward priority 0
		policy drop
		iifname "eth1" accept
		ct state established,related accept
	}
}
END
}

net_down() {
	local x
	for x in c r b d n; do
		ip netns pids "$net-$x" 2>/dev/null | xargs -r kill -9 2>/dev/null
		ip netns del "$net-$x" 2>/dev/null
	done
	ip link del "$net" 2>/dev/null
	true
}

# on MACHINE COMMAND ...: there, with a home, a cache and a runtime folder of its own
on() {
	(exec_on "$@")
}

# begin FILE MACHINE COMMAND ...: the same beside the test, as process $!, with its output in FILE
# and FILE.err
begin() {
	local file=$1
	shift
	: >"$file"
	# shellcheck disable=SC2091
	exec_on "$@" >"$file" 2>"$file.err" </dev/null &
}
exec_on() {
	local x=$1
	shift
	cd "$tmp/$x" || exit 1
	exec ip netns exec "$net-$x" env -u XDG_CONFIG_HOME -u XDG_CACHE_HOME HOME="$tmp/$x" \
		XDG_RUNTIME_DIR="$tmp/$x/run" OMP_NUM_THREADS=1 "$@"
}

# run COMMAND ... of the coordinator: its output in $tmp/out and $tmp/err
run() {
	on "$first" env PATH="$tmp/c/bin:$PATH" timeout 100 "$hs" "$@" >"$tmp/out" 2>"$tmp/err" \
		</dev/null
}

# line TEXT: standard error is one line that holds TEXT
line() { [ "$(wc -l <"$tmp/err")" -eq 1 ] && grep -qF -- "$1" "$tmp/err"; }

# of a job whose output_dir is FOLDER: its losses; whether it has done so many steps
losses() { sed -nE 's/.*"loss": ([^,]*),.*/\1/p' "$tmp/$first/$1/metrics.jsonl"; }
reached() { # FOLDER STEPS
	local k
	k=$(grep -cs '"loss"' "$tmp/$first/$1/metrics.jsonl")
	[ "${k:-0}" -ge "$2" ]
}

# until SECONDS COMMAND ...: again and again, until it succeeds
until_ok() {
	local k=$(($1 * 10))
	shift
	while [ $((k -= 1)) -gt 0 ]; do
		"$@" && return
		read -rt 0.1 <> <(:) || true
	done
	return 1
}

# net_job FOLDER: writes data.jsonl and job.yaml there: three steps of the small model in $golden,
# about a second of work
net_job() {
	local i
	for i in 1 2 3 4 5 6; do
		echo "{\"text\": \"one two three four five six seven eight $i\"}"
	done >"$1/data.jsonl"
	cat >"$1/job.yaml" <<END
base_model: $golden/smollm2
datasets: [{path: data.jsonl, type: text}]
adapter: lora
output_dir: run
sequence_len: 32
max_steps: 3
gradient_accumulation_steps: 2
device: cpu
compute_dtype: float32
wire_dtype: float32
profile: none
visualize: false
overwrite_output_dir: true
END
}
