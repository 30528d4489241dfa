/* SPDX-License-Identifier: Apache-2.0 */
/* fake_rt.c - a stand-in for a card with its driver, compiler and product library, by CUDA's names
 * and by HIP's: HS_CUDA_LIBRARY, HS_NVRTC_LIBRARY, HS_CUBLASLT_LIBRARY, HS_HIP_LIBRARY,
 * HS_HIPRTC_LIBRARY, HS_ROCBLAS_LIBRARY may all name it.
 *
 * It shows what the host does, not what a card does. Work is put off as long as the interface
 * allows: a stream runs only when somebody asks for an event behind it, so a wait that is missing
 * gives wrong numbers here every time. Kernels are the real text compiled as C (fake_kernels.c), a
 * work-group being 128 fibers; a barrier that not all lanes reach ends the process.
 *
 * FAKE_RT says what goes wrong, in words separated by blanks:
 *   devices=N  memory=MIB  others=MIB  arch=86  driver=13000  rtc=13
 *   init=CODE  hang=N (the Nth launch never ends) lost=N (nor does it, and the driver says so)
 *              compile noalgo noblas
 * Built with -DMISSING it lacks what starts a kernel. */
#include "base/dtype.h"
#include "entry_sig.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

enum {
	OK = 0,
	INVALID = 1,
	OUT_OF_MEMORY = 2,
	NO_DEVICE = 100,
	NOT_FOUND = 500,
	NOT_READY = 600,
	ILLEGAL = 700,
	LANES = 128,
	MOST_ARGS = 64
};

#define EXPORT __attribute__((visibility("default")))

static long fault(const char *word, long otherwise)
{
	const char *s = getenv("FAKE_RT");
	const size_t n = strlen(word);
	for (; s && *s; s += strcspn(s, " "), s += strspn(s, " "))
		if (!strncmp(s, word, n) && (!s[n] || s[n] == ' ' || s[n] == '='))
			return s[n] == '=' ? atol(s + n + 1) : 1;
	return otherwise;
}

/* ---- streams ---- */
struct stream;
struct op {
	struct op *next;
	enum { COPY, FILL8, FILL32, WAIT, LAUNCH, GEMM } kind;
	char *to;
	const char *from;
	size_t n;
	unsigned value;
	struct stream *stream; /* to wait for */
	uint64_t at;
	void (*fn)(void);
	void *library;
	unsigned groups;
	long number; /* of the launch, from 1 */
	uint64_t ints[MOST_ARGS];
	float floats[8];
	struct product {
		int ta, tb, ab, c;
		int64_t m, n, k, lda, ldb, ldc;
		const char *a, *b;
		char *to;
		float alpha, beta;
	} product;
};

struct stream {
	struct op *first, **last;
	uint64_t put, done;
	struct stream *next;
};

struct event {
	struct stream *stream;
	uint64_t at;
	int asked;
};

static struct stream *streams;
static long launches;

/* ---- a work-group ---- */
static struct {
	ucontext_t fiber[LANES];
	/* fibers change by jumps: contexts would ask the kernel each time */
	jmp_buf back, at[LANES];
	bool begun[LANES];
	int state[LANES]; /* 0: to begin, 1: at a barrier, 2: at its end */
	int now;
	const struct op *op;
	struct lane {
		unsigned x;
	} * thread, *block;
} group;

static void barrier(void)
{
	const int i = group.now;
	group.state[i] = 1;
	if (!_setjmp(group.at[i]))
		_longjmp(group.back, 1);
}

/* On x86-64 and AArch64 integers and floats are handed over apart from each other, each in its own
 * order, so one call fits all kernels. */
