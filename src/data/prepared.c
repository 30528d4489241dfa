/* SPDX-License-Identifier: Apache-2.0 */
/* prepared.c - see prepared.h. */
#include "data/prepared.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/open.h"
#include "base/os_calls.h"
#include "base/version.h"
#include "data/sources.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Counts up whenever the same records give other tokens, or the file has another layout. */
enum { PREPARED_LAYOUT = 6, HELD = 1 << 20 };

static const char magic[] = "HSTOKENS";

/* ---- the key ---- */

static void add_text(struct buf *b, const char *text)
{
	buf_addf(b, "%zu:", text ? strlen(text) : 0);
	buf_adds(b, text ? text : "-");
}

static int add_source(struct buf *b, const struct dataset_source *s, struct err *e)
{
	struct source_files f;
	const char *const word[] = { s->type,
				     s->split,
				     s->format,
				     s->no_input_format,
				     s->system_format,
				     s->system_prompt,
				     s->prompt_format,
				     s->chosen_format,
				     s->rejected_format,
				     s->completion_format,
				     s->roles ? s->roles : "assistant" };
	bool regular = true;
	for (size_t i = 0; i < ARRAY_LEN(word); i++)
		add_text(b, word[i]);
	for (size_t i = 0; i < FIELD_COUNT; i++)
		add_text(b, s->field[i]);
	buf_addf(b, "%.17g\n", s->weight);
	TRY(source_files(s, &f, e));
	for (size_t i = 0; i < f.n && regular; i++) {
		struct stat st;
		char *real = realpath(f.path[i], NULL);
		regular = real && stat(real, &st) == 0 && S_ISREG(st.st_mode);
		if (regular) {
			add_text(b, real);
			buf_addf(b, "%lld %lld.%09ld\n", (long long)st.st_size,
				 (long long)os_modified(&st).tv_sec, os_modified(&st).tv_nsec);
		}
		free(real);
	}
	source_files_release(&f);
	return regular;
}

static uint64_t check_of(struct prepared_head h)
{
	const uint8_t *p = (const uint8_t *)&h;
	uint64_t sum = 0xcbf29ce484222325ull;
	h.check = 0;
	for (size_t i = 0; i < sizeof h; i++)
		sum = (sum ^ p[i]) * 0x100000001b3ull;
	return sum;
}

/* Two FNV-1a digests of 64 bits, of the text forwards and backwards. */
static void digest(const struct buf *b, char key[PREPARED_KEY])
{
	uint64_t h[2] = { 0xcbf29ce484222325ull, 0x84222325cbf29ce4ull };
	for (size_t i = 0; i < b->n; i++) {
		h[0] = (h[0] ^ (uint8_t)b->p[i]) * 0x100000001b3ull;
		h[1] = (h[1] ^ (uint8_t)b->p[b->n - 1 - i]) * 0x100000001b3ull;
	}
	snprintf(key, PREPARED_KEY, "%016llx%016llx", (unsigned long long)h[0],
		 (unsigned long long)h[1]);
}

int prepared_key(const struct dataset_source *src, size_t nsrc, const struct dataset_options *o,
		 char key[PREPARED_KEY], struct err *e)
{
	struct buf b = BUF_INIT;
	int rc = 1;
	buf_addf(&b, "%s %d %lld %d %d %d %d\n", HS_VERSION, PREPARED_LAYOUT,
		 (long long)o->sequence_len, o->train_on_inputs, o->skip_bad_records,
		 (int)o->prefer, (int)o->excess);
	add_text(&b, o->identity);
	for (size_t i = 0; i < nsrc && rc > 0; i++)
		rc = add_source(&b, &src[i], e);
	if (rc >= 0 && buf_ok(&b, e) < 0)
		rc = e->code;
	if (rc > 0)
		digest(&b, key);
	buf_release(&b);
	return rc;
}

/* ---- files of runs that were killed ---- */

/* How a file begins while it is written. Its writer holds the kernel's lock on it before this is
 * there, until it ends; the lock says nothing of writers on other machines. */
struct unfinished {
	char magic[8], host[256];
};

static const char unfinished_magic[] = "HSUNDONE";

static struct unfinished unfinished_here(void)
{
	struct unfinished u = { .magic = "" };
	memcpy(u.magic, unfinished_magic, sizeof u.magic);
	gethostname(u.host, sizeof u.host - 1);
	return u;
}

