/* SPDX-License-Identifier: Apache-2.0 */
/* rt.h - what CUDA and HIP have in common, and that is nearly all: one logic (rt*.c), two tables of
 * symbols (dev_cuda.c, dev_hip.c).
 *
 * The driver is a library opened at run time; kernels come from gpu.c and are compiled by rtc.c.
 * Two streams: kernels, products and copies inside the device run on `compute` in the order of the
 * calls; uploads and downloads run on `copy` through pinned host memory. Each block of device
 * memory knows the last work of either stream that named it, so that a stream waits for the other
 * only where both use the same block. The host never waits inside the driver but asks for events,
 * until HS_DEVICE_TIMEOUT (seconds, 120; 0: for ever).
 *
 * Interfaces: NVIDIA, "CUDA Driver API" 11.2 to 13; AMD, "HIP Runtime API" 5.2 to 7. */
#ifndef HS_DEV_RT_H
#define HS_DEV_RT_H

#include "base/dl.h"
#include "dev/gpu.h"
#include "dev/gpu_ahead.h"
#include "dev/rt_graph.h"
#include "dev/rtc.h"

#include <pthread.h>

/* Codes that both use. HIP's library on a machine without a card answers INVALID_DEVICE. */
enum {
	RT_OK = 0,
	RT_OUT_OF_MEMORY = 2,
	RT_TAKEN = 46, /* CUDA alone: another process has the card to itself */
	RT_NO_DEVICE = 100,
	RT_INVALID_DEVICE = 101,
	RT_NOT_READY = 600
};

#define RT_SLOTS 4                 /* pieces of pinned memory */
#define RT_PIECE ((size_t)4 << 20) /* bytes of each */
/* From pinned memory of the caller's, from so many bytes on: a transfer is waited for, or its bytes
 * are copied into a piece. */
#define RT_DIRECT ((size_t)64 << 10)
/* How much may be queued: so many marks, each behind so much work. */
#define RT_MARKS 32
#define RT_MARK_EVERY 16      /* launches */
#define RT_MARK_FLOPS 1e11    /* or as much work in products */
#define RT_TYPES (DT_F16 + 1) /* dtypes of activations */

/* Of memory, for another process; passed by value. */
struct rt_handle {
	char bytes[64];
};

/* Handles are pointers, device addresses 64 bits, results ints, in both. */
struct rt_functions {
	int (*init)(unsigned);
	int (*version)(int *);
	int (*count)(int *);
	int (*device)(int *, int);
	int (*device_name)(char *, int, int);
	int (*device_memory)(size_t *, int);
	int (*attribute)(int *, int, int);
	int (*memory_info)(size_t *, size_t *);
	int (*memory)(uint64_t *, size_t);
	int (*memory_free)(uint64_t);
	int (*pinned)(void **, size_t, unsigned);
	int (*pinned_free)(void *);
	int (*host_register)(void *, size_t, unsigned);
	int (*host_unregister)(void *);
	int (*upload)(uint64_t, const void *, size_t, void *);
	int (*download)(void *, uint64_t, size_t, void *);
	int (*copy)(uint64_t, uint64_t, size_t, void *);
	int (*fill8)(uint64_t, unsigned char, size_t, void *);
	int (*fill32)(uint64_t, unsigned, size_t, void *);
	int (*stream)(void **, unsigned);
	int (*stream_destroy)(void *);
	int (*stream_wait)(void *, void *, unsigned);
	int (*event)(void **, unsigned);
	int (*event_destroy)(void *);
	int (*event_record)(void *, void *);
	int (*event_query)(void *);
	int (*module)(void **, const void *);
	int (*module_unload)(void *);
	int (*module_function)(void **, void *, const char *);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		      void *, void **, void **);
	/* graphs; NULL where the driver has none */
	int (*capture_begin)(void *, int);
	int (*capture_end)(void *, void **);
	int (*graph_make)(void **, void *, unsigned long long);
	int (*graph_launch)(void *, void *);
	int (*graph_free)(void *); /* of what can be launched */
	int (*made_free)(void *);  /* of what was captured */
	/* MAY */
	int (*ipc_get)(struct rt_handle *, uint64_t);
	int (*ipc_open)(uint64_t *, struct rt_handle, unsigned);
	int (*ipc_close)(uint64_t);
	/* CUDA only */
	int (*context)(void **, int);
	int (*context_set)(void *);
	int (*error_name)(int, const char **);
	/* HIP only */
	int (*device_set)(int);
	const char *(*error_text)(int);
	int (*properties_6)(void *, int); /* of ROCm 6 and newer */
	int (*properties)(void *, int);
};

