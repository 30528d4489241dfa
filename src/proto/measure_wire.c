/* SPDX-License-Identifier: Apache-2.0 */
/* measure_wire.c - see measure_wire.h. */
#include "proto/measure_wire.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#include <math.h>
#include <string.h>

static const double absurd = 1e7; /* seconds */

/* ---- PROFILE ---- */

static void put_request(struct wire_writer *w, const struct measure_request *q,
			const char *config_json)
{
	wire_put_u8(w, q->refresh);
	wire_put_str(w, config_json);
	wire_put_u8(w, (uint8_t)q->wire);
	work_put(w, &q->opt, q->optimizer, &q->optim);
	wire_put_u32(w, (uint32_t)q->tokens);
	wire_put_u32(w, (uint32_t)q->sequences);
	wire_put_f64(w, q->trained);
	wire_put_f64(w, q->budget);
	wire_put_u32(w, (uint32_t)q->sharing);
	wire_put_u32(w, (uint32_t)q->needed);
	wire_put_u32(w, (uint32_t)q->sizes);
	for (int i = 0; i < q->sizes; i++)
		wire_put_u32(w, (uint32_t)q->size[i]);
}

int measure_request_write(const struct measure_request *q, const char *config_json, struct buf *out,
			  struct err *e)
{
	struct wire_writer count = wire_write(NULL, 0);
	put_request(&count, q, config_json);
	buf_reset(out);
	buf_reserve(out, count.n);
	TRY(buf_ok(out, e));
	struct wire_writer w = wire_write(out->p, count.n);
	put_request(&w, q, config_json);
	return wire_write_end(&w, &out->n, e);
}

static int check_request(const struct measure_request *q, struct err *e)
{
	TRY(work_check("PROFILE", q->wire, &q->opt, q->optimizer, e));
	if (!q->optimizer[0])
		return err_set(e, ERR_PROTOCOL, "PROFILE: no optimizer is named");
	if (q->tokens < 1 || q->tokens > 1 << 24 || q->sequences < 1 || q->sequences > q->tokens)
		return err_set(e, ERR_PROTOCOL, "PROFILE: rows of %lld tokens in %lld sequences",
			       (long long)q->tokens, (long long)q->sequences);
	if (!(q->trained > 0 && q->trained <= 1) || !(q->budget >= 0 && q->budget <= 3600))
		return err_set(e, ERR_PROTOCOL, "PROFILE: a share of %g trained, %g s", q->trained,
			       q->budget);
	for (int i = 0; i < q->sizes; i++)
		if (q->size[i] < 1 || q->size[i] > 1 << 20 || q->size[i] * q->tokens > 1 << 26)
			return err_set(e, ERR_PROTOCOL,
				       "PROFILE: microbatches of %d rows of %lld tokens",
				       q->size[i], (long long)q->tokens);
	return 0;
}

int measure_request_read(const void *payload, size_t n, struct measure_request *q, struct err *e)
{
	memset(q, 0, sizeof *q);
	struct wire_reader r = wire_read(payload, n);
	q->refresh = wire_get_u8(&r);
	size_t len = 0;
	const char *text = wire_get_text(&r, &len);
	q->wire = wire_get_u8(&r);
	work_get(&r, &q->opt, q->optimizer, &q->optim);
	q->tokens = wire_get_u32(&r);
	q->sequences = wire_get_u32(&r);
	q->trained = wire_get_f64(&r);
	q->budget = wire_get_f64(&r);
	q->sharing = (int)wire_get_u32(&r);
	uint32_t needed = wire_get_u32(&r);
	q->sizes = (int)wire_get_count(&r, 4, MEASURE_POINTS);
	q->needed = needed < (uint32_t)q->sizes ? (int)needed : q->sizes;
	for (int i = 0; i < q->sizes; i++)
		q->size[i] = (int)wire_get_u32(&r);
	TRY(wire_read_end(&r, "PROFILE", e));
	if (!q->sizes)
		return err_set(e, ERR_PROTOCOL, "PROFILE: no microbatch size is named");
	TRY(check_request(q, e));
	json_t *doc;
	TRY(json_parse_text_in(text, len, "PROFILE: the model's configuration", JSON_MEMORY_CONFIG,
			       &doc, e));
	int rc = model_config_read(doc, "PROFILE: the model's configuration", &q->cfg, e);
	json_decref(doc);
	return rc;
}

