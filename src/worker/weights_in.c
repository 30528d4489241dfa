/* SPDX-License-Identifier: Apache-2.0 */
/* weights_in.c - the worker's side of weights_out.h: tensors come from a model file of the worker
 * where its bytes are the same, else from the cache, else over the link. */
#include "worker/weights_in.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/orders.h"
#include "file/atomic.h"
#include "file/map.h"
#include "file/cache.h"
#include "proto/hashes.h"
#include "proto/weights_blob.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum place { MISSING, OWN_FILE, CACHED };

struct entry {
	struct blob_head h;
	enum place place;
	struct blob blob;    /* OWN_FILE, while in use */
	struct file_map map; /* CACHED, while in use */
};

struct weights_in {
	const struct weights_in_options *o; /* until weights_in_open returns */
	struct model_file *own;
	struct entry *entry;
	struct entry **sorted; /* [n] by name */
	size_t n;
	char dir[3072];
	int held;
	uint64_t fetched, limit;
	struct hashes *known; /* until weights_in_open returns */
	struct hash_key own_key;
};

/* ---- the cache ---- */

static void cache_path(const struct weights_in *w, const struct blob_head *h, char *out, size_t cap)
{
	char hex[BLOB_HASH * 2 + 1];
	sodium_bin2hex(hex, sizeof hex, h->hash, BLOB_HASH);
	snprintf(out, cap, "%s/%.2s/%s", w->dir, hex, hex + 2);
}

/* Whether the cache holds this tensor, complete and with the right hash. */
static bool in_cache(struct weights_in *w, const struct blob_head *h)
{
	char path[4096];
	struct file_map m;
	struct err ignored = { 0 };
	unsigned char hash[BLOB_HASH];
	cache_path(w, h, path, sizeof path);
	if (access(path, F_OK) < 0)
		return false;
	if (!cache_file_ready(path)) {
		unlink(path);
		return false;
	}
	const struct hash_key source = hashes_source(path), key = hashes_tensor(&source, h);
	bool right = hashes_find(w->known, &key, hash) && !memcmp(hash, h->hash, BLOB_HASH);
	if (!right && map_open(path, &m, &ignored) >= 0) {
		if (m.size == h->bytes) {
			blob_hash(m.p, m.size, hash);
			right = !memcmp(hash, h->hash, BLOB_HASH);
		}
		map_close(&m);
		if (right)
			hashes_add(w->known, &key, hash);
	}
	if (right)
		cache_used(path);
	if (!right) {
		log_warn("%s does not match its hash: it is fetched again", path);
		unlink(path);
	}
	return right;
}

static bool in_own_file(struct weights_in *w, const struct blob_head *h)
{
	const struct model_tensor *t = w->own ? model_file_find(w->own, h->name) : NULL;
	struct blob_head mine;
	struct blob b;
	struct err ignored = { 0 };
	if (!t || blob_describe(w->own, t, &w->o->plan->opt, &mine, &ignored) < 0 ||
	    mine.bytes != h->bytes || mine.nf4 != h->nf4 || mine.doubled != h->doubled ||
	    mine.dtype != h->dtype || mine.block != h->block || mine.shape[0] != h->shape[0])
		return false;
	const struct hash_key key = hashes_tensor(&w->own_key, &mine);
	if (!hashes_find(w->known, &key, mine.hash)) {
		if (blob_make(w->own, &mine, &b, &ignored) < 0)
			return false;
		blob_hash(b.p, b.n, mine.hash);
		blob_release(&b);
		model_file_drop(w->own, t);
		hashes_add(w->known, &key, mine.hash);
	}
	return !memcmp(mine.hash, h->hash, BLOB_HASH);
}

/* ---- over the link ---- */

static int next_frame(struct weights_in *w, enum frame_kind kind, struct net_msg *msg_p,
		      struct frame *f_p, struct err *e)
{
	int rc = link_recv_frame(w->o->coordinator, NET_FOREVER, msg_p, f_p, e);
	if (rc < 0)
		return err_prefix(e, "coordinator (%s)", link_address(w->o->coordinator));
	if (rc > 0 && f_p->kind == kind)
		return 0;
	if (rc == 0)
		return err_set(e, ERR_NET, "the coordinator sent no %s", frame_name(kind));
	struct err why = { 0 };
	if (f_p->kind == FRAME_ABORT) {
		abort_read(f_p->payload, f_p->size, &why);
		rc = err_set(e, ERR_CANCELLED, "the coordinator stopped the job: %.900s", why.msg);
	} else if (f_p->kind == FRAME_FINISH) {
		rc = err_set(e, ERR_CANCELLED, "the coordinator ended the job before it began");
	} else if (f_p->kind == FRAME_FORGET) {
		rc = orders_forget(w->o->forget, f_p, e);
	} else {
		rc = err_set(e, ERR_PROTOCOL, "%s from the coordinator where %s was expected",
			     frame_name(f_p->kind), frame_name(kind));
	}
	net_msg_release(msg_p);
	return rc;
}

