/* SPDX-License-Identifier: Apache-2.0 */
/* fake_work.h - what the streams of the stand-in in fake_rt.c hold, and how a kernel or a
 * product of theirs is computed: a work-group is 128 fibers. */
#ifndef HS_TESTS_DRIVERS_FAKE_WORK_H
#define HS_TESTS_DRIVERS_FAKE_WORK_H

/* ---- streams ---- */
struct stream;
struct graph;
struct function;
struct op {
	struct op *next;
	enum { COPY, FILL8, FILL32, WAIT, LAUNCH, GEMM } kind;
	char *to;
	const char *from;
	size_t n;
	bool wrong; /* other bytes arrive */
	bool lost;  /* it never ends, and the card is gone */
	unsigned value;
	struct stream *stream; /* to wait for */
	int lane, of;          /* of a graph: whose work it is, and whose is waited for */
	uint64_t at;
	const struct function *function;
	void (*fn)(void);
	void *library;
	unsigned groups;
	long number;   /* of the launch, from 1 */
	int64_t begun; /* now_ms() when its turn came; 0: not yet */
	uint64_t ints[MOST_ARGS];
	float floats[8];
	struct product {
		int ta, tb, ab, c;
		int64_t m, n, k, lda, ldb, ldc;
		const char *a, *b, *from; /* from: what is added, beta times */
		char *to;
		float alpha, beta;
		bool split; /* k in two halves, added in the output's dtype */
	} product;
};

struct stream {
	struct owner owner;
	struct op *first, **last;
	uint64_t put, done;
	struct graph *captured; /* work goes there; NULL: it is run */
	/* Which capture, from 1; 0: none. In it: works so far; how many of them another of its
	 * streams waits for; which of its streams this is, the first one 0 */
	uint64_t capture, kept, waited;
	int lane;
	bool later, gone; /* later: not the first of its device */
	bool broken;      /* something has failed in the capture */
	bool relaxed;     /* the thread may do meanwhile what would not be captured */
	struct stream *next;
};

struct event {
	struct owner owner;
	struct stream *stream;
	uint64_t at;
	int asked;
	uint64_t capture; /* that it belongs to */
};

static struct stream *streams;
static long launches;

/* ---- a work-group ---- */
typedef void *place[5]; /* of __builtin_setjmp() */
static struct {
	ucontext_t fiber[LANES];
	/* fibers switch by jumps: a switch of contexts would call the kernel each time */
	place back, at[LANES];
	bool begun[LANES];
	/* 0: can run, 1: at a barrier, 2: at its end, 3: waits for the others of its wave */
	int state[LANES];
	int now, wave;
	const struct op *op;
	struct lane {
		unsigned x;
	} * thread, *block;
	char *shared;
	size_t nshared;
} group;

/* The compiler's: the C library's keeps account of clean-ups, and takes longer than a lane runs. It
 * may not stand in the function that it returns to. */
static void __attribute__((noinline, noreturn)) jump(place to) { __builtin_longjmp(to, 1); }

static void stop(int state)
{
	const int i = group.now;
	group.state[i] = state;
	if (!__builtin_setjmp(group.at[i]))
		jump(group.back);
}
static void barrier(void) { stop(1); }
static void wave(int lanes)
{
	group.wave = lanes;
	stop(3);
}

/* On x86-64 and AArch64 integers and floats are passed in separate registers, each kind in its own
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
		if (!__builtin_setjmp(group.at[group.now]))
			jump(group.back);
	}
}

/* Lane i runs to its next barrier, or its end. */
static void run_lane(int i)
{
	group.now = i;
	group.thread->x = (unsigned)i;
	if (__builtin_setjmp(group.back))
		return;
	if (group.begun[i])
		jump(group.at[i]);
	group.begun[i] = true;
	setcontext(&group.fiber[i]);
}

/* Lanes in a state, of n from the first on */
static int count(int first, int n, int state)
{
	int found = 0;
	for (int i = first; i < first + n; i++)
		found += group.state[i] == state;
	return found;
}

