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
 * It is as strict as the drivers' documents are. A context of CUDA and the device of HIP belong to
 * a thread; handles and memory to their device. Transfers beside kernels take pinned memory. What
 * is compiled must be for the card. Around each piece of memory lie bytes that nobody may change,
 * and what __shared__ holds is NaN when a group begins. An error of CUDA stays; HIP's events
 * never show one, its queue ends the process. A library adds in the output's dtype where it may.
 *
 * FAKE_RT says what goes wrong, in words separated by blanks:
 *   devices=N  memory=MIB  others=MIB  arch=86  driver=13000  hip=50200000  rtc=13  init=CODE
 *   free=MIB      what is said to be free
 *   integrated=N  device N shares the host's memory; -1: all
 *   hang=N        the Nth launch never ends
 *   lost=N        the Nth launch never ends, and the driver says that the card is lost
 *   slow=MS       each launch and product takes so many milliseconds
 *   asked=N       an event has not happened when it is asked for the first N times (3)
 *   full          a launch finds no memory, once
 *   loadfull, findfull   so does a module that is loaded, a kernel that is looked up in one
 *   noregister    no memory of the host's is registered
 *   noipc  ipcrefused  ipcwrong  memory has no handles for other processes, cannot be opened by
 *                 them, other bytes are read there
 *   ipclost=N     the Nth copy from another process's memory never ends, and the card is lost
 *   volta         the CUDA compiler makes code for sm_70 too
 *   compile  noalgo  noblas
 *   nokernels=NAME  the library whose file name ends in NAME has no code for any card
 *   status=N      products are refused
 *   sizes         a product must have the sizes that its kernel was asked for
 *   exclusive, crowded   another process has the card to itself; or nearly all of its memory
 *   rocabort      rocBLAS ends the process
 *   blasfull, blaslate   a product finds no memory, once; or its kernel, when it is loaded
 *   nograph       no graph can be made of what was captured
 *   graphfull     a graph finds no memory when it is started, once
 *   early         work of all streams but a device's first is done as soon as the interface allows
 * Built with -DMISSING it lacks what starts a kernel. */
#include "base/dtype.h"
#include "entry_sig.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum {
	OK = 0,
	INVALID = 1,
	OUT_OF_MEMORY = 2,
	NO_DEVICE = 100,
	NO_CONTEXT = 201,
	NO_BINARY = 209,
	BAD_HANDLE = 400,
	NOT_FOUND = 500,
	NOT_READY = 600,
	ILLEGAL = 700,
	UNSUPPORTED = 900, /* while a stream is captured */
	UNJOINED = 904,
	ISOLATION = 905,
	CAPTURED_EVENT = 907,
	LANES = 128,
	MOST_ARGS = 64
};

#define EXPORT __attribute__((visibility("default")))
/* FAKE_HIP: another AMD card than this one. FAKE_TILES: the kernels for the matrix units of a card
 * of another maker (intel8, intel16) run on this one. */
static const char *card_hip(void)
{
	const char *s = getenv("FAKE_HIP");
	return s && *s ? s : "gfx90a:sramecc+";
}

static long fault(const char *word, long otherwise)
{
	const char *s = getenv("FAKE_RT");
	const size_t n = strlen(word);
	for (; s && *s; s += strcspn(s, " "), s += strspn(s, " "))
		if (!strncmp(s, word, n) && (!s[n] || s[n] == ' ' || s[n] == '='))
			return s[n] == '=' ? atol(s + n + 1) : 1;
	return otherwise;
}

/* Whether this goes wrong now: the first time after the word has appeared. */
static bool once(const char *word, bool *was)
{
	const bool now = fault(word, 0), first = now && !*was;
	*was = now;
	return first;
}

#include "fake_contexts.h"

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

#include "fake_work.h"

static int sticky; /* CUDA's error that stays: every call returns it from now on */

