/* SPDX-License-Identifier: Apache-2.0 */
/* param.h - parameters: named numbers of the model, frozen or trained, plain or in 4 bits.
 *
 * A parameter is addressed by its Hugging Face name and never by stage or worker. One name can
 * stand for two parameters: a trained embedding that is also the head has a replica at the end of
 * the model, with a gradient of its own (stage.h). What kernels read
 * is its `w`: matrices [out, in] in the activation dtype or in NF4, vectors in float32. A trained
 * parameter also has a float32 master copy and a float32 gradient; when the activation dtype is not
 * float32, param_refresh() casts the master into `w` after every optimizer step.
 *
 * Where a group shares the training state (state_cut.h), master copy and optimizer state are those
 * of the elements that this member owns; `w` and the gradient are whole. A `gathered` parameter is
 * stored in pieces, frozen or trained: `w` has numbers only while it is gathered (gathered.h), and
 * what stays of its gradient is the sum of what is owned.
 *
 * A `hosted` parameter is offloaded: what is owned of its training state, and the piece of a
 * gathered one, are in the memory of the host, as buffers of a CPU device, on which updates and
 * norms run (ZeRO-Offload, arXiv 2101.06840). */
#ifndef HS_TENSOR_PARAM_H
#define HS_TENSOR_PARAM_H

#include "tensor/state_cut.h"
#include "tensor/tensor.h"

enum weight_kind { WEIGHT_PLAIN, WEIGHT_NF4 };

struct weight {
	enum weight_kind kind;
	enum dtype dtype;    /* plain: of `data` */
	int64_t rows, cols;  /* [out, in]; a vector is [1, n] */
	struct dev_ref data; /* plain numbers, or packed nibbles */
	/* NF4 (tensor/quant.h): block scales, plain (f32) or double-quantised (u8 with code2,
	 * absmax2, offset) */
	struct dev_ref absmax, code, code2, absmax2;
	float offset;
	int block;
};

enum { PARAM_STATES = 4 }; /* most states an optimizer keeps of a parameter */

struct param {
	const char *name;
	int ndim;
	int64_t dim[2];
	int layer; /* of the model; -1 front, INT_MAX end */
	bool trainable;
	float rate; /* factor on the learning rate; 0: 1 */
	bool decay; /* weight decay applies: matrices yes, vectors no */
	/* Another parameter of this name owns value and optimizer state: its value comes from
	 * there, its gradient is added to the one there. Never updated, counted or saved. */
	bool replica;
	/* Another member has it (model/deal.h): here it has a name and a shape, nothing else. */
	bool away;
	int holder; /* of a dealt expert: the place of who has it; else DEAL_HOME */
	struct weight w;
	/* what `w` refers to; owned. Of joined ones the first has the numbers of all */
	struct dev_buf *store[5];
	/* float32 master of what is owned; NULL when frozen and of a replica. It is store[0], which
	 * has all elements, when w is float32 */
	struct dev_buf *value;
	struct dev_buf *grad; /* float32; NULL when frozen */
	/* The elements [cut[k], cut[k+1]) are owned by member k of `members`; NULL: all are owned
	 * here. Lives as long as the name */
	const int64_t *cut;
	int members, place;
	bool gathered, hosted;
	/* gathered and joined (param_join): memory is lent to the first of them, `room` bytes for
	 * all; the numbers of this one begin `behind` bytes into it */
	struct param *leader;
	size_t behind, room;
	/* hosted: new values come to the device by param_bring() alone; and whether `w` waits for
	 * it */
	bool lazy, late;
	/* gathered: the owned piece of a frozen one, data and block scales; of a trained one it is
	 * `value`. Hosted: piece[0] alone, data and behind them scales; of a trained one its value
	 * in the activation dtype, NULL where that is float32 */
	struct dev_buf *piece[2];
	/* float32 sum of what is owned, where `grad` is borrowed (gathered) or on another device
	 * (hosted) */
	struct dev_buf *own_grad;
	/* MAY: it is in the memory of the host, and on the device only when brought there
	 * (expert_cache.h) */
	struct cached *cached;
	/* optimizer state, as its row of optim.def says; owned here */
	struct dev_buf *state[PARAM_STATES];
};

static inline int64_t param_count(const struct param *p)
{
	return p->ndim == 2 ? p->dim[0] * p->dim[1] : p->dim[0];
}

/* What this member owns, [first, first + returned). */
static inline int64_t param_owned(const struct param *p, int64_t *first_p)
{
	*first_p = p->cut ? p->cut[p->place] : 0;
	return p->cut ? p->cut[p->place + 1] - *first_p : param_count(p);
}