static void fiber(void)
{
	for (;;) {
		const uint64_t *i = group.op->ints;
		const float *f = group.op->floats;
		typedef void (*kernel)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
				       uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
				       uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
				       uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
				       uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
				       uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
				       float, float, float, float, float, float, float, float);
		((kernel)group.op->fn)(
			i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7], i[8], i[9], i[10], i[11],
			i[12], i[13], i[14], i[15], i[16], i[17], i[18], i[19], i[20], i[21], i[22],
			i[23], i[24], i[25], i[26], i[27], i[28], i[29], i[30], i[31], i[32], i[33],
			i[34], i[35], f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]);
		group.state[group.now] = 2;
		if (!_setjmp(group.at[group.now]))
			_longjmp(group.back, 1);
	}
}

/* Lane i runs to its next barrier, or its end. */
static void run_lane(int i)
{
	group.now = i;
	group.thread->x = (unsigned)i;
	if (_setjmp(group.back))
		return;
	if (group.begun[i])
		_longjmp(group.at[i], 1);
	group.begun[i] = true;
	setcontext(&group.fiber[i]);
}

static void run_group(unsigned block)
{
	for (int i = 0; i < LANES; i++)
		group.state[i] = 0;
	group.block->x = block;
	for (int waiting = LANES; waiting;) {
		waiting = 0;
		for (int k = 0; k < LANES; k++) {
			/* no order of lanes may be relied on */
			const int i = block & 1 ? LANES - 1 - k : k;
			if (group.state[i] == 2) {
				fprintf(stderr, "fake_rt: a barrier that lane %d does not reach\n",
					i);
				abort();
			}
			run_lane(i);
			waiting += group.state[i] == 1;
		}
		if (waiting && waiting != LANES) {
			fprintf(stderr,
				"fake_rt: %d of %d lanes wait at a barrier, the others have "
				"ended\n",
				waiting, LANES);
			abort();
		}
	}
}

static void run_launch(const struct op *o)
{
	static char *stacks;
	enum { STACK = 256 << 10 };
	if (!stacks) {
		stacks = malloc((size_t)LANES * STACK);
		for (int i = 0; i < LANES; i++) {
			getcontext(&group.fiber[i]);
			group.fiber[i].uc_stack.ss_sp = stacks + (size_t)i * STACK;
			group.fiber[i].uc_stack.ss_size = STACK;
			makecontext(&group.fiber[i], fiber, 0);
		}
	}
	group.op = o;
	group.thread = dlsym(o->library, "fake_thread");
	group.block = dlsym(o->library, "fake_block");
	*(void (**)(void))dlsym(o->library, "fake_barrier") = barrier;
	for (unsigned b = 0; b < o->groups; b++)
		run_group(b);
}

/* ---- products, columns first as the libraries have it ---- */
static enum dtype dtype_of(int type) { return type == 0 ? DT_F32 : type == 14 ? DT_BF16 : DT_F16; }

/* op(X) as it lies, row after row (of `cols`), in float32. */
static float *unfold(const char *p, int type, bool t, int64_t rows, int64_t cols, int64_t ld)
{
	const unsigned z = dtype_size(dtype_of(type));
	float *x = malloc((size_t)(rows * cols) * sizeof *x);
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < cols; j++)
			dtype_to_f32(dtype_of(type), p + (t ? j + i * ld : i + j * ld) * z,
				     &x[i * cols + j], 1);
	return x;
}

static void run_product(const struct product *p)
{
	const enum dtype t = dtype_of(p->c);
	float *a = unfold(p->a, p->ab, p->ta, p->m, p->k, p->lda),
	      *b = unfold(p->b, p->ab, !p->tb, p->n, p->k, p->ldb);
	for (int64_t j = 0; j < p->n; j++)
		for (int64_t i = 0; i < p->m; i++) {
			char *to = p->to + (i + j * p->ldc) * dtype_size(t);
			float sum = 0, old = 0;
			for (int64_t l = 0; l < p->k; l++)
				sum += a[i * p->k + l] * b[j * p->k + l];
			if (p->beta != 0)
				dtype_to_f32(t, to, &old, 1);
			sum = p->alpha * sum + (p->beta != 0 ? p->beta * old : 0);
			dtype_from_f32(t, &sum, to, 1);
		}
	free(a);
	free(b);
}