static int trouble(struct op *o, struct owner owner)
{
	const long hang = fault("hang", 0), lost = fault("lost", 0), slow = fault("slow", 0);
	if (slow && (o->kind == LAUNCH || o->kind == GEMM)) {
		if (!o->begun)
			o->begun = now_ms();
		if (now_ms() - o->begun < slow)
			return NOT_READY;
	}
	if (o->lost || (o->kind == LAUNCH && lost && o->number >= lost)) {
		if (owner.api == HIP)
			abort();
		return sticky = ILLEGAL;
	}
	return o->kind == LAUNCH && hang && o->number >= hang ? NOT_READY : OK;
}

static int run_until(struct stream *s, uint64_t at)
{
	while (s->done < at) {
		struct op *o = s->first;
		const int bad = trouble(o, s->owner);
		if (bad)
			return bad;
		if (o->kind == COPY && o->wrong)
			memset(o->to, 0x5a, o->n);
		else if (o->kind == COPY)
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
		while (run_until(s, s->put) == NOT_READY && fault("slow", 0) && !fault("hang", 0))
			usleep(500);
}

enum { GRAPH_LANES = 4 };
static struct op *capture(struct graph *g, struct op *o);
static int graph_lane(struct graph *g); /* the next one */

static struct op *put(struct stream *s, int kind)
{
	if (owned(s->owner))
		return NULL;
	struct op *o = calloc(1, sizeof *o);
	o->kind = kind;
	if (s->captured) {
		o->lane = s->lane;
		s->kept++;
		return capture(s->captured, o);
	}
	*s->last = o;
	s->last = &o->next;
	s->put++;
	return o;
}

EXPORT long fake_beside;
long fake_beside; /* launches that ran while a product in front of them was still to be done */

static bool has_work(const struct stream *s)
{
	const struct op *o = s->first;
	while (o && o->kind != LAUNCH && o->kind != GEMM)
		o = o->next;
	return o != NULL;
}

/* After a launch on it. */
static void do_early(struct stream *s)
{
	if (s->captured || !s->later || !fault("early", 0))
		return;
	run_until(s, s->put);
	for (const struct stream *t = streams; t; t = t->next)
		if (!t->later && !t->gone && !owned(t->owner) && has_work(t)) {
			fake_beside++;
			return;
		}
}

/* Whether this may be done now: not while a stream is captured, unless its capture is relaxed. */
static bool meanwhile(void)
{
	for (const struct stream *s = streams; s; s = s->next)
		if (s->captured && !s->relaxed)
			return false;
	return true;
}

#include "fake_memory.h"

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
	return i >= 0 && i < fault("devices", 1) ? OK : 101;
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
	const long shared = fault("integrated", DEVICES);
	enum { UNITS = 16, CUDA_INTEGRATED = 18, HIP_INTEGRATED = 16, HIP_UNITS = 63 };
	*v = 0;
	if (what == (api == CUDA ? CUDA_INTEGRATED : HIP_INTEGRATED))
		*v = shared == d || shared < 0;
	else if (what == (api == CUDA ? UNITS : HIP_UNITS))
		*v = 4;
	else if (api == CUDA && what == 75)
		*v = arch / 10;
	else if (api == CUDA && what == 76)
		*v = arch % 10;
	return OK;
}

#include "fake_events.h"

/* ---- programs: the "code" is the text ---- */
struct module {
	struct owner owner;
	char *text;
	void *library, *tiles;
	struct module *next;
};
static struct module *modules;

struct function {
	struct module *module;
	void *library;
	void (*fn)(void);
	char sig[MOST_ARGS];
};

#define MADE_FOR "\n// made for "

/* The last line of the "code" says for which card it was made. */
static bool runs_here(const char *image)
{
	const char *line = strstr(image, MADE_FOR);
	const int arch = (int)fault("arch", 86);
	int made = 0;
	if (!line)
		return false;
	line += strlen(MADE_FOR);
	if (api == HIP)
		return !strcmp(line, card_hip());
	if (sscanf(line, "sm_%d", &made) == 1)
		return made == arch;
	return sscanf(line, "compute_%d", &made) == 1 && made <= arch;
}

