/* SPDX-License-Identifier: Apache-2.0 */
/* opencl.h - what the files of the OpenCL backend share: the library with its list of devices, an
 * open device, its programs. */
#ifndef HS_DEV_OPENCL_H
#define HS_DEV_OPENCL_H

#include "dev/cl.h"
#include "dev/dev_watch.h"
#include "dev/gpu.h"
#include "dev/gpu_ahead.h"
#include "dev/gpu_cache.h"

struct err;

#define OPENCL_MARKS 64
#define OPENCL_PIECES 4
#define OPENCL_PIECE ((size_t)4 << 20)
#define OPENCL_TILES_LOCAL ((uint64_t)64 << 10) /* of local memory that the tiles take at most */
#define OPENCL_MOST 64                          /* devices of a machine that are listed */

struct opencl_place {
	cl_platform platform;
	cl_device device;
};

/* The library and the devices of all platforms that answer; found once for the process. */
struct opencl_lib {
	struct cl_functions f;
	struct opencl_place place[OPENCL_MOST];
	int count;
};

struct opencl {
	const struct opencl_lib *lib;
	struct opencl_place at;
	bool cpu; /* neither a GPU nor an accelerator */
	cl_context context;
	/* Kernels, products and copies inside the device run on `queue` in the order of the calls;
	 * uploads and downloads on `copy`. Each buffer knows the last work of either that named it,
	 * so that one waits for the other only where both use the same buffer. Kernels that run
	 * ahead (gpu_ahead.h) run on `side`, behind `fork` of `queue`, which waits for them; NULL:
	 * none do. */
	cl_queue queue, copy, side;
	cl_event fork;
	struct gpu_ahead may;
	uint64_t launched, finished; /* work on `queue`: given to it, known to have run */
	uint64_t copies, seen;       /* transfers on `copy`: given to it, waited for by `queue` */
	uint64_t ordered;            /* work on `queue` behind which all that `copy` gets now is */
	struct {
		cl_program program;
		cl_kernel kernel[GPU_ENTRIES]; /* made at first use */
	} built[DT_F16 + 1];                   /* by dtype of activations */
	struct opencl_user *user;              /* texts that are not the program's own */
	cl_mem none;                           /* stands for buffers that are not given */
	uint64_t mem_total, mem_largest;
	/* How far the device is: an event behind every few launches, the oldest first. Waiting for
	 * one after the other tells a device that has much to do from one that hangs. */
	cl_event mark[OPENCL_MARKS];
	uint64_t mark_at[OPENCL_MARKS]; /* `launched` then */
	int marks, first_mark;
	cl_event tail; /* behind the last launch, when it was asked whether that has run */
	uint64_t tail_at;
	int queued;   /* launches since the last mark */
	double flops; /* of the products since then */
	bool lost;
	/* Pieces of host memory the device can reach by itself, for the way up and the way down:
	 * transfers go through them beside what the host and `queue` do. */
	struct opencl_piece {
		cl_mem mem;
		char *host;
		cl_event moved; /* the device has read or written it; NULL: it is free */
	} piece[OPENCL_PIECES], back[OPENCL_PIECES];
	int next_piece;
	bool no_pieces;      /* the driver gives none */
	struct opencl_down { /* the download under way */
		const struct opencl_buf *b;
		char *dst;
		/* bytes: place in b, all, on the queue so far, at dst; n 0: there is none */
		size_t off, n, asked, at;
		uint64_t behind; /* `launched` that has run when it comes */
	} down;
	struct dev_watch watch;
	char name[128], vendor[64], driver[64];
	char options[512], tile_options[600]; /* of the compiler; the latter with matrix units */
	/* Lanes of a wave on the card's matrix units (Intel: kernel/tile_intel.k); 0: none are used
	 */
	int subgroup;
	bool matrix_tried;
	char who[160];          /* in messages: "opencl:0 (AMD Radeon ...)" */
	bool probed, f16, blas; /* blas: products by CLBlast */
	int shape[3];           /* of portable products, by dtype: gpu_tune.h */
	int products[3];        /* so far, as far as they are counted */
	int64_t passes;         /* most loop passes of a lane in one launch */
	struct dev_buf sums;    /* of products that are cut because of that; size 0: none yet */
};

/* What stands behind a dev_buf's handle. */
struct opencl_buf {
	struct gpu_named named; /* by works of `queue` (`launched`) and of `copy` (`copies`) */
	cl_mem mem;
};

static inline struct opencl_buf *opencl_buf_of(const struct dev_buf *b)
{
	return (struct opencl_buf *)(uintptr_t)b->handle;
}
static inline cl_mem opencl_mem(const struct dev_buf *b) { return opencl_buf_of(b)->mem; }

/* opencl_lib.c */
/* no library: 0 devices, no error */
int opencl_lib_open(const struct opencl_lib **lib_p, struct err *e);
/* the specification's name for it, or a number */
const char *opencl_error(int32_t code);
/* A text about the device; empty where it gives none. */
void opencl_text(const struct opencl_lib *l, cl_device d, uint32_t what, char *s, size_t n);
/* 0 where it gives none */
uint64_t opencl_number(const struct opencl_lib *l, cl_device d, uint32_t what, size_t size);
/* neither a GPU nor an accelerator */
bool opencl_is_cpu(const struct opencl_lib *l, int index);
/* Whether kernels run ahead. A driver for the processor shares its cores between two queues, so
 * nothing is gained there. */
