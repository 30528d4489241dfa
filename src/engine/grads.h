/* SPDX-License-Identifier: Apache-2.0 */
/* grads.h - gradients of a chunk as one array of numbers, and their sum over this worker's
 * microbatches in the order of sched/sum.h.
 *
 * Each part of a chunk's backward pass (stage.h) has an array of what it computes: the gradients of
 * its trained parameters from the last layer to the first. The head's gradient is computed by the
 * forward pass, which may be several microbatches ahead, and has an array of its own. Where the
 * group shares the training state, an array has first all that its first member owns, then what the
 * second owns, and so on: the piece of each is in one place.
 *
 * In the order `fast` each pass adds to the parameters' own gradients, and nothing is done here. In
 * the order `exact` each pass makes its gradient from zero, which then becomes a node of the tree;
 * two nodes that belong together are added at once, so that about log2(microbatches) nodes are
 * kept, on the device. */
#ifndef HS_ENGINE_GRADS_H
#define HS_ENGINE_GRADS_H

#include "model/stage.h"
#include "sched/sum.h"

struct err;
struct hosted;

struct grad_node {
	int first, last; /* microbatches */
	struct dev_buf *buf;
};

/* Elements of a parameter that follow each other in the array. */
struct grad_run {
	struct param *param;
	size_t first, count; /* elements of the parameter */
	size_t at;           /* in the array */
};

/* Buffers that arrays use in turn, where only some have nodes at once. */
struct grad_pool {
	struct dev_buf **buf; /* [n] free ones */
	size_t n, cap;
};

struct grads {
	struct dev *dev;
	enum sum_order order;
	struct grad_run *run; /* [n] */
	size_t n;
	size_t *cut;            /* [members+1] of the array; NULL: nothing here is shared */
	size_t count;           /* numbers in all */
	struct grad_node *node; /* [nodes] of this round, ascending; spare buffers behind them */
	size_t nodes, buffers, cap;
	struct grad_pool *pool; /* MAY: where buffers come from and go back to; borrowed */
};

enum { GRADS_HEAD = -1, GRADS_END = -2 };
/* Of a part: all; where experts are dealt, what is none of them (the end of the model apart,
 * GRADS_END), or those that are here. */
enum grads_of { GRADS_ALL, GRADS_REST, GRADS_EXPERTS };
/* Of a part of the parts of a backward pass, or the head's. Where there are none, count is 0. */
int grads_init(struct grads *g, struct stage *s, int part, int parts, enum grads_of of,
	       enum sum_order o, struct err *e);
void grads_release(struct grads *g);

/* After the pass of microbatch m that computes these gradients. */
int grads_add(struct grads *g, int m, struct err *e);
/* After the last one: makes node[0..) those of `t` that `place` contributes. */
int grads_close(struct grads *g, const struct sum_terms *t, int place, struct err *e);
/* One member alone: the sum becomes the parameters' gradient; what goes to the memory of the host
 * is added to `h`. Instead of grads_close(). */
int grads_finish(struct grads *g, struct hosted *h, struct err *e);

/* Numbers [first, first + count) of what this worker contributes as its k-th term, or of the
 * parameters' gradients (fast). */
int grads_download(const struct grads *g, size_t k, size_t first, size_t count, float *v,
		   struct err *e);
/* Makes them the parameters' gradient; of gathered and hosted ones the owned part. */
int grads_upload(struct grads *g, size_t first, size_t count, const float *v, struct err *e);
/* The same on the device: to `to`, and from `from`. */
int grads_copy(const struct grads *g, size_t k, size_t first, size_t count, struct dev_ref to,
	       struct err *e);
int grads_take(struct grads *g, size_t first, size_t count, struct dev_ref from, struct err *e);
int grads_add_to(struct dev_ref to, struct dev_ref from, size_t count, struct err *e);
/* The sum has been taken: the buffers go back to the pool. */
int grads_give_back(struct grads *g, struct err *e);
void grad_pool_release(struct grad_pool *p);
/* The values (struct param, `w`) of the runs that member k owns, but for gathered parameters: how
 * many bytes, and from the device or to it, run after run. */
size_t grads_values_size(const struct grads *g, int k);
int grads_values_get(const struct grads *g, int k, void *bytes, struct err *e);
int grads_values_put(struct grads *g, int k, const void *bytes, struct err *e);
/* Behind a round, also one that failed: the nodes are given up, their memory is kept. */
void grads_reset(struct grads *g);

#endif
