#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The example on one machine: each box is a network namespace with its own address, key and cache,
# on a 1 Gbit/s link (tbf). Needs root.
#   examples/two-boxes/netns.sh [-n 2|3] [-r 1gbit] [-c train|profile|plan] [-p STEP] MODEL
#       [key=value ...]
# -p STEP: the cable of the last box is pulled after that step, and put back 20 s later. With -p the
# sum of the adapter, or model, is printed at the end; -p 0 pulls none, for comparison.
# Every box runs the same command; only box1 is given the model. The namespaces and the files of the
# boxes are removed at the end.
set -eu
boxes=2 rate=1gbit command=train pull=
while getopts n:r:c:p: o; do
	case $o in
	n) boxes=$OPTARG ;;
	r) rate=$OPTARG ;;
	c) command=$OPTARG ;;
	p) pull=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
usage="usage: $0 [-n 2|3] [-r 1gbit] [-c train|profile|plan] [-p STEP] MODEL [key=value ...]"
model=$(realpath "${1:?$usage}")
shift
cd "$(dirname "$0")/../.."
bin=$PWD/${HETEROSHARD:-build/heteroshard}
[ -x "$bin" ] || bin=$HETEROSHARD
work=$(mktemp -d) tag=hs$$ pids=()

cleanup() {
	[ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
	for i in $(seq "$boxes"); do
		ip netns del "$tag-$i" 2>/dev/null || true
	done
	ip link del "$tag" 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

ip link add "$tag" type bridge
ip link set "$tag" up
for i in $(seq "$boxes"); do
	ip netns add "$tag-$i"
	ip link add "$tag.$i" type veth peer name eth0 netns "$tag-$i"
	ip link set "$tag.$i" master "$tag" up
	ip -n "$tag-$i" addr add "10.77.0.$i/24" dev eth0
	ip -n "$tag-$i" link set lo up
	ip -n "$tag-$i" link set eth0 up
	# both directions of the box's cable
	tc -n "$tag-$i" qdisc add dev eth0 root tbf rate "$rate" burst 256k latency 50ms
	tc qdisc add dev "$tag.$i" root tbf rate "$rate" burst 256k latency 50ms
	mkdir -p "$work/box$i"
	"$bin" keygen "$work/box$i/key" 2>/dev/null >"$work/box$i/public"
done

put_key() { # FILE WORD TEXT: keys hold characters that sed takes for its own
	awk -v word="$2" -v file="$3" '
		BEGIN { getline text < file }
		{ at = index($0, word) }
		at { $0 = substr($0, 1, at - 1) text substr($0, at + length(word)) }
		{ print }' "$1" >"$1.new"
	mv "$1.new" "$1"
}
cp examples/two-boxes/cluster.yaml "$work/cluster.yaml"
if [ "$boxes" = 3 ]; then
	# box3 takes the last layers
	worker="{id: box3, hostname: box3, ip: 10.77.0.3, port: 9999, device: auto, "
	worker="${worker}public_key: 'KEY-OF-BOX3'}"
	awk -v worker="$worker" '
		/^workers:/ { print; print "  - " worker; next }
		/id: local, start/ { print "  - {id: local, start: 0, end: 10}"; next }
		/id: box2, start/ {
			print "  - {id: box2, start: 10, end: 20}"
			print "  - {id: box3, start: 20, end: 30, is_last: true}"
			next
		}
		{ print }' "$work/cluster.yaml" >"$work/three"
	mv "$work/three" "$work/cluster.yaml"
fi
case " $* " in # all parameters: the example's adapter is left out
*" adapter=none "*) sed -i '/^lora_/d' "$work/cluster.yaml" ;;
esac
for i in $(seq "$boxes"); do
	put_key "$work/cluster.yaml" "KEY-OF-BOX$i" "$work/box$i/public"
done

for i in $(seq 2 "$boxes"); do
	ip netns exec "$tag-$i" "$bin" "$command" "$work/cluster.yaml" base_model=/nowhere \
		key_file="$work/box$i/key" cache_dir="$work/box$i/cache" "$@" \
		> >(sed -u "s/^/box$i: /" >&2) 2>&1 &
	pids+=($!) # the worker's, not that of sed: cleanup ends it
done
pull_cable() { # waits for the step, then the cable is out for 20 s
	until grep -q "^step *$pull/" "$work/box1/log" 2>/dev/null; do sleep 0.2; done
	ip link set "$tag.$boxes" down
	echo "--- the cable of box$boxes is out ---"
	sleep 20
	ip link set "$tag.$boxes" up
	echo "--- the cable of box$boxes is in again ---"
}
if [ "${pull:-0}" != 0 ]; then
	pull_cable &
	puller=$!
fi
status=0
ip netns exec "$tag-1" "$bin" "$command" "$work/cluster.yaml" base_model="$model" \
	key_file="$work/box1/key" cache_dir="$work/box1/cache" ${pull:+"output_dir=$work/run"} \
	"$@" > >(tee "$work/box1/log") 2>&1 || status=$?
[ -z "${puller:-}" ] || kill "$puller" 2>/dev/null || true
result="$work/run/adapter_model.safetensors"
[ -e "$result" ] || result="$work/run/model.safetensors" # all parameters were trained
[ -z "$pull" ] || [ $status != 0 ] || sha256sum <"$result"
[ $status = 0 ] || kill "${pids[@]}" 2>/dev/null || true # they would wait for the coordinator
for p in "${pids[@]}"; do
	wait "$p" || true
done
pids=()
echo "bytes that left each box:"
for i in $(seq "$boxes"); do
	sent=$(ip -n "$tag-$i" -s -j link show eth0 |
		grep -o '"tx":{"bytes":[0-9]*' | grep -o '[0-9]*$')
	echo "  box$i  $sent"
done
exit $status