bool opencl_wants_side(bool cpu);
bool opencl_has_extension(const struct opencl_lib *l, cl_device d, const char *name);
/* The lanes of a wave that multiplies matrices by Intel's extension; 0: it is not there. */
int opencl_subgroup(const struct opencl_lib *l, cl_device d);
/* what others hold is told by AMD's drivers only */
bool opencl_free_memory(const struct opencl_lib *l, cl_device d, uint64_t *free_p);

/* opencl_queue.c */
/* 0 for CL_SUCCESS */
int opencl_failed(struct opencl *c, int32_t code, const char *what, struct err *e);
/* Waits for marks until what was launched up to `at` has run, but for what lies behind the last
 * mark. */
int32_t opencl_wait_until(struct opencl *c, uint64_t at, const char *what);
int32_t opencl_wait_event(struct opencl *c, cl_event v, const char *what);
int32_t opencl_launched(struct opencl *c, double flops);   /* behind everything put on `queue` */
int32_t opencl_finish(struct opencl *c, const char *what); /* until all queues are empty */
int32_t opencl_fork(struct opencl *c);                     /* behind what `queue` has */
/* The kernel waits for the fork alone, and `queue` for it. */
int32_t opencl_start_ahead(struct opencl *c, cl_kernel k, size_t lanes);
/* 1: something on `queue` has not run; 0: all has; or an error. Between the first question and the
 * last answer the watch looks on, from one mark to the next. */
int opencl_under_way(struct opencl *c, struct err *e);
void opencl_queue_release(struct opencl *c);

/* opencl_program.c */
/* The kernel of one entry point for activations in `t`; compiled, or read from the cache, at the
 * first call. */
int opencl_kernel(struct opencl *c, enum gpu_entry n, enum dtype t, cl_kernel *k_p, struct err *e);
/* The same of an entry point of somebody's text. */
int opencl_user_kernel(struct opencl *c, const struct dev_text_launch *l, cl_kernel *k_p,
		       struct err *e);
/* Builds any text; errors name the device, the first lines of the compiler's log and the file that
 * holds all of it. */
int opencl_build(struct opencl *c, const char *options, const char *text, size_t n, cl_program *p_p,
		 struct err *e);
/* The compiler's options for the kernels' text for activations in `t`. */
const char *opencl_options(const struct opencl *c, enum dtype t);
/* Under which something about this text, device and driver is kept (gpu_cache.h). */
void opencl_key(const struct opencl *c, const char *options, const char *text, size_t n,
		char key[GPU_KEY]);
void opencl_programs_release(struct opencl *c);

/* opencl_memory.c */
int opencl_alloc(struct dev *d, struct dev_buf *b, struct err *e);
void opencl_free(struct dev *d, struct dev_buf *b);
int opencl_upload(struct dev *d, struct dev_ref dst, const void *src, size_t n, struct err *e);
int opencl_download(struct dev *d, void *dst, struct dev_ref src, size_t n, struct err *e);
int opencl_download_begin(struct dev *d, void *dst, struct dev_ref src, size_t n, struct err *e);
int opencl_download_end(struct dev *d, struct err *e);
int opencl_meet(struct dev *d, struct err *e);
int opencl_copy(struct dev *d, struct dev_ref dst, struct dev_ref src, size_t n, struct err *e);
int opencl_zero(struct dev *d, struct dev_ref dst, size_t n, struct err *e);
/* Before work on `queue` that names the buffer; NULL is allowed. */
int opencl_use(struct opencl *c, const struct dev_buf *b, struct err *e);
void opencl_pieces_release(struct opencl *c);

/* opencl_blas.c */
/* whether CLBlast is there, and wanted; cpu: for a driver for the processor */
bool opencl_blas_use(bool cpu);
/* False: it does not do this product, and has queued nothing. */
bool opencl_blas_gemm(struct opencl *c, const struct dev_gemm *g); /* without D */
bool opencl_blas_does(const struct dev_gemm *g);

/* opencl_launch.c */
int opencl_launch(struct dev *d, enum dev_kernel k, enum dtype t, const union dev_arg *args,
		  struct err *e);
int opencl_gemm(struct dev *d, const struct dev_gemm *g, struct err *e);
int opencl_launch_text(struct dev *d, const struct dev_text_launch *l, struct err *e);
bool opencl_has(struct dev *d, enum dev_kernel k, enum dtype t);
void opencl_sums_release(struct dev *d);

/* opencl_check.c */
/* Finds c->passes, and refuses a driver that computes a long product wrong. The answer is kept on
 * disk for each version of driver and kernels. */
int opencl_check(struct dev *d, struct err *e);
bool opencl_probe_f16(struct opencl *c);
/* Once, before the first 16-bit product: whether matrix units give the right numbers. Where not, a
 * warning says so, and plain multiply-adds are used from then on. */
void opencl_check_matrix(struct dev *d);

#endif
