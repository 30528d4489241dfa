/* SPDX-License-Identifier: Apache-2.0 */
/* parquet.c - see parquet.h: the file's metadata, and rows put together from columns (the levels
 * are those of Dremel: Melnik et al., VLDB 2010). Pages are in parquet_page.c. */
#include "data/parquet.h"

#include "base/err.h"
#include "base/json.h"
#include "base/le.h"
#include "base/mem.h"
#include "base/open.h"
#include "data/parquet_page.h"
#include "data/thrift.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum {
	FOOTER_MAX = 64 << 20,
	NODES_MAX = 10000,
	DEPTH_MAX = 32,
	GROUPS_MAX = 1 << 20,
	CHUNKS_MAX = 1 << 21,
	NAME_MAX_BYTES = 1000,
	CHUNK_MAX = 1 << 30, /* packed bytes of a column in a row group */
	ROW_MAX = 64 << 20,  /* of JSON */
	/* what a row group may take unpacked: so much, and so many times the file */
	UNPACKED_MIN = 64 << 20,
	UNPACKED_TIMES = 64,
	/* and all of them: as packed texts do */
	ALL_MIN = 1 << 30,
	ALL_TIMES = 1024,
};

enum { REQUIRED, OPTIONAL, REPEATED };

struct node {
	char *name; /* as a JSON string with a ':' behind */
	int type, repetition;
	unsigned kids; /* how many nodes below it follow directly */
	size_t end;    /* behind its last descendant */
	size_t leaf;   /* the first leaf at or below it */
	size_t guide;  /* the first of them that is read; SIZE_MAX: none */
	size_t first;  /* of those directly below it, the first that is read; 0: none */
	size_t next;   /* behind it, of those beside it; 0: none */
	size_t nleaf;  /* leaves at and below it */
	unsigned rep, def;
	bool list, text, natural,
		shown; /* natural: no negative numbers; shown: a leaf that is read */
};

struct chunk {
	int codec;
	int64_t offset, packed, entries;
};

struct leaf {
	size_t node;
	struct pq_column c;
	size_t at, value; /* the next entry; the next value */
};

struct parquet {
	char *path;
	int fd;
	uint64_t size, end; /* of the file, of the columns in it */
	uint8_t *footer;
	struct node *node;
	size_t nnode, node_cap;
	struct leaf *leaf;
	size_t nleaf, leaf_cap;
	struct chunk *chunk; /* nleaf for each row group */
	int64_t *rows;       /* of each row group */
	size_t nchunk, chunk_cap, ngroup, group_cap;
	size_t group;           /* the next one */
	int64_t left;           /* rows of the current one */
	uint64_t room;          /* bytes that it may still take */
	uint64_t spent, packed; /* by those before it; bytes of columns that were read */
	struct buf row;
};

static int damaged(struct err *e, const char *what)
{
	return err_set(e, ERR_INPUT, "damaged Parquet file: %s", what);
}

/* ---- the schema ----------------------------------------------------------------------------- */

static int set_name(struct node *n, const uint8_t *p, size_t len, struct err *e)
{
	struct buf b = BUF_INIT;
	json_quote(&b, (const char *)p, len);
	buf_addc(&b, ':');
	mem_free(n->name);
	n->name = buf_detach(&b);
	return n->name ? 0 : err_nomem(e, len, "a column's name");
}

/* IntType: bits and sign. */
static void integer(struct thrift *t, struct node *n)
{
	struct thrift_field f = { 0, TH_STOP };
	while (thrift_next(t, &f)) {
		n->natural = n->natural || (f.id == 2 && f.type == TH_FALSE);
		if (f.type != TH_TRUE && f.type != TH_FALSE)
			thrift_skip(t, f.type);
	}
}

/* LogicalType is a union: its only field says which. */
static void logical(struct thrift *t, struct node *n)
{
	struct thrift_field f = { 0, TH_STOP };
	while (thrift_next(t, &f)) {
		n->text = n->text || f.id == 1 || f.id == 4 || f.id == 11 || f.id == 12;
		n->list = n->list || f.id == 3;
		if (f.id == 10 && f.type == TH_STRUCT)
			integer(t, n);
		else
			thrift_skip(t, f.type);
	}
}