static int trouble(const struct op *o)
{
	const long hang = fault("hang", 0), lost = fault("lost", 0);
	return o->kind != LAUNCH           ? OK
	       : hang && o->number >= hang ? NOT_READY
	       : lost && o->number >= lost ? ILLEGAL
					   : OK;
}

static int run_until(struct stream *s, uint64_t at)
{
	while (s->done < at) {
		struct op *o = s->first;
		const int bad = trouble(o);
		if (bad)
			return bad;
		if (o->kind == COPY)
			memcpy(o->to, o->from, o->n);
		else if (o->kind == FILL8)
			memset(o->to, (int)o->value, o->n);
		else if (o->kind == FILL32)
			for (size_t i = 0; i < o->n; i++)
				memcpy(o->to + 4 * i, &o->value, 4);
		else if (o->kind == LAUNCH)
			run_launch(o);
		else if (o->kind == GEMM)
			run_product(&o->product);
		else if (o->stream) {
			const int rc = run_until(o->stream, o->at);
			if (rc)
				return rc;
		}
		s->first = o->next;
		if (!s->first)
			s->last = &s->first;
		s->done++;
		free(o);
	}
	return OK;
}

static void run_all(void)
{
	for (struct stream *s = streams; s; s = s->next)
		run_until(s, s->put);
}

static struct op *put(struct stream *s, int kind)
{
	struct op *o = calloc(1, sizeof *o);
	o->kind = kind;
	*s->last = o;
	s->last = &o->next;
	s->put++;
	return o;
}

/* ---- memory ---- */
static struct piece {
	char *at;
	size_t n;
	struct piece *next;
} * pieces;
static size_t held;

static bool inside(uint64_t at, size_t n)
{
	for (const struct piece *p = pieces; p; p = p->next)
		if (at >= (uint64_t)(uintptr_t)p->at && at + n <= (uint64_t)(uintptr_t)p->at + p->n)
			return true;
	return false;
}

static size_t total(void) { return (size_t)fault("memory", 1024) << 20; }
static size_t others(void) { return (size_t)fault("others", 0) << 20; }

static int x_memory(uint64_t *at, size_t n)
{
	if (held + others() + n > total())
		return OUT_OF_MEMORY;
	struct piece *p = malloc(sizeof *p);
	*p = (struct piece){ aligned_alloc(512, (n + 511) / 512 * 512), n, pieces };
	memset(p->at, 0xff, n); /* numbers that are none */
	pieces = p;
	held += n;
	*at = (uint64_t)(uintptr_t)p->at;
	return OK;
}

static int x_memory_free(uint64_t at)
{
	run_all();
	for (struct piece **p = &pieces; *p; p = &(*p)->next)
		if ((uint64_t)(uintptr_t)(*p)->at == at) {
			struct piece *gone = *p;
			*p = gone->next;
			held -= gone->n;
			free(gone->at);
			free(gone);
			return OK;
		}
	return INVALID;
}

static int x_memory_info(size_t *left, size_t *all)
{
	*all = total();
	*left = total() > others() + held ? total() - others() - held : 0;
	return OK;
}

static int x_pinned(void **p, size_t n, unsigned flags)
{
	(void)flags;
	*p = malloc(n);
	return OK;
}

static int x_pinned_free(void *p)
{
	run_all();
	free(p);
	return OK;
}

static int x_move(char *to, const char *from, size_t n, struct stream *s, bool to_device,
		  bool from_device)
{
	if ((to_device && !inside((uint64_t)(uintptr_t)to, n)) ||
	    (from_device && !inside((uint64_t)(uintptr_t)from, n)))
		return INVALID;
	struct op *o = put(s, COPY);
	o->to = to;
	o->from = from;
	o->n = n;
	return OK;
}

