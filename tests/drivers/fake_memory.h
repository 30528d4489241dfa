/* SPDX-License-Identifier: Apache-2.0 */
/* fake_memory.h - a part of fake_rt.c: memory of the card and of the host, and what moves between
 * them. */
#ifndef HS_TESTS_DRIVERS_FAKE_MEMORY_H
#define HS_TESTS_DRIVERS_FAKE_MEMORY_H

#define GUARD ((size_t)64 << 10)
/* Memory from 2 MiB on can be opened by other processes: it is a file without a name, with a page
 * behind it that says who has it open. */
struct opened {
	int opens, by; /* the process that opened it last */
	bool freed;
};
static struct piece {
	char *at, *base;
	size_t n, mapped; /* mapped: bytes of the file; 0: it is none */
	int fd;           /* of memory of this process's own */
	bool foreign;     /* another process's */
	struct opened *opened;
	struct owner owner;
	struct piece *next;
} * pieces, *pinned;
static size_t held[2][DEVICES]; /* by api and device, in pieces of 2 MiB for large blocks */

static size_t granules(size_t n)
{
	const size_t step = n < (size_t)1 << 20 ? 512 : (size_t)2 << 20;
	return (n + step - 1) / step * step;
}

static void check_guards(const struct piece *p)
{
	for (size_t i = 0; i < GUARD; i++)
		if ((unsigned char)p->base[i] != 0xa5 || (unsigned char)p->at[p->n + i] != 0xa5) {
			fprintf(stderr, "fake_rt: a piece of %zu bytes was written beside\n", p->n);
			abort();
		}
}

static bool inside(uint64_t at, size_t n)
{
	for (const struct piece *p = pieces; p; p = p->next)
		if (at >= (uint64_t)(uintptr_t)p->at &&
		    at + n <= (uint64_t)(uintptr_t)p->at + p->n) {
			if (p->foreign && p->opened->freed) {
				fprintf(stderr, "fake_rt: memory that another process has freed\n");
				abort();
			}
			return true;
		}
	return false;
}

enum { SHARED_LEAST = 2 << 20 };

/* A file of n bytes and guards, with struct opened behind. */
static bool map_file(struct piece *p, int fd, size_t n)
{
	p->mapped = (n + 2 * GUARD + 4095) / 4096 * 4096 + 4096;
	p->base = mmap(NULL, p->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p->base == MAP_FAILED)
		return false;
	p->opened = (struct opened *)(void *)(p->base + p->mapped - 4096);
	return true;
}

static void take_bytes(struct piece *p, size_t n)
{
	const size_t all = (n + 2 * GUARD + 4095) / 4096 * 4096;
	p->fd = n >= SHARED_LEAST ? memfd_create("fake card", MFD_CLOEXEC) : -1;
	if (p->fd < 0)
		p->base = aligned_alloc(4096, all);
	else if (ftruncate(p->fd, (off_t)all + 4096) || !map_file(p, p->fd, n))
		abort();
	p->at = p->base + GUARD;
}

static void give_bytes(struct piece *p)
{
	if (!p->mapped) {
		free(p->base);
		return;
	}
	if (!p->foreign && __atomic_load_n(&p->opened->opens, __ATOMIC_ACQUIRE) &&
	    !(kill(p->opened->by, 0) < 0 && errno == ESRCH)) { /* its end closes it */
		fprintf(stderr, "fake_rt: memory is freed that another process has open\n");
		abort();
	}
	if (!p->foreign)
		p->opened->freed = true;
	munmap(p->base, p->mapped);
	if (p->fd >= 0)
		close(p->fd);
}

static size_t total(void) { return (size_t)fault("memory", 1024) << 20; }
static size_t others(void) { return (size_t)fault("others", 0) << 20; }

static int x_memory(uint64_t *at, size_t n)
{
	const int d = device_now();
	if (d < 0 || (api == CUDA && !retained[d]))
		return NO_CONTEXT;
	if (!meanwhile())
		return UNSUPPORTED;
	if (held[api][d] + others() + granules(n) > total())
		return OUT_OF_MEMORY;
	struct piece *p = malloc(sizeof *p);
	*p = (struct piece){ .n = n, .owner = owner_now(), .next = pieces };
	take_bytes(p, n);
	memset(p->base, 0xa5, GUARD);
	memset(p->at, 0xff, n); /* fresh memory holds NaN */
	memset(p->at + n, 0xa5, GUARD);
	pieces = p;
	held[api][d] += granules(n);
	*at = (uint64_t)(uintptr_t)p->at;
	return OK;
}