static int schema_element(struct parquet *p, struct thrift *t, struct err *e)
{
	struct thrift_field f = { 0, TH_STOP };
	struct node n = { .type = -1 };
	bool decimal = false;
	while (thrift_next(t, &f)) {
		if (f.type == TH_I32) {
			int64_t v = thrift_int(t);
			if (f.id == 1)
				n.type = v >= 0 && v <= PQ_FIXED ? (int)v : PQ_FIXED;
			else if (f.id == 3)
				n.repetition = (int)v;
			else if (f.id == 5)
				n.kids = v >= 0 && v <= NODES_MAX ? (unsigned)v : NODES_MAX + 1;
			else if (f.id == 6) {
				n.text = n.text || v == 0 || v == 4 || v == 19;
				n.list = n.list || v == 3;
				n.natural = n.natural || (v >= 11 && v <= 14);
				decimal = v == 5;
			}
		} else if (f.id == 4 && f.type == TH_BINARY) {
			size_t len;
			const uint8_t *s = thrift_binary(t, &len);
			if (len > NAME_MAX_BYTES) {
				mem_free(n.name);
				return damaged(e, "the name of a column is too long");
			}
			TRY(set_name(&n, s, len, e));
		} else if (f.id == 10 && f.type == TH_STRUCT) {
			logical(t, &n);
		} else {
			thrift_skip(t, f.type);
		}
	}
	if (!n.name || t->bad || n.kids > NODES_MAX || n.repetition < 0 ||
	    n.repetition > REPEATED || p->nnode >= NODES_MAX ||
	    !mem_grow(&p->node, &p->node_cap, p->nnode + 1, sizeof n)) {
		mem_free(n.name);
		return damaged(e, "a wrong schema");
	}
	n.shown = !decimal && n.type != PQ_INT96 && n.type != PQ_FIXED &&
		  (n.type != PQ_BYTES || n.text);
	p->node[p->nnode++] = n;
	return 0;
}

/* Levels, leaves and ends of the tree at node i. */
static int settle(struct parquet *p, size_t i, unsigned rep, unsigned def, unsigned depth,
		  size_t *end_p, struct err *e)
{
	struct node *n = &p->node[i];
	if (depth > DEPTH_MAX)
		return damaged(e, "columns nested too deeply");
	n->rep = rep += i && n->repetition == REPEATED;
	n->def = def += i && n->repetition != REQUIRED;
	n->leaf = p->nleaf;
	n->guide = SIZE_MAX;
	*end_p = i + 1;
	if (!n->kids) {
		if (n->type < 0)
			return damaged(e, "a column without a type");
		if (!mem_grow(&p->leaf, &p->leaf_cap, p->nleaf + 1, sizeof *p->leaf))
			return err_nomem(e, (p->nleaf + 1) * sizeof *p->leaf, "columns");
		p->leaf[p->nleaf++] = (struct leaf){ .node = i, .c.text = BUF_INIT };
	}
	bool shown = !n->kids && n->shown;
	size_t *link = &n->first;
	if (shown)
		n->guide = n->leaf;
	for (unsigned k = 0; k < n->kids; k++) {
		size_t kid = *end_p;
		if (kid >= p->nnode)
			return damaged(e, "a wrong schema");
		TRY(settle(p, kid, rep, def, depth + 1, end_p, e));
		if (!p->node[kid].shown)
			continue;
		if (!shown)
			n->guide = p->node[kid].guide;
		shown = true;
		*link = kid;
		link = &p->node[kid].next;
	}
	n->shown = shown;
	n->end = *end_p;
	n->nleaf = p->nleaf - n->leaf;
	return 0;
}

/* ---- row groups ----------------------------------------------------------------------------- */

static void chunk_meta(struct thrift *t, struct chunk *c)
{
	struct thrift_field f = { 0, TH_STOP };
	int64_t data = -1, dict = -1;
	while (thrift_next(t, &f)) {
		if (f.type != TH_I32 && f.type != TH_I64) {
			thrift_skip(t, f.type);
			continue;
		}
		int64_t v = thrift_int(t);
		if (f.id == 4)
			c->codec = (int)v;
		else if (f.id == 5)
			c->entries = v;
		else if (f.id == 7)
			c->packed = v;
		else if (f.id == 9)
			data = v;
		else if (f.id == 11)
			dict = v;
	}
	c->offset = dict > 0 && dict < data ? dict : data;
}

