/* SPDX-License-Identifier: Apache-2.0 */
/* pairs_wire.c - see pairs_wire.h. */
#include "proto/pairs_wire.h"

#include "base/err.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

void prefer_put(struct wire_writer *w, const struct prefer_options *o)
{
	wire_put_str(w, o->name);
	wire_put_f64(w, o->beta);
	wire_put_f64(w, o->smoothing);
	wire_put_f64(w, o->likelihood);
	wire_put_f64(w, o->gamma);
	wire_put_f64(w, o->good);
	wire_put_f64(w, o->bad);
}

void prefer_get(struct wire_reader *r, struct prefer_options *o)
{
	wire_get_str(r, o->name, sizeof o->name);
	o->beta = wire_get_f64(r);
	o->smoothing = wire_get_f64(r);
	o->likelihood = wire_get_f64(r);
	o->gamma = wire_get_f64(r);
	o->good = wire_get_f64(r);
	o->bad = wire_get_f64(r);
}

int prefer_check(const char *what, const struct prefer_options *o, struct err *e)
{
	if (!o->name[0])
		return 0;
	if (!prefer_find(o->name))
		return err_set(e, ERR_PROTOCOL, "%s: there is no loss '%s' of preferences", what,
			       o->name);
	const double v[] = { o->beta, o->smoothing, o->likelihood, o->gamma, o->good, o->bad };
	for (size_t i = 0; i < ARRAY_LEN(v); i++)
		if (!(fabs(v[i]) <= 1e9) || v[i] < 0 || (i == 0 && v[i] == 0))
			return err_set(e, ERR_PROTOCOL, "%s: number %zu of '%s' is %g", what, i,
				       o->name, v[i]);
	return 0;
}

void pairs_put(struct wire_writer *w, const struct pairs *p, uint32_t nseq, uint32_t nrows)
{
	wire_put_bytes(w, p ? p->answer : NULL, p ? (size_t)nseq * 4 : 0);
	wire_put_bytes(w, p ? p->good : NULL, p ? (size_t)nrows * 4 : 0);
	wire_put_bytes(w, p ? p->ref : NULL, p ? (size_t)nseq * 8 : 0);
}

void pairs_get(struct wire_reader *r, struct pairs_fields *f)
{
	f->answer = wire_get_bytes(r, &f->nanswer);
	f->good = wire_get_bytes(r, &f->ngood);
	f->ref = wire_get_bytes(r, &f->nref);
}

/* Every row has two sequences, and each of them a trained answer. */
static int check_rows(const struct batch_store *b, struct err *e)
{
	const struct batch_head *h = &b->head;
	for (uint32_t r = 0; r < h->nrows; r++)
		if (b->row[r] != b->start[2 * r] || b->pairs.good[r] < 0 || b->pairs.good[r] > 1)
			return err_set(e, ERR_PROTOCOL, "BATCH: row %u is no pair of sequences", r);
	for (uint32_t s = 0; s < h->nseq; s++) {
		const int32_t at = b->pairs.answer[s];
		bool inside = at >= b->start[s] && at < b->start[s + 1];
		for (int32_t i = at; inside && i + 1 < b->start[s + 1]; i++)
			inside = b->label[i] >= 0;
		if (!inside || at + 1 >= b->start[s + 1])
			return err_set(e, ERR_PROTOCOL, "BATCH: sequence %u has no trained answer",
				       s);
		if (!(fabs(b->pairs.ref[s]) <= 1e12))
			return err_set(e, ERR_PROTOCOL, "BATCH: a reference of %g in sequence %u",
				       b->pairs.ref[s], s);
	}
	return 0;
}

int pairs_take(const struct pairs_fields *f, bool labels, struct batch_store *b, struct err *e)
{
	const size_t s = b->head.nseq, r = b->head.nrows;
	b->head.pairs = false;
	b->pairs = (struct pairs){ 0 };
	if (!f->nanswer && !f->ngood && !f->nref)
		return 0;
	if (!labels || s != 2 * r || r > PAIRS_MOST || f->nanswer != s * 4 || f->ngood != r * 4 ||
	    f->nref != s * 8)
		return err_set(e, ERR_PROTOCOL,
			       "BATCH: %zu sequences in %zu rows with %zu, %zu and %zu bytes of "
			       "pairs",
			       s, r, f->nanswer, f->ngood, f->nref);
	if (!mem_grow(&b->pair, &b->pair_cap, 2 * s, sizeof *b->pair))
		return err_nomem(e, s * 16, "pairs");
	b->pairs.ref = b->pair;
	b->pairs.answer = (int32_t *)(void *)(b->pair + s);
	b->pairs.good = b->pairs.answer + s;
	memcpy(b->pairs.ref, f->ref, f->nref);
	memcpy(b->pairs.answer, f->answer, f->nanswer);
	memcpy(b->pairs.good, f->good, f->ngood);
	b->head.pairs = true;
	return check_rows(b, e);
}

int pairs_expect(const struct prefer_options *o, const struct batch_head *h, struct err *e)
{
	if (h->round == ROUND_SAMPLE || h->pairs == (o->name[0] != 0))
		return 0;
	return err_set(e, ERR_PROTOCOL, "BATCH: %s pairs, but PLAN has %s%s",
		       h->pairs ? "with" : "without", h->pairs ? "no loss for them" : "the loss ",
		       o->name);
}

int reference_write(const double *v, size_t count, void *out, size_t cap, size_t *n_p,
		    struct err *e)
{
	struct wire_writer w = wire_write(out, cap);
	wire_put_bytes(&w, v, count * sizeof *v);
	return wire_write_end(&w, n_p, e);
}

int reference_read(const void *p, size_t n, double *v, size_t count, struct err *e)
{
	struct wire_reader r = wire_read(p, n);
	size_t got;
	const void *from = wire_get_bytes(&r, &got);
	TRY(wire_read_end(&r, "REFERENCE", e));
	if (got != count * sizeof *v)
		return err_set(e, ERR_PROTOCOL, "REFERENCE: %zu bytes for %zu sequences", got,
			       count);
	memcpy(v, from, got);
	return 0;
}
