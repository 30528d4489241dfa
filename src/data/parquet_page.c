/* SPDX-License-Identifier: Apache-2.0 */
/* parquet_page.c - see parquet_page.h: unpacking, levels and values of pages. */
#include "data/parquet_page.h"

#include "base/err.h"
#include "base/mem.h"
#include "data/thrift.h"

#include <string.h>
#include <zlib.h>
#include <zstd.h>

#define PAGE_MAX (512u << 20)

enum { PLAIN, PLAIN_DICT = 2, RLE = 3, DELTA = 5, DELTA_LENGTH = 6, DELTA_BYTES = 7, RLE_DICT = 8 };
enum { DATA_V1 = 0, DICTIONARY = 2, DATA_V2 = 3 };
enum { NONE, SNAPPY, GZIP, ZSTD = 6 };

struct bytes {
	const uint8_t *p, *end;
};

struct page {
	int type, encoding;
	uint64_t packed, size, entries, nulls, def_bytes, rep_bytes;
	bool is_packed; /* of a version 2 page */
};

static int damaged(struct err *e, const char *what)
{
	return err_set(e, ERR_INPUT, "damaged Parquet page: %s", what);
}

void pq_release(struct pq_column *c)
{
	mem_free(c->rep);
	mem_free(c->def);
	mem_free(c->v);
	buf_release(&c->text);
	*c = (struct pq_column){ .text = BUF_INIT };
}

/* Before n bytes are unpacked or kept. */
static int spend(struct pq_column *c, uint64_t n, struct err *e)
{
	if (n > *c->room)
		return err_set(e, ERR_UNSUPPORTED,
			       "a row group becomes too large when it is unpacked, for a file of "
			       "this size; write smaller row groups");
	*c->room -= n;
	return 0;
}

/* ---- unpacking ------------------------------------------------------------------------------ */

static int copy_back(uint8_t *out, size_t *at, size_t out_n, size_t offset, size_t len)
{
	if (!offset || offset > *at || len > out_n - *at)
		return -1;
	for (size_t i = 0; i < len; i++, ++*at) /* they may overlap */
		out[*at] = out[*at - offset];
	return 0;
}

int pq_snappy(const uint8_t *p, size_t n, uint8_t *out, size_t out_n)
{
	struct thrift t = { .p = p, .end = p + n }; /* the same variable-length numbers */
	size_t at = 0;
	if (thrift_varint(&t) != out_n || t.bad)
		return -1;
	for (p = t.p; p < t.end;) {
		uint8_t tag = *p++;
		unsigned more = tag & 3          ? (tag & 3) == 3 ? 4 : tag & 3
				: tag >> 2 >= 60 ? (tag >> 2) - 59u
						 : 0;
		uint32_t value = 0;
		if (more > (size_t)(t.end - p))
			return -1;
		for (unsigned i = 0; i < more; i++)
			value |= (uint32_t)p[i] << 8 * i;
		p += more;
		if (!(tag & 3)) {
			size_t len = (more ? value : tag >> 2) + (size_t)1;
			if (len > (size_t)(t.end - p) || len > out_n - at)
				return -1;
			memcpy(out + at, p, len);
			at += len;
			p += len;
			continue;
		}
		size_t offset = (tag & 3) == 1 ? (size_t)(tag >> 5) << 8 | value : value,
		       len = (tag & 3) == 1 ? ((tag >> 2) & 7) + 4u : (tag >> 2) + 1u;
		if (copy_back(out, &at, out_n, offset, len) < 0)
			return -1;
	}
	return at == out_n ? 0 : -1;
}

static int gunzip(const uint8_t *p, size_t n, uint8_t *out, size_t out_n)
{
	z_stream z = { .next_in = (uint8_t *)p,
		       .avail_in = (uInt)n,
		       .next_out = out,
		       .avail_out = (uInt)out_n };
	if (inflateInit2(&z, 15 + 32) != Z_OK)
		return -1;
	int rc = inflate(&z, Z_FINISH);
	inflateEnd(&z);
	return rc == Z_STREAM_END && !z.avail_out ? 0 : -1;
}