static int take_offer(struct weights_in *w, struct err *e)
{
	struct net_msg msg;
	struct frame f;
	TRY(next_frame(w, FRAME_WEIGHTS_OFFER, &msg, &f, e));
	struct wire_reader r = wire_read(f.payload, f.size);
	uint32_t n = wire_get_count(&r, 32 + BLOB_HASH, BLOB_TENSORS_MOST);
	int rc = 0;
	w->entry = mem_array(n ? n : 1, sizeof *w->entry);
	if (!w->entry)
		rc = err_nomem(e, n * sizeof *w->entry, "the list of parameters");
	for (uint32_t i = 0; i < n && rc >= 0; i++)
		rc = blob_head_get(&r, &w->entry[i].h, e);
	if (rc >= 0)
		rc = wire_read_end(&r, "WEIGHTS_OFFER", e);
	if (rc >= 0)
		w->n = n;
	net_msg_release(&msg);
	return rc;
}

static int by_name(const void *a, const void *b)
{
	const struct entry *const *x = a, *const *y = b;
	return strcmp((*x)->h.name, (*y)->h.name);
}

static int sort_names(struct weights_in *w, struct err *e)
{
	struct entry **v = w->sorted = mem_array(w->n + 1, sizeof *v);
	if (!v)
		return err_nomem(e, w->n * sizeof *v, "the list of parameters");
	for (size_t i = 0; i < w->n; i++)
		v[i] = &w->entry[i];
	qsort(v, w->n, sizeof *v, by_name);
	for (size_t i = 1; i < w->n; i++)
		if (!strcmp(v[i - 1]->h.name, v[i]->h.name))
			return err_set(e, ERR_PROTOCOL, "WEIGHTS_OFFER: %s twice", v[i]->h.name);
	return 0;
}

/* Only what this worker's layers have, in their shapes, each once: so a coordinator cannot make it
 * store anything else. */
static int check_offer(struct weights_in *w, struct err *e)
{
	const struct plan_message *p = w->o->plan;
	const struct weight_source shapes = source_random(&p->cfg);
	for (size_t i = 0; i < w->n; i++) {
		const struct blob_head *h = &w->entry[i].h;
		struct source_tensor t;
		if (!plan_needs(p, h->name))
			return err_set(e, ERR_PROTOCOL,
				       "WEIGHTS_OFFER: %s is not of this worker's layers", h->name);
		TRY(shapes.find(shapes.ctx, h->name, &t, e));
		if (h->ndim != t.ndim || h->shape[0] != t.shape[0] || h->shape[1] != t.shape[1])
			return err_set(e, ERR_PROTOCOL,
				       "WEIGHTS_OFFER: %s has the shape [%lld, %lld]; by the "
				       "plan it is [%lld, %lld]",
				       h->name, (long long)h->shape[0], (long long)h->shape[1],
				       (long long)t.shape[0], (long long)t.shape[1]);
	}
	return sort_names(w, e);
}

/* What is missing must fit into the cache, by its limit and by the disk, before it is asked for. */
static int check_room(const struct weights_in *w, struct err *e)
{
	uint64_t missing = 0;
	struct statvfs disk;
	for (size_t i = 0; i < w->n; i++)
		missing += w->entry[i].place == MISSING ? w->entry[i].h.bytes : 0;
	if (w->limit && missing > w->limit)
		return err_set(e, ERR_USAGE,
			       "%s: %.3g GB of layers are to be fetched, cache_limit_gib allows "
			       "%.3g GB: raise it on this machine",
			       w->dir, (double)missing / 1e9, (double)w->limit / 1e9);
	if (missing && statvfs(w->dir, &disk) == 0 &&
	    missing > (uint64_t)disk.f_bavail * (uint64_t)disk.f_frsize)
		return err_set(e, ERR_INPUT,
			       "%s: %.3g GB of layers are to be fetched, %.3g GB are free there: "
			       "make room, or name another folder (cache_dir; of an invited "
			       "worker XDG_CACHE_HOME)",
			       w->dir, (double)missing / 1e9,
			       (double)disk.f_bavail * (double)disk.f_frsize / 1e9);
	return 0;
}

