/* SPDX-License-Identifier: Apache-2.0 */
/* measure_serve.c - a worker measures its device, or reads an earlier measurement from the cache.
 *
 * A cached measurement is used when all of this is the same: the request (model, dtype, adapter,
 * optimizer, lengths, sizes, how many workers of the machine measure together), the program file,
 * the device and its driver, the threads, the processors and the quota this process may use. The
 * file holds a hash and the payload of PROFILED; when it is damaged, the device is measured again.
 * Memory in use by other programs is asked every time. */
#include "proto/measure_wire.h"
#include "worker/measure_serve.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/os.h"
#include "base/os_calls.h"
#include "base/version.h"
#include "file/atomic.h"
#include "file/cache.h"
#include "runtime/runtime.h"

#include <limits.h>
#include <omp.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { HASH = 32, CACHED_MOST = 64 << 10 };

static void add(crypto_generichash_state *h, const char *s)
{
	crypto_generichash_update(h, (const unsigned char *)s, strlen(s) + 1);
}

static void add_number(crypto_generichash_state *h, long long v)
{
	char text[32];
	snprintf(text, sizeof text, "%lld", v);
	add(h, text);
}

/* The processors and the share of their time that this process may have. */
static void add_processors(crypto_generichash_state *h)
{
	int cores = os_affinity();
	add_number(h, cores);
	add_number(h, omp_get_max_threads());
	add_number(h, os_cores("", cores));
}

static void make_key(const char *device, const struct dev_caps *caps, const unsigned char *request,
		     size_t n, char key[2 * HASH + 1])
{
	crypto_generichash_state h;
	unsigned char sum[HASH];
	struct stat st = { 0 };
	crypto_generichash_init(&h, NULL, 0, HASH);
	add(&h, HS_VERSION);
	if (os_self_exe() && stat(os_self_exe(), &st) == 0) {
		add_number(&h, (long long)st.st_size);
		add_number(&h, (long long)os_modified(&st).tv_sec);
		add_number(&h, (long long)os_modified(&st).tv_nsec);
	}
	add(&h, device ? device : "auto");
	add(&h, caps->name);
	add(&h, caps->driver);
	add_number(&h, caps->units);
	add_processors(&h);
	crypto_generichash_update(&h, request + 1, n - 1); /* behind `refresh` */
	crypto_generichash_final(&h, sum, HASH);
	sodium_bin2hex(key, 2 * HASH + 1, sum, HASH);
}

static bool recall(const char *path, struct measure_result *r)
{
	struct buf b = BUF_INIT;
	struct err ignored = { 0 };
	unsigned char sum[HASH];
	bool found = false;
	if (cache_file_ready(path) && buf_read_file(&b, path, CACHED_MOST, &ignored) >= 0 &&
	    b.n > HASH) {
		crypto_generichash(sum, HASH, (const unsigned char *)b.p + HASH, b.n - HASH, NULL,
				   0);
		found = !memcmp(sum, b.p, HASH) &&
			measure_result_read(b.p + HASH, b.n - HASH, r, &ignored) >= 0;
		if (!found)
			log_warn("%s is damaged: measuring again", path);
	}
	buf_release(&b);
	return found;
}

static void remember(const char *path, const struct measure_result *r)
{
	unsigned char b[CACHED_MOST];
	struct err e = { 0 };
	size_t n;
	int rc = measure_result_write(r, b + HASH, sizeof b - HASH, &n, &e);
	if (rc >= 0) {
		crypto_generichash(b, HASH, b + HASH, n, NULL, 0);
		rc = atomic_write_file(path, b, HASH + n, &e);
	}
	if (rc < 0)
		log_warn("the measurement cannot be cached: %s", e.msg);
}

static int capabilities(const char *device, struct dev_caps *caps, struct err *e)
{
	struct dev *d;
	TRY(runtime_device(device, &d, e));
	int rc = dev_caps(d, caps, e);
	dev_close(d);
	return rc;
}

struct serving {
	const struct measure_talk *talk;
	const char *path; /* in the cache; "": none */
};

static int answer(const struct serving *s, const struct measure_result *r, struct err *e)
{
	unsigned char b[CACHED_MOST];
	size_t n;
	TRY(measure_result_write(r, b, sizeof b, &n, e));
	return s->talk->say(s->talk->ctx, b, n, e);
}

static int begin_together(void *ctx, struct err *e)
{
	const struct serving *s = ctx;
	TRY(s->talk->say(s->talk->ctx, NULL, 0, e));
	int rc = s->talk->called(s->talk->ctx, true, e);
	return rc < 0 ? rc : 0;
}

static int end_together(void *ctx, const struct measure_result *r, struct err *e)
{
	const struct serving *s = ctx;
	if (s->path[0])
		remember(s->path, r);
	return answer(s, r, e);
}

static int others_measure(void *ctx, struct err *e)
{
	const struct serving *s = ctx;
	int rc = s->talk->called(s->talk->ctx, false, e);
	return rc < 0 ? rc : !rc;
}

static bool nobody_waits(void *ctx)
{
	const struct serving *s = ctx;
	return s->talk->gone && s->talk->gone(s->talk->ctx);
}

static int measure_anew(const char *device, const struct measure_request *q, struct serving *s,
			struct err *e)
{
	struct measure_result r;
	bool together = q->sharing > 1;
	const struct measure_others others = { .ctx = s,
					       .begin = together ? begin_together : NULL,
					       .end = end_together,
					       .busy = others_measure,
					       .gone = nobody_waits };
	int rc = measure_run(device, q, &others, &r, e);
	if (rc < 0)
		return err_prefix(e, "measuring the device '%s'", device);
	if (together) /* the result is sent; this answers the call that ended the wait */
		return s->talk->say(s->talk->ctx, NULL, 0, e);
	return end_together(s, &r, e);
}

int measure_serve(const char *device, const char *cache_dir, const void *p, size_t n,
		  const struct measure_talk *talk, struct err *e)
{
	struct measure_request q;
	struct measure_result r;
	struct dev_caps caps;
	struct err why = { 0 };
	char dir[PATH_MAX - 80], path[PATH_MAX] = "", key[2 * HASH + 1];
	struct serving s = { talk, path };
	TRY(measure_request_read(p, n, &q, e));
	TRY(capabilities(device, &caps, e));
	make_key(device, &caps, p, n, key);
	if (cache_folder(cache_dir, "profile", dir, sizeof dir, &why) < 0)
		log_warn("measurements cannot be cached: %s", why.msg);
	else if (cache_ready(dir, true))
		snprintf(path, sizeof path, "%s/%s", dir, key);
	if (!path[0] || q.refresh || !recall(path, &r))
		return measure_anew(device, &q, &s, e);
	r.memory = caps.mem_total;
	r.used = caps.mem_total - caps.mem_free;
	return answer(&s, &r, e);
}