/* The first owned number of the master copy, and of the gradient. */
static inline struct dev_ref param_value(const struct param *p)
{
	int64_t first;
	param_owned(p, &first);
	return DEV_REF(p->value, p->value == p->store[0] ? (size_t)first * 4 : 0);
}

static inline struct dev_ref param_grad(const struct param *p)
{
	int64_t first;
	if (p->own_grad)
		return DEV_REF(p->own_grad, 0);
	param_owned(p, &first);
	return DEV_REF(p->grad, (size_t)first * 4);
}

/* Fills in a parameter from float32 numbers on the host (row-major). `t` is the activation dtype.
 * The name is borrowed. */
int param_init_plain(struct param *p, struct dev *d, const char *name, int ndim, const int64_t *dim,
		     enum dtype t, bool trainable, struct err *e);
/* The same for a trained one whose state a group shares: `cut` (members+1) is borrowed. */
int param_init_shared(struct param *p, struct dev *d, const char *name, int ndim,
		      const int64_t *dim, enum dtype t, const int64_t *cut, int members, int place,
		      struct err *e);
/* A replica of `owner` on its device: `w` refers to the owner's storage and only the gradient is
 * its own. `owner` must outlive it. */
int param_init_replica(struct param *p, const struct param *owner, struct err *e);
/* One that was filled in by itself becomes a replica: no master copy, no state of its own. */
void param_to_replica(struct param *p);
/* One that is trained and not filled in yet, or a frozen gathered one: moves what is owned to
 * `host`, a CPU device, which must outlive it. */
int param_to_host(struct param *p, struct dev *host, struct err *e);
/* What is owned, in the memory of the host, as kernels read it: data and behind them scales. NULL:
 * it is on the device. */
const void *param_hosted(const struct param *p);
/* Whether optimizer, gradient norm and checkpoints have to do with it. */
static inline bool param_is_trained(const struct param *p)
{
	return p->trainable && !p->replica && !p->away;
}
/* Elements of the flat array; of the master copy those that are owned here. */
int param_upload_f32(struct param *p, int64_t first, int64_t count, const float *src,
		     struct err *e);
/* Of the master copy: owned elements. */
int param_download_f32(const struct param *p, int64_t first, int64_t count, float *dst,
		       struct err *e);
/* Casts what is owned from the master copy, and brings it to the device. */
int param_refresh(struct param *p, struct err *e);
/* The new value of a lazy one, to the device. */
int param_bring(struct param *p, struct err *e);
/* Adds `count` float32 numbers to the gradient, from element `first` on. */
int param_add_grad(struct param *p, int64_t first, int64_t count, struct dev_ref from,
		   struct err *e);
void param_release(struct param *p);
/* n matrices [out, in] of one width whose products with one input are to be made as one: from now
 * on their numbers lie one behind the other, or will when they are gathered. Matrices in 4 bits and
 * trained ones in float32 stay where they are. */
int param_join(struct param *const *p, int n, struct err *e);

/* Rows [row, row+n) of a weight whose other dtype is t, as float32 (n,cols). */
int weight_rows_f32(const struct weight *w, struct dev *d, int64_t row, int64_t n,
		    struct dev_ref dst, struct err *e);
/* norm (out) f32: of each row of W + s B A, with A (R,in) and B (out,R) in dtype t; without A of W.
 * By panels of rows in memory taken from `scratch`. */
int weight_row_norms(const struct weight *w, const struct param *a, const struct param *b, float s,
		     struct dmem *scratch, enum dtype t, struct dev_ref norm, struct err *e);

/* y(N,out) = x(N,in) W^T, or dx(N,in) = dy(N,out) W with `back`. beta 1 adds `d`, which lies as y,
 * or with DEV_NONE what is in y. NF4 weights are expanded panel by panel into memory taken from
 * `scratch`. All activations in dtype t. */
int weight_matmul(const struct weight *w, struct dmem *scratch, enum dtype t, bool back,
		  struct dev_ref y, struct dev_ref x, int64_t n, float beta, struct dev_ref d,
		  struct err *e);
/* The same, times alpha, for n matrices of one width and kind, one above the other: y (N, sum of
 * out). Plain ones that are not joined are copied first. */
int weights_matmul(const struct weight *const *w, int n, struct dmem *scratch, enum dtype t,
		   bool back, struct dev_ref y, struct dev_ref x, int64_t count, float alpha,
		   float beta, struct dev_ref d, struct err *e);

#endif
