#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packets of an interface, for tests in network namespaces.
  count IFACE       until SIGTERM; prints how many segments of TCP begin with the first word of a
                    link's head in the clear. On standard error "clear" and "tls" when the first of
                    these and the first record of TLS come by
  watch IFACE PORT  of the connection from that TCP port here: a line for each packet with what a
                    forged one has to say to the other end: "SOURCE PORT TARGET PORT SEQUENCE"
  reset IFACE MAC   sends a TCP reset for each such line to MAC; prints how many"""
import signal
import socket
import struct
import sys

ETH_ALL = socket.htons(3)


def packets(interface, ready=None):
    """The IPv4 packets, without what comes before them."""
    s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, ETH_ALL)
    s.bind((interface, 3))
    if ready:
        print(ready, file=sys.stderr, flush=True)
    while True:
        p = s.recv(65536)
        if p and p[0] >> 4 == 4:
            yield p


def count(interface):
    n = 0

    def end(*_):
        print(n, flush=True)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    seen = {b"HSL2": "clear", b"\x17\x03\x03": "tls"}
    for p in packets(interface, "ready"):
        head = (p[0] & 15) * 4
        if p[9] == 6 and len(p) > head + 20:
            # anywhere in encrypted bytes it would be found by chance, once in 4 GB
            data = p[head + (p[head + 12] >> 4) * 4 :][:4]
            n += data == b"HSL2"
            for word in [w for w in seen if data.startswith(w)]:
                print(seen.pop(word), file=sys.stderr, flush=True)


def watch(interface, port):
    n = 0
    for p in packets(interface):
        head = (p[0] & 15) * 4
        if p[9] != 6 or len(p) < head + 20:
            continue
        sport, dport, seq, ack = struct.unpack("!HHII", p[head : head + 12])
        if sport != port or n == 400:
            continue
        n += 1
        size = len(p) - head - (p[head + 12] >> 4) * 4
        src, dst = socket.inet_ntoa(p[12:16]), socket.inet_ntoa(p[16:20])
        try:
            print(src, sport, dst, dport, (seq + size) & 0xFFFFFFFF, flush=True)
        except BrokenPipeError:
            return
        if n == 400:
            return


def checksum(b):
    n = sum(struct.unpack(f"!{len(b) // 2}H", b))
    while n >> 16:
        n = (n & 0xFFFF) + (n >> 16)
    return ~n & 0xFFFF


def reset(interface, mac):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    s.bind((interface, 0))
    to = bytes(int(x, 16) for x in mac.split(":"))
    n = 0
    for line in sys.stdin:
        src, sport, dst, dport, seq = line.split()
        src, dst = socket.inet_aton(src), socket.inet_aton(dst)
        tcp = struct.pack("!HHIIBBHHH", int(sport), int(dport), int(seq), 0, 80, 4, 0, 0, 0)
        pseudo = src + dst + struct.pack("!BBH", 0, 6, len(tcp))
        tcp = tcp[:16] + struct.pack("!H", checksum(pseudo + tcp)) + tcp[18:]
        ip = struct.pack("!BBHHHBBH", 69, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + src + dst
        ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
        s.send(to + b"\x02\0\0\0\0\1\x08\0" + ip + tcp)
        n += 1
    print(n)


{"count": count, "watch": lambda i, p: watch(i, int(p)), "reset": reset}[sys.argv[1]](*sys.argv[2:])