static int x_upload(uint64_t to, const void *from, size_t n, void *s)
{
	return x_move((char *)(uintptr_t)to, from, n, s, true, false);
}

static int x_download(void *to, uint64_t from, size_t n, void *s)
{
	return x_move(to, (const char *)(uintptr_t)from, n, s, false, true);
}

static int x_copy(uint64_t to, uint64_t from, size_t n, void *s)
{
	if (to < from + n && from < to + n)
		return INVALID; /* undefined with a real driver */
	return x_move((char *)(uintptr_t)to, (const char *)(uintptr_t)from, n, s, true, true);
}

static int x_fill(uint64_t to, unsigned value, size_t n, void *s, int kind)
{
	if (!inside(to, kind == FILL32 ? 4 * n : n) || (kind == FILL32 && to % 4))
		return INVALID;
	struct op *o = put(s, kind);
	o->to = (char *)(uintptr_t)to;
	o->value = value;
	o->n = n;
	return OK;
}

/* ---- device, streams, events ---- */
static int x_init(unsigned flags)
{
	(void)flags;
	return (int)fault("init", OK);
}

static int x_count(int *n)
{
	*n = (int)fault("devices", 1);
	return *n ? OK : NO_DEVICE;
}

static int x_device(int *d, int i)
{
	*d = i;
	return OK;
}

static int x_name(char *s, int n, int d)
{
	snprintf(s, (size_t)n, "Fake card %d", d);
	return OK;
}

static int x_total(size_t *n, int d)
{
	(void)d;
	*n = total();
	return OK;
}

static int x_attribute(int *v, int what, int d)
{
	const int arch = (int)fault("arch", 86);
	(void)d;
	*v = what == 75 ? arch / 10 : what == 76 ? arch % 10 : what == 16 || what == 63 ? 4 : 0;
	return OK;
}

static int x_stream(void **s, unsigned flags)
{
	struct stream *n = calloc(1, sizeof *n);
	(void)flags;
	n->last = &n->first;
	n->next = streams;
	*s = streams = n;
	return OK;
}

static int x_stream_destroy(void *s)
{
	(void)s; /* its work may still be asked for */
	return OK;
}

static int x_stream_wait(void *s, void *event, unsigned flags)
{
	const struct event *v = event;
	(void)flags;
	if (v->stream && v->stream != s) {
		struct op *o = put(s, WAIT);
		o->stream = v->stream;
		o->at = v->at;
	}
	return OK;
}

static int x_event(void **e, unsigned flags)
{
	(void)flags;
	*e = calloc(1, sizeof(struct event));
	return OK;
}

static int x_event_destroy(void *e)
{
	free(e);
	return OK;
}

static int x_event_record(void *event, void *s)
{
	struct event *v = event;
	*v = (struct event){ s, ((struct stream *)s)->put, 0 };
	return OK;
}

static int x_event_query(void *event)
{
	struct event *v = event;
	if (!v->stream)
		return OK;
	return v->asked++ ? run_until(v->stream, v->at) : NOT_READY;
}

/* ---- programs: the "code" is the text ---- */
struct module {
	char *text;
	void *library;
};

struct function {
	struct module *module;
	void (*fn)(void);
	char sig[MOST_ARGS];
};

static int x_module(void **m, const void *image)
{
	char path[4096];
	Dl_info me;
	if (strncmp(image, "#define HS_T ", 13) || !dladdr((void *)(uintptr_t)x_module, &me))
		return 200;
	snprintf(path, sizeof path, "%.*s/fake_kernels_%c.so",
		 (int)(strrchr(me.dli_fname, '/') - me.dli_fname), me.dli_fname,
		 ((const char *)image)[13]);
	struct module *n = calloc(1, sizeof *n);
	n->text = strdup(image);
	n->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!n->library)
		fprintf(stderr, "fake_rt: %s\n", dlerror());
	*m = n;
	return n->library ? OK : 200;
}

static int x_module_unload(void *m)
{
	run_all();
	free(((struct module *)m)->text);
	free(m);
	return OK;
}

