#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A worker that was left out at the start, because it was not there and min_workers were enough,
# joins when it comes: with a planner that knows nothing of the devices, and with one that has
# measured them and measures again. In network namespaces (root). Prints TAP.
. "$(dirname "$0")/support/tap.sh"
hs=${HETEROSHARD:-$PWD/build/heteroshard}
net=hslate$$
if ! ip link add $net type bridge 2>/dev/null; then
	echo "1..0 # SKIP no right to make network namespaces"
	exit 0
fi
pids=
clear_up() {
	for p in $pids; do kill -9 "$p" 2>/dev/null; done
	for box in c a b; do ip netns del $net-$box 2>/dev/null; done
	ip link del $net
	rm -rf "$tmp"
}
trap clear_up EXIT
ip link set $net up
i=1
for box in c a b; do
	ip netns add $net-$box
	ip link add $net$box type veth peer name eth0 netns $net-$box
	ip link set $net$box master $net up
	ip -n $net-$box addr add 10.89.0.$i/24 dev eth0
	ip -n $net-$box link set lo up
	ip -n $net-$box link set eth0 up
	i=$((i + 1))
done
on() { ip netns exec "$net-$1" env XDG_RUNTIME_DIR="$tmp/$1" "${@:2}"; }
export OMP_NUM_THREADS=1 GOMP_SPINCOUNT=1000
echo "1..10"
mkdir -m 700 "$tmp/c" "$tmp/a" "$tmp/b"
python3 scripts/make-model.py --shape tiny --layers 4 --dtype f32 --out "$tmp/model" >/dev/null
for k in 1 2 3 4 5 6 7 8; do
	echo "{\"prompt\": \"one two $k\", \"completion\": \"$k three four\"}"
done >"$tmp/data.jsonl"
cat >"$tmp/one.yaml" <<YAML
base_model: $tmp/model
adapter: lora
lora_r: 4
lora_target_linear: true
compute_dtype: float32
wire_dtype: float32
reduce_order: exact
datasets: [{path: $tmp/data.jsonl, type: completion}]
sequence_len: 64
micro_batch_size: 1
gradient_accumulation_steps: 4
learning_rate: 0.001
max_steps: 600
save_steps: 0
val_set_size: 0
visualize: false
tensorboard: false
YAML
mkdir "$tmp/off"
for box in c a b off; do
	"$hs" keygen "$tmp/$box/key" 2>/dev/null | awk 'END {print $NF}' >"$tmp/$box/public"
done
public() { cat "$tmp/$1/public"; }
{
	cat "$tmp/one.yaml"
	echo "coordinator:"
	echo "  {hostname: c, ip: 10.89.0.1, port: 9810, device: none, public_key: $(public c)}"
	echo "workers:"
	for k in "a 2" "b 3"; do
		set -- $k
		echo "- {id: $1, hostname: $1, ip: 10.89.0.$2, port: 981$2, device: cpu,"
		echo "   public_key: $(public "$1")}"
	done
	# a machine that is off, whose name nobody knows then
	echo "- {id: off, hostname: off.invalid, port: 9814, device: cpu,"
	echo "   public_key: $(public off)}"
	echo "min_workers: 1"
	echo "rebalance_gain: 0"
	echo "peer_timeout: 5"
} >"$tmp/two.yaml"
"$hs" train "$tmp/one.yaml" output_dir="$tmp/alone" cache_dir="$tmp/cache" >"$tmp/out" 2>"$tmp/err"
check "one process"

worker() {
	on "$1" "$hs" worker --worker "$1" "$tmp/two.yaml" key_file="$tmp/$1/key" \
		cache_dir="$tmp/cache-$1" >"$tmp/log-$1" 2>&1 &
	pids="$pids $!"
}

says() { # TEXT: until the job has said it
	for _ in $(seq 600); do
		grep -q "$1" "$tmp/out" "$tmp/err" && break
		sleep 0.05
	done
}

# The job begins with 'a'; 'b' comes when it has done steps.
train() { # FOLDER PROFILE
	on c "$hs" train "$tmp/two.yaml" key_file="$tmp/c/key" cache_dir="$tmp/cache" \
		output_dir="$tmp/$1" profile="$2" >"$tmp/out" 2>"$tmp/err" &
	job=$!
	pids="$pids $job"
}
begin() { # FOLDER PROFILE
	worker a
	train "$@"
	says '^step  *[0-9]*/'
	worker b
}
late() {
	begin "$1" "$1"
	wait $job
	check "profile: $1: the job ends well"
	grep -qh "worker 'off' is not there: the job begins without it" "$tmp/out" "$tmp/err"
	check "profile: $1: and begins without a machine whose name is not known"
	grep -qh "'b' has come" "$tmp/out" "$tmp/err" &&
		grep -q '"joined", "text": "'"'b' has come" "$tmp/$1/metrics.jsonl"
	check "profile: $1: 'b' takes part when it has come"
	wait
}

for profile in none auto; do
	late $profile
done

# 'a' is killed while 'b' is measured.
rm -rf "$tmp/cache-b"
begin lost auto
says '^measuring 2 devices'
kill -STOP $(ip netns pids $net-a) # what it measures is quick
sleep 0.5
kill -9 $(ip netns pids $net-a)
wait $job && grep -qh "'a' is gone" "$tmp/out" "$tmp/err"
check "one that is lost while another one is measured does not end the job"
wait

# The same before the first plan.
rm -rf "$tmp/cache-a"
worker a
worker b
train early auto
says '^measuring 2 devices'
kill -STOP $(ip netns pids $net-b)
sleep 0.5
kill -9 $(ip netns pids $net-b)
wait $job && grep -qh "worker 'b' .*: the job begins without it" "$tmp/out" "$tmp/err"
check "nor does one that is lost while all are measured at the start"
wait

same=0
for profile in none auto lost early; do
	cmp -s "$tmp/alone/adapter_model.safetensors" \
		"$tmp/$profile/adapter_model.safetensors" || same=1
done
[ $same = 0 ]
check "the adapters are that of one process"
exit $failed
