# SPDX-License-Identifier: Apache-2.0
# boxes.sh - sourced by the scripts beside it: two network namespaces joined by one cable of a given
# rate, and a tiny data set.
#   boxes_up TAG RATE     namespaces TAG-1 (10.92.0.1) and TAG-2 (10.92.0.2), interface `cable` in
#                         both, tbf RATE in either direction
#   boxes_down TAG
#   in_box TAG N COMMAND...
boxes_up() {
	local tag=$1 rate=$2 i
	for i in 1 2; do
		ip netns add "$tag-$i"
		ip -n "$tag-$i" link set lo up
	done
	ip link add cable netns "$tag-1" type veth peer name cable netns "$tag-2"
	for i in 1 2; do
		ip -n "$tag-$i" addr add "10.92.0.$i/24" dev cable
		ip -n "$tag-$i" link set cable up
		tc -n "$tag-$i" qdisc add dev cable root tbf rate "$rate" burst 256k latency 50ms
	done
}

boxes_down() {
	local i
	for i in 1 2; do
		ip netns del "$1-$i" 2>/dev/null || true
	done
}

in_box() {
	local tag=$1 i=$2
	shift 2
	ip netns exec "$tag-$i" "$@"
}

# Bytes that left box N of TAG.
box_sent() {
	ip -n "$1-$2" -s -j link show cable |
		python3 -c 'import json, sys
print(json.load(sys.stdin)[0]["stats64"]["tx"]["bytes"])'
}

# FILE: texts of equal length that fill sequences of 512 tokens of a byte-level tokenizer.
long_texts() {
	python3 - "$1" <<'PY'
import json, random, sys
r = random.Random(1)
with open(sys.argv[1], "w") as f:
    for _ in range(64):
        text = "".join(r.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(510))
        f.write(json.dumps({"text": text}) + "\n")
PY
}