static int x_module_function(void **f, void *m, const char *name)
{
	struct function *n = calloc(1, sizeof *n);
	n->module = m;
	*(void **)&n->fn = dlsym(n->module->library, name);
	*f = n;
	return n->fn && entry_signature(n->module->text, name, n->sig, sizeof n->sig) ? OK
										      : NOT_FOUND;
}

static int x_launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
		    unsigned bz, unsigned shared, void *s, void **params, void **extra)
{
	const struct function *n = f;
	if (!gx || gy != 1 || gz != 1 || bx != LANES || by != 1 || bz != 1 || shared || extra)
		return INVALID;
	struct op *o = put(s, LAUNCH);
	int ni = 0, nf = 0;
	o->fn = n->fn;
	o->library = n->module->library;
	o->groups = gx;
	o->number = ++launches;
	for (int i = 0; n->sig[i]; i++) {
		if (n->sig[i] == 'f') {
			memcpy(&o->floats[nf++], params[i], sizeof(float));
			continue;
		}
		memcpy(&o->ints[ni++], params[i], sizeof(uint64_t));
		if (n->sig[i] == 'p' && o->ints[ni - 1] && !inside(o->ints[ni - 1], 1))
			return INVALID;
	}
	return ni <= 36 && nf <= 8 ? OK : INVALID;
}

/* ---- the compiler ---- */
static int c_create(void **p, const char *text, const char *name, int n, const char *const *h,
		    const char *const *i)
{
	(void)name, (void)n, (void)h, (void)i;
	*p = strdup(text);
	return OK;
}

static int c_destroy(void **p)
{
	free(*p);
	return OK;
}

static const char compiler_log[] =
	"heteroshard.cu(7): error: the first line\nthe second\nthe third\nthe fourth\n";

static int c_compile(void *p, int n, const char *const *options)
{
	(void)p, (void)n, (void)options;
	return fault("compile", 0) ? 6 : OK;
}

static int c_log_size(void *p, size_t *n)
{
	(void)p;
	*n = fault("compile", 0) ? sizeof compiler_log : 0;
	return OK;
}

static int c_log(void *p, char *s)
{
	(void)p;
	memcpy(s, compiler_log, sizeof compiler_log);
	return OK;
}

static int c_size(void *p, size_t *n)
{
	*n = strlen(p) + 1;
	return OK;
}

static int c_code(void *p, char *s)
{
	memcpy(s, p, strlen(p) + 1);
	return OK;
}

static int c_version(int *major, int *minor)
{
	*major = (int)fault("rtc", 13);
	*minor = 99; /* what it makes must not be taken for real code */
	return OK;
}

/* ---- by CUDA's names and by HIP's ---- */
#define BOTH(cuda, hip, params, call)                                                              \
	EXPORT int cuda params;                                                                    \
	EXPORT int cuda params { return call; }                                                    \
	EXPORT int hip params;                                                                     \
	EXPORT int hip params { return call; }
#define ONE(name, params, call)                                                                    \
	EXPORT int name params;                                                                    \
	EXPORT int name params { return call; }

BOTH(cuInit, hipInit, (unsigned f), x_init(f))
BOTH(cuDeviceGetCount, hipGetDeviceCount, (int *n), x_count(n))
BOTH(cuDeviceGet, hipDeviceGet, (int *d, int i), x_device(d, i))
BOTH(cuDeviceGetName, hipDeviceGetName, (char *s, int n, int d), x_name(s, n, d))
BOTH(cuDeviceTotalMem_v2, hipDeviceTotalMem, (size_t * n, int d), x_total(n, d))
BOTH(cuDeviceGetAttribute, hipDeviceGetAttribute, (int *v, int w, int d), x_attribute(v, w, d))
BOTH(cuMemGetInfo_v2, hipMemGetInfo, (size_t * f, size_t *t), x_memory_info(f, t))
BOTH(cuMemAlloc_v2, hipMalloc, (uint64_t * p, size_t n), x_memory(p, n))
BOTH(cuMemFree_v2, hipFree, (uint64_t p), x_memory_free(p))
BOTH(cuMemHostAlloc, hipHostMalloc, (void **p, size_t n, unsigned f), x_pinned(p, n, f))
BOTH(cuMemFreeHost, hipHostFree, (void *p), x_pinned_free(p))
BOTH(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync, (uint64_t t, const void *f, size_t n, void *s),
     x_upload(t, f, n, s))
