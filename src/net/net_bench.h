/* SPDX-License-Identifier: Apache-2.0 */
/* net_bench.h - how fast a link is, against the raw TCP rate of the same path in the same run.
 *
 * One side serves, the other measures; net_bench_loopback() runs both in threads of this process.
 * Rows are plain structs: printing is the command line's. NET_BENCH_PORTS ports in a row are used:
 * raw TCP, links without encryption, links with TLS, links with TLS over several connections. */
#ifndef HS_NET_NET_BENCH_H
#define HS_NET_NET_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct key_pair;

struct net_bench_row {
	const char *link; /* "tcp", "plain", "tls", "tls x2", "shm", "loop" */
	uint64_t message; /* bytes of one message */
	/* how many went in `seconds`, one way, until the receiver said that it has them all */
	uint64_t messages;
	double seconds;
	double bytes_per_second;
	/* CPU seconds of both ends for 1e9 bytes, threads and system calls of all kinds */
	double cpu_per_gb;
	double share_of_tcp;  /* against the tcp row of the same message size; 0: no such row */
	double round_trip_us; /* median of ping-pongs with messages of this size */
};

struct net_bench_place {
	const char *host;           /* of the serving side: an IP address or name */
	unsigned port;              /* the first of NET_BENCH_PORTS */
	const struct key_pair *key; /* this side's; NULL: no encrypted rows */
	const char *peer;           /* the other side's public key */
	/* measure links without encryption too: for comparison, on a network where that is all
	 * right */
	bool plain;
	unsigned connections; /* of a link in the row "tls xN", 2 to 8; as the measuring end says */
	bool one_process;     /* both ends are in this process: its CPU time is that of both */
};

enum { NET_BENCH_LINKS = 6, NET_BENCH_PORTS = 4 }; /* most rows a message size gives; ports */

/* Serves one run of net_bench_measure(); ERR_NET when nobody came until `deadline`
 * (clock_now()). */
int net_bench_serve(const struct net_bench_place *at, int64_t deadline, struct err *e);

/* Measures each of `sizes` over each kind of link, for about `seconds` each: *count_p rows in
 * rows_p, which has room for NET_BENCH_LINKS * n; grouped by link. */
int net_bench_measure(const struct net_bench_place *at, const uint64_t *sizes, size_t n,
		      double seconds, struct net_bench_row *rows_p, size_t *count_p, struct err *e);

/* Both sides on 127.0.0.1 with keys made for it, and the transports shm and loop. */
int net_bench_loopback(const uint64_t *sizes, size_t n, double seconds,
		       struct net_bench_row *rows_p, size_t *count_p, struct err *e);

#endif
