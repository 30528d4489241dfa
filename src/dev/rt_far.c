/* SPDX-License-Identifier: Apache-2.0 */
/* rt_far.c - see rt.h: tensors from a card of this process to one of another process, directly.
 *
 * Messages between two processes lie in memory that both share and both cards know (dev/pin.h). The
 * end of it is a note (base/note.h), and there the cards agree, each in its own thread, while the
 * first messages still go through the host:
 *   1. the receiver's card says which driver it is of;
 *   2. a sender's card of the same driver takes memory of its own, as large as the shared one, puts
 *      a pattern there and gives the driver's handle of it (IPC);
 *   3. the receiver opens it, copies the pattern to its card, compares, and says whether it came.
 * From then on what the sender's card would download to the shared memory it copies to that memory
 * of its own, and the receiver's card copies it from there. In the shared memory lies a mark where
 * the tensor would begin: where the receiver finds none, the message came through the host.
 * The memory is the sender's again when the shared one is, that is when the receiver has released
 * the message, for which its copy has ended.
 *
 * A driver may not free memory that another process has open. So the sender keeps its memory until
 * the receiver says in the note that it has closed it, or is no more. */
#include "dev/rt.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/note.h"
#include "base/os_calls.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sodium.h>
#include <unistd.h>

/* SHARE, LEFT: parts of the card's memory that are lent at most, and left free at least */
enum { PATTERN = 64, PAGE = 4096, GRANULE = 2 << 20, SHARE = 64, LEFT = 16 };
enum { OPEN_FLAGS = 1 /* access to another card's memory is set up when it is needed */ };
enum answer { NO_ANSWER, CAME, NOT_OPENED, NOT_CAME };

/* What stands in a tensor's place. */
struct far_mark {
	unsigned char pattern[PATTERN];
	uint64_t size;
};

/* In the shared memory. Each field has one writer; what the other process writes is looked at
 * before it is used. */
struct far_note {
	char mark[NOTE_MARK];
	/* the receiver's */
	uint32_t kind, answer, closed, process;
	/* the sender's */
	uint32_t offered, unused;
	struct rt_handle handle;
	uint64_t size;
	unsigned char pattern[PATTERN];
};
_Static_assert(sizeof(struct far_note) <= NOTE_BYTES - NOTE_WORD, "it fits");

/* Memory of this card that another process has open, or had. */
struct rt_lent {
	uint64_t at;
	size_t size;
	struct far_note *note; /* in a mapping of our own of its page */
	void *page;
	struct rt_lent *next;
};

/* One piece of shared memory. */
struct rt_far {
	char *p;
	size_t n;
	struct far_note *note;
	bool refused;
	struct rt_lent *lent; /* sending */
	/* receiving: whether we have said who we are; the other card's memory, 0: it is not open */
	bool said;
	uint64_t open;
	unsigned char pattern[PATTERN];
};

static uint32_t get(const uint32_t *v) { return __atomic_load_n(v, __ATOMIC_ACQUIRE); }
static void set(uint32_t *v, uint32_t x) { __atomic_store_n(v, x, __ATOMIC_RELEASE); }

/* Of the driver: handles go from one to the same. And of what this program puts into such messages,
 * which an older one would read as numbers: sums of gradients (1 direct, 2 by ring and tree). */
static uint32_t kind_of(const struct rt *c)
{
	enum { WHAT = 2 };
	return WHAT << 24 | (c->v->rtc == RTC_NVRTC ? 1u : 2u) << 16 | (uint32_t)c->major;
}

struct rt_far *rt_far_new(struct rt *c, void *p, size_t n)
{
	struct rt_far *f = NULL;
	if (c->far_off || !c->f->ipc_get || !c->f->ipc_open || !c->f->ipc_close ||
	    !note_is_there(p, n) || (f = mem_zalloc(sizeof *f)) == NULL)
		return NULL;
	*f = (struct rt_far){ .p = p, .n = n, .note = (void *)note_of(p, n) };
	return f;
}

/* Said once for a card: the rest goes through the host, as before. */
static void refuse(struct rt *c, struct rt_far *f, const char *what, const char *why)
{
	f->refused = true;
	if (c->far_said)
		return;
	c->far_said = true;
	log_warn("%s: %s%s%s%s: tensors between the two processes go through the host's memory, "
		 "which is slower (containers need --ipc=host and --pid=host; HS_DEVICE_IPC=0 "
		 "keeps this quiet)",
		 c->label, what, why ? " (" : "", why ? why : "", why ? ")" : "");
}

