/* SPDX-License-Identifier: Apache-2.0 */
/* shm_memory.c - see shm_memory.h. */
#include "net/shm_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/note.h"

#ifndef MAP_POPULATE
#define MAP_POPULATE 0
#endif
#include "base/os_calls.h"

#define PAGE 4096
#define WORD NOTE_WORD /* bytes at the end of a buffer, for the word that says whose it is */

static uint32_t *word_of(void *p, uint64_t size)
{
	return (uint32_t *)(void *)((char *)p + size - WORD);
}

/* ---- sending -------------------------------------------------------------------------------- */

enum { USERS, SENT, UNUSED };

/* At the beginning of a page of this process in front of the shared bytes. */
struct shm_buffer {
	struct shm_out *of;
	struct shm_buffer *next; /* sent: in the order of sending; unused: the last one first */
	uint64_t size;           /* of the file */
	uint32_t number;
	int state, fd;
	bool pinned;
};
_Static_assert(sizeof(struct shm_buffer) + NET_BUFFER_HEAD <= PAGE, "both fit a page");

struct shm_out {
	pthread_mutex_t lock;
	int refs; /* the link's, and one for each buffer of the users */
	bool ended;
	uint64_t most, keep, bytes;
	struct pins *pins;
	struct shm_buffer *sent, **sent_end, *unused;
	struct shm_buffer *at[SHM_BUFFERS];
	unsigned given_up[SHM_BUFFERS], ngiven_up;
	bool named[SHM_BUFFERS]; /* the receiver knows it, or will */
};

struct shm_out *shm_out_new(uint64_t most, uint64_t keep, struct pins *pins)
{
	struct shm_out *s = mem_zalloc(sizeof *s);
	if (!s)
		return NULL;
	pthread_mutex_init(&s->lock, NULL);
	s->refs = 1;
	s->most = most;
	s->keep = keep;
	s->pins = pins_ref(pins);
	s->sent_end = &s->sent;
	return s;
}

static char *bytes_of(struct shm_buffer *b) { return (char *)b + PAGE; }

static void unmap(struct shm_buffer *b)
{
	if (b->fd >= 0)
		close(b->fd);
	if (b->pinned)
		pins_out(b->of->pins, bytes_of(b));
	munmap(b, PAGE + b->size);
}

static void unref(struct shm_out *s)
{
	bool last = --s->refs == 0;
	pthread_mutex_unlock(&s->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&s->lock);
	pins_unref(s->pins);
	mem_free(s);
}

void shm_out_end(struct shm_out *s)
{
	pthread_mutex_lock(&s->lock);
	s->ended = true;
	s->sent = s->unused = NULL;
	s->sent_end = &s->sent;
	for (int i = 0; i < SHM_BUFFERS; i++)
		if (s->at[i] && s->at[i]->state != USERS) {
			unmap(s->at[i]);
			s->at[i] = NULL;
		}
	pthread_mutex_unlock(&s->lock);
}

void shm_out_free(struct shm_out *s)
{
	pthread_mutex_lock(&s->lock);
	unref(s);
}

/* Marks the buffers that the receiver has released as unused. Mostly it releases messages in their
 * order, so the search ends at the first one that it still holds; with `all` it goes on. */
static void collect(struct shm_out *s, bool all)
{
	for (struct shm_buffer **p = &s->sent; *p;) {
		struct shm_buffer *b = *p;
		if (__atomic_load_n(word_of(bytes_of(b), b->size), __ATOMIC_ACQUIRE)) {
			if (!all)
				return;
			p = &b->next;
			continue;
		}
		*p = b->next;
		if (!*p)
			s->sent_end = p;
		b->state = UNUSED;
		b->next = s->unused;
		s->unused = b;
	}
}

static struct shm_buffer *unused(struct shm_out *s, uint64_t size)
{
	for (struct shm_buffer **p = &s->unused; *p; p = &(*p)->next)
		if ((*p)->size == size) {
			struct shm_buffer *b = *p;
			*p = b->next;
			return b;
		}
	return NULL;
}

/* Gives up unused buffers until `size` bytes more fit below `limit`. */
static void give_up(struct shm_out *s, uint64_t size, uint64_t limit)
{
	while (s->unused && s->bytes + size > limit) {
		struct shm_buffer *b = s->unused;
		s->unused = b->next;
		s->bytes -= b->size;
		s->at[b->number] = NULL;
		if (b->fd < 0)
			s->given_up[s->ngiven_up++] = b->number;
		else
			s->named[b->number] = false;
		unmap(b);
	}
}

