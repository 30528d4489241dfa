/* SPDX-License-Identifier: Apache-2.0 */
/* links_cache.c - see links_cache.h. */
#include "coord/links_cache.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "file/atomic.h"
#include "file/cache.h"
#include "proto/weights_blob.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum { VERSION = 1, PATH = 4096 };
static const int64_t day = (int64_t)86400 * 1000000000,
		     minutes = (int64_t)LINKS_UNREACHABLE_MINUTES * 60 * 1000000000;

static void add_side(struct buf *b, const struct link_ends *s, int i)
{
	const struct seat_spec *p = &s->spec[i];
	const struct welcome *w = &s->caps[i];
	buf_addf(b, "%s|%s|%s|%u", p->key && !p->handed ? p->key : w->host, p->id, p->address,
		 w->port);
	for (uint32_t k = 0; k < w->naddress; k++)
		buf_addf(b, "|%s", w->address[k].address);
	buf_addc(b, '\n');
}

static int path_of(const struct link_ends *s, const struct link_row *r, char dir[PATH],
		   char path[PATH], struct err *e)
{
	unsigned char hash[BLOB_HASH];
	char hex[2 * BLOB_HASH + 1];
	struct buf b = BUF_INIT;
	TRY(cache_folder(s->cache_dir, "links", dir, PATH - sizeof hex - 8, e));
	add_side(&b, s, r->from);
	add_side(&b, s, r->to);
	int rc = buf_ok(&b, e);
	blob_hash(b.p, b.n, hash);
	buf_release(&b);
	sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
	snprintf(path, PATH, "%.3900s/%.32s.json", dir, hex);
	return rc;
}

static void put_rates(struct buf *b, const char *key, const struct probe_rate *v)
{
	buf_addf(b, ", \"%s\": [", key);
	for (int i = 0; i < PROBE_SIZES && v[i].rounds; i++) {
		buf_addf(b, "%s{\"bytes\": %llu, \"rounds\": %u, \"bytes_per_s\": ", i ? ", " : "",
			 (unsigned long long)probe_size[i], v[i].rounds);
		json_number(b, v[i].rate);
		buf_adds(b, ", \"spread\": ");
		json_number(b, v[i].spread);
		buf_addc(b, '}');
	}
	buf_addc(b, ']');
}

static void put_text(struct buf *b, const char *key, const char *text)
{
	buf_addf(b, "%s\"%s\": ", b->p[b->n - 1] == '{' ? "" : ", ", key);
	json_quote(b, text, strlen(text));
}

void links_cache_write(const struct link_ends *s, const struct link_table *t, size_t first)
{
	char dir[PATH], path[PATH];
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	if (path_of(s, &t->row[first], dir, path, &e) < 0)
		return;
	buf_addf(&b, "{\"version\": %d, \"measured\": %lld, \"ways\": [", VERSION,
		 (long long)clock_wall());
	for (size_t i = first; i < t->n; i++) {
		const struct link_row *r = &t->row[i];
		buf_adds(&b, i > first ? ",\n {" : "\n {");
		put_text(&b, "from", r->from_address);
		put_text(&b, "to", r->to_address);
		if (r->way.reached) {
			buf_adds(&b, ", \"latency_s\": ");
			json_number(&b, r->way.latency);
			put_rates(&b, "there", r->way.out);
			put_rates(&b, "back", r->way.in);
		} else {
			put_text(&b, "unreachable", r->way.why);
		}
		buf_addc(&b, '}');
	}
	buf_adds(&b, "\n]}\n");
	if (!cache_ready(dir, true)) {
		buf_release(&b);
		return;
	}
	if (buf_ok(&b, &e) < 0 || atomic_write_file(path, b.p, b.n, &e) < 0)
		log_warn("measurements of links cannot be cached: %s", e.msg);
	buf_release(&b);
}