struct rt;
struct rt_blas;
struct rt_graphs;

/* For kernels that may run beside what the compute stream does (rt_graph.h): they wait for `fork`,
 * what is queued then waits for `join`. */
struct rt_ahead {
	void *stream, *fork, *join;
};

/* In front of the paths of the host's memory (os.h): "", or a folder in tests. */
extern const char *rt_host_root;

/* What differs: one const table each. */
struct rt_vendor {
	/* "cuda", "CUDA", variable that names the driver's library */
	const char *backend, *title, *env;
	const char *const *names;
	/* Without one of these files there is no device, whatever is installed; NULL: the driver is
	 * asked. */
	const char *const *nodes;
	const struct dl_symbol *symbols;
	size_t nsymbols;
	enum rtc_kind rtc;
	int attr_units, attr_unified;
	int64_t most_groups; /* of GPU_LANES lanes in one launch */
	struct rt_lib *lib;
	const char *(*error)(const struct rt_functions *f, int code); /* its name */
	/* makes the device the calling thread's */
	int (*enter)(struct rt *c);
	/* Fills c->arch and c->driver; for CUDA makes the context. A code of the driver. */
	int (*describe)(struct rt *c, int version);
	/* Free memory of a card that shares the host's, where the driver says `told`, and `left`
	 * can be had on the host. */
	uint64_t (*shared_free)(uint64_t told, uint64_t left);
	/* whether the driver counts what other programs hold */
	bool (*sees_others)(int version);
	/* whether graphs are used unless somebody asks for them */
	bool (*graphs)(int version);
	/* a graph is freed only when it has run */
	bool graph_must_end;
	/* whether the hardware multiplies matrices of it */
	bool (*native)(const char *arch, enum dtype t);
	/* MAY: tries the library of matrix products in another process, before this one has called
	 * the driver; false, with the reason: it ends processes. */
	bool (*trial)(const struct rt_functions *f, char *why, size_t n);
	/* A library of matrix products; NULL: there is none here. */
	int (*blas)(struct rt *c, struct rt_blas **b_p, struct err *e);
};

struct rt_lib {
	struct rt_functions f;
	int count, version;
	bool opened, no_blas; /* no_blas: its trial failed */
};

struct rt_block {
	struct gpu_named named; /* by works of the host's count (rt.order), and by transfers */
	uint64_t at;            /* address on the device */
	size_t size, asked;     /* asked: bytes that its user wants */
	uint64_t used;          /* the last work of the compute stream that names it */
	struct rt_block *next;  /* among those that nobody uses */
};

struct rt {
	const struct rt_vendor *v;
	const struct rt_functions *f;
	int device, major; /* major: of the driver's version */
	uint64_t id;       /* of this opening, for `enter` */
	void *context;
	char name[128], vendor[64], arch[64], driver[64], label[256]; /* label: "cuda:0 (NAME)" */
	const struct rtc *compiler;
	uint64_t mem_total;
	int units;
	bool unified, probed, native[RT_TYPES];