static int unpack(int codec, const uint8_t *p, size_t n, uint8_t *out, size_t out_n, struct err *e)
{
	bool good;
	switch (codec) {
	case NONE:
		good = n == out_n;
		if (good && n)
			memcpy(out, p, n);
		break;
	case SNAPPY:
		good = pq_snappy(p, n, out, out_n) == 0;
		break;
	case GZIP:
		good = gunzip(p, n, out, out_n) == 0;
		break;
	case ZSTD:
		good = ZSTD_decompress(out, out_n, p, n) == out_n;
		break;
	default:
		return err_set(e, ERR_UNSUPPORTED,
			       "packed with codec %d; Snappy, gzip and zstd are read", codec);
	}
	return good ? 0 : damaged(e, "it does not unpack to its size");
}

/* ---- levels and values ---------------------------------------------------------------------- */

static uint64_t little(const uint8_t *p, size_t n)
{
	uint64_t v = 0;
	memcpy(&v, p, n);
	return v;
}

/* The hybrid of runs and packed bits. `put` gets every value, `count` of them. */
struct runs {
	struct bytes b;
	unsigned width;
	uint64_t left, value; /* of a run */
	uint64_t packed;      /* values left in packed bits */
	uint64_t bit;
};

static uint64_t bits_at(const struct bytes *b, uint64_t bit, unsigned width)
{
	const uint8_t *p = b->p + bit / 8;
	size_t n = (size_t)(b->end - p) < 9 ? (size_t)(b->end - p) : 9;
	uint64_t low = little(p, n < 8 ? n : 8) >> bit % 8;
	if (bit % 8 + width > 64 && n == 9)
		low |= (uint64_t)p[8] << (64 - bit % 8);
	return width == 64 ? low : low & ((1ull << width) - 1);
}

static int next_run(struct runs *r, uint64_t *v_p)
{
	while (!r->left && !r->packed) {
		struct thrift t = { .p = r->b.p, .end = r->b.end };
		uint64_t head = thrift_varint(&t);
		size_t size = (r->width + 7) / 8;
		if (t.bad || head >> 1 > PQ_ENTRIES)
			return -1;
		r->b.p = t.p;
		if (head & 1) {
			uint64_t need = (head >> 1) * r->width; /* bytes: 8 values of width bits */
			if (need > (uint64_t)(r->b.end - r->b.p))
				need = (uint64_t)(r->b.end - r->b.p); /* the last may be cut */
			r->packed = r->width ? need * 8 / r->width : (head >> 1) * 8;
			r->bit = 0;
			if (!r->packed)
				return -1;
		} else {
			if (size > (size_t)(r->b.end - r->b.p) || !(head >> 1))
				return -1;
			r->left = head >> 1;
			r->value = little(r->b.p, size);
			r->b.p += size;
		}
	}
	if (r->left) {
		r->left--;
		*v_p = r->value;
		return 0;
	}
	*v_p = r->width ? bits_at(&r->b, r->bit, r->width) : 0;
	r->bit += r->width;
	if (!--r->packed)
		r->b.p += (r->bit + 7) / 8;
	return 0;
}

static unsigned width_of(uint64_t max)
{
	unsigned w = 0;
	for (; max; max >>= 1)
		w++;
	return w;
}

static int levels(struct bytes b, unsigned max, uint64_t n, uint8_t *out, struct err *e)
{
	struct runs r = { .b = b, .width = width_of(max) };
	for (uint64_t i = 0, v = 0; i < n; i++) {
		if (max && (next_run(&r, &v) < 0 || v > max))
			return damaged(e, "wrong levels");
		out[i] = (uint8_t)v;
	}
	return 0;
}

static int add(struct pq_column *c, uint64_t v, struct err *e)
{
	if (!mem_grow(&c->v, &c->v_cap, c->nv + 2, sizeof *c->v))
		return err_nomem(e, (c->nv + 2) * sizeof *c->v, "a column");
	c->v[c->nv++] = v;
	return 0;
}

/* v[nv] is always the end of the texts. */
static int add_text(struct pq_column *c, const uint8_t *p, size_t n, struct err *e)
{
	TRY(spend(c, n, e));
	TRY(add(c, c->text.n, e));
	if (c->text.n + n > PAGE_MAX)
		return err_set(
			e, ERR_UNSUPPORTED,
			"a column of a row group has more than %u MiB of text; write smaller "
			"row groups",
			PAGE_MAX >> 20);
	buf_add(&c->text, p, n);
	c->v[c->nv] = c->text.n;
	return buf_ok(&c->text, e);
}

static uint64_t float_bits(const uint8_t *p)
{
	float f;
	double d;
	uint64_t v;
	memcpy(&f, p, sizeof f);
	d = f;
	memcpy(&v, &d, sizeof v);
	return v;
}

