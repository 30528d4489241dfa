/* SPDX-License-Identifier: Apache-2.0 */
/* dev.h - the device interface: one piece of compute with its own memory.
 *
 * A backend is a const table of functions (struct backend) plus a private context behind `struct
 * dev`; backends are the rows of backend.def. Code above asks for capabilities (struct dev_caps)
 * and never for a vendor. A slot marked MAY can be NULL; dev.c then supplies the default. One
 * thread at a time drives a device; different devices may be driven by different threads.
 *
 * Order: alloc, free, upload, download, copy, fill, gemm and launch take effect in the order of the
 * calls, as if on one queue. download returns when the bytes are there; upload has taken the bytes
 * when it returns; everything else may still be running until dev_sync(). Where dev_beside() says
 * so, transfers run beside kernels that do not name their buffers, and a download can be left to
 * itself.
 *
 * Memory: a buffer belongs to whoever allocated it. `struct dev_ref` is a place in a buffer:
 * kernels get refs.
 *
 * Numbers: matrices are row-major; a leading dimension (lda) counts elements. Activations are
 * float32, bfloat16 or float16; float32 is accumulated in float32 at least. */
#ifndef HS_DEV_DEV_H
#define HS_DEV_DEV_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct dev;

struct dev_buf {
	struct dev *dev;
	size_t size;
	void *host;      /* address for the host, NULL where the memory is not host-addressable */
	uint64_t handle; /* the backend's */
};

struct dev_ref {
	struct dev_buf *buf; /* NULL: no buffer; kernels say which may be */
	size_t off;          /* bytes */
};

enum { DEV_SPEC = 48 };

#define DEV_REF(b, o) ((struct dev_ref){ (b), (o) })
#define DEV_NONE ((struct dev_ref){ NULL, 0 })

struct dev_caps {
	char name[128]; /* "AMD EPYC" */
	char vendor[64];
	char driver[64];              /* driver or library version */
	uint64_t mem_total, mem_free; /* bytes, now */
	/* mem_free counts what other programs hold; else only what this one does */
	bool mem_seen;
	int units; /* cores, multiprocessors, compute units */
	/* native matrix products, probed by running them; emulation does not count */
	bool bf16, f16;
	bool unified; /* memory shared with the host */
};

/* C[m,n] = alpha op(A)[m,k] op(B)[k,n] + beta D. op is the transpose where ta / tb is set: A is
 * then [k,m], B [n,k]. D is C itself where `d` is DEV_NONE, else it lies as C does, apart from it.
 * ab_dtype is that of A and B; c_dtype, of C and D, is that or DT_F32. beta is 0 or 1; with 0, D
 * is not read. MAY have m, n or k of 0 (k = 0 with beta 0 clears C). */
struct dev_gemm {
	int64_t m, n, k;
	bool ta, tb;
	struct dev_ref a, b, c, d;
	int64_t lda, ldb, ldc;
	enum dtype ab_dtype, c_dtype;
	float alpha, beta;
};

/* One argument of a kernel, by the letter in kernel.def: b buffer, i int64, f float, u uint64. */
union dev_arg {
	struct dev_ref b;
	int64_t i;
	float f;
	uint64_t u;
};

enum dev_kernel {
#define KERNEL(name, sig) K_##name,
#include "dev/kernel.def"
#undef KERNEL
	K_COUNT
};

struct dev_text_launch;

struct backend {
	const char *name;
	/* MUST: how many devices there are. A missing driver is 0, not an error; a broken one is an
	 * error. */
	int (*count)(struct err *e);
	/* MAY: how much `auto` wants device `index`, 0: not at all; NULL: 0 for all. cpu 10, opencl
	 * 20, hip 30, cuda 40. */
	int (*rank)(int index);
	/* MUST: opens device `index`; fills dev->priv. */
	int (*open)(struct dev *d, int index, struct err *e);
	void (*close)(struct dev *d);                                       /* MUST */
	int (*caps)(struct dev *d, struct dev_caps *caps_p, struct err *e); /* MUST */
	/* MUST: b->size is set */
	int (*alloc)(struct dev *d, struct dev_buf *b, struct err *e);
	void (*free)(struct dev *d, struct dev_buf *b); /* MUST */
	/* MUST */
	int (*upload)(struct dev *d, struct dev_ref dst, const void *src, size_t n, struct err *e);
	/* MUST */
	int (*download)(struct dev *d, void *dst, struct dev_ref src, size_t n, struct err *e);
	/* MUST */
	int (*copy)(struct dev *d, struct dev_ref dst, struct dev_ref src, size_t n, struct err *e);
	/* MUST */
	int (*zero)(struct dev *d, struct dev_ref dst, size_t n, struct err *e);
	/* MUST */
	int (*gemm)(struct dev *d, const struct dev_gemm *g, struct err *e);
	/* MUST: runs a kernel. `t` is the dtype of its activations where kernel.def says so. */
	int (*launch)(struct dev *d, enum dev_kernel k, enum dtype t, const union dev_arg *args,
		      struct err *e);
	/* MAY: dev_text.h */
	int (*launch_text)(struct dev *d, const struct dev_text_launch *l, struct err *e);
	int (*sync)(struct dev *d, struct err *e); /* MAY: nothing runs behind */
	int (*repeat_begin)(struct dev *d, uint64_t key, struct err *e); /* MAY, both or none */
	int (*repeat_end)(struct dev *d, struct err *e);
	/* MAY, all three or none: transfers run beside kernels. */
	int (*download_begin)(struct dev *d, void *dst, struct dev_ref src, size_t n,
			      struct err *e);
	/* of the one that was begun; 0 where there is none */
	int (*download_end)(struct dev *d, struct err *e);
	int (*meet)(struct dev *d, struct err *e);     /* MAY: dev_meet() */
	bool (*pin)(struct dev *d, void *p, size_t n); /* MAY, both or none: dev/pin.h */
	void (*unpin)(struct dev *d, void *p);
	/* 1: something that was launched has not run yet */
	int (*busy)(struct dev *d, struct err *e);
	/* MAY: true when the backend has this kernel for this dtype; NULL: all of them */
	bool (*has)(struct dev *d, enum dev_kernel k, enum dtype t);
};