static int x_memory_free(uint64_t at)
{
	run_all();
	for (struct piece **p = &pieces; *p; p = &(*p)->next)
		if ((uint64_t)(uintptr_t)(*p)->at == at && !(*p)->foreign) {
			struct piece *gone = *p;
			const int rc = owned(gone->owner);
			if (rc)
				return rc;
			check_guards(gone);
			*p = gone->next;
			held[gone->owner.api][gone->owner.device] -= granules(gone->n);
			give_bytes(gone);
			free(gone);
			return OK;
		}
	return INVALID;
}

/* ---- memory of another process ---- */
struct handle {
	char mark[8];
	int api, pid, fd;
	size_t n;
	char rest[32];
};
_Static_assert(sizeof(struct handle) == 64, "as the drivers' own");

static int x_ipc_get(struct handle *h, uint64_t at)
{
	if (fault("noipc", 0))
		return 801; /* not supported */
	for (const struct piece *p = pieces; p; p = p->next)
		if ((uint64_t)(uintptr_t)p->at == at && !p->foreign && p->mapped) {
			const int rc = owned(p->owner);
			*h = (struct handle){ "fakeipc", api, getpid(), p->fd, p->n, "" };
			return rc;
		}
	return INVALID; /* not where a piece of its own begins */
}

static int x_ipc_open(uint64_t *at, struct handle h, unsigned flags)
{
	char path[64];
	const int d = device_now();
	if (d < 0 || (api == CUDA && !retained[d]))
		return NO_CONTEXT;
	if (flags != 1 || memcmp(h.mark, "fakeipc", 8) || h.api != api)
		return INVALID;
	if (h.pid == getpid())
		return NO_CONTEXT; /* one's own memory cannot be opened */
	snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
	const int fd = fault("ipcrefused", 0) ? -1 : open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return 304; /* a call to the operating system failed */
	struct piece *p = malloc(sizeof *p);
	*p = (struct piece){
		.n = h.n, .fd = -1, .foreign = true, .owner = owner_now(), .next = pieces
	};
	if (!map_file(p, fd, h.n))
		abort();
	close(fd);
	p->at = p->base + GUARD;
	p->opened->by = getpid();
	__atomic_add_fetch(&p->opened->opens, 1, __ATOMIC_ACQ_REL);
	pieces = p;
	*at = (uint64_t)(uintptr_t)p->at;
	return OK;
}

static int x_ipc_close(uint64_t at)
{
	run_all();
	for (struct piece **p = &pieces; *p; p = &(*p)->next)
		if ((uint64_t)(uintptr_t)(*p)->at == at && (*p)->foreign) {
			struct piece *gone = *p;
			const int rc = owned(gone->owner);
			if (rc)
				return rc;
			*p = gone->next;
			__atomic_sub_fetch(&gone->opened->opens, 1, __ATOMIC_ACQ_REL);
			give_bytes(gone);
			free(gone);
			return OK;
		}
	return INVALID;
}

static int x_memory_info(size_t *left, size_t *all)
{
	const int d = device_now();
	if (d < 0 || (api == CUDA && !retained[d]))
		return NO_CONTEXT;
	*all = total();
	*left = total() > others() + held[api][d] ? total() - others() - held[api][d] : 0;
	if (fault("free", 0))
		*left = (size_t)fault("free", 0) << 20;
	return OK;
}

static int x_pinned(void **p, size_t n, unsigned flags)
{
	if (device_now() < 0 || flags)
		return NO_CONTEXT;
	struct piece *x = malloc(sizeof *x);
	*x = (struct piece){ .at = malloc(n), .n = n, .next = pinned };
	pinned = x;
	*p = x->at;
	return OK;
}

static int x_pinned_free(void *at)
{
	run_all();
	for (struct piece **p = &pinned; *p; p = &(*p)->next)
		if ((*p)->at == at) {
			struct piece *gone = *p;
			*p = gone->next;
			free(gone->at);
			free(gone);
			return OK;
		}
	return INVALID;
}