static int one_chunk(struct parquet *p, struct thrift *t, struct err *e)
{
	struct thrift_field f = { 0, TH_STOP };
	struct chunk c = { .offset = -1 };
	while (thrift_next(t, &f)) {
		if (f.id == 1 && f.type == TH_BINARY)
			return err_set(e, ERR_UNSUPPORTED,
				       "a Parquet file whose columns are in other "
				       "files");
		if (f.id == 3 && f.type == TH_STRUCT)
			chunk_meta(t, &c);
		else
			thrift_skip(t, f.type);
	}
	if (p->nchunk >= CHUNKS_MAX)
		return err_set(e, ERR_UNSUPPORTED, "more than %d columns of row groups",
			       CHUNKS_MAX);
	if (!mem_grow(&p->chunk, &p->chunk_cap, p->nchunk + 1, sizeof c))
		return err_nomem(e, (p->nchunk + 1) * sizeof c, "columns");
	p->chunk[p->nchunk++] = c;
	return 0;
}

static int row_group(struct parquet *p, struct thrift *t, struct err *e)
{
	struct thrift_field f = { 0, TH_STOP };
	enum thrift_type item;
	int64_t rows = -1;
	size_t before = p->nchunk;
	while (thrift_next(t, &f)) {
		if (f.id == 1 && f.type == TH_LIST) {
			size_t n = thrift_list(t, &item);
			for (size_t i = 0; i < n && item == TH_STRUCT && !t->bad; i++)
				TRY(one_chunk(p, t, e));
		} else if (f.id == 3 && f.type == TH_I64) {
			rows = thrift_int(t);
		} else {
			thrift_skip(t, f.type);
		}
	}
	if (t->bad || rows < 0 || p->nchunk - before != p->nleaf || p->ngroup >= GROUPS_MAX)
		return damaged(e, "a wrong row group");
	if (!mem_grow(&p->rows, &p->group_cap, p->ngroup + 1, sizeof *p->rows))
		return err_nomem(e, (p->ngroup + 1) * sizeof *p->rows, "row groups");
	p->rows[p->ngroup++] = rows;
	return 0;
}

static int metadata(struct parquet *p, size_t n, struct err *e)
{
	struct thrift t = { .p = p->footer, .end = p->footer + n };
	struct thrift_field f = { 0, TH_STOP };
	enum thrift_type item;
	size_t end = 0;
	while (thrift_next(&t, &f)) {
		if (f.id == 2 && f.type == TH_LIST && !p->nnode) {
			size_t count = thrift_list(&t, &item);
			for (size_t i = 0; i < count && item == TH_STRUCT && !t.bad; i++)
				TRY(schema_element(p, &t, e));
			if (!p->nnode)
				return damaged(e, "no schema");
			TRY(settle(p, 0, 0, 0, 0, &end, e));
			if (end != p->nnode)
				return damaged(e, "a wrong schema");
		} else if (f.id == 4 && f.type == TH_LIST && p->nnode) {
			size_t count = thrift_list(&t, &item);
			for (size_t i = 0; i < count && item == TH_STRUCT && !t.bad; i++)
				TRY(row_group(p, &t, e));
		} else {
			thrift_skip(&t, f.type);
		}
	}
	if (t.bad || !p->nnode)
		return damaged(e, "its metadata cannot be read");
	return 0;
}

static int read_at(struct parquet *p, void *out, size_t n, uint64_t at, struct err *e)
{
	for (size_t got = 0; got < n;) {
		ssize_t k = pread(p->fd, (uint8_t *)out + got, n - got, (off_t)(at + got));
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return err_sys(e, errno, "reading");
		if (!k)
			return damaged(e, "it is cut off");
		got += (size_t)k;
	}
	return 0;
}

static int read_footer(struct parquet *p, struct err *e)
{
	uint8_t tail[8];
	if (p->size < 12)
		return damaged(e, "it is too short");
	TRY(read_at(p, tail, 8, p->size - 8, e));
	if (!memcmp(tail + 4, "PARE", 4))
		return err_set(e, ERR_UNSUPPORTED, "an encrypted Parquet file");
	uint64_t n = le_get(tail, 4);
	if (memcmp(tail + 4, "PAR1", 4) || n > p->size - 12 || n > FOOTER_MAX)
		return damaged(e, "its end is not that of a Parquet file (is it cut off?)");
	p->end = p->size - 8 - n;
	p->footer = mem_alloc((size_t)n + 1);
	if (!p->footer)
		return err_nomem(e, n, "the metadata of a Parquet file");
	TRY(read_at(p, p->footer, (size_t)n, p->size - 8 - n, e));
	return metadata(p, (size_t)n, e);
}