BOTH(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync, (void *t, uint64_t f, size_t n, void *s),
     x_download(t, f, n, s))
BOTH(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync, (uint64_t t, uint64_t f, size_t n, void *s),
     x_copy(t, f, n, s))
BOTH(cuMemsetD8Async, hipMemsetD8Async, (uint64_t t, unsigned char v, size_t n, void *s),
     x_fill(t, v, n, s, FILL8))
BOTH(cuMemsetD32Async, hipMemsetD32Async, (uint64_t t, unsigned v, size_t n, void *s),
     x_fill(t, v, n, s, FILL32))
BOTH(cuStreamCreate, hipStreamCreateWithFlags, (void **s, unsigned f), x_stream(s, f))
BOTH(cuStreamDestroy_v2, hipStreamDestroy, (void *s), x_stream_destroy(s))
BOTH(cuStreamWaitEvent, hipStreamWaitEvent, (void *s, void *e, unsigned f), x_stream_wait(s, e, f))
BOTH(cuEventCreate, hipEventCreateWithFlags, (void **e, unsigned f), x_event(e, f))
BOTH(cuEventDestroy_v2, hipEventDestroy, (void *e), x_event_destroy(e))
BOTH(cuEventRecord, hipEventRecord, (void *e, void *s), x_event_record(e, s))
BOTH(cuEventQuery, hipEventQuery, (void *e), x_event_query(e))
BOTH(cuModuleLoadData, hipModuleLoadData, (void **m, const void *p), x_module(m, p))
BOTH(cuModuleUnload, hipModuleUnload, (void *m), x_module_unload(m))
BOTH(cuModuleGetFunction, hipModuleGetFunction, (void **f, void *m, const char *s),
     x_module_function(f, m, s))
#ifdef MISSING
void *fake_launch(void);
void *fake_launch(void) { return (void *)(uintptr_t)x_launch; }
#else
BOTH(cuLaunchKernel, hipModuleLaunchKernel,
     (void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned g, unsigned h, unsigned n,
      void *s, void **p, void **x),
     x_launch(f, a, b, c, d, g, h, n, s, p, x))
#endif
BOTH(nvrtcVersion, hiprtcVersion, (int *a, int *b), c_version(a, b))
BOTH(nvrtcCreateProgram, hiprtcCreateProgram,
     (void **p, const char *t, const char *s, int n, const char *const *h, const char *const *i),
     c_create(p, t, s, n, h, i))
BOTH(nvrtcDestroyProgram, hiprtcDestroyProgram, (void **p), c_destroy(p))
BOTH(nvrtcCompileProgram, hiprtcCompileProgram, (void *p, int n, const char *const *o),
     c_compile(p, n, o))
BOTH(nvrtcGetProgramLogSize, hiprtcGetProgramLogSize, (void *p, size_t *n), c_log_size(p, n))
BOTH(nvrtcGetProgramLog, hiprtcGetProgramLog, (void *p, char *s), c_log(p, s))
BOTH(nvrtcGetCUBINSize, hiprtcGetCodeSize, (void *p, size_t *n), c_size(p, n))
BOTH(nvrtcGetCUBIN, hiprtcGetCode, (void *p, char *s), c_code(p, s))
ONE(nvrtcGetPTXSize, (void *p, size_t *n), c_size(p, n))
ONE(nvrtcGetPTX, (void *p, char *s), c_code(p, s))

