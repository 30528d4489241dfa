/* SPDX-License-Identifier: Apache-2.0 */
/* link_probe_wire.h - measuring the link between two workers: the coordinator's order (PROBE) and
 * the result (PROBED). */
#ifndef HS_PROTO_LINK_PROBE_WIRE_H
#define HS_PROTO_LINK_PROBE_WIRE_H

#include "net/frame.h"
#include "net/net.h"

#include <stdbool.h>

struct err;
struct buf;

enum { PROBE_SIZES = 3, PROBE_WAYS_MOST = 36 };
extern const uint64_t probe_size[PROBE_SIZES]; /* bytes of a message: 64 KiB, 1 MiB, 8 MiB */

/* PROBE, from the coordinator. ANSWER is acknowledged with an empty PROBED and holds until STOP,
 * which is acknowledged too. */
enum probe_mode { PROBE_MEASURE, PROBE_ANSWER, PROBE_STOP };

struct probe_order {
	uint8_t mode;
	uint32_t member; /* the number of the worker that gets the order */
	bool relayed;    /* the two meet at the coordinator, which passes on what they say */
	char id[128], key[KEY_TEXT]; /* of the other worker; key "" without keys */
	double seconds;              /* for one direction of one address */
	uint32_t n;
	/* PROBE_MEASURE: where to connect, in the form of net_dial() */
	char address[PROBE_WAYS_MOST][NET_ADDRESS];
};

struct probe_rate {
	uint32_t rounds; /* 0: not measured at this size, the link is too slow for it */
	double rate;     /* bytes per second, median of the rounds */
	double spread;   /* between the quartiles, as a share of the median */
};

/* The result for one address. */
struct probe_way {
	bool reached;
	char why[200]; /* the reason when it was not reached */
	/* seconds one way: half of the median round trip */
	double latency;
	/* from the measuring side to the other, and back */
	struct probe_rate out[PROBE_SIZES], in[PROBE_SIZES];
};

int probe_order_write(const struct probe_order *o, struct buf *out, struct err *e);
int probe_order_read(const struct frame *f, struct probe_order *o_p, struct err *e);
int probe_ways_write(const struct probe_way *v, uint32_t n, struct buf *out, struct err *e);
/* Exactly n of them; every number is checked. */
int probe_ways_read(const struct frame *f, uint32_t n, struct probe_way *v_p, struct err *e);

#endif