static int plain(struct pq_column *c, struct bytes *b, uint64_t n, struct err *e)
{
	size_t size = c->type == PQ_INT32 || c->type == PQ_FLOAT ? 4 : 8;
	for (uint64_t i = 0; i < n; i++) {
		size_t left = (size_t)(b->end - b->p);
		if (c->type == PQ_BOOL) {
			if (i / 8 >= left)
				return damaged(e, "it has fewer values than it says");
			TRY(add(c, b->p[i / 8] >> i % 8 & 1, e));
			continue;
		}
		if (c->type == PQ_BYTES) {
			size_t len = left >= 4 ? (size_t)little(b->p, 4) : SIZE_MAX;
			if (left < 4 || len > left - 4)
				return damaged(e, "a text is longer than the page");
			TRY(add_text(c, b->p + 4, len, e));
			b->p += 4 + len;
			continue;
		}
		if (left < size)
			return damaged(e, "it has fewer values than it says");
		TRY(add(c,
			c->type == PQ_INT32   ? (uint64_t)(int64_t)(int32_t)little(b->p, 4)
			: c->type == PQ_FLOAT ? float_bits(b->p)
					      : little(b->p, 8),
			e));
		b->p += size;
	}
	return 0;
}

/* DELTA_BINARY_PACKED: the first value, then differences in blocks of miniblocks. */
struct deltas {
	uint64_t *v;
	size_t n, cap;
};

static int add_delta(struct deltas *d, uint64_t v, struct err *e)
{
	if (!mem_grow(&d->v, &d->cap, d->n + 1, sizeof *d->v))
		return err_nomem(e, (d->n + 1) * sizeof *d->v, "a column");
	d->v[d->n++] = v;
	return 0;
}

static int delta(struct bytes *b, uint64_t most, struct deltas *d, struct err *e)
{
	struct thrift t = { .p = b->p, .end = b->end };
	uint64_t block = thrift_varint(&t), minis = thrift_varint(&t), total = thrift_varint(&t);
	uint64_t value = (uint64_t)thrift_int(&t), per = minis ? block / minis : 0;
	if (t.bad || !per || per % 32 || per > 1 << 16 || minis > 1024 || total > most)
		return damaged(e, "wrong differences");
	if (total)
		TRY(add_delta(d, value, e));
	while (d->n < total) {
		uint64_t least = (uint64_t)thrift_int(&t);
		const uint8_t *widths = t.p;
		if (t.bad || minis > (uint64_t)(t.end - t.p))
			return damaged(e, "wrong differences");
		t.p += minis;
		for (uint64_t m = 0; m < minis && d->n < total; m++) {
			uint64_t need = per / 8 * widths[m];
			const struct bytes part = { t.p, t.end };
			if (widths[m] > 64 || need > (uint64_t)(t.end - t.p))
				return damaged(e, "wrong differences");
			for (uint64_t k = 0; k < per && d->n < total; k++) {
				value += least;
				if (widths[m])
					value += bits_at(&part, k * widths[m], widths[m]);
				TRY(add_delta(d, value, e));
			}
			t.p += need;
		}
	}
	b->p = t.p;
	return 0;
}

static int delta_values(struct pq_column *c, int encoding, struct bytes *b, uint64_t n,
			struct err *e)
{
	struct deltas prefix = { 0 }, length = { 0 };
	struct buf last = BUF_INIT;
	int rc = 0;
	if (encoding == DELTA_BYTES)
		TRYOUT(delta(b, n, &prefix, e));
	TRYOUT(delta(b, n, &length, e));
	if (length.n < n || (encoding == DELTA_BYTES && prefix.n < n)) {
		rc = damaged(e, "it has fewer values than it says");
		goto out;
	}
	for (uint64_t i = 0; i < n; i++) {
		uint64_t len = length.v[i], keep = prefix.n ? prefix.v[i] : 0;
		if (encoding == DELTA) {
			TRYOUT(add(c, c->type == PQ_INT32 ? (uint64_t)(int64_t)(int32_t)len : len,
				   e));
			continue;
		}
		if (len > (uint64_t)(b->end - b->p) || keep > last.n) {
			rc = damaged(e, "a text is longer than the page");
			goto out;
		}
		last.n = (size_t)keep;
		buf_add(&last, b->p, (size_t)len);
		TRYOUT(buf_ok(&last, e));
		b->p += len;
		TRYOUT(add_text(c, (const uint8_t *)last.p, last.n, e));
	}
out:
	mem_free(prefix.v);
	mem_free(length.v);
	buf_release(&last);
	return rc;
}