static void back(struct net_buffer_head *h);

static struct shm_buffer *make(struct shm_out *s, uint64_t size)
{
	unsigned k = 0;
	give_up(s, size, s->keep);
	/* numbers that were given up can be used again once the receiver was told */
	while (k < SHM_BUFFERS && s->named[k])
		k++;
	if (k == SHM_BUFFERS || s->bytes + size > s->most)
		return NULL;
	int fd = os_fixed_memory(size);
	if (fd < 0)
		return NULL;
	char *p =
		mmap(NULL, PAGE + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		close(fd);
		return NULL;
	}
	if (mmap(p + PAGE, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd,
		 0) == MAP_FAILED) {
		close(fd);
		munmap(p, PAGE + size);
		return NULL;
	}
	struct shm_buffer *b = (struct shm_buffer *)(void *)p;
	*b = (struct shm_buffer){ .of = s, .size = size, .number = k, .fd = fd };
	struct net_buffer_head *h = (struct net_buffer_head *)(void *)(p + PAGE - NET_BUFFER_HEAD);
	*h = (struct net_buffer_head){ .back = back, .owner = b };
	note_begin(p + PAGE, size);
	b->pinned = pins_in(s->pins, p + PAGE, size);
	s->at[k] = b;
	s->named[k] = true;
	s->bytes += size;
	return b;
}

/* Sizes in four steps between powers of two, so that a buffer fits the next message too. */
static uint64_t size_for(size_t n)
{
	uint64_t all = (uint64_t)n + NOTE_BYTES, step = PAGE;
	while (step * 8 < all)
		step *= 2;
	return (all + step - 1) / step * step;
}

void *shm_out_buffer(struct shm_out *s, size_t n)
{
	if (n > (size_t)1 << 40)
		return NULL;
	uint64_t size = size_for(n);
	pthread_mutex_lock(&s->lock);
	struct shm_buffer *b = NULL;
	if (!s->ended) {
		collect(s, false);
		b = unused(s, size);
		if (!b) {
			collect(s, true);
			b = unused(s, size);
		}
		b = b ? b : make(s, size);
	}
	if (b) {
		b->state = USERS;
		s->refs++;
	}
	pthread_mutex_unlock(&s->lock);
	return b ? bytes_of(b) : NULL;
}

/* Takes back a buffer that a user does not send after all, or whose link was lost. */
static void back(struct net_buffer_head *h)
{
	struct shm_buffer *b = h->owner;
	struct shm_out *s = b->of;
	pthread_mutex_lock(&s->lock);
	if (s->ended) {
		s->at[b->number] = NULL;
		unmap(b);
	} else {
		b->state = UNUSED;
		b->next = s->unused;
		s->unused = b;
	}
	unref(s);
}

struct shm_buffer *shm_out_of(struct shm_out *s, const struct net_node *node)
{
	if (node->release != net_buffer_release || !node->data)
		return NULL;
	const struct net_buffer_head *h =
		(const void *)((const char *)node->data - NET_BUFFER_HEAD);
	struct shm_buffer *b = h->back == back ? h->owner : NULL;
	return b && b->of == s ? b : NULL;
}

uint32_t shm_out_send(struct shm_buffer *b, int *fd_p, uint64_t *size_p)
{
	struct shm_out *s = b->of;
	pthread_mutex_lock(&s->lock);
	uint32_t number = b->number;
	*fd_p = b->fd;
	*size_p = b->size;
	b->fd = -1;
	if (s->ended) {
		s->at[number] = NULL;
		unmap(b);
	} else {
		__atomic_store_n(word_of(bytes_of(b), b->size), 1, __ATOMIC_RELEASE);
		b->state = SENT;
		b->next = NULL;
		*s->sent_end = b;
		s->sent_end = &b->next;
	}
	unref(s);
	return number;
}

int64_t shm_out_given_up(struct shm_out *s)
{
	pthread_mutex_lock(&s->lock);
	int64_t number = s->ngiven_up ? (int64_t)s->given_up[--s->ngiven_up] : -1;
	if (number >= 0)
		s->named[number] = false;
	pthread_mutex_unlock(&s->lock);
	return number;
}