static int send_need(struct weights_in *w, uint32_t *missing_p, struct err *e)
{
	size_t cap = 4 + w->n * 4, n;
	void *mem = mem_alloc(cap);
	if (!mem)
		return err_nomem(e, cap, "the list of missing parameters");
	struct wire_writer out = wire_write(mem, cap);
	*missing_p = 0;
	for (size_t i = 0; i < w->n; i++)
		*missing_p += w->entry[i].place == MISSING;
	wire_put_u32(&out, *missing_p);
	for (size_t i = 0; i < w->n; i++)
		if (w->entry[i].place == MISSING)
			wire_put_u32(&out, (uint32_t)i);
	int rc = wire_write_end(&out, &n, e);
	if (rc >= 0)
		rc = link_send_frame(w->o->coordinator,
				     &(struct frame){ .kind = FRAME_WEIGHTS_NEED,
						      .job = w->o->job,
						      .epoch = w->o->epoch,
						      .from = FRAME_MEMBER(w->o->plan->self),
						      .to = FRAME_COORDINATOR,
						      .size = n,
						      .payload = mem },
				     NET_FOREVER, e);
	mem_free(mem);
	return rc;
}

/* One tensor, part after part, into the cache. Two workers may fetch the same one at a time, so
 * each writes to a name of its own. */
static int fetch(struct weights_in *w, size_t i, struct err *e)
{
	struct entry *t = &w->entry[i];
	char path[4096], mine[4160], *slash;
	struct atomic_file out;
	crypto_generichash_state s;
	unsigned char hash[BLOB_HASH];
	cache_path(w, &t->h, path, sizeof path);
	snprintf(mine, sizeof mine, "%s.%ld", path, (long)getpid());
	slash = strrchr(path, '/');
	*slash = 0;
	TRY(dir_make_private(path, e));
	*slash = '/';
	TRY(atomic_begin(mine, &out, e));
	crypto_generichash_init(&s, NULL, 0, BLOB_HASH);
	int rc = 0;
	for (uint64_t at = 0; at < t->h.bytes && rc >= 0;) {
		struct net_msg msg;
		struct frame f;
		rc = next_frame(w, FRAME_WEIGHTS, &msg, &f, e);
		if (rc < 0)
			break;
		struct wire_reader r = wire_read(f.payload, f.size);
		uint32_t index = wire_get_u32(&r);
		uint64_t first = wire_get_u64(&r);
		size_t n = 0;
		const void *p = wire_get_bytes(&r, &n);
		rc = wire_read_end(&r, "WEIGHTS", e);
		if (rc >= 0 && (index != i || first != at || !n || n > t->h.bytes - at))
			rc = err_set(e, ERR_PROTOCOL,
				     "WEIGHTS: tensor %u from byte %llu, %zu bytes; %zu from byte "
				     "%llu was due",
				     index, (unsigned long long)first, n, i,
				     (unsigned long long)at);
		if (rc >= 0)
			rc = atomic_write(&out, p, n, e);
		if (rc >= 0)
			crypto_generichash_update(&s, p, n);
		at += n;
		net_msg_release(&msg);
	}
	crypto_generichash_final(&s, hash, BLOB_HASH);
	if (rc >= 0 && memcmp(hash, t->h.hash, BLOB_HASH))
		rc = err_set(e, ERR_PROTOCOL,
			     "WEIGHTS: the bytes of %s do not match the offered hash", t->h.name);
	if (rc < 0) {
		atomic_abort(&out);
		return rc;
	}
	TRY(atomic_commit(&out, e));
	if (rename(mine, path) < 0)
		return err_sys(e, errno, "%s: renaming", mine);
	t->place = CACHED;
	w->fetched += t->h.bytes;
	return 0;
}

int weights_in_open(const struct weights_in_options *o, struct weights_in **w_p, struct err *e)
{
	struct weights_in *w = mem_zalloc(sizeof *w);
	struct err ignored = { 0 };
	uint32_t missing = 0;
	int rc = 0;
	if (!w)
		return err_nomem(e, sizeof *w, "parameters");
	w->o = o;
	w->held = -1;
	w->limit = o->cache_limit;
	TRYOUT(cache_folder(o->cache_dir, "weights", w->dir, sizeof w->dir, e));
	/* what is kept there is trained with, and is read again from there while this runs */
	if (!cache_ready(w->dir, true))
		TRYOUT(err_set(e, ERR_USAGE,
			       "%s cannot keep the layers of this worker (see above): name another "
			       "folder (cache_dir)",
			       w->dir));
	w->held = cache_hold(w->dir);
	if (o->model && access(o->model, R_OK) == 0 &&
	    model_file_open(o->model, &w->own, &ignored) >= 0) {
		struct model_config own;
		w->own_key = hashes_source(o->model);
		if (!o->plan->cfg.tied &&
		    model_config_read(model_file_config(w->own), o->model, &own, &ignored) >= 0)
			runtime_untie(w->own, &own, &ignored);
	}
	w->known = hashes_open(o->cache_dir);
	TRYOUT(take_offer(w, e));
	TRYOUT(check_offer(w, e));
	for (size_t i = 0; i < w->n; i++)
		w->entry[i].place = in_own_file(w, &w->entry[i].h) ? OWN_FILE
				    : in_cache(w, &w->entry[i].h)  ? CACHED
								   : MISSING;
	TRYOUT(check_room(w, e));
	TRYOUT(send_need(w, &missing, e));
	for (size_t i = 0; i < w->n; i++)
		if (w->entry[i].place == MISSING)
			TRYOUT(fetch(w, i, e));
	hashes_close(w->known);
	w->known = NULL;
	w->o = NULL;
	*w_p = w;
	return 0;
out:
	weights_in_close(w);
	return rc;
}