static int from_dictionary(struct pq_column *c, const struct pq_column *dict, struct bytes *b,
			   uint64_t n, struct err *e)
{
	if (b->p == b->end)
		return n ? damaged(e, "it is empty") : 0;
	struct runs r = { .width = *b->p };
	r.b = (struct bytes){ b->p + 1, b->end };
	if (r.width > 32)
		return damaged(e, "wrong width of numbers");
	for (uint64_t i = 0; i < n; i++) {
		uint64_t k;
		if (next_run(&r, &k) < 0 || k >= dict->nv)
			return damaged(e, "a number that is not in the dictionary");
		if (c->type == PQ_BYTES)
			TRY(add_text(c, (const uint8_t *)dict->text.p + dict->v[k],
				     (size_t)(dict->v[k + 1] - dict->v[k]), e));
		else
			TRY(add(c, dict->v[k], e));
	}
	return 0;
}

static int bool_runs(struct pq_column *c, struct bytes *b, uint64_t n, struct err *e)
{
	struct runs r = { .b = *b, .width = 1 };
	if (b->end - b->p < 4)
		return damaged(e, "it is cut off");
	r.b.p += 4;
	for (uint64_t i = 0, v; i < n; i++) {
		if (next_run(&r, &v) < 0)
			return damaged(e, "it has fewer values than it says");
		TRY(add(c, v, e));
	}
	return 0;
}

static int values(struct pq_column *c, const struct pq_column *dict, int encoding, struct bytes b,
		  uint64_t n, struct err *e)
{
	bool text = c->type == PQ_BYTES, whole = c->type == PQ_INT32 || c->type == PQ_INT64;
	if (encoding == PLAIN)
		return plain(c, &b, n, e);
	if (encoding == PLAIN_DICT || encoding == RLE_DICT)
		return from_dictionary(c, dict, &b, n, e);
	if ((encoding == DELTA && whole) ||
	    ((encoding == DELTA_LENGTH || encoding == DELTA_BYTES) && text))
		return delta_values(c, encoding, &b, n, e);
	if (encoding == RLE && c->type == PQ_BOOL)
		return bool_runs(c, &b, n, e);
	return err_set(e, ERR_UNSUPPORTED, "values in encoding %d, which is not read", encoding);
}

/* ---- pages ---------------------------------------------------------------------------------- */

static void read_data_head(struct thrift *t, struct page *g, bool second)
{
	struct thrift_field f = { 0, TH_STOP };
	while (thrift_next(t, &f)) {
		if (f.type == TH_TRUE || f.type == TH_FALSE) {
			if (second && f.id == 7)
				g->is_packed = f.type == TH_TRUE;
			continue;
		}
		if (f.type != TH_I32) {
			thrift_skip(t, f.type);
			continue;
		}
		uint64_t v = (uint64_t)thrift_int(t);
		if (f.id == 1)
			g->entries = v;
		else if (f.id == (second ? 4 : 2))
			g->encoding = (int)v;
		else if (second && f.id == 2)
			g->nulls = v;
		else if (second && f.id == 5)
			g->def_bytes = v;
		else if (second && f.id == 6)
			g->rep_bytes = v;
	}
}

static int read_head(struct thrift *t, struct page *g, struct err *e)
{
	struct thrift_field f = { 0, TH_STOP };
	*g = (struct page){ .type = -1, .is_packed = true };
	while (thrift_next(t, &f)) {
		if (f.type == TH_I32 && f.id <= 3) {
			int64_t v = thrift_int(t);
			if (f.id == 1)
				g->type = (int)v;
			else
				*(f.id == 2 ? &g->size : &g->packed) = (uint64_t)v;
		} else if (f.type == TH_STRUCT && (f.id == 5 || f.id == 7 || f.id == 8)) {
			read_data_head(t, g, f.id == 8);
		} else {
			thrift_skip(t, f.type);
		}
	}
	if (t->bad || g->packed > (uint64_t)(t->end - t->p) || g->size > PAGE_MAX ||
	    g->entries > PQ_ENTRIES)
		return damaged(e, "a wrong head");
	return 0;
}

