/* net_bench.h - how fast a link is, against the raw TCP rate of the same path in the same run.
 *
 * One side serves (net_bench_serve), the other measures; on one machine net_bench_loopback() runs both in two threads. Rows are plain
 * structs: printing is the command line's. */
#ifndef HS_NET_NET_BENCH_H
#define HS_NET_NET_BENCH_H

#include <stddef.h>
#include <stdint.h>

struct err;

struct net_bench_row {
	const char *link;  /* "tcp", "zmq", "zmq+curve", "loop" */
	uint64_t message;  /* bytes of one message */
	uint64_t messages; /* how many were sent */
	double seconds;
	double bytes_per_second; /* one way, receiver acknowledged at the end */
	double share_of_tcp;     /* against the tcp row with the same message size */
	double round_trip_us;    /* median of ping-pongs of this size */
};

/* Measures the message sizes `sizes[0..n)` over tcp, zmq, zmq with CURVE and loop, in this order, each for about `seconds`.
 * `rows_p` holds 4 * n rows. */
int net_bench_loopback(const uint64_t *sizes, size_t n, double seconds, struct net_bench_row *rows_p, struct err *e);

#endif
