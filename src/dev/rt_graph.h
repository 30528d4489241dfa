/* SPDX-License-Identifier: Apache-2.0 */
/* rt_graph.h - work of the compute stream: given to it at once, or replayed as a graph.
 *
 * A stretch is what the host asks for between dev_repeat_begin() and dev_repeat_end(); its key says
 * which one. The first time its work is only noted. When the next time is the same, all but a few
 * numbers, each run of equal work becomes a graph: from then on the host still makes every call,
 * the call is compared with the note, and the last one of a run starts the graph. So nothing above
 * has to promise that work repeats: what differs is given to the stream one by one, in its order,
 * and the note is made anew. Work whose numbers change each time (the key of a dropout mask) stays
 * outside graphs, and so does whatever the host waits for.
 *
 * HS_GRAPHS=0 turns graphs off, 1 on; without it they are used where the driver is CUDA 12 or HIP
 * 6 or newer. Interfaces: "CUDA Driver API", Stream Management (capture) and Graph Management, 11.4
 * and newer; "HIP Runtime API", the same, 5.6 and newer. */
#ifndef HS_DEV_RT_GRAPH_H
#define HS_DEV_RT_GRAPH_H

#include "dev/gpu.h"

struct err;
struct rt;

/* RT_AHEAD: a kernel that names nothing which work behind the last fork names, so that it need not
 * wait for that: it runs beside it. What is given afterwards waits for it as for any other. */
enum rt_work_kind { RT_KERNEL, RT_PRODUCT, RT_COPY, RT_CLEAR, RT_AHEAD };

/* One thing for the compute stream. */
struct rt_work {
	struct rt_same { /* what makes it the same; compared byte by byte, so it has no holes */
		int32_t kind, n;
		int64_t groups;
		void *function;
		uint64_t value[2 * GPU_ARGS]; /* n of them: parameters, addresses, sizes */
	} same;
	struct dev_gemm product;
	const char *name;
	double flops;
	bool fork; /* there is a fork in front of it */
};

/* Gives work to the stream, now or with a graph. 1: done; 0: the library does not do this product.
 * ERR_NOMEM: the driver has no memory for it; nothing was queued. */
int rt_give_work(struct rt *c, const struct rt_work *w, struct err *e);
/* A fork behind all that has been given. */
int rt_fork(struct rt *c, struct err *e);
/* All work that is held back for a graph goes to the stream: before the host waits for anything, or
 * the copy stream does. */
int rt_flush(struct rt *c, struct err *e);
int rt_repeat_begin(struct dev *d, uint64_t key, struct err *e);
int rt_repeat_end(struct dev *d, struct err *e);
void rt_graphs_release(struct rt *c, bool well); /* well: the driver can still be told */

#endif