static void run_group(unsigned block)
{
	/* before each group; of launches with many, before some, as it takes longer than they do */
	if (group.op->groups <= 64 || block < 2 || block % 64 == 0)
		memset(group.shared, 0xff, group.nshared);
	for (int i = 0; i < LANES; i++)
		group.state[i] = 0;
	group.block->x = block;
	for (;;) {
		/* The order changes, as kernels may not rely on one. A wave goes on to its next
		 * barrier before another does: what waves tell each other without one is lost. */
		const int wave = group.wave ? group.wave : LANES;
		bool ran = false;
		for (int k = 0; k < LANES && !ran; k += wave) {
			const int first = block & 1 ? LANES - wave - k : k;
			if (group.wave && count(first, wave, 3) == wave)
				memset(group.state + first, 0, sizeof(int) * (size_t)wave);
			for (int n = 0; n < wave; n++) {
				const int i = first + (block & 1 ? wave - 1 - n : n);
				if (group.state[i])
					continue;
				run_lane(i);
				ran = true;
			}
		}
		if (ran)
			continue;
		const int here = count(0, LANES, 1);
		if (count(0, LANES, 2) == LANES)
			return;
		if (here == LANES) {
			memset(group.state, 0, sizeof group.state);
		} else {
			fprintf(stderr,
				"fake_rt: %d of %d lanes wait at a barrier, %d for their wave, "
				"the others have ended\n",
				here, LANES, count(0, LANES, 3));
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
	*(void (**)(int))dlsym(o->library, "fake_wave") = wave;
	group.wave = 0;
	char *(*shared_end)(void) =
		(char *(*)(void))(uintptr_t)dlsym(o->library, "fake_shared_end");
	char *(*shared_begin)(void) =
		(char *(*)(void))(uintptr_t)dlsym(o->library, "fake_shared_begin");
	group.shared = shared_begin();
	group.nshared = (size_t)(shared_end() - group.shared);
	for (unsigned b = 0; b < o->groups; b++)
		run_group(b);
}

/* ---- products, in column-major order as in the libraries ---- */
static enum dtype dtype_of(int type) { return type == 0 ? DT_F32 : type == 14 ? DT_BF16 : DT_F16; }

/* op(X) in float32, row after row (of `cols`). */
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

static float rounded(float x, enum dtype t)
{
	char half[4];
	dtype_from_f32(t, &x, half, 1);
	dtype_to_f32(t, half, &x, 1);
	return x;
}

/* A column of C at a time: each number is one sum over k, in that order. */
static void run_product(const struct product *p)
{
	const enum dtype t = dtype_of(p->c);
	float *a = unfold(p->a, p->ab, !p->ta, p->k, p->m, p->lda),
	      *b = unfold(p->b, p->ab, !p->tb, p->n, p->k, p->ldb),
	      *sum = malloc((size_t)p->m * sizeof *sum);
	for (int64_t j = 0; j < p->n; j++) {
		memset(sum, 0, (size_t)p->m * sizeof *sum);
		for (int64_t l = 0; l < p->k; l++) {
			for (int64_t i = 0; i < p->m; i++)
				sum[i] += a[l * p->m + i] * b[j * p->k + l];
			for (int64_t i = 0; i < p->m && p->split && l == p->k / 2; i++)
				sum[i] = rounded(sum[i], t);
		}
		for (int64_t i = 0; i < p->m; i++) {
			const int64_t at = (i + j * p->ldc) * dtype_size(t);
			float old = 0;
			if (p->beta != 0)
				dtype_to_f32(t, p->from + at, &old, 1);
			sum[i] = p->alpha * sum[i] + (p->beta != 0 ? p->beta * old : 0);
			dtype_from_f32(t, &sum[i], p->to + at, 1);
		}
	}
	free(a);
	free(b);
	free(sum);
}

#endif