/* ---- PROFILED ---- */

static void put_result(struct wire_writer *w, const struct measure_result *r)
{
	wire_put_str(w, r->name);
	wire_put_str(w, r->driver);
	wire_put_u32(w, (uint32_t)r->units);
	wire_put_u32(w, (uint32_t)r->threads);
	wire_put_u8(w, (uint8_t)(r->unified + r->limited));
	wire_put_u64(w, r->memory);
	wire_put_u64(w, r->used);
	wire_put_u64(w, r->fixed);
	for (int i = 0; i < MEASURE_PARTS; i++) {
		wire_put_f64(w, r->optimizer[i]);
		wire_put_u64(w, r->weights[i]);
		wire_put_u64(w, r->state[i]);
	}
	wire_put_f64(w, r->residual);
	wire_put_u32(w, (uint32_t)r->points);
	for (int i = 0; i < r->points; i++) {
		const struct measure_point *p = &r->point[i];
		wire_put_u32(w, (uint32_t)p->m);
		wire_put_u32(w, (uint32_t)p->runs);
		for (int k = 0; k < MEASURE_TIMES; k++)
			wire_put_f64(w, p->seconds[k]);
		wire_put_f64(w, p->spread);
		wire_put_f64(w, p->drift);
		wire_put_u64(w, p->kept);
		wire_put_u64(w, p->work);
		wire_put_u64(w, p->head);
		wire_put_u64(w, p->end);
	}
	wire_put_u64(w, r->host_free);
	wire_put_f64(w, r->rounding);
	wire_put_str(w, r->cores);
	wire_put_f64(w, r->processors);
	wire_put_f64(w, r->host_update);
}

int measure_result_write(const struct measure_result *r, void *out, size_t cap, size_t *n_p,
			 struct err *e)
{
	struct wire_writer w = wire_write(out, cap);
	put_result(&w, r);
	return wire_write_end(&w, n_p, e);
}

static bool plausible(double v, double lo) { return v >= lo && v <= absurd; }

static bool size_ok(uint64_t n) { return n < 1ull << 52; }

static int check_point(const struct measure_result *r, int i, struct err *e)
{
	const struct measure_point *p = &r->point[i];
	if (p->m < 1 || p->m > 1 << 20 || (i && p->m <= p[-1].m) || p->runs < 1 ||
	    p->runs > 1 << 20)
		return err_set(e, ERR_PROTOCOL,
			       "PROFILED: %d runs of microbatch size %d as number %d", p->runs,
			       p->m, i + 1);
	for (int k = 0; k < MEASURE_TIMES; k++)
		if (!plausible(p->seconds[k], 0) || (k <= MEASURE_BACKWARD && !(p->seconds[k] > 0)))
			return err_set(e, ERR_PROTOCOL,
				       "PROFILED: time %d of microbatch size %d is %g s", k, p->m,
				       p->seconds[k]);
	if (!plausible(p->spread, 0) || !plausible(p->drift, -1))
		return err_set(e, ERR_PROTOCOL, "PROFILED: spread %g, drift %g", p->spread,
			       p->drift);
	if (!p->kept || !size_ok(p->kept) || !size_ok(p->work) || !size_ok(p->head) ||
	    p->end > p->head)
		return err_set(e, ERR_PROTOCOL,
			       "PROFILED: a layer of microbatch size %d keeps %llu bytes", p->m,
			       (unsigned long long)p->kept);
	return 0;
}

