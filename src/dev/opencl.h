/* opencl.h - what the files of the OpenCL backend share: the library with its list of devices, an open device, its programs. */
#ifndef HS_DEV_OPENCL_H
#define HS_DEV_OPENCL_H

#include "dev/cl.h"
#include "dev/dev_watch.h"
#include "dev/gpu.h"

struct err;

#define OPENCL_MARKS 64
#define OPENCL_PIECES 4
#define OPENCL_PIECE ((size_t)4 << 20)
#define OPENCL_MOST 64 /* devices of a machine that are listed */

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
	cl_context context;
	cl_queue queue;
	struct {
		cl_program program;
		cl_kernel kernel[GPU_ENTRIES]; /* made at first use */
	} built[DT_F16 + 1];                   /* by dtype of activations */
	cl_mem none;                           /* stands for buffers that are not given */
	uint64_t mem_total, mem_largest;
	/* How far the device is: an event behind every few launches, the oldest first. Waiting for one after the other tells a device that
	 * has much to do from one that hangs. */
	cl_event mark[OPENCL_MARKS];
	int marks, first_mark;
	int queued;   /* launches since the last mark */
	double flops; /* of the products since then */
	bool lost;
	/* Pieces of host memory the device can read by itself: an upload leaves its bytes there and does not wait for what is queued. */
	struct opencl_piece {
		cl_mem mem;
		void *host;
		cl_event taken; /* the device has read it; NULL: it is free */
	} piece[OPENCL_PIECES];
	int next_piece;
	bool no_pieces; /* the driver gives none */
	struct dev_watch watch;
	char name[128], vendor[64], driver[64], options[512];
	char who[160];          /* in messages: "opencl:0 (AMD Radeon ...)" */
	bool probed, f16, blas; /* blas: products by CLBlast */
};

/* opencl_lib.c */
int opencl_lib_open(const struct opencl_lib **lib_p, struct err *e); /* no library: 0 devices, no error */
const char *opencl_error(int32_t code);                              /* the specification's name for it, or a number */
/* A text about the device; empty where it gives none. */
void opencl_text(const struct opencl_lib *l, cl_device d, uint32_t what, char *s, size_t n);
uint64_t opencl_number(const struct opencl_lib *l, cl_device d, uint32_t what, size_t size); /* 0 where it gives none */
bool opencl_is_cpu(const struct opencl_lib *l, int index);                                   /* neither a GPU nor an accelerator */

/* opencl_program.c */
/* The kernel of one entry point for activations in `t`; compiled, or read from the cache, at the first call. */
int opencl_kernel(struct opencl *c, enum gpu_entry n, enum dtype t, cl_kernel *k_p, struct err *e);
/* Builds any text; errors name the device, the first lines of the compiler's log and the file that holds all of it. */
int opencl_build(struct opencl *c, const char *text, size_t n, cl_program *p_p, struct err *e);
void opencl_programs_release(struct opencl *c);

/* opencl_blas.c */
bool opencl_blas_use(void); /* whether CLBlast is there, and wanted */
/* False: it does not do this product, and has queued nothing. */
bool opencl_blas_gemm(struct opencl *c, const struct dev_gemm *g);

#endif
