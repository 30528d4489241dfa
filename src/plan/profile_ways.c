/* SPDX-License-Identifier: Apache-2.0 */
/* profile_ways.c - see profile_ways.h. */
#include "plan/profile_ways.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#define MAX_MS 1e9
#define MAX_GBYTES 1e9 /* such rates are measured when memory is handed over within a process */

enum { WAYS_MOST = 256 };

static int read_sample(const json_t *o, const char *where, struct profile_way_sample *s,
		       struct err *e)
{
	TRY(json_need_num(o, where, "bytes", 1, 1e12, &s->bytes, e));
	TRY(json_need_num(o, where, "gbytes_per_s", 0, MAX_GBYTES, &s->rate, e));
	TRY(json_need_num(o, where, "spread", 0, 1e9, &s->spread, e));
	TRY(json_need_num(o, where, "reverse_gbytes_per_s", 0, MAX_GBYTES, &s->reverse_rate, e));
	return json_need_num(o, where, "reverse_spread", 0, 1e9, &s->reverse_spread, e);
}

static int keep(struct profile *p, const json_t *v, const char *where, const char **s_p,
		struct err *e)
{
	if (!json_is_string(v))
		return err_set(e, ERR_INPUT, "%s: 'addresses' must be two texts", where);
	*s_p = arena_strdup(&p->mem, json_string_value(v));
	return *s_p ? 0 : err_nomem(e, json_string_length(v), "a profile");
}

static int read_way(struct profile *p, const json_t *o, const char *where, struct profile_way *w,
		    struct err *e)
{
	const json_t *pair = json_object_get(o, "addresses"), *list = json_object_get(o, "samples");
	const char *why = NULL;
	if (!json_is_array(pair) || json_array_size(pair) != 2)
		return err_set(e, ERR_INPUT, "%s: 'addresses' must be two texts", where);
	TRY(keep(p, json_array_get(pair, 0), where, &w->from, e));
	TRY(keep(p, json_array_get(pair, 1), where, &w->to, e));
	TRY(json_opt_bool(o, where, "used", &w->used, e));
	TRY(json_opt_str(o, where, "unreachable", &why, e));
	if (why)
		return keep(p, json_object_get(o, "unreachable"), where, &w->unreachable, e);
	TRY(json_need_num(o, where, "latency_ms", 0, MAX_MS, &w->latency_ms, e));
	if (!json_is_array(list) || json_array_size(list) > PROFILE_WAY_SAMPLES)
		return err_set(e, ERR_INPUT, "%s: 'samples' must be a list of at most %d", where,
			       PROFILE_WAY_SAMPLES);
	for (size_t i = 0; i < json_array_size(list); i++)
		TRY(read_sample(json_array_get(list, i), where, &w->sample[w->samples++], e));
	return 0;
}

int profile_ways_read(struct profile *p, const json_t *link, const char *where,
		      struct profile_link *l, struct err *e)
{
	const json_t *list = json_object_get(link, "ways");
	size_t n = json_array_size(list);
	l->way = NULL;
	l->ways = 0;
	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list) || n > WAYS_MOST)
		return err_set(e, ERR_INPUT, "%s: 'ways' must be a list of at most %d", where,
			       WAYS_MOST);
	struct profile_way *v = arena_alloc(&p->mem, (n + 1) * sizeof *v);
	if (!v)
		return err_nomem(e, n * sizeof *v, "a profile");
	for (size_t i = 0; i < n; i++) {
		char at[340];
		snprintf(at, sizeof at, "%.300s: way %zu", where, i + 1);
		TRY(read_way(p, json_array_get(list, i), at, &v[i], e));
	}
	l->way = v;
	l->ways = (int)n;
	return 0;
}

static void put_number(struct buf *b, const char *key, double v)
{
	buf_addf(b, ", \"%s\": ", key);
	json_number(b, v);
}

static void write_way(const struct profile_way *w, struct buf *b)
{
	buf_adds(b, "{\"addresses\": [");
	json_quote(b, w->from, strlen(w->from));
	buf_adds(b, ", ");
	json_quote(b, w->to, strlen(w->to));
	buf_addc(b, ']');
	if (w->used)
		buf_adds(b, ", \"used\": true");
	if (w->unreachable) {
		buf_adds(b, ", \"unreachable\": ");
		json_quote(b, w->unreachable, strlen(w->unreachable));
		buf_addc(b, '}');
		return;
	}
	put_number(b, "latency_ms", w->latency_ms);
	buf_adds(b, ", \"samples\": [");
	for (int i = 0; i < w->samples; i++) {
		const struct profile_way_sample *s = &w->sample[i];
		buf_addf(b, "%s{\"bytes\": ", i ? ", " : "");
		json_number(b, s->bytes);
		put_number(b, "gbytes_per_s", s->rate);
		put_number(b, "spread", s->spread);
		put_number(b, "reverse_gbytes_per_s", s->reverse_rate);
		put_number(b, "reverse_spread", s->reverse_spread);
		buf_addc(b, '}');
	}
	buf_adds(b, "]}");
}

void profile_ways_write(const struct profile_link *l, struct buf *b)
{
	if (!l->ways)
		return;
	buf_adds(b, ",\n   \"ways\": [");
	for (int i = 0; i < l->ways; i++) {
		buf_adds(b, i ? ",\n    " : "\n    ");
		write_way(&l->way[i], b);
	}
	buf_addc(b, ']');
}