/* Levels in front of the values of a version 1 page, with their size. */
static int level_bytes(struct bytes *b, unsigned max, struct bytes *part, struct err *e)
{
	*part = (struct bytes){ b->p, b->p };
	if (!max)
		return 0;
	size_t left = (size_t)(b->end - b->p), n = left >= 4 ? (size_t)little(b->p, 4) : 0;
	if (left < 4 || n > left - 4)
		return damaged(e, "wrong levels");
	*part = (struct bytes){ b->p + 4, b->p + 4 + n };
	b->p += 4 + n;
	return 0;
}

static int data_page(struct pq_column *c, const struct pq_column *dict, const struct page *g,
		     struct bytes b, struct bytes rep, struct bytes def, struct err *e)
{
	uint64_t there = 0;
	if (g->type == DATA_V1) {
		TRY(level_bytes(&b, c->max_rep, &rep, e));
		TRY(level_bytes(&b, c->max_def, &def, e));
	}
	if (c->n + g->entries > PQ_ENTRIES)
		return err_set(e, ERR_UNSUPPORTED, "a row group of more than %u entries",
			       PQ_ENTRIES);
	TRY(spend(c, 2 * g->entries, e));
	if (!mem_grow(&c->rep, &c->rep_cap, c->n + (size_t)g->entries + 1, 1) ||
	    !mem_grow(&c->def, &c->def_cap, c->n + (size_t)g->entries + 1, 1))
		return err_nomem(e, c->n + g->entries, "a column");
	TRY(levels(rep, c->max_rep, g->entries, c->rep + c->n, e));
	TRY(levels(def, c->max_def, g->entries, c->def + c->n, e));
	for (uint64_t i = 0; i < g->entries; i++)
		there += c->def[c->n + i] == c->max_def;
	c->n += (size_t)g->entries;
	TRY(spend(c, 8 * there, e));
	return values(c, dict, g->encoding, b, there, e);
}

static int one_page(struct pq_column *c, struct pq_column *dict, int codec, const struct page *g,
		    const uint8_t *p, struct err *e)
{
	/* levels of a version 2 page are not packed */
	uint64_t plain_bytes = g->type == DATA_V2 ? g->def_bytes + g->rep_bytes : 0;
	if (g->def_bytes > g->packed || g->rep_bytes > g->packed || plain_bytes > g->packed ||
	    plain_bytes > g->size)
		return damaged(e, "wrong levels");
	struct bytes rep = { p, p + g->rep_bytes }, def = { rep.end, rep.end + g->def_bytes };
	size_t packed = (size_t)(g->packed - plain_bytes), size = (size_t)(g->size - plain_bytes);
	if (size / 4096 > packed + 4096) /* a page of 16 MiB may be all zeros */
		return damaged(e, "it would be 4096 times as large unpacked");
	TRY(spend(c, size, e));
	uint8_t *room = mem_alloc(size + 9); /* bits are read eight bytes at a time */
	if (!room)
		return err_nomem(e, size, "a page of a Parquet file");
	int rc = unpack(g->type == DATA_V2 && !g->is_packed ? NONE : codec, p + plain_bytes, packed,
			room, size, e);
	struct bytes b = { room, room + size };
	if (rc >= 0 && g->type == DICTIONARY) {
		pq_release(dict);
		dict->type = c->type;
		dict->room = c->room;
		rc = spend(c, 8 * g->entries, e);
		if (rc >= 0)
			rc = plain(dict, &b, g->entries, e);
	} else if (rc >= 0) {
		rc = data_page(c, dict, g, b, rep, def, e);
	}
	mem_free(room);
	return rc;
}

int pq_decode(struct pq_column *c, int codec, const uint8_t *p, size_t n, uint64_t entries,
	      struct err *e)
{
	struct thrift t = { .p = p, .end = p + n };
	struct pq_column dict = { .text = BUF_INIT };
	int rc = 0;
	while (rc >= 0 && c->n < entries) {
		struct page g;
		if (t.p == t.end) {
			rc = damaged(e, "a column ends early");
			break;
		}
		rc = read_head(&t, &g, e);
		if (rc < 0)
			break;
		if (g.type == DATA_V1 || g.type == DATA_V2 || g.type == DICTIONARY)
			rc = one_page(c, &dict, codec, &g, t.p, e);
		t.p += g.packed;
	}
	if (rc >= 0 && c->n != entries)
		rc = damaged(e, "a column has more values than it says");
	pq_release(&dict);
	return rc;
}