struct dev {
	const struct backend *be;
	void *priv;
	int index;
	uint64_t mem_used, mem_peak; /* bytes in buffers of this program */
	uint64_t allocs;             /* calls of alloc so far */
	unsigned panel;              /* which of two is next: dmem_panel() */
	int units;                   /* multiprocessors of a card; else 0 */
};

extern const struct backend *const backends[];        /* rows of backend.def, NULL-terminated */
const struct backend *backend_find(const char *name); /* NULL: no such row */

/* Opens a device by "backend" or "backend:index" ("cpu", "cuda:1"), or with "auto" the one of the
 * highest rank that opens; there a driver that fails is a warning, and the next device is tried. */
int dev_open(const char *spec, struct dev **d_p, struct err *e);
/* For process k (from 0) of several on this machine that would otherwise all take the same: device
 * k of the best backend that opens, round and round. "auto" when nothing opens. */
void dev_successive(int k, char spec[DEV_SPEC]);
void dev_spec(const struct dev *d, char spec[DEV_SPEC]); /* what opens this very device: "cuda:1" */
/* NULL is allowed; all buffers must have been freed */
void dev_close(struct dev *d);
int dev_caps(struct dev *d, struct dev_caps *caps_p, struct err *e);
/* 64-byte aligned, not cleared */
int dev_alloc(struct dev *d, size_t bytes, struct dev_buf **b_p, struct err *e);
/* NULL is allowed */
void dev_free(struct dev_buf *b);
/* Transfers check that the range lies inside the buffer. */
int dev_upload(struct dev_ref dst, const void *src, size_t n, struct err *e);
int dev_download(void *dst, struct dev_ref src, size_t n, struct err *e);
/* A download in two halves: what is called between them, but for downloads and dev_sync(), runs
 * beside it. One at a time on a device; `dst` must stay until the end. What is launched in between
 * sees to it that the bytes are those of the beginning. */
int dev_download_begin(void *dst, struct dev_ref src, size_t n, struct err *e);
int dev_download_end(struct dev *d, struct err *e);
/* whether transfers run beside kernels; else dev_download_begin() does it all */
bool dev_beside(const struct dev *d);
/* Kernels from here on are behind the transfers so far, and transfers behind the kernels so far:
 * of what is launched next an upload waits only where both use the same buffer, and vice versa. */
int dev_meet(struct dev *d, struct err *e);
/* 1: kernels are under way; 0: not, or this device cannot tell */
int dev_busy(struct dev *d, struct err *e);
int dev_copy(struct dev_ref dst, struct dev_ref src, size_t n, struct err *e); /* same device */
int dev_zero(struct dev_ref dst, size_t n, struct err *e);
int dev_gemm(struct dev *d, const struct dev_gemm *g, struct err *e);
int dev_gemm_in_place(struct dev *d, const struct dev_gemm *g, struct dev_gemm *p, struct err *e);
int dev_launch(struct dev *d, enum dev_kernel k, enum dtype t, const union dev_arg *args,
	       struct err *e);
int dev_sync(struct dev *d, struct err *e);
int dev_repeat_begin(struct dev *d, uint64_t key, struct err *e);
int dev_repeat_end(struct dev *d, struct err *e); /* of what is likely to repeat: rt_graph.h */
bool dev_has(struct dev *d, enum dev_kernel k, enum dtype t);
const char *dev_kernel_name(enum dev_kernel k);
const char *dev_kernel_sig(enum dev_kernel k);

#endif