EXPORT const char *nvrtcGetErrorString(int code);
EXPORT const char *nvrtcGetErrorString(int code)
{
	return code == 6 ? "NVRTC_ERROR_COMPILATION" : "an error";
}
EXPORT const char *hiprtcGetErrorString(int code);
EXPORT const char *hiprtcGetErrorString(int code)
{
	return code == 6 ? "HIPRTC_ERROR_COMPILATION" : "an error";
}

static const int archs[] = { 75, 80, 86, 90 };
ONE(nvrtcGetNumSupportedArchs, (int *n), (*n = 4, OK))
ONE(nvrtcGetSupportedArchs, (int *a), (memcpy(a, archs, sizeof archs), OK))
ONE(cuDriverGetVersion, (int *v), (*v = (int)fault("driver", 13000), OK))
ONE(hipDriverGetVersion, (int *v), (*v = 50200000, OK))
ONE(cuDevicePrimaryCtxRetain, (void **c, int d), (*c = (void *)(uintptr_t)(d + 1), OK))
ONE(cuDevicePrimaryCtxRelease_v2, (int d), (d >= 0 ? OK : INVALID))
ONE(cuCtxSetCurrent, (void *c), (c ? OK : INVALID))
ONE(hipSetDevice, (int d), (d >= 0 ? OK : INVALID))
ONE(hipGetDeviceProperties, (void *p, int d),
    (snprintf((char *)p, 256, "Fake card %d", d), strcpy((char *)p + 396, "gfx90a:sramecc+"), OK))

static const char *name_of(int code)
{
	return code == OUT_OF_MEMORY ? "OUT_OF_MEMORY"
	       : code == ILLEGAL     ? "ILLEGAL_ADDRESS"
	       : code == 999         ? "UNKNOWN"
				     : "SOME_ERROR";
}
ONE(cuGetErrorName, (int code, const char **s), (*s = name_of(code), OK))
EXPORT const char *hipGetErrorName(int code);
EXPORT const char *hipGetErrorName(int code) { return name_of(code); }

/* ---- product libraries ---- */
static char handle;
struct desc {
	int32_t op[8];
};
struct layout {
	int type;
	int64_t rows, cols, ld;
};

static int enqueue(const struct product *p, void *s)
{
	put(s, GEMM)->product = *p;
	return OK;
}

static int l_layout(void **l, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
	struct layout *n = malloc(sizeof *n);
	*n = (struct layout){ type, (int64_t)rows, (int64_t)cols, ld };
	*l = n;
	return ld >= (int64_t)rows ? OK : 7;
}

static int l_ask(const struct desc *d, const struct layout *a, const struct layout *b,
		 const struct layout *c, char *results, int *found)
{
	const int64_t m = d->op[3] ? a->cols : a->rows, k = d->op[3] ? a->rows : a->cols;
	const int64_t k2 = d->op[4] ? b->cols : b->rows, n = d->op[4] ? b->rows : b->cols;
	*found = 0;
	if (m != c->rows || n != c->cols || k != k2)
		return 7;
	if (fault("noalgo", 0))
		return 15;
	memset(results, 0, 96);
	*found = 1;
	return OK;
}

static int l_matmul(const struct desc *d, const float *alpha, const char *a,
		    const struct layout *la, const char *b, const struct layout *lb,
		    const float *beta, char *c, const struct layout *lc, void *s)
{
	const struct product p = { .ta = d->op[3],
				   .tb = d->op[4],
				   .ab = la->type,
				   .c = lc->type,
				   .m = lc->rows,
				   .n = lc->cols,
				   .k = d->op[3] ? la->rows : la->cols,
				   .lda = la->ld,
				   .ldb = lb->ld,
				   .ldc = lc->ld,
				   .a = a,
				   .b = b,
				   .to = c,
				   .alpha = *alpha,
				   .beta = *beta };
	return enqueue(&p, s);
}