/* 32 hexadecimal digits, a process, a number, "tmp" */
static bool is_unfinished_name(const char *name)
{
	const size_t key = strspn(name, "0123456789abcdef");
	int end = 0;
	if (key != PREPARED_KEY - 1)
		return false;
	sscanf(name + key, ".%*[0-9].%*[0-9].tmp%n", &end);
	return end && !name[key + (size_t)end];
}

static bool is_left(int folder, const char *name, int fd)
{
	const struct unfinished here = unfinished_here();
	struct unfinished u;
	struct stat st, there;
	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	       pread(fd, &u, sizeof u, 0) == sizeof u && !memcmp(&u, &here, sizeof u) &&
	       flock(fd, LOCK_EX | LOCK_NB) == 0 &&
	       fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
	       there.st_dev == st.st_dev && there.st_ino == st.st_ino;
}

static void remove_left(const char *dir)
{
	DIR *d = opendir(dir);
	for (const struct dirent *f; d && (f = readdir(d));) {
		if (!is_unfinished_name(f->d_name))
			continue;
		const int fd = openat(dirfd(d), f->d_name,
				      O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd >= 0 && is_left(dirfd(d), f->d_name, fd) &&
		    unlinkat(dirfd(d), f->d_name, 0) == 0)
			log_info("dataset_prepared_path: %s/%s is removed: a run that was killed "
				 "left it",
				 dir, f->d_name);
		if (fd >= 0)
			close(fd);
	}
	if (d)
		closedir(d);
}

/* ---- reading ---- */

static int set_path(struct prepared *p, const char *dir, const char *key, struct err *e)
{
	struct buf b = BUF_INIT;
	buf_addf(&b, "%s/%s.tokens", dir, key);
	p->path = b.cap ? b.p : NULL;
	return buf_ok(&b, e);
}

static int map(struct prepared *p, uint64_t size, struct err *e)
{
	void *m = mmap(NULL, size, PROT_READ, MAP_SHARED, p->fd, 0);
	if (m == MAP_FAILED)
		return err_sys(e, errno, "%s", p->path);
	p->map = m;
	p->mapped = size;
	p->data = (const uint8_t *)m + PREPARED_HEAD;
	return 0;
}

/* NULL, or what is wrong with the head. */
static const char *wrong(const struct prepared_head *h, const char *key, size_t span, uint64_t size)
{
	uint64_t spans, all;
	if (memcmp(h->magic, magic, sizeof h->magic) != 0 || h->layout != PREPARED_LAYOUT ||
	    h->span != span || strncmp(h->key, key, sizeof h->key) != 0)
		return "is of another program";
	if (h->bytes % 8 || !h->count || !mul_ok(h->count, span, &spans) ||
	    !add_ok(h->bytes, spans, &all) || !add_ok(all, PREPARED_HEAD, &all) || all != size)
		return "is cut off";
	if (h->check != check_of(*h))
		return "is damaged";
	return memchr(h->stats.first_skipped, 0, sizeof h->stats.first_skipped) ? NULL
										: "is damaged";
}

int prepared_open(const char *dir, const char *key, size_t span, struct prepared *p, struct err *e)
{
	const char *why = NULL;
	uint64_t size;
	*p = (struct prepared){ .fd = -1 };
	remove_left(dir);
	int rc = set_path(p, dir, key, e);
	if (rc >= 0 && access(p->path, F_OK) == 0 &&
	    (!open_only_mine(dir, &why) || !open_only_mine(p->path, &why)))
		log_warn("%s: %s %s: it is not used", "dataset_prepared_path", p->path, why);
	else if (rc >= 0 && access(p->path, F_OK) == 0 &&
		 (rc = open_read(p->path, &p->fd, &size, e)) >= 0) {
		why = size < PREPARED_HEAD ? "is cut off" : NULL;
		rc = why ? 0 : map(p, size, e);
		if (rc >= 0 && !why) {
			memcpy(&p->head, p->map, sizeof p->head);
			why = wrong(&p->head, key, span, size);
		}
		if (rc >= 0 && why)
			log_warn("%s %s: it is made again", p->path, why);
		else if (rc >= 0)
			rc = 1;
	}
	if (rc <= 0)
		prepared_close(p);
	else
		p->span = p->data + p->head.bytes;
	return rc;
}

/* ---- writing ---- */

