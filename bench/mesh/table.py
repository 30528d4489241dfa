#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of overhead.sh: python3 table.py ROWS"""
import json
import statistics
import sys

NAMES = {
    ("plain", "tcp"): "plain: raw TCP",
    ("plain", "plain"): "plain: link without encryption",
    ("plain", "tls"): "link encryption alone",
    ("wireguard", "tcp"): "WireGuard: raw TCP",
    ("wireguard", "plain"): "WireGuard alone (as `encrypt: mesh`)",
    ("wireguard", "tls"): "both",
}


def spread(values, form):
    return f"{form % statistics.median(values)} ({form % min(values)} to {form % max(values)})"


def main():
    rows, wg, ping, order = {}, {}, {}, []
    for line in open(sys.argv[1]):
        o = json.loads(line)
        if "ping" in o:
            wg.setdefault(o["path"], []).append(o["wg"])
            ping.setdefault(o["path"], []).append(o["ping"])
            continue
        if (o["path"], o.get("link")) not in NAMES:
            continue
        key = (o["path"], o["link"], o["bytes"])
        order += [key] if key not in rows else []
        rows.setdefault(key, []).append(o)
    print("| path | message, KiB | rate, MB/s | share | CPU s/GB of both ends | round trip, ms |")
    print("|---|---|---|---|---|---|")
    for key in sorted(order, key=lambda k: (list(NAMES).index(k[:2]), k[2])):
        base = rows[("plain", "tcp", key[2])]
        share = [
            100 * a["mbyte_per_s"] / b["mbyte_per_s"] for a, b in zip(rows[key], base)
        ]
        print(
            "| %s | %d | %s | %s | %s | %s |"
            % (
                NAMES[key[:2]],
                key[2] // 1024,
                spread([o["mbyte_per_s"] for o in rows[key]], "%.0f"),
                spread(share, "%.1f %%"),
                spread([o["cpu_s_per_gb"] for o in rows[key]], "%.2f"),
                spread([o["round_trip_us"] / 1000 for o in rows[key]], "%.2f"),
            )
        )
    print("WireGuard's own processes, CPU s/GB on the cable:", spread(wg["wireguard"], "%.1f"))
    for path, v in ping.items():
        print(f"ping, {path}: {spread(v, '%.2f')} ms")


if __name__ == "__main__":
    main()