uint64_t weights_in_bytes(const struct weights_in *w)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < w->n; i++)
		sum += w->entry[i].h.bytes;
	return sum;
}

uint64_t weights_in_fetched(const struct weights_in *w) { return w->fetched; }

void weights_in_close(struct weights_in *w)
{
	if (!w)
		return;
	for (size_t i = 0; i < w->n; i++) {
		blob_release(&w->entry[i].blob);
		map_close(&w->entry[i].map);
	}
	hashes_close(w->known);
	model_file_close(w->own);
	cache_release(w->dir, w->held, w->limit);
	mem_free(w->sorted);
	mem_free(w->entry);
	mem_free(w);
}

/* ---- the source ---- */

static int is_named(const void *name, const void *entry)
{
	const struct entry *const *t = entry;
	return strcmp(name, (*t)->h.name);
}

static struct entry *entry_of(struct weights_in *w, const char *name)
{
	struct entry **t = bsearch(name, w->sorted, w->n, sizeof *t, is_named);
	return t ? *t : NULL;
}

static int bytes_of(struct weights_in *w, const char *name, struct entry **t_p,
		    const unsigned char **p_p, struct err *e)
{
	struct entry *t = *t_p = entry_of(w, name);
	if (t->place == OWN_FILE) {
		if (!t->blob.p)
			TRY(blob_make(w->own, &t->h, &t->blob, e));
		*p_p = t->blob.p;
		return 0;
	}
	if (!t->map.p) {
		char path[4096];
		cache_path(w, &t->h, path, sizeof path);
		TRY(map_open(path, &t->map, e));
		if (t->map.size != t->h.bytes)
			return err_set(e, ERR_INPUT, "%s: it has changed since it was verified",
				       path);
	}
	*p_p = t->map.p;
	return 0;
}

static int find(void *ctx, const char *name, struct source_tensor *t_p, struct err *e)
{
	(void)e;
	const struct entry *t = entry_of(ctx, name);
	if (!t)
		return 0;
	*t_p = (struct source_tensor){ .nf4 = t->h.nf4,
				       .ndim = t->h.ndim,
				       .shape = { t->h.shape[0], t->h.shape[1] } };
	return 1;
}

static int read_rows(void *ctx, const char *name, int64_t row0, int64_t rows, float *dst,
		     struct err *e)
{
	struct entry *t;
	const unsigned char *p;
	TRY(bytes_of(ctx, name, &t, &p, e));
	if (t->h.nf4 || row0 < 0 || rows < 0 || rows > t->h.shape[0] - row0)
		return err_set(e, ERR_INTERNAL, "%s: rows %lld and %lld more", name,
			       (long long)row0, (long long)rows);
	blob_rows(&t->h, p, row0, rows, dst);
	return 0;
}

static int nf4(void *ctx, const char *name, struct nf4_parts *q, struct err *e)
{
	struct entry *t;
	const unsigned char *p;
	TRY(bytes_of(ctx, name, &t, &p, e));
	blob_nf4(&t->h, p, q);
	return 0;
}

static void drop(void *ctx, const char *name)
{
	struct weights_in *w = ctx;
	struct entry *t = entry_of(w, name);
	if (!t)
		return;
	if (t->place == OWN_FILE) {
		const struct model_tensor *m = model_file_find(w->own, name);
		if (m)
			model_file_drop(w->own, m);
	}
	blob_release(&t->blob);
	map_close(&t->map);
}

struct weight_source weights_in_source(struct weights_in *w)
{
	return (struct weight_source){
		.ctx = w, .find = find, .read = read_rows, .nf4 = nf4, .drop = drop
	};
}