	void *compute, *copy;
	void *compute_event, *copy_event, *busy_event;
	uint64_t launched, finished; /* work of the compute stream: queued, known to have run */
	/* Kernels that run ahead; works given so far, by the host's count */
	struct rt_ahead ahead;
	struct gpu_ahead may;
	uint64_t order;
	/* How far the card is: events behind every few launches, the oldest first. Waiting counts
	 * from the last one that has happened, so that a card with much to do is not taken for one
	 * that hangs. */
	void *mark[RT_MARKS];
	uint64_t mark_at[RT_MARKS]; /* `launched` then */
	int first_mark, marks;
	int64_t progress;      /* clock_now() when the last mark was seen to have happened */
	uint64_t unmarked;     /* launches since the last mark */
	double flops;          /* of the products since then */
	uint64_t copies, seen; /* transfers: queued, waited for by the compute stream */
	uint64_t ordered;      /* work behind which all is that the copy stream gets now */
	struct rt_slot {
		char *host;
		void *event;
		bool busy;
	} slot[RT_SLOTS], back[RT_SLOTS]; /* on the way up, on the way down */
	int next_slot;
	struct rt_down { /* the download under way */
		const struct rt_block *b;
		char *dst;
		/* behind: work of the compute stream that has run when it comes */
		uint64_t src, behind;
		/* bytes: all, on the copy stream so far, at dst; n 0: there is none */
		size_t n, asked, at;
		bool direct; /* dst is pinned: all are on their way there */
	} down;
	pthread_mutex_t pin_lock;
	struct rt_pinned { /* memory of the host's that the driver knows */
		char *p;
		size_t n;
		struct rt_far *far; /* NULL: no card is at the other end */
	} * pinned;                 /* [npinned] */
	size_t npinned, pinned_cap;
	uint64_t direct; /* bytes that went to or from it */
	/* Copies between cards of two processes (rt_far.c): turned off, a refusal has been said */
	bool far_off, far_said;
	uint64_t far_bytes, far_lent; /* moved so; memory that other processes see */
	struct rt_lent *lent;
	void *far_event;
	char *far_host;
	uint64_t far_scratch;
	uint64_t busy_at;   /* `launched` when busy_event was recorded */
	int64_t busy_since; /* clock_now() of the first time it was asked for */

	struct rt_block *spare;
	uint64_t held, held_peak; /* bytes taken from the driver, in use or spare */
	uint64_t loose; /* what the driver took for blocks in use beyond what was asked for */

	struct {
		void *module;
		void *entry[GPU_ENTRIES];
	} built[RT_TYPES];
	struct rt_user *user; /* texts that are not the program's own */
	struct rt_blas *blas;
	bool blas_tried;
	struct rt_graphs *graphs; /* NULL: nothing has repeated yet */
	uint64_t replayed;        /* launches that graphs made */
	int shape[RT_TYPES];      /* of portable products: gpu_tune.h */
	int products[RT_TYPES];   /* so far, as far as they are counted */

	int64_t limit;     /* nanoseconds to wait for the device */
	bool lost;         /* it failed or hangs: nothing more is asked of it */
	const char *doing; /* the last work given to it */
};

/* rt_queue.c */
#define RT_NO_TIMING 2u                                              /* flag of an event */
#define RT_NON_BLOCKING 1u                                           /* flag of a stream */
int rt_ahead_make(const struct rt_functions *f, struct rt_ahead *h); /* a code of the driver */
void rt_ahead_free(const struct rt_functions *f, struct rt_ahead *h);
/* 0, or the error for a code of the driver, with the device's name. */
int rt_failed(struct rt *c, int code, const char *what, struct err *e);
int rt_wait(struct rt *c, void *event, struct err *e); /* until it has happened, or the limit */
/* at the beginning of every call; refuses a lost device */
int rt_enter(struct rt *c, struct err *e);
/* after each piece of work has been put on the compute stream */
int rt_queued(struct rt *c, double flops, struct err *e);
/* 1: something on the compute stream has not run; 0: all has; or an error */
int rt_under_way(struct rt *c, struct err *e);

/* rt_far.c: tensors from card to card of two processes, beside the memory that both share. */
struct rt_far;
/* For shared memory that has become known; NULL: there is nothing to be had. From any thread. */
struct rt_far *rt_far_new(struct rt *c, void *p, size_t n);
/* 1: instead of to `at` in the shared memory, the tensor goes to this address of the card's own; 0:
 * through the shared memory. */
int rt_far_send(struct rt *c, struct rt_far *f, void *at, size_t size, uint64_t *to_p,
		struct err *e);
/* How many of the bytes that should be at `at` are at an address of the other card's instead; what
 * is behind them is at its place. */
int rt_far_receive(struct rt *c, struct rt_far *f, const void *at, size_t size, uint64_t *from_p,
		   size_t *far_p, struct err *e);
/* Before the memory is unmapped, from any thread; NULL is allowed. `well`: the driver can be told
 * things. */
void rt_far_free(struct rt *c, struct rt_far *f, bool well);
void rt_far_release(struct rt *c, bool well); /* at the end, behind those */