static int check_result(const struct measure_result *r, struct err *e)
{
	if (r->units < 0 || r->units > 1 << 20 || r->threads < 0 || r->threads > 1 << 20)
		return err_set(e, ERR_PROTOCOL, "PROFILED: %d units, %d threads", r->units,
			       r->threads);
	if (!r->memory || !size_ok(r->memory) || r->used > r->memory || r->fixed > r->memory)
		return err_set(e, ERR_PROTOCOL,
			       "PROFILED: %llu bytes of memory, %llu in use, %llu fixed",
			       (unsigned long long)r->memory, (unsigned long long)r->used,
			       (unsigned long long)r->fixed);
	if (!size_ok(r->host_free))
		return err_set(e, ERR_PROTOCOL, "PROFILED: %llu bytes free on the host",
			       (unsigned long long)r->host_free);
	for (int i = 0; i < MEASURE_PARTS; i++)
		if (!plausible(r->optimizer[i], 0) || !r->weights[i] || !size_ok(r->weights[i]) ||
		    !size_ok(r->state[i]))
			return err_set(
				e, ERR_PROTOCOL,
				"PROFILED: part %d has %llu bytes of weights, its step takes %g s",
				i, (unsigned long long)r->weights[i], r->optimizer[i]);
	if (!plausible(r->residual, -1) || !plausible(r->rounding, 0) ||
	    !plausible(r->host_update, 0))
		return err_set(e, ERR_PROTOCOL,
			       "PROFILED: residual %g, rounding %g, %g s a GiB on the host",
			       r->residual, r->rounding, r->host_update);
	if (!plausible(r->processors, 0) || strspn(r->cores, "0123456789,-") != strlen(r->cores))
		return err_set(e, ERR_PROTOCOL, "PROFILED: %g processors of '%.40s'", r->processors,
			       r->cores);
	if (!r->points)
		return err_set(e, ERR_PROTOCOL, "PROFILED: no microbatch size was measured");
	for (int i = 0; i < r->points; i++)
		TRY(check_point(r, i, e));
	return 0;
}

int measure_result_read(const void *payload, size_t n, struct measure_result *o, struct err *e)
{
	memset(o, 0, sizeof *o);
	struct wire_reader r = wire_read(payload, n);
	wire_get_str(&r, o->name, sizeof o->name);
	wire_get_str(&r, o->driver, sizeof o->driver);
	o->units = (int)wire_get_u32(&r);
	o->threads = (int)wire_get_u32(&r);
	const unsigned unified = wire_get_u8(&r);
	o->unified = unified > 0;
	o->limited = unified > 1;
	o->memory = wire_get_u64(&r);
	o->used = wire_get_u64(&r);
	o->fixed = wire_get_u64(&r);
	for (int i = 0; i < MEASURE_PARTS; i++) {
		o->optimizer[i] = wire_get_f64(&r);
		o->weights[i] = wire_get_u64(&r);
		o->state[i] = wire_get_u64(&r);
	}
	o->residual = wire_get_f64(&r);
	o->points = (int)wire_get_count(&r, 8 + 8 * MEASURE_TIMES + 48, MEASURE_POINTS);
	for (int i = 0; i < o->points; i++) {
		struct measure_point *p = &o->point[i];
		p->m = (int)wire_get_u32(&r);
		p->runs = (int)wire_get_u32(&r);
		for (int k = 0; k < MEASURE_TIMES; k++)
			p->seconds[k] = wire_get_f64(&r);
		p->spread = wire_get_f64(&r);
		p->drift = wire_get_f64(&r);
		p->kept = wire_get_u64(&r);
		p->work = wire_get_u64(&r);
		p->head = wire_get_u64(&r);
		p->end = wire_get_u64(&r);
	}
	o->host_free = wire_get_u64(&r);
	o->rounding = wire_get_f64(&r);
	wire_get_str(&r, o->cores, sizeof o->cores);
	o->processors = wire_get_f64(&r);
	o->host_update = wire_get_f64(&r);
	TRY(wire_read_end(&r, "PROFILED", e));
	return check_result(o, e);
}