/* A name that no other writer has, also none in another container with the same number. */
static int create(struct prepared *p, const char *dir, const char *key, struct err *e)
{
	const struct unfinished here = unfinished_here();
	for (int i = 0; i < 100; i++) {
		struct buf b = BUF_INIT;
		buf_addf(&b, "%s/%s.%ld.%d.tmp", dir, key, (long)getpid(), i);
		mem_free(p->tmp);
		p->tmp = b.cap ? b.p : NULL;
		TRY(buf_ok(&b, e));
		p->fd = open_write(p->tmp, OPEN_NEW, 0666);
		if (p->fd >= 0 || errno != EEXIST)
			break;
	}
	if (p->fd < 0) {
		const int rc = err_sys(e, errno, "%s", p->tmp);
		mem_free(p->tmp);
		p->tmp = NULL; /* it is not ours to remove */
		return rc;
	}
	/* without a lock nobody may take the file for one of a process that is gone */
	if (flock(p->fd, LOCK_EX | LOCK_NB) == 0 &&
	    pwrite(p->fd, &here, sizeof here, 0) != sizeof here)
		return err_sys(e, errno, "dataset_prepared_path: %s", p->tmp);
	return 0;
}

int prepared_begin(const char *dir, const char *key, struct prepared *p, struct err *e)
{
	*p = (struct prepared){ .fd = -1, .head = { .layout = PREPARED_LAYOUT } };
	memcpy(p->head.magic, magic, sizeof p->head.magic);
	snprintf(p->head.key, sizeof p->head.key, "%s", key);
	int rc = set_path(p, dir, key, e);
	p->held = mem_alloc(HELD);
	if (rc >= 0 && !p->held)
		rc = err_nomem(e, HELD, "prepared data");
	if (rc >= 0)
		rc = create(p, dir, key, e);
	/* the head is written last */
	if (rc >= 0 && lseek(p->fd, PREPARED_HEAD, SEEK_SET) < 0)
		rc = err_sys(e, errno, "%s", p->tmp);
	if (rc < 0)
		prepared_close(p);
	return rc;
}

static int write_all(struct prepared *p, const void *data, size_t n, struct err *e)
{
	for (const uint8_t *b = data, *end = b + n; b < end;) {
		const ssize_t k = write(p->fd, b, (size_t)(end - b));
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return err_sys(e, k < 0 ? errno : ENOSPC, "dataset_prepared_path: %s",
				       p->tmp);
		b += k;
	}
	return 0;
}

static int flush(struct prepared *p, struct err *e)
{
	const size_t n = p->nheld;
	p->nheld = 0;
	return write_all(p, p->held, n, e);
}

int prepared_put(struct prepared *p, const void *data, size_t n, struct err *e)
{
	p->written += n;
	if (p->nheld + n > HELD)
		TRY(flush(p, e));
	if (n > HELD)
		return write_all(p, data, n, e);
	memcpy(p->held + p->nheld, data, n);
	p->nheld += (uint32_t)n;
	return 0;
}

int prepared_map(struct prepared *p, const void *span, size_t size, size_t count, struct err *e)
{
	static const uint8_t none[8];
	TRY(prepared_put(p, none, (8 - p->written % 8) % 8, e));
	p->head.bytes = p->written;
	p->head.span = (uint32_t)size;
	p->head.count = count;
	TRY(flush(p, e));
	TRY(write_all(p, span, size * count, e));
	/* the descriptor that writes cannot be mapped */
	const int fd = p->fd;
	TRY(open_read(p->tmp, &p->fd, NULL, e));
	const int rc = map(p, PREPARED_HEAD + p->head.bytes + size * count, e);
	close(p->fd);
	p->fd = fd;
	if (rc < 0)
		return rc;
	p->span = p->data + p->head.bytes;
	return 0;
}

int prepared_keep(struct prepared *p, struct err *e)
{
	p->head.check = check_of(p->head);
	if (pwrite(p->fd, &p->head, sizeof p->head, 0) != sizeof p->head || fsync(p->fd) < 0 ||
	    rename(p->tmp, p->path) < 0)
		return err_sys(e, errno, "dataset_prepared_path: %s", p->tmp);
	mem_free(p->tmp);
	p->tmp = NULL;
	return 0;
}

void prepared_close(struct prepared *p)
{
	if (p->map)
		munmap(p->map, p->mapped);
	if (p->fd >= 0 && p->path)
		close(p->fd);
	if (p->tmp && p->held)
		unlink(p->tmp);
	mem_free(p->tmp);
	mem_free(p->path);
	mem_free(p->held);
	*p = (struct prepared){ .fd = -1 };
}