ONE(cublasLtCreate, (void **h), (*h = &handle, fault("noblas", 0) ? 1 : OK))
ONE(cublasLtDestroy, (void *h), (h ? OK : INVALID))
ONE(cublasLtMatmulDescCreate, (void **d, int compute, int scale),
    (*d = calloc(1, sizeof(struct desc)), compute == 68 && scale == 0 ? OK : INVALID))
ONE(cublasLtMatmulDescDestroy, (void *d), (free(d), OK))
ONE(cublasLtMatmulDescSetAttribute, (void *d, int what, const void *v, size_t n),
    (memcpy(&((struct desc *)d)->op[what & 7], v, n),
     n == 4 && (what == 3 || what == 4) ? OK : INVALID))
ONE(cublasLtMatrixLayoutCreate, (void **l, int t, uint64_t r, uint64_t c, int64_t ld),
    l_layout(l, t, r, c, ld))
ONE(cublasLtMatrixLayoutDestroy, (void *l), (free(l), OK))
ONE(cublasLtMatmulPreferenceCreate, (void **p), (*p = &handle, OK))
ONE(cublasLtMatmulPreferenceDestroy, (void *p), (p ? OK : INVALID))
ONE(cublasLtMatmulPreferenceSetAttribute, (void *p, int what, const void *v, size_t n),
    (p && v && (what == 1 ? n == 8 : what >= 5 && what <= 8 && n == 4) ? OK : INVALID))
ONE(cublasLtMatmulAlgoGetHeuristic,
    (void *h, void *d, void *a, void *b, void *c, void *o, void *p, int n, void *results,
     int *found),
    (h && p && n > 0 && c == o ? l_ask(d, a, b, c, results, found) : INVALID))
ONE(cublasLtMatmul,
    (void *h, void *d, const void *alpha, const void *a, void *la, const void *b, void *lb,
     const void *beta, const void *c, void *lc, void *to, void *lo, const void *algo, void *work,
     size_t nwork, void *s),
    (h && algo && c == to && lc == lo && inside((uint64_t)(uintptr_t)work, nwork)
	     ? l_matmul(d, alpha, a, la, b, lb, beta, to, lc, s)
	     : INVALID))

static void *rocblas_stream;
static int roc_type(int t) { return t == 151 ? 0 : t == 168 ? 14 : 2; }
static int r_gemm(int ta, int tb, int m, int n, int k, const float *alpha, const char *a, int ab,
		  int lda, const char *b, int ldb, const float *beta, char *c, int ct, int ldc)
{
	const struct product p = { .ta = ta == 112,
				   .tb = tb == 112,
				   .ab = roc_type(ab),
				   .c = roc_type(ct),
				   .m = m,
				   .n = n,
				   .k = k,
				   .lda = lda,
				   .ldb = ldb,
				   .ldc = ldc,
				   .a = a,
				   .b = b,
				   .to = c,
				   .alpha = *alpha,
				   .beta = *beta };
	return enqueue(&p, rocblas_stream);
}
ONE(rocblas_create_handle, (void **h), (*h = &handle, fault("noblas", 0) ? 1 : OK))
ONE(rocblas_destroy_handle, (void *h), (h ? OK : INVALID))
ONE(rocblas_set_atomics_mode, (void *h, int mode), (h && !mode ? OK : INVALID))
ONE(rocblas_set_stream, (void *h, void *s), (rocblas_stream = s, h ? OK : INVALID))
ONE(rocblas_gemm_ex,
    (void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at,
     int lda, const void *b, int bt, int ldb, const void *beta, const void *c, int ct, int ldc,
     void *d, int dt, int ldd, int compute, int algo, int solution, unsigned flags),
    (h && at == bt && c == d && ct == dt && ldc == ldd && compute == 151 && !algo && !solution &&
		     !flags
	     ? r_gemm(ta, tb, m, n, k, alpha, a, at, lda, b, ldb, beta, d, ct, ldc)
	     : INVALID))