int parquet_open(const char *path, struct parquet **p_p, struct err *e)
{
	struct parquet *p = mem_zalloc(sizeof *p);
	if (!p)
		return err_nomem(e, sizeof *p, "a reader");
	buf_init(&p->row);
	p->fd = -1;
	p->path = mem_strdup(path);
	int rc = p->path ? open_read(path, &p->fd, &p->size, e) : err_nomem(e, 1, "a path");
	if (rc >= 0) {
		rc = read_footer(p, e);
		if (rc < 0)
			err_prefix(e, "%s", path);
	}
	if (rc < 0)
		parquet_close(p);
	else
		*p_p = p;
	return rc;
}

void parquet_close(struct parquet *p)
{
	if (!p)
		return;
	if (p->fd >= 0)
		close(p->fd);
	for (size_t i = 0; i < p->nnode; i++)
		mem_free(p->node[i].name);
	for (size_t i = 0; i < p->nleaf; i++)
		pq_release(&p->leaf[i].c);
	buf_release(&p->row);
	mem_free(p->path);
	mem_free(p->footer);
	mem_free(p->node);
	mem_free(p->leaf);
	mem_free(p->chunk);
	mem_free(p->rows);
	mem_free(p);
}

/* ---- rows ----------------------------------------------------------------------------------- */

static int load_leaf(struct parquet *p, struct leaf *l, const struct chunk *k, struct err *e)
{
	const struct node *n = &p->node[l->node];
	pq_release(&l->c);
	l->c.type = (enum pq_type)n->type;
	l->c.max_rep = n->rep;
	l->c.max_def = n->def;
	l->c.room = &p->room;
	l->at = l->value = 0;
	if (!n->shown)
		return 0;
	if (k->offset < 4 || k->packed < 0 || k->packed > CHUNK_MAX || k->entries < 0 ||
	    (uint64_t)k->offset > p->end || (uint64_t)k->packed > p->end - (uint64_t)k->offset)
		return damaged(e, "a column is not inside the file");
	p->packed += (uint64_t)k->packed;
	if (p->packed > p->end - 4)
		return damaged(e, "columns overlap");
	uint8_t *bytes = mem_alloc((size_t)k->packed + 1);
	if (!bytes)
		return err_nomem(e, (uint64_t)k->packed, "a column of a Parquet file");
	int rc = read_at(p, bytes, (size_t)k->packed, (uint64_t)k->offset, e);
	if (rc >= 0)
		rc = pq_decode(&l->c, k->codec, bytes, (size_t)k->packed, (uint64_t)k->entries, e);
	mem_free(bytes);
	return rc;
}

static int load_group(struct parquet *p, struct err *e)
{
	const uint64_t all = ALL_MIN + ALL_TIMES * p->size - p->spent,
		       most = UNPACKED_MIN + UNPACKED_TIMES * p->size;
	const uint64_t room = most < all ? most : all;
	p->room = room;
	for (size_t i = 0; i < p->nleaf && p->rows[p->group]; i++) {
		struct leaf *l = &p->leaf[i];
		if (load_leaf(p, l, &p->chunk[p->group * p->nleaf + i], e) < 0)
			return err_prefix(e, "column %.*s",
					  (int)strlen(p->node[l->node].name) < 100
						  ? (int)strlen(p->node[l->node].name) - 1
						  : 100,
					  p->node[l->node].name);
	}
	p->spent += room - p->room;
	p->left = p->rows[p->group++];
	return 0;
}

static bool more(const struct leaf *l) { return l->at < l->c.n; }

/* Each leaf below the node that is read has an entry for what is missing. */
static int skip_missing(struct parquet *p, const struct node *n, struct err *e)
{
	for (size_t i = n->leaf; i < n->leaf + n->nleaf; i++) {
		struct leaf *l = &p->leaf[i];
		if (!p->node[l->node].shown)
			continue;
		if (!more(l) || l->c.def[l->at] == l->c.max_def)
			return damaged(e, "columns do not belong together");
		l->at++;
	}
	return 0;
}

/* A float stays one where it is whole: 1.0. */
static void put_real(struct buf *b, double d)
{
	const size_t at = b->n;
	json_number(b, d);
	if (!b->failed && !strpbrk(b->p + at, ".en"))
		buf_adds(b, ".0");
}