/* Memory of the caller's: whole pages, mapped, once; and it is still mapped when it goes. Threads
 * of links register and unregister while others use their devices. */
static struct piece *registered;
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;

static void must_be_mapped(void *at, size_t n)
{
	static const char text[] = "stand-in: registered memory is not mapped any more\n";
	if (msync(at, n, MS_ASYNC) == 0)
		return;
	if (write(2, text, sizeof text - 1) > 0)
		abort();
}

static int x_register(void *at, size_t n, unsigned flags)
{
	if (device_now() < 0 || flags)
		return NO_CONTEXT;
	if ((uintptr_t)at % 4096 || !n || n % 4096)
		return INVALID;
	if (fault("noregister", 0))
		return OUT_OF_MEMORY;
	must_be_mapped(at, n);
	pthread_mutex_lock(&registering);
	bool twice = false;
	for (const struct piece *p = registered; p; p = p->next)
		twice |= (char *)at < (char *)p->at + p->n && (char *)p->at < (char *)at + n;
	if (!twice) {
		struct piece *x = malloc(sizeof *x);
		*x = (struct piece){ .at = at, .n = n, .next = registered };
		registered = x;
	}
	pthread_mutex_unlock(&registering);
	return twice ? INVALID : OK;
}

static int x_unregister(void *at)
{
	if (device_now() < 0)
		return NO_CONTEXT;
	run_all();
	struct piece *gone = NULL;
	pthread_mutex_lock(&registering);
	for (struct piece **p = &registered; *p && !gone; p = gone ? p : &(*p)->next)
		if ((*p)->at == at) {
			gone = *p;
			must_be_mapped(gone->at, gone->n);
			*p = gone->next;
		}
	pthread_mutex_unlock(&registering);
	const bool was = gone;
	free(gone);
	return was ? OK : INVALID;
}

static bool is_pinned(const char *at, size_t n)
{
	bool found = false;
	pthread_mutex_lock(&registering);
	for (const struct piece *p = registered; p && !found; p = p->next) {
		must_be_mapped(p->at, p->n);
		found = at >= p->at && at + n <= p->at + p->n;
	}
	pthread_mutex_unlock(&registering);
	if (found)
		return true;
	for (const struct piece *p = pinned; p; p = p->next)
		if (at >= p->at && at + n <= p->at + p->n)
			return true;
	return false;
}

static bool is_foreign(const char *at)
{
	for (const struct piece *p = pieces; p; p = p->next)
		if (at >= p->at && at < p->at + p->n)
			return p->foreign;
	return false;
}

static int x_move(char *to, const char *from, size_t n, struct stream *s, bool to_device,
		  bool from_device)
{
	if ((to_device && !inside((uint64_t)(uintptr_t)to, n)) ||
	    (from_device && !inside((uint64_t)(uintptr_t)from, n)))
		return INVALID;
	/* with memory that is not pinned a driver copies at once, or waits: the host must not use
	 * it so */
	if ((!to_device && !is_pinned(to, n)) || (!from_device && !is_pinned(from, n)))
		return INVALID;
	struct op *o = put(s, COPY);
	if (!o)
		return owned(s->owner);
	o->to = to;
	o->from = from;
	o->n = n;
	const bool foreign = from_device && is_foreign(from);
	static long copies;
	copies += foreign;
	o->wrong = foreign && fault("ipcwrong", 0);
	o->lost = foreign && fault("ipclost", 0) && copies >= fault("ipclost", 0);
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
		return INVALID; /* a real driver's behaviour is undefined here */
	return x_move((char *)(uintptr_t)to, (const char *)(uintptr_t)from, n, s, true, true);
}

static int x_fill(uint64_t to, unsigned value, size_t n, void *s, int kind)
{
	if (!inside(to, kind == FILL32 ? 4 * n : n) || (kind == FILL32 && to % 4))
		return INVALID;
	struct op *o = put(s, kind);
	if (!o)
		return owned(((struct stream *)s)->owner);
	o->to = (char *)(uintptr_t)to;
	o->value = value;
	o->n = n;
	return OK;
}

#endif