/* The kernels for a card with matrix units, where fake_kernels.c has them: fake_tiles_T-CARD.so */
static void *tiles_of(const char *image, char *path)
{
	const char *made = strstr(image, MADE_FOR) + strlen(MADE_FOR);
	char card[32], *slash = strrchr(path, '/');
	int sm = 0;
	const char *other = getenv("FAKE_TILES");
	if (other)
		snprintf(card, sizeof card, "%s", other);
	else if (sscanf(made, "sm_%d", &sm) == 1 || sscanf(made, "compute_%d", &sm) == 1)
		snprintf(card, sizeof card, "sm_%d", sm / 10 == 9 ? 90 : sm >= 80 ? 80 : sm);
	else
		snprintf(card, sizeof card, "%.*s", (int)strcspn(made, ":"), made);
	sprintf(slash, "/fake_tiles_%c-%s.so", image[13], card);
	return access(path, R_OK) ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* A text that is not the program's own (kernel/user.k) is compiled like its kernels, by the C
 * compiler. NULL, with what that said: it does not compile. */
static bool is_users(const char *text) { return strstr(text, "KERNEL(user_forward)"); }

static void *compile_users(const char *text, char *log, size_t most)
{
	char dir[] = "/tmp/hs-text-XXXXXX", command[4096], path[64];
	void *library = NULL;
	log[0] = 0;
	if (!mkdtemp(dir))
		return NULL;
	snprintf(path, sizeof path, "%s/text.c", dir);
	FILE *f = fopen(path, "w");
	if (f) {
		fputs(text, f);
		fclose(f);
	}
	snprintf(command, sizeof command,
		 "cc -std=gnu11 -O1 -Werror=implicit-function-declaration -fno-strict-aliasing "
		 "-DFAKE_TEXT='\"%s\"' -fPIC -shared %s "
		 "-o %s/text.so -lm 2>%s/log",
		 path, FAKE_SOURCE, dir, dir);
	const int failed = system(command);
	snprintf(path, sizeof path, "%s/text.so", dir);
	if (!failed)
		library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	snprintf(path, sizeof path, "%s/log", dir);
	f = fopen(path, "r");
	if (f) {
		log[fread(log, 1, most - 1, f)] = 0;
		fclose(f);
	}
	snprintf(command, sizeof command, "rm -rf %s", dir);
	if (system(command))
		return NULL;
	return library;
}

static int x_module_of_users(void **m, const char *image)
{
	char log[256];
	struct module *n = calloc(1, sizeof *n);
	n->owner = owner_now();
	n->text = strdup(image);
	n->library = compile_users(image, log, sizeof log);
	n->next = modules;
	modules = n;
	*m = n;
	return n->library ? OK : 200;
}

static int x_module(void **m, const void *image)
{
	char path[4096];
	Dl_info me;
	if (device_now() < 0)
		return NO_CONTEXT;
	static bool was_full;
	if (once("loadfull", &was_full))
		return OUT_OF_MEMORY;
	if (!runs_here(image))
		return NO_BINARY;
	if (is_users(image))
		return x_module_of_users(m, image);
	if (strncmp(image, "#define HS_T ", 13) || !dladdr((void *)(uintptr_t)x_module, &me))
		return 200;
	snprintf(path, sizeof path, "%.*s/fake_kernels_%c.so",
		 (int)(strrchr(me.dli_fname, '/') - me.dli_fname), me.dli_fname,
		 ((const char *)image)[13]);
	struct module *n = calloc(1, sizeof *n);
	n->owner = owner_now();
	n->text = strdup(image);
	n->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!n->library)
		fprintf(stderr, "fake_rt: %s\n", dlerror());
	n->tiles = tiles_of(image, path);
	n->next = modules;
	modules = n;
	*m = n;
	return n->library ? OK : 200;
}

