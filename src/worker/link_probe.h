/* SPDX-License-Identifier: Apache-2.0 */
/* link_probe.h - how fast the way between two workers is, measured over the links that training
 * uses: same transport, keys, frames, checksums.
 *
 * One side measures: it dials the other at each of several addresses and plays small exchanges with
 * what it finds there. The other side answers. Both do it before PLAN, on the coordinator's word
 * (session_links.h). A slow link is measured with small messages only: nothing here takes longer
 * than about three times `seconds` for each direction of an address. */
#ifndef HS_WORKER_LINK_PROBE_H
#define HS_WORKER_LINK_PROBE_H

#include "net/frame.h"
#include "net/net.h"
#include "proto/hello.h"

struct err;
struct buf;

enum { PROBE_SIZES = 3, PROBE_WAYS_MOST = 36 };
extern const uint64_t probe_size[PROBE_SIZES]; /* bytes of a message: 64 KiB, 1 MiB, 8 MiB */

/* PROBE, from the coordinator. ANSWER is acknowledged with an empty PROBED and holds until STOP,
 * which is acknowledged too. */
enum probe_mode { PROBE_MEASURE, PROBE_ANSWER, PROBE_STOP };

struct probe_order {
	uint8_t mode;
	char id[128], key[KEY_TEXT]; /* of the other worker; key "" without keys */
	double seconds;              /* for one direction of one address */
	uint32_t n;
	/* PROBE_MEASURE: where to dial, as net_dial wants it */
	char address[PROBE_WAYS_MOST][NET_ADDRESS];
};

struct probe_rate {
	uint32_t rounds; /* 0: not measured at this size, the link is too slow for it */
	double rate;     /* bytes per second, median of the rounds */
	double spread;   /* between the quartiles, as a share of the median */
};

/* What was found at one address. */
struct probe_way {
	bool reached;
	char why[200]; /* not reached: why */
	/* seconds one way: half of the median round trip */
	double latency;
	/* from who measured to who answered, and back */
	struct probe_rate out[PROBE_SIZES], in[PROBE_SIZES];
};

int probe_order_write(const struct probe_order *o, struct buf *out, struct err *e);
int probe_order_read(const struct frame *f, struct probe_order *o_p, struct err *e);
int probe_ways_write(const struct probe_way *v, uint32_t n, struct buf *out, struct err *e);
/* Exactly n of them; every number is checked. */
int probe_ways_read(const struct frame *f, uint32_t n, struct probe_way *v_p, struct err *e);

/* Measures o->n ways; `hello` is what it says to the other side. `stop` (MAY be NULL) is asked
 * between rounds. An address that cannot be reached is a result, not an error. */
int probe_measure(struct net *n, const struct probe_order *o, const struct hello *hello,
		  bool (*stop)(void *ctx), void *ctx, struct probe_way *v_p, struct err *e);

/* The other side: one frame that came over a probing link. `left_p` is kept by the caller, 0 at
 * first. An error ends the link. */
int probe_answer(struct link *l, const struct frame *f, uint32_t *left_p, struct err *e);

#endif