/* ---- receiving ------------------------------------------------------------------------------ */

struct place {
	struct shm_in *of;
	void *p; /* NULL: no buffer has this number */
	uint64_t size;
	bool held; /* a message in it is the user's */
	bool pinned;
};

struct shm_in {
	pthread_mutex_t lock;
	bool ended;
	unsigned held;
	uint64_t most, bytes;
	struct pins *pins;
	struct place place[SHM_BUFFERS];
};

struct shm_in *shm_in_new(uint64_t most, struct pins *pins)
{
	struct shm_in *s = mem_zalloc(sizeof *s);
	if (!s)
		return NULL;
	pthread_mutex_init(&s->lock, NULL);
	s->most = most;
	s->pins = pins_ref(pins);
	for (int i = 0; i < SHM_BUFFERS; i++)
		s->place[i].of = s;
	return s;
}

static void empty(struct place *at)
{
	if (at->pinned)
		pins_out(at->of->pins, at->p);
	munmap(at->p, at->size);
	at->of->bytes -= at->size;
	at->p = NULL;
}

/* Unlocks; frees what nobody needs any more. */
static void leave(struct shm_in *s)
{
	bool last = s->ended && !s->held;
	pthread_mutex_unlock(&s->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&s->lock);
	pins_unref(s->pins);
	mem_free(s);
}

void shm_in_end(struct shm_in *s)
{
	pthread_mutex_lock(&s->lock);
	s->ended = true;
	for (int i = 0; i < SHM_BUFFERS; i++)
		if (s->place[i].p && !s->place[i].held)
			empty(&s->place[i]);
	leave(s);
}

static const char *add(struct shm_in *s, uint64_t number, int fd, uint64_t size)
{
	struct place *at = &s->place[number];
	if (at->p)
		return "a buffer with a number that is in use";
	if (size % PAGE || size < PAGE || size > s->most - s->bytes)
		return "a buffer larger than this side accepts";
	if (!os_is_fixed_memory(fd, size))
		return "a buffer that could change its size";
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED)
		return "a buffer that cannot be mapped";
	at->p = p;
	at->size = size;
	at->pinned = pins_in(s->pins, p, size);
	s->bytes += size;
	return NULL;
}

const char *shm_in_add(struct shm_in *s, uint64_t number, int fd, uint64_t size)
{
	const char *bad = "a buffer without its descriptor";
	pthread_mutex_lock(&s->lock);
	if (number >= SHM_BUFFERS)
		bad = "a buffer with too large a number";
	else if (fd >= 0)
		bad = add(s, number, fd, size);
	pthread_mutex_unlock(&s->lock);
	if (fd >= 0)
		close(fd);
	return bad;
}

static void released(void *ctx, void *data)
{
	struct place *at = ctx;
	struct shm_in *s = at->of;
	(void)data;
	pthread_mutex_lock(&s->lock);
	at->held = false;
	s->held--;
	__atomic_store_n(word_of(at->p, at->size), 0, __ATOMIC_RELEASE);
	if (s->ended)
		empty(at);
	leave(s);
}

const char *shm_in_take(struct shm_in *s, uint64_t number, uint64_t n, struct net_node *node)
{
	const char *bad = NULL;
	pthread_mutex_lock(&s->lock);
	struct place *at = number < SHM_BUFFERS ? &s->place[number] : NULL;
	if (!at || !at->p)
		bad = "a message in a buffer that it did not share";
	else if (n > at->size - WORD)
		bad = "a message larger than its buffer";
	else if (at->held)
		bad = "a message in a buffer that this side still uses";
	if (!bad) {
		at->held = true;
		s->held++;
		node->data = at->p;
		node->size = n;
		node->release = released;
		node->ctx = at;
		node->shared = true;
	}
	pthread_mutex_unlock(&s->lock);
	return bad;
}

const char *shm_in_drop(struct shm_in *s, uint64_t number)
{
	const char *bad = NULL;
	pthread_mutex_lock(&s->lock);
	struct place *at = number < SHM_BUFFERS ? &s->place[number] : NULL;
	if (!at || !at->p || at->held)
		bad = "it gives up a buffer that is not its own";
	else
		empty(at);
	pthread_mutex_unlock(&s->lock);
	return bad;
}