static int get_rates(const json_t *o, const char *path, const char *key, struct probe_rate *v,
		     struct err *e)
{
	const json_t *list = json_object_get(o, key);
	if (!json_is_array(list) || !json_array_size(list) || json_array_size(list) > PROBE_SIZES)
		return err_set(e, ERR_INPUT, "%s: '%s' has no figures", path, key);
	for (size_t i = 0; i < json_array_size(list); i++) {
		int64_t bytes = 0, rounds = 0;
		TRY(json_need_int(json_array_get(list, i), path, "bytes", 1, INT64_MAX, &bytes, e));
		TRY(json_need_int(json_array_get(list, i), path, "rounds", 1, 1 << 20, &rounds, e));
		TRY(json_need_num(json_array_get(list, i), path, "bytes_per_s", 1e-3, 1e15,
				  &v[i].rate, e));
		TRY(json_need_num(json_array_get(list, i), path, "spread", 0, 1e9, &v[i].spread,
				  e));
		if ((uint64_t)bytes != probe_size[i])
			return err_set(e, ERR_INPUT, "%s: figures for other sizes", path);
		v[i].rounds = (uint32_t)rounds;
	}
	return 0;
}

static int get_way(const json_t *o, const char *path, struct link_row *r, struct err *e)
{
	const char *from, *to, *why = NULL;
	TRY(json_need_str(o, path, "from", &from, e));
	TRY(json_need_str(o, path, "to", &to, e));
	TRY(json_opt_str(o, path, "unreachable", &why, e));
	if (strcmp(from, r->from_address) || strcmp(to, r->to_address))
		return err_set(e, ERR_INPUT, "%s: other addresses", path);
	struct probe_way w = { .reached = !why };
	if (why) {
		snprintf(w.why, sizeof w.why, "%.199s", why);
	} else {
		TRY(json_need_num(o, path, "latency_s", 1e-12, 1e4, &w.latency, e));
		TRY(get_rates(o, path, "there", w.out, e));
		TRY(get_rates(o, path, "back", w.in, e));
	}
	r->way = w;
	return 0;
}

static int get_file(const json_t *doc, const char *path, struct link_table *t, size_t first,
		    struct err *e)
{
	int64_t version = 0, measured = 0, now = clock_wall();
	const json_t *list = json_object_get(doc, "ways");
	TRY(json_need_int(doc, path, "version", VERSION, VERSION, &version, e));
	TRY(json_need_int(doc, path, "measured", 0, INT64_MAX, &measured, e));
	if (measured > now || now - measured > day || !json_is_array(list) ||
	    json_array_size(list) != t->n - first)
		return err_set(e, ERR_INPUT, "%s: too old, or about other addresses", path);
	bool reached = false, missed = false;
	for (size_t i = first; i < t->n; i++) {
		const struct link_row *r = &t->row[i];
		TRY(get_way(json_array_get(list, i - first), path, &t->row[i], e));
		reached |= r->way.reached;
		missed |= !r->way.reached && r->configured;
	}
	/* the user may be opening a firewall */
	if ((!reached || missed) && now - measured > minutes)
		return err_set(e, ERR_INPUT, "%s: unreachable, some minutes ago", path);
	return 0;
}

bool links_cache_read(const struct link_ends *s, struct link_table *t, size_t first)
{
	char dir[PATH], path[PATH];
	struct err e = { 0 };
	json_t *doc;
	if (path_of(s, &t->row[first], dir, path, &e) < 0 || !cache_ready(dir, false) ||
	    !cache_file_ready(path) || json_parse_file(path, 1 << 20, &doc, &e) < 0)
		return false;
	int rc = get_file(doc, path, t, first, &e);
	json_decref(doc);
	return rc >= 0;
}

struct link_table *links_recall(const struct link_ends *s)
{
	struct link_table *t;
	struct err ignored = { 0 };
	if (links_new(s, &t, &ignored) < 0)
		return NULL;
	for (int x = 0; x < t->machines; x++)
		for (int y = x + 1; y < t->machines; y++) {
			int a = links_speaker(s, t, x, -1), b = links_speaker(s, t, y, -1);
			size_t first = t->n;
			bool known = false;
			for (int turn = 0; turn < 2 && !known; turn++) {
				t->n = first;
				known = links_ways(s, t, turn ? b : a, turn ? a : b, &ignored) >=
						0 &&
					links_cache_read(s, t, first) &&
					links_choose(s, t, first, 1 << 20);
			}
			if (!known)
				t->n = first;
		}
	return t;
}