static int x_module_unload(void *m)
{
	run_all();
	for (struct module **p = &modules; *p; p = &(*p)->next)
		if (*p == m) {
			*p = (*p)->next;
			free(((struct module *)m)->text);
			free(m);
			return OK;
		}
	return BAD_HANDLE;
}

static int x_module_function(void **f, void *m, const char *name)
{
	static bool was_full;
	if (once("findfull", &was_full))
		return OUT_OF_MEMORY;
	struct function *n = calloc(1, sizeof *n);
	n->module = m;
	n->library = n->module->tiles;
	if (!n->library || !dlsym(n->library, name))
		n->library = n->module->library;
	*(void **)&n->fn = dlsym(n->library, name);
	*f = n;
	return n->fn && entry_signature(n->module->text, name, n->sig, sizeof n->sig) ? OK
										      : NOT_FOUND;
}

static bool is_loaded(const struct function *f)
{
	const struct module *m = modules;
	while (m && m != f->module)
		m = m->next;
	return m != NULL;
}

#include "fake_graph.h"

static int graph_lane(struct graph *g) { return ++g->lanes; }

static struct op *capture(struct graph *g, struct op *o)
{
	*g->last = o;
	g->last = &o->next;
	g->n += o->kind != WAIT;
	return o;
}

static int x_launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
		    unsigned bz, unsigned shared, void *s, void **params, void **extra)
{
	const struct function *n = f;
	if (!gx || gy != 1 || gz != 1 || bx != LANES || by != 1 || bz != 1 || shared || extra)
		return INVALID;
	/* CUDA's largest grid; HIP counts the lanes of a launch in 32 bits */
	if (api == CUDA ? gx > INT32_MAX : gx > UINT32_MAX / LANES)
		return INVALID;
	static bool was_full;
	if (once("full", &was_full)) {
		((struct stream *)s)->broken = true;
		return OUT_OF_MEMORY;
	}
	launches++;
	struct op *o = owned(n->module->owner) ? NULL : put(s, LAUNCH);
	int ni = 0, nf = 0;
	if (!o)
		return BAD_HANDLE;
	o->function = n;
	o->fn = n->fn;
	o->library = n->library;
	o->groups = gx;
	o->number = launches;
	for (int i = 0; n->sig[i]; i++) {
		if (n->sig[i] == 'f') {
			memcpy(&o->floats[nf++], params[i], sizeof(float));
			continue;
		}
		memcpy(&o->ints[ni++], params[i], sizeof(uint64_t));
		if (n->sig[i] == 'p' && o->ints[ni - 1] && !inside(o->ints[ni - 1], 1))
			return INVALID;
	}
	if (ni > 36 || nf > 8)
		return INVALID;
	do_early(s);
	return OK;
}

/* ---- the compiler ---- */
struct program {
	char *text;
	char made_for[128], log[4096];
};

static int c_create(void **p, const char *text, const char *name, int n, const char *const *h,
		    const char *const *i)
{
	struct program *o = calloc(1, sizeof *o);
	(void)name, (void)n, (void)h, (void)i;
	o->text = strdup(text);
	*p = o;
	return OK;
}

static int c_destroy(void **p)
{
	free(((struct program *)*p)->text);
	free(*p);
	return OK;
}

static const char compiler_log[] =
	"heteroshard.cu(7): error: the first line\nthe second\nthe third\nthe fourth\n";

/* "volta": and sm_70 */
static const int archs[] = { 70, 75, 80, 86, 90 };
static int narchs(void) { return 5 - !fault("volta", 0); }
static const int *first_arch(void) { return archs + !fault("volta", 0); }