/* ---- the sender ---- */

/* Waits for what was put on the copy stream. */
static int wait_copy(struct rt *c, struct err *e)
{
	TRY(rt_failed(c, c->f->event_record(c->far_event, c->copy), "queueing", e));
	return rt_wait(c, c->far_event, e);
}

static int prepare(struct rt *c, struct err *e)
{
	int code = c->far_event ? RT_OK : c->f->event(&c->far_event, RT_NO_TIMING);
	if (code == RT_OK && !c->far_host)
		code = c->f->pinned((void **)&c->far_host, 2 * PATTERN, 0);
	if (code == RT_OK && !c->far_scratch)
		code = c->f->memory(&c->far_scratch, 2 * PATTERN);
	return rt_failed(c, code, "preparing copies between cards", e);
}

/* 1: all that is needed is there; 0: there is no memory for it, quietly as in offer(). */
static int prepared(struct rt *c, struct rt_far *f, struct err *e)
{
	const int rc = prepare(c, e);
	if (rc == 0)
		return 1;
	if (rc != ERR_NOMEM)
		return rc;
	err_clear(e);
	f->refused = true;
	return 0;
}

/* Gives back what no other process has open any more. */
static void collect(struct rt *c, bool well)
{
	for (struct rt_lent **p = &c->lent; *p;) {
		struct rt_lent *l = *p;
		if (!get(&l->note->closed) &&
		    !(get(&l->note->process) && kill((pid_t)get(&l->note->process), 0) < 0 &&
		      errno == ESRCH)) {
			p = &l->next;
			continue;
		}
		*p = l->next;
		c->far_lent -= l->size;
		if (well)
			c->f->memory_free(l->at);
		munmap(l->page, PAGE);
		mem_free(l);
	}
}

/* Our own mapping of the note's page, which stays when the link's is gone. */
static bool keep_note(struct rt_far *f, struct rt_lent *l)
{
	const uintptr_t at = (uintptr_t)f->note / PAGE * PAGE;
	void *page = os_map_again((void *)at, PAGE);
	if (!page)
		return false;
	l->page = page;
	l->note = (void *)((char *)page + ((uintptr_t)f->note - at));
	return true;
}

static int offer(struct rt *c, struct rt_far *f, struct err *e)
{
	const size_t size = (f->n + GRANULE - 1) / GRANULE * GRANULE;
	size_t left = 0, all = 0;
	struct far_note *n = f->note;
	collect(c, true);
	/* quietly: the job needs the memory more than this */
	if (c->far_lent + size > c->mem_total / SHARE || c->f->memory_info(&left, &all) != RT_OK ||
	    left < size + c->mem_total / LEFT)
		return f->refused = true, 0;
	const int ready = prepared(c, f, e);
	if (ready <= 0)
		return ready;
	struct rt_lent *l = mem_zalloc(sizeof *l);
	if (!l)
		return err_nomem(e, sizeof *l, "a buffer");
	int code = c->f->memory(&l->at, size);
	if (code == RT_OK)
		code = c->f->ipc_get(&n->handle, l->at);
	if (code != RT_OK || !keep_note(f, l)) {
		if (l->at)
			c->f->memory_free(l->at);
		mem_free(l);
		refuse(c, f, "its memory cannot be shared with another process",
		       code == RT_OK ? NULL : c->v->error(c->f, code));
		return 0;
	}
	l->size = size;
	l->next = c->lent;
	c->lent = f->lent = l;
	c->far_lent += size;
	randombytes_buf(c->far_host, PATTERN);
	memcpy(n->pattern, c->far_host, PATTERN);
	/* by the way that tensors go */
	n->size = f->n;
	TRY(rt_failed(c, c->f->upload(c->far_scratch, c->far_host, PATTERN, c->copy), "upload", e));
	TRY(rt_failed(c, c->f->copy(l->at, c->far_scratch, PATTERN, c->copy), "copy", e));
	TRY(rt_failed(c, c->f->copy(l->at + f->n - PATTERN, c->far_scratch, PATTERN, c->copy),
		      "copy", e));
	TRY(wait_copy(c, e));
	set(&n->offered, 1);
	return 0;
}

