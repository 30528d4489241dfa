#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `heteroshard bench --together`: a job on two workers, each alone and both as planned; the worker
# serves one run after the other. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
hs=${HS_BIN:-$PWD/build/heteroshard}
export XDG_CONFIG_HOME=$tmp/config XDG_CACHE_HOME=$tmp/cache OMP_NUM_THREADS=1 TMPDIR=$tmp \
	XDG_RUNTIME_DIR=$tmp
for i in $(seq 40); do
	echo "{\"text\": \"one two three four five six seven eight nine ten eleven $i\"}"
done >"$tmp/data.jsonl"
free_ports 22000 22999 8
cat >"$tmp/one.yaml" <<END
base_model: $PWD/tests/golden/models/smollm2
datasets: [{path: $tmp/data.jsonl, type: text}]
output_dir: $tmp/never
sequence_len: 32
micro_batch_size: 2
gradient_accumulation_steps: 4
max_steps: 99
device: cpu
compute_dtype: float32
join_timeout: 60
END
{
	cat "$tmp/one.yaml"
	echo "coordinator: {ip: 127.0.0.1, port: $port, device: none}"
	echo "workers:"
	echo "- {id: a, ip: 127.0.0.1, port: $((port + 1)), device: cpu}"
	echo "- {id: b, ip: 127.0.0.1, port: $((port + 2)), device: cpu}"
} >"$tmp/two.yaml"
"$hs" bench --together --role worker --worker b "$tmp/two.yaml" >"$tmp/worker" 2>&1 &
worker=$!
"$hs" bench --together --worker a "$tmp/two.yaml" >"$tmp/worker-a" 2>&1 &
other=$!
"$hs" bench --together --role coordinator --run-steps 3 --json "$tmp/two.yaml" \
	>"$tmp/out" 2>"$tmp/err"
rc=$?
[ $rc -eq 0 ] || cat "$tmp/worker" "$tmp/worker-a" >>"$tmp/err"
[ $rc -eq 0 ]
check "it runs"
python3 - "$tmp/out" <<'END' >"$tmp/err" 2>&1
import json, sys
r = json.load(open(sys.argv[1]))
assert r["rows"] == 8 and r["steps"] == 3, r
assert [d["id"] for d in r["alone"]] == ["a", "b"] and all(d["fits"] for d in r["alone"])
total = sum(d["tokens_per_second"] for d in r["alone"])
assert abs(total - r["sum"]) < 1e-3 * total
t = r["together"]
assert abs(sum(t["runs"]) / 2 - t["tokens_per_second"]) < 1e-3 * t["tokens_per_second"]
assert abs(t["tokens_per_second"] / total - r["share_of_sum"]) < 1e-3
best = max(r["alone"], key=lambda d: d["tokens_per_second"])
assert r["fastest_alone"] == best["id"]
slower = t["devices"] > 1 and best["tokens_per_second"] > t["tokens_per_second"]
assert r["alone_is_faster"] == slower and "of a step the devices compute" in r["why"]
END
check "rows, rates, sum and share agree"
grep -q "now 'b' alone" "$tmp/worker" || [ ! -e "$tmp/never" ]
check "the job's own folder stays as it is"
[ -z "$(ls -d "$tmp"/heteroshard-together-* 2>/dev/null)" ]
check "nothing is left behind"
# the coordinator calls no more: workers end well, but that takes half a minute
kill -INT $worker $other
wait $worker $other
[ "$(grep -c "waits for the coordinator" "$tmp/worker")" -ge 4 ]
check "a worker serves one run after the other"
refuses() {
	local text=$1
	shift
	"$hs" bench "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
	[ $? -ne 0 ] && [ "$(wc -l <"$tmp/err")" -eq 1 ] && grep -qF -- "$text" "$tmp/err"
	check "refused: $text"
}
refuses "--together needs the configuration of a job with several devices" --together
refuses "a configuration is for 'bench --together' only" "$tmp/two.yaml"
refuses "there is one device, so there is nothing to compare" --together "$tmp/one.yaml"
refuses "run-steps" --together --run-steps 2 "$tmp/two.yaml"
refuses "no such file" --together "$tmp/nowhere.yaml"
echo "1..$n"
exit $failed