static int put_leaf(struct parquet *p, struct leaf *l, struct err *e)
{
	const struct node *n = &p->node[l->node];
	struct pq_column *c = &l->c;
	if (!more(l) || c->def[l->at] != c->max_def || l->value >= c->nv)
		return damaged(e, "columns do not belong together");
	l->at++;
	uint64_t v = c->v[l->value++];
	double d;
	if (c->type == PQ_BYTES) {
		json_quote(&p->row, c->text.p + v, (size_t)(c->v[l->value] - v));
	} else if (c->type == PQ_BOOL) {
		buf_adds(&p->row, v ? "true" : "false");
	} else if (c->type == PQ_FLOAT || c->type == PQ_DOUBLE) {
		memcpy(&d, &v, sizeof d);
		put_real(&p->row, d);
	} else if (n->natural) {
		v &= c->type == PQ_INT32 ? UINT32_MAX : UINT64_MAX;
		if (v > INT64_MAX) /* our JSON has none so large */
			put_real(&p->row, (double)v);
		else
			buf_addf(&p->row, "%llu", (unsigned long long)v);
	} else {
		buf_addf(&p->row, "%lld", (long long)v);
	}
	return 0;
}

static int put_node(struct parquet *p, size_t i, struct err *e);

/* What is inside node i, which is there. */
static int put_inside(struct parquet *p, size_t i, struct err *e)
{
	const struct node *n = &p->node[i];
	bool first = true;
	if (!n->kids)
		return put_leaf(p, &p->leaf[n->leaf], e);
	/* a list: its only child is repeated, and holds the items */
	if (n->list && n->kids == 1 && p->node[i + 1].repetition == REPEATED)
		return put_node(p, i + 1, e);
	buf_addc(&p->row, '{');
	for (size_t k = n->first; k; k = p->node[k].next) {
		buf_adds(&p->row, first ? "" : ",");
		first = false;
		buf_adds(&p->row, p->node[k].name);
		TRY(put_node(p, k, e));
	}
	buf_addc(&p->row, '}');
	return 0;
}

/* The first leaf below n that is read tells what is there. */
static struct leaf *guide(struct parquet *p, const struct node *n)
{
	return n->guide == SIZE_MAX ? NULL : &p->leaf[n->guide];
}

static int put_node(struct parquet *p, size_t i, struct err *e)
{
	const struct node *n = &p->node[i];
	struct leaf *l = guide(p, n);
	if (!l || !more(l))
		return damaged(e, "a column has fewer rows than it says");
	if (p->row.n > ROW_MAX)
		return err_set(e, ERR_UNSUPPORTED, "a row of more than %d MiB", ROW_MAX >> 20);
	bool there = l->c.def[l->at] >= n->def;
	if (n->repetition == OPTIONAL && !there) {
		buf_adds(&p->row, "null");
		return skip_missing(p, n, e);
	}
	if (n->repetition != REPEATED)
		return put_inside(p, i, e);
	buf_addc(&p->row, '[');
	if (!there)
		TRY(skip_missing(p, n, e));
	/* the struct that stands for an item of a list is left out where it has one member */
	bool wrapped = n->kids == 1 && i && p->node[i - 1].list && p->node[i - 1].end == n->end;
	for (bool first = true; there; first = false) {
		buf_adds(&p->row, first ? "" : ",");
		TRY(wrapped ? put_node(p, i + 1, e) : put_inside(p, i, e));
		there = more(l) && l->c.rep[l->at] >= n->rep;
	}
	buf_addc(&p->row, ']');
	return 0;
}

int parquet_next(struct parquet *p, const char **text_p, size_t *n_p, struct err *e)
{
	int rc = 0;
	buf_reset(&p->row);
	while (rc >= 0 && !p->left) {
		if (p->group == p->ngroup)
			return 0;
		rc = load_group(p, e);
	}
	if (rc >= 0 && !p->node[0].shown)
		rc = err_set(e, ERR_UNSUPPORTED, "no column holds text or numbers");
	if (rc >= 0)
		rc = put_inside(p, 0, e);
	if (rc >= 0)
		rc = buf_ok(&p->row, e);
	if (rc < 0)
		return err_prefix(e, "%s", p->path);
	p->left--;
	*text_p = p->row.p;
	*n_p = p->row.n;
	return 1;
}