int rt_far_send(struct rt *c, struct rt_far *f, void *at, size_t size, uint64_t *to_p,
		struct err *e)
{
	const size_t off = (size_t)((char *)at - f->p);
	if (f->refused || size < sizeof(struct far_mark) || off + size > f->n - NOTE_BYTES)
		return 0;
	if (!f->lent)
		return get(&f->note->kind) == kind_of(c) ? offer(c, f, e) : 0;
	const uint32_t answer = get(&f->note->answer);
	if (answer != CAME) {
		if (answer)
			refuse(c, f,
			       answer == NOT_CAME
				       ? "bytes that another process copied from it were wrong"
				       : "another process may not open its memory",
			       NULL);
		return 0;
	}
	struct far_mark m = { .size = size };
	memcpy(m.pattern, f->note->pattern, PATTERN);
	memcpy(at, &m, sizeof m);
	*to_p = f->lent->at + off;
	return 1;
}

/* ---- the receiver ---- */

/* Whether a pattern lies at an address of the other card. */
static int came(struct rt *c, uint64_t at, const unsigned char *pattern, bool *came_p,
		struct err *e)
{
	memset(c->far_host, 0, 2 * PATTERN);
	TRY(rt_failed(c, c->f->copy(c->far_scratch, at, PATTERN, c->copy), "copy", e));
	TRY(rt_failed(c, c->f->download(c->far_host, c->far_scratch, PATTERN, c->copy), "download",
		      e));
	TRY(wait_copy(c, e));
	*came_p = !memcmp(c->far_host, pattern, PATTERN);
	return 0;
}

static int answer(struct rt *c, struct rt_far *f, struct err *e)
{
	const struct rt_handle handle = f->note->handle;
	unsigned char pattern[PATTERN];
	bool first = false, last = false;
	memcpy(pattern, f->note->pattern, PATTERN);
	if (f->note->size != f->n)
		return f->refused = true, 0;
	const int ready = prepared(c, f, e);
	if (ready <= 0) {
		set(&f->note->answer, NOT_OPENED);
		return ready;
	}
	const int code = c->f->ipc_open(&f->open, handle, OPEN_FLAGS);
	if (code != RT_OK) {
		f->open = 0;
		set(&f->note->answer, NOT_OPENED);
		refuse(c, f, "it may not open another process's memory", c->v->error(c->f, code));
		return 0;
	}
	memcpy(f->pattern, pattern, PATTERN);
	int rc = came(c, f->open, pattern, &first, e);
	if (rc == 0)
		rc = came(c, f->open + f->n - PATTERN, pattern, &last, e);
	set(&f->note->answer, rc == 0 && first && last ? CAME : NOT_CAME);
	if (rc == 0 && !(first && last))
		refuse(c, f, "bytes copied from another process's card were wrong", NULL);
	return rc;
}

int rt_far_receive(struct rt *c, struct rt_far *f, const void *at, size_t size, uint64_t *from_p,
		   size_t *far_p, struct err *e)
{
	const size_t off = (size_t)((const char *)at - f->p);
	struct far_mark m;
	*far_p = 0;
	if (f->refused || size < sizeof m || off + size > f->n - NOTE_BYTES)
		return 0;
	if (!f->open) {
		if (!f->said) {
			set(&f->note->process, (uint32_t)getpid());
			set(&f->note->kind, kind_of(c));
			f->said = true;
		}
		return get(&f->note->offered) ? answer(c, f, e) : 0;
	}
	memcpy(&m, at, sizeof m);
	if (memcmp(m.pattern, f->pattern, PATTERN))
		return 0;
	*from_p = f->open + off;
	*far_p = m.size < size ? m.size : size;
	return 0;
}

/* ---- the end ---- */

void rt_far_free(struct rt *c, struct rt_far *f, bool well)
{
	if (f && f->open && well)
		c->f->ipc_close(f->open);
	if (f && f->said && (well || !f->open)) /* a lost card has it open until the process ends */
		set(&f->note->closed, 1);
	mem_free(f);
}

void rt_far_release(struct rt *c, bool well)
{
	if (c->far_bytes)
		log_info("%s: %.1f MB went directly between it and cards of other processes",
			 c->label, (double)c->far_bytes / 1e6);
	collect(c, well);
	while (c->lent) { /* another process has it open: it goes with this one */
		struct rt_lent *l = c->lent;
		c->lent = l->next;
		munmap(l->page, PAGE);
		mem_free(l);
	}
	if (well && c->far_event)
		c->f->event_destroy(c->far_event);
	if (well && c->far_host)
		c->f->pinned_free(c->far_host);
	if (well && c->far_scratch)
		c->f->memory_free(c->far_scratch);
}