static int c_compile(struct program *p, int n, const char *const *options)
{
	static const char cuda[] = "--gpu-architecture=", hip[] = "--offload-arch=";
	const char *head = api == CUDA ? cuda : hip;
	int arch = 0;
	bool known = api == HIP;
	if (n != 1 || strncmp(options[0], head, strlen(head)))
		return 5;
	snprintf(p->made_for, sizeof p->made_for, "%s", options[0] + strlen(head));
	if (api == CUDA && sscanf(p->made_for, "sm_%d", &arch) != 1 &&
	    sscanf(p->made_for, "compute_%d", &arch) != 1)
		return 5;
	for (int i = 0; i < narchs(); i++)
		known |= first_arch()[i] == arch;
	if (known && is_users(p->text)) {
		void *library = compile_users(p->text, p->log, sizeof p->log);
		return library ? dlclose(library), OK : 6;
	}
	return !known ? 5 : fault("compile", 0) ? 6 : OK;
}

static const char *log_of(const struct program *p)
{
	return fault("compile", 0) ? compiler_log : p->log;
}

static int c_log_size(void *p, size_t *n)
{
	const char *log = log_of(p);
	*n = log[0] ? strlen(log) + 1 : 0;
	return OK;
}

static int c_log(void *p, char *s)
{
	const char *log = log_of(p);
	memcpy(s, log, strlen(log) + 1);
	return OK;
}

static int c_size(struct program *p, size_t *n)
{
	*n = strlen(p->text) + strlen(MADE_FOR) + strlen(p->made_for) + 1;
	return OK;
}

/* For a virtual architecture, as compute_90, there is no machine code. */
static int c_code_size(struct program *p, size_t *n)
{
	c_size(p, n);
	if (!strncmp(p->made_for, "compute_", 8))
		*n = 0;
	return OK;
}

static int c_code(struct program *p, char *s)
{
	sprintf(s, "%s%s%s", p->text, MADE_FOR, p->made_for);
	return OK;
}

static int c_version(int *major, int *minor)
{
	*major = (int)fault("rtc", 13);
	/* a version that no real compiler has, so that its code is not taken for real code */
	*minor = 99;
	return OK;
}

/* ---- by CUDA's names and by HIP's ---- */
/* Any thread may call at any time, as with a real driver. */
static pthread_mutex_t everything = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static void locked(void) { pthread_mutex_lock(&everything); }

static int unlocked(int rc)
{
	pthread_mutex_unlock(&everything);
	return rc;
}

static bool stays(void) { return sticky && (fault("lost", 0) || fault("ipclost", 0)); }

#define BOTH(cuda, hip, params, call)                                                              \
	EXPORT int cuda params;                                                                    \
	EXPORT int cuda params                                                                     \
	{                                                                                          \
		locked();                                                                          \
		api = CUDA;                                                                        \
		return unlocked(stays() ? sticky : call);                                          \
	}                                                                                          \
	EXPORT int hip params;                                                                     \
	EXPORT int hip params                                                                      \
	{                                                                                          \
		locked();                                                                          \
		api = HIP;                                                                         \
		return unlocked(call);                                                             \
	}
#define ONE(name, params, call)                                                                    \
	EXPORT int name params;                                                                    \
	EXPORT int name params                                                                     \
	{                                                                                          \
		locked();                                                                          \
		return unlocked(call);                                                             \
	}

BOTH(cuInit, hipInit, (unsigned f), x_init(f))
BOTH(cuDeviceGetCount, hipGetDeviceCount, (int *n), x_count(n))
BOTH(cuDeviceGet, hipDeviceGet, (int *d, int i), x_device(d, i))
BOTH(cuDeviceGetName, hipDeviceGetName, (char *s, int n, int d), x_name(s, n, d))
BOTH(cuDeviceTotalMem_v2, hipDeviceTotalMem, (size_t * n, int d), x_total(n, d))
BOTH(cuDeviceGetAttribute, hipDeviceGetAttribute, (int *v, int w, int d), x_attribute(v, w, d))
BOTH(cuMemGetInfo_v2, hipMemGetInfo, (size_t * f, size_t *t), x_memory_info(f, t))
BOTH(cuMemAlloc_v2, hipMalloc, (uint64_t * p, size_t n), x_memory(p, n))
BOTH(cuMemFree_v2, hipFree, (uint64_t p), x_memory_free(p))
BOTH(cuIpcGetMemHandle, hipIpcGetMemHandle, (struct handle * h, uint64_t p), x_ipc_get(h, p))
BOTH(cuIpcOpenMemHandle_v2, hipIpcOpenMemHandle, (uint64_t * p, struct handle h, unsigned f),
     x_ipc_open(p, h, f))