/* rt_memory.c */
int rt_alloc(struct dev *d, struct dev_buf *b, struct err *e);
void rt_free(struct dev *d, struct dev_buf *b);
int rt_upload(struct dev *d, struct dev_ref dst, const void *src, size_t n, struct err *e);
int rt_download(struct dev *d, void *dst, struct dev_ref src, size_t n, struct err *e);
int rt_download_begin(struct dev *d, void *dst, struct dev_ref src, size_t n, struct err *e);
int rt_download_end(struct dev *d, struct err *e);
int rt_downloaded(struct rt *c, struct err *e); /* the same */
int rt_meet(struct dev *d, struct err *e);
bool rt_pin(struct dev *d, void *p, size_t n);
void rt_unpin(struct dev *d, void *p);
void rt_pins_release(struct rt *c, bool well); /* well: the driver can still be told */
int rt_copy(struct dev *d, struct dev_ref dst, struct dev_ref src, size_t n, struct err *e);
int rt_zero(struct dev *d, struct dev_ref dst, size_t n, struct err *e);
static inline struct rt_block *rt_block_of(const struct dev_buf *b)
{
	return (struct rt_block *)(uintptr_t)b->handle;
}
static inline uint64_t rt_address(struct dev_ref r) { return rt_block_of(r.buf)->at + r.off; }
/* Before work on the compute stream that names the buffer: waits, on the device, for uploads into
 * it. NULL is allowed. */
int rt_use(struct rt *c, const struct dev_buf *b, struct err *e);
int rt_use_block(struct rt *c, struct rt_block *b, struct err *e);
int rt_idle(struct rt *c, struct err *e); /* until both streams are empty */
/* Gives blocks that nobody uses back to the driver; false: there was none. */
bool rt_spare_back(struct rt *c, struct err *e);
/* Memory that belongs to no buffer. */
int rt_take(struct rt *c, size_t n, struct rt_block **b_p, struct err *e);
void rt_give(struct rt *c, struct rt_block *b);
void rt_memory_release(struct rt *c);

/* rt_program.c */
int rt_kernel(struct rt *c, enum gpu_entry n, enum dtype t, void **function_p, struct err *e);
int rt_user_kernel(struct rt *c, const struct dev_text_launch *l, void **function_p, struct err *e);
void rt_programs_release(struct rt *c);

/* rt_launch.c */
int rt_gemm(struct dev *d, const struct dev_gemm *g, struct err *e);
int rt_launch(struct dev *d, enum dev_kernel k, enum dtype t, const union dev_arg *args,
	      struct err *e);
int rt_launch_text(struct dev *d, const struct dev_text_launch *l, struct err *e);
bool rt_has(struct dev *d, enum dev_kernel k, enum dtype t);
/* whether a small product in this dtype comes out right, by the vendor's library on hardware that
 * multiplies it */
bool rt_probe(struct dev *d, enum dtype t);

/* rt_cublaslt.c, rt_rocblas.c: products by the vendor's library. A blas object is released by its
 * own function. */
struct rt_blas {
	/* 1: done, on this stream; 0: the library does not do this one; or an error */
	int (*gemm)(struct rt_blas *b, struct rt *c, const struct dev_gemm *g, void *stream,
		    struct err *e);
	/* false: it is known already that the library does not do it */
	bool (*can)(struct rt_blas *b, const struct dev_gemm *g);
	void (*release)(struct rt_blas *b, struct rt *c);
	/* The next products go to this stream; `captured`: they become a graph. It is called before
	 * the capture begins, as libraries ask the driver about a stream that they are given. While
	 * it lasts no kernel can be chosen, so a product that is not done then is not remembered as
	 * one that the library lacks. */
	bool (*use)(struct rt_blas *b, void *stream, bool captured);
};
int rt_cublaslt(struct rt *c, struct rt_blas **b_p, struct err *e);
int rt_rocblas(struct rt *c, struct rt_blas **b_p, struct err *e);
bool rt_rocblas_trial(const struct rt_functions *f, char *why, size_t n);

/* rt.c */
int rt_count(const struct rt_vendor *v, struct err *e);
/* `best` for a card with memory of its own, or where there is none such among these; else 0. */
int rt_rank(const struct rt_vendor *v, int index, int best);
int rt_open(const struct rt_vendor *v, struct dev *d, int index, struct err *e);
void rt_close(struct dev *d);
int rt_caps(struct dev *d, struct dev_caps *caps_p, struct err *e);
int rt_sync(struct dev *d, struct err *e);
int rt_busy(struct dev *d, struct err *e);

#endif