BOTH(cuIpcCloseMemHandle, hipIpcCloseMemHandle, (uint64_t p), x_ipc_close(p))
BOTH(cuMemHostAlloc, hipHostMalloc, (void **p, size_t n, unsigned f), x_pinned(p, n, f))
BOTH(cuMemFreeHost, hipHostFree, (void *p), x_pinned_free(p))
BOTH(cuMemHostRegister_v2, hipHostRegister, (void *p, size_t n, unsigned f), x_register(p, n, f))
BOTH(cuMemHostUnregister, hipHostUnregister, (void *p), x_unregister(p))
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
BOTH(cuStreamBeginCapture_v2, hipStreamBeginCapture, (void *s, int m), x_capture_begin(s, m))
BOTH(cuStreamEndCapture, hipStreamEndCapture, (void *s, void **g), x_capture_end(s, g))
BOTH(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags,
     (void **x, void *g, unsigned long long f), x_graph_make(x, g, f))
BOTH(cuGraphLaunch, hipGraphLaunch, (void *x, void *s), x_graph_launch(x, s))
BOTH(cuGraphExecDestroy, hipGraphExecDestroy, (void *x), x_graph_free(x))
BOTH(cuGraphDestroy, hipGraphDestroy, (void *g), x_made_free(g))
BOTH(nvrtcVersion, hiprtcVersion, (int *a, int *b), c_version(a, b))
BOTH(nvrtcCreateProgram, hiprtcCreateProgram,
     (void **p, const char *t, const char *s, int n, const char *const *h, const char *const *i),
     c_create(p, t, s, n, h, i))
BOTH(nvrtcDestroyProgram, hiprtcDestroyProgram, (void **p), c_destroy(p))
BOTH(nvrtcCompileProgram, hiprtcCompileProgram, (void *p, int n, const char *const *o),
     c_compile(p, n, o))
BOTH(nvrtcGetProgramLogSize, hiprtcGetProgramLogSize, (void *p, size_t *n), c_log_size(p, n))
BOTH(nvrtcGetProgramLog, hiprtcGetProgramLog, (void *p, char *s), c_log(p, s))
BOTH(nvrtcGetCUBINSize, hiprtcGetCodeSize, (void *p, size_t *n), c_code_size(p, n))
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

ONE(nvrtcGetNumSupportedArchs, (int *n), (*n = narchs(), OK))
ONE(nvrtcGetSupportedArchs, (int *a), (memcpy(a, first_arch(), (size_t)narchs() * sizeof *a), OK))
ONE(cuDriverGetVersion, (int *v), (*v = (int)fault("driver", 13000), OK))
ONE(hipDriverGetVersion, (int *v), (*v = (int)fault("hip", 50200000), OK))
ONE(cuDevicePrimaryCtxRetain, (void **c, int d),
    (fault("exclusive", 0) ? 46
     : fault("crowded", 0) ? OUT_OF_MEMORY
			   : (retained[d]++, *c = (void *)(uintptr_t)(d + 1), OK)))
ONE(cuDevicePrimaryCtxRelease_v2, (int d), (--retained[d] ? 0 : generation[d]++, OK))
ONE(cuCtxSetCurrent, (void *c),
    (cuda_device = (int)(uintptr_t)c - 1, c &&retained[cuda_device] ? OK : NO_CONTEXT))
ONE(hipSetDevice, (int d), (hip_device = d, d >= 0 && d < fault("devices", 1) ? OK : 101))
ONE(hipGetDeviceProperties, (void *p, int d),
    (snprintf((char *)p, 256, "Fake card %d", d), strcpy((char *)p + 396, card_hip()), OK))

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

#include "fake_blas.h"
