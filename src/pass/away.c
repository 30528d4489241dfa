/* SPDX-License-Identifier: Apache-2.0 */
/* away.c - see away.h. */
#include "pass/away.h"

#include "base/err.h"
#include "base/mem.h"
#include "model/halves.h"
#include "model/model_block.h"
#include "pass/rows.h"

#include <string.h>

/* Rows of one layer that are computed here. */
struct away_layer {
	struct routing r;
	struct tensor *x, *y; /* (M,C) */
	struct tape_node *last;
	struct dmem_mark mark;
	struct dev_ref places;
	bool record;
};

/* A microbatch whose rows are here. */
struct away_pass {
	int mb; /* -1: free */
	struct dmem mem;
	struct arena host;
	struct away_layer *layer; /* [layers] */
	int left;                 /* layers until it is free */
	struct stage_batch b;
};

/* ---- pieces of rows ---- */

static int64_t index_of(const struct away *a, int layer) { return a->stage->opt.first + layer; }

static const struct expert_deal *deal_of(const struct away *a) { return a->stage->opt.deal; }

/* The next rows [from, to) that belong to `place`, from expert *x_p on. */
static bool next_piece(const struct away *a, int layer, int place, const int64_t *first,
		       int64_t *x_p, int64_t *from_p, int64_t *to_p)
{
	const struct expert_deal *d = deal_of(a);
	int64_t x = *x_p;
	while (x < d->experts &&
	       (deal_place(d, index_of(a, layer), x) != place || first[x] == first[x + 1]))
		x++;
	if (x == d->experts)
		return false;
	*from_p = first[x];
	while (x < d->experts &&
	       (deal_place(d, index_of(a, layer), x) == place || first[x] == first[x + 1]))
		x++;
	*to_p = first[x];
	*x_p = x;
	return true;
}

static int64_t rows_of(const struct away *a, int layer, int place, const int64_t *first)
{
	int64_t x = 0, from, to, n = 0;
	while (next_piece(a, layer, place, first, &x, &from, &to))
		n += to - from;
	return n;
}

static size_t row_bytes(const struct away *a, enum dtype t)
{
	return (size_t)a->stage->cfg.hidden * dtype_size(t);
}

static struct dev_ref row_at(const struct away *a, struct dev_ref rows, int64_t i)
{
	return DEV_REF(rows.buf, rows.off + (size_t)i * row_bytes(a, a->stage->opt.act));
}

/* Between the rows (M,C) of a home and those of one place alone, one behind the other. */
static int copy_pieces(const struct away *a, int layer, int place, const int64_t *first,
		       struct dev_ref rows, struct dev_ref own, bool back, struct err *e)
{
	int64_t x = 0, from, to, at = 0;
	for (; next_piece(a, layer, place, first, &x, &from, &to); at += to - from) {
		const struct dev_ref there = row_at(a, rows, from), here = row_at(a, own, at);
		TRY(dev_copy(back ? there : here, back ? here : there,
			     (size_t)(to - from) * row_bytes(a, a->stage->opt.act), e));
	}
	return 0;
}

/* ---- rows between device and wire ---- */

static int room(struct away *a, size_t bytes, struct err *e)
{
	if (a->cast && a->cast->size >= bytes)
		return 0;
	dev_free(a->cast);
	a->cast = NULL;
	return dev_alloc(a->stage->dev, bytes, &a->cast, e);
}

static int cast(const struct away *a, struct dev_ref to, enum dtype to_type, struct dev_ref from,
		enum dtype from_type, int64_t rows, struct err *e)
{
	const union dev_arg v[] = { { .b = to },
				    { .b = from },
				    { .i = rows * a->stage->cfg.hidden },
				    { .i = to_type },
				    { .i = from_type } };
	return dev_launch(a->stage->dev, K_cast, DT_F32, v, e);
}

static int download(struct away *a, unsigned char *p, struct dev_ref from, int64_t rows,
		    struct err *e)
{
	const enum dtype act = a->stage->opt.act, wire = a->exchange->plan->wire;
	const size_t bytes = (size_t)rows * row_bytes(a, wire);
	if (!rows)
		return 0;
	if (wire != act) {
		TRY(room(a, bytes, e));
		TRY(cast(a, DEV_REF(a->cast, 0), wire, from, act, rows, e));
		from = DEV_REF(a->cast, 0);
	}
	return dev_download(p, from, bytes, e);
}

static int upload(struct away *a, struct dev_ref to, const unsigned char *p, int64_t rows,
		  struct err *e)
{
	const enum dtype act = a->stage->opt.act, wire = a->exchange->plan->wire;
	const size_t bytes = (size_t)rows * row_bytes(a, wire);
	if (!rows)
		return 0;
	if (wire == act)
		return dev_upload(to, p, bytes, e);
	TRY(room(a, bytes, e));
	TRY(dev_upload(DEV_REF(a->cast, 0), p, bytes, e));
	return cast(a, to, act, DEV_REF(a->cast, 0), wire, rows, e);
}

/* The rows of a home that belong to the other end of a message. */
static int download_pieces(struct away *a, const struct instr *i, const int64_t *first,
			   struct dev_ref rows, unsigned char *p, struct err *e)
{
	int64_t x = 0, from, to;
	while (next_piece(a, i->part, i->place, first, &x, &from, &to)) {
		TRY(download(a, p, row_at(a, rows, from), to - from, e));
		p += (size_t)(to - from) * row_bytes(a, a->exchange->plan->wire);
	}
	return 0;
}

static int upload_pieces(struct away *a, const struct instr *i, const int64_t *first,
			 struct dev_ref rows, const unsigned char *p, struct err *e)
{
	int64_t x = 0, from, to;
	while (next_piece(a, i->part, i->place, first, &x, &from, &to)) {
		TRY(upload(a, row_at(a, rows, from), p, to - from, e));
		p += (size_t)(to - from) * row_bytes(a, a->exchange->plan->wire);
	}
	return 0;
}

/* Before rows are sent: the download would wait for the products anyway, and so it is known when
 * they were done. */
static int settle(struct away *a, struct err *e)
{
	TRY(exchange_flush(a->exchange, e));
	TRY(dev_sync(a->stage->dev, e));
	times_computed(a->exchange->times);
	return 0;
}

/* ---- at home ---- */

/* How many rows each expert of the receiver gets, and of which tokens. */
static unsigned char *put_head(const struct away *a, const struct instr *i, const struct routing *r,
			       unsigned char *p)
{
	const struct expert_deal *d = deal_of(a);
	int64_t x = 0, from, to;
	for (int64_t k = 0; k < d->experts; k++) {
		const uint32_t n = (uint32_t)(r->first[k + 1] - r->first[k]);
		if (deal_place(d, index_of(a, i->part), k) != i->place)
			continue;
		memcpy(p, &n, sizeof n);
		p += sizeof n;
	}
	while (next_piece(a, i->part, i->place, r->first, &x, &from, &to)) {
		memcpy(p, r->token + from, (size_t)(to - from) * sizeof *r->token);
		p += (size_t)(to - from) * sizeof *r->token;
	}
	return p;
}

static int home_send(struct away *a, const struct instr *i, struct slot *sl, struct err *e)
{
	const bool rows = i->kind == INSTR_SEND_ROWS;
	const struct halves *v = &sl->halves[i->part];
	const struct routing *r = v->w.r;
	const int64_t m = rows_of(a, i->part, i->place, r->first);
	const size_t head =
		rows ? 4 * (size_t)(deal_count(deal_of(a), index_of(a, i->part), i->place) + m) : 0;
	const size_t bytes = head + (size_t)m * row_bytes(a, a->exchange->plan->wire);
	unsigned char *p;
	TRY(settle(a, e));
	TRY(rows_room(a->exchange, i, bytes, &p, e));
	if (rows)
		put_head(a, i, r, p);
	int rc = download_pieces(a, i, r->first, rows ? v->rows : v->grad, p + head, e);
	if (rc < 0) {
		net_buffer_release(a->exchange->net, p - FRAME_HEADER);
		return rc;
	}
	return rows_send(a->exchange, i, p, bytes, e);
}

/* Rows of a message, of which there must be m. */
static int check_rows(const struct away *a, const struct instr *i, size_t bytes, int64_t m,
		      struct err *e)
{
	if (bytes == (size_t)m * row_bytes(a, a->exchange->plan->wire))
		return 0;
	return err_set(e, ERR_PROTOCOL,
		       "member %d of the group sent %zu bytes of rows of microbatch %d in layer "
		       "%lld; %lld rows were expected",
		       i->place, bytes, i->microbatch, (long long)index_of(a, i->part),
		       (long long)m);
}

static int home_receive(struct away *a, const struct instr *i, struct slot *sl, struct err *e)
{
	const struct halves *v = &sl->halves[i->part];
	struct net_msg msg = { 0 };
	const unsigned char *p;
	size_t bytes;
	TRY(rows_receive(a->exchange, i, &msg, &p, &bytes, e));
	int rc = check_rows(a, i, bytes, rows_of(a, i->part, i->place, v->w.r->first), e);
	if (rc >= 0)
		rc = upload_pieces(a, i, v->w.r->first, v->rows, p, e);
	net_msg_release(&msg);
	return rc;
}

/* ---- where the experts are ---- */

static int layers_of(const struct away *a)
{
	return (int)(a->stage->opt.last - a->stage->opt.first);
}

/* Layers of which there are experts here, and that take part in this half of a round. */
static int layers_due(const struct away *a, bool train)
{
	int n = 0;
	for (int k = 0; k < layers_of(a); k++)
		n += halves_at(a->stage, k) && (!train || halves_back(a->stage, k)) &&
		     deal_count(deal_of(a), index_of(a, k), a->place) > 0;
	return n;
}

static struct away_pass *find_pass(struct away *a, int mb)
{
	for (size_t k = 0; k < a->n; k++)
		if (a->pass[k].mb == mb)
			return &a->pass[k];
	return NULL;
}

static int open_pass(struct away *a, int mb, const struct stage_batch *b, struct away_pass **p_p,
		     struct err *e)
{
	struct away_pass *p = find_pass(a, mb);
	if (!p)
		p = find_pass(a, -1);
	if (!p) {
		if (!mem_grow(&a->pass, &a->cap, a->n + 1, sizeof *a->pass))
			return err_nomem(e, (a->n + 1) * sizeof *a->pass, "a microbatch");
		p = &a->pass[a->n++];
		*p = (struct away_pass){ .mb = -1 };
		dmem_init(&p->mem, a->stage->dev, 64 << 10);
	}
	*p_p = p;
	if (p->mb == mb)
		return 0;
	const size_t n = (size_t)layers_of(a);
	p->mb = mb;
	p->b = *b;
	p->left = layers_due(a, b->train);
	p->layer = arena_alloc(&p->host, n * sizeof *p->layer);
	return p->layer ? 0 : err_nomem(e, n * sizeof *p->layer, "a microbatch");
}

static void close_pass(struct away_pass *p)
{
	p->mb = -1;
	dmem_reset(&p->mem);
	arena_reset(&p->host);
}

/* A layer has been computed, or its backward half. */
static void done_with(struct away_pass *p, const struct away_layer *l)
{
	dmem_back(&p->mem, l->mark);
	if (--p->left <= 0)
		close_pass(p);
}

static struct tape tape_of(struct away *a, struct away_pass *p, bool record, struct dmem *mem)
{
	return (struct tape){ .dev = a->stage->dev,
			      .act = a->stage->opt.act,
			      .mem = mem,
			      .scratch = a->stage->scratch,
			      .host = &p->host,
			      .record = record };
}

/* Where the rows' tokens stand, for masks. */
static int upload_places(struct away_pass *p, struct away_layer *l, const int32_t *token, int64_t m,
			 struct err *e)
{
	const struct stage_batch *b = &p->b;
	int32_t *place = arena_alloc(&p->host, (size_t)(2 * m + 1) * sizeof *place);
	int32_t *number = arena_alloc(&p->host, (size_t)(m + 1) * sizeof *number);
	if (!place || !number)
		return err_nomem(e, (size_t)m * 12, "places");
	for (int64_t i = 0; i < m; i++) {
		int64_t r = 0;
		while (b->row && r + 1 < b->nrows && token[i] >= b->row[r + 1])
			r++;
		place[2 * i] = (int32_t)(b->first_row + r);
		place[2 * i + 1] = b->row ? token[i] - b->row[r] : token[i];
		number[i] = (int32_t)i;
	}
	TRY(dmem_take(&p->mem, (size_t)m * 8, &l->places, e));
	TRY(dmem_take(&p->mem, (size_t)m * 4, &l->r.source, e));
	TRY(dev_upload(l->places, place, (size_t)m * 8, e));
	return dev_upload(l->r.source, number, (size_t)m * 4, e);
}

/* Room for m rows of a layer; first[k]: where those of expert k begin. */
static int open_layer(struct away *a, struct away_pass *p, int layer, const int64_t *first,
		      const int32_t *token, struct err *e)
{
	const struct stage *s = a->stage;
	struct away_layer *l = &p->layer[layer];
	const int64_t m = first[deal_of(a)->experts], dim[2] = { m, s->cfg.hidden };
	l->mark = dmem_mark(&p->mem);
	l->record = p->b.train && halves_back(s, layer);
	l->r = (struct routing){ .n = m, .experts = deal_of(a)->experts, .k = 1, .first = first };
	struct tape t = tape_of(a, p, false, &p->mem);
	if (m && p->b.train && s->opt.by_row && s->opt.lora.dropout > 0)
		TRY(upload_places(p, l, token, m, e));
	TRY(tape_new(&t, &p->mem, s->opt.act, 2, dim, &l->x, e));
	l->x->needs_grad = l->record;
	l->y = l->x;
	return 0;
}

/* Of the experts that are here, where their rows begin: [experts + 1]. */
static int64_t *new_first(struct away *a, struct away_pass *p, struct err *e)
{
	const size_t n = (size_t)deal_of(a)->experts + 1;
	int64_t *v = arena_alloc(&p->host, n * sizeof *v);
	if (!v)
		err_nomem(e, n * sizeof *v, "the rows of experts");
	return v;
}

/* The head of a message: first[] and the tokens. Their rows are behind it, at *p_p. */
static int read_head(struct away *a, struct away_pass *s, const struct instr *i,
		     const unsigned char **p_p, size_t *bytes_p, int64_t *first, int32_t **token_p,
		     struct err *e)
{
	const struct expert_deal *d = deal_of(a);
	const unsigned char *p = *p_p, *end = p + *bytes_p;
	const int64_t n = s->b.n, most = n * a->stage->cfg.top_k;
	for (int64_t k = 0; k < d->experts; k++) {
		uint32_t rows = 0;
		first[k + 1] = first[k];
		if (deal_place(d, index_of(a, i->part), k) != a->place)
			continue;
		if ((size_t)(end - p) < sizeof rows)
			return check_rows(a, i, *bytes_p, most, e);
		memcpy(&rows, p, sizeof rows);
		p += sizeof rows;
		first[k + 1] += rows;
		if (rows > n || first[k + 1] > most)
			return check_rows(a, i, *bytes_p, most, e);
	}
	const size_t m = (size_t)first[d->experts];
	int32_t *token = arena_alloc(&s->host, (m + 1) * sizeof *token);
	if (!token)
		return err_nomem(e, m * sizeof *token, "the tokens of rows");
	if ((size_t)(end - p) < m * sizeof *token)
		return check_rows(a, i, *bytes_p, (int64_t)m, e);
	memcpy(token, p, m * sizeof *token);
	p += m * sizeof *token;
	for (size_t k = 0; k < m; k++)
		if (token[k] < 0 || token[k] >= n)
			return err_set(e, ERR_PROTOCOL,
				       "member %d of the group sent a row of token %d of %lld",
				       i->place, token[k], (long long)n);
	*bytes_p = (size_t)(end - p);
	*p_p = p;
	*token_p = token;
	return 0;
}

/* RECV_ROWS, RECV_ROW_GRADS. */
static int take_message(struct away *a, struct away_pass *s, const struct instr *i,
			const unsigned char *p, size_t bytes, struct err *e)
{
	struct away_layer *l = &s->layer[i->part];
	struct tape t = tape_of(a, s, false, &s->mem);
	if (i->kind == INSTR_RECV_ROWS) {
		int32_t *token = NULL;
		int64_t *first = new_first(a, s, e);
		if (!first)
			return e->code;
		TRY(read_head(a, s, i, &p, &bytes, first, &token, e));
		TRY(check_rows(a, i, bytes, first[deal_of(a)->experts], e));
		TRY(open_layer(a, s, i->part, first, token, e));
		return upload(a, l->x->at, p, l->r.n, e);
	}
	if (!l->y)
		return err_set(e, ERR_INTERNAL, "gradients of rows that were not here");
	TRY(check_rows(a, i, bytes, l->r.n, e));
	TRY(tape_new(&t, &s->mem, a->stage->opt.act, 2, l->y->dim, &l->y->grad, e));
	return upload(a, l->y->grad->at, p, l->r.n, e);
}

static int expert_receive(struct away *a, const struct instr *i, const struct stage_batch *b,
			  struct err *e)
{
	struct net_msg msg = { 0 };
	const unsigned char *p;
	struct away_pass *s;
	size_t bytes;
	TRY(open_pass(a, i->microbatch, b, &s, e));
	TRY(rows_receive(a->exchange, i, &msg, &p, &bytes, e));
	int rc = take_message(a, s, i, p, bytes, e);
	net_msg_release(&msg);
	return rc;
}

static int expert_send(struct away *a, const struct instr *i, struct err *e)
{
	struct away_pass *s = find_pass(a, i->microbatch);
	const bool back = i->kind == INSTR_SEND_ROW_GRADS;
	if (!s)
		return err_set(e, ERR_INTERNAL, "rows of microbatch %d are not here",
			       i->microbatch);
	struct away_layer *l = &s->layer[i->part];
	const size_t bytes = (size_t)l->r.n * row_bytes(a, a->exchange->plan->wire);
	unsigned char *p;
	TRY(settle(a, e));
	TRY(rows_room(a->exchange, i, bytes, &p, e));
	int rc = l->r.n ? download(a, p, back ? l->x->grad->at : l->y->at, l->r.n, e) : 0;
	if (rc < 0) {
		net_buffer_release(a->exchange->net, p - FRAME_HEADER);
		return rc;
	}
	TRY(rows_send(a->exchange, i, p, bytes, e));
	if (back || !s->b.train)
		done_with(s, l);
	return 0;
}

static int compute(struct away *a, struct away_pass *s, int layer, struct err *e)
{
	struct away_layer *l = &s->layer[layer];
	struct tape t = tape_of(a, s, l->record, &s->mem);
	struct slot view = { .stage = a->stage, .b = s->b, .places = l->places };
	if (!l->r.n)
		return 0;
	int rc = a->stage->blocks->experts(&view, &t, index_of(a, layer), l->x, &l->r, &l->y, e);
	l->last = t.last;
	return rc < 0 ? err_prefix(e, "layer %lld", (long long)index_of(a, layer)) : 0;
}

/* Leaves the gradient of the rows at x->grad. */
static int compute_back(struct away *a, struct away_pass *s, int layer, struct err *e)
{
	struct away_layer *l = &s->layer[layer];
	struct tape t = tape_of(a, s, true, a->stage->scratch);
	struct dmem_mark k = dmem_mark(a->stage->scratch);
	struct dev_ref dy = l->y->grad->at;
	TRY(tape_new(&t, &s->mem, a->stage->opt.act, 2, l->x->dim, &l->x->grad, e));
	if (!l->r.n)
		return 0;
	TRY(tape_seed(&t, l->y, dy, e));
	t.last = l->last;
	TRY(tape_backward(&t, e));
	dmem_back(a->stage->scratch, k);
	return 0;
}

/* ---- experts of a home ---- */

static int own_forward(struct away *a, const struct instr *i, struct slot *sl, struct err *e)
{
	const struct halves *v = &sl->halves[i->part];
	const struct routing *r = v->w.r;
	struct away_pass *s;
	TRY(open_pass(a, i->microbatch, &sl->b, &s, e));
	int64_t *first = new_first(a, s, e), x = 0, from, to, m = 0;
	if (!first)
		return e->code;
	int32_t *token = arena_alloc(&s->host, (size_t)(r->n * r->k) * sizeof *token);
	if (!token)
		return err_nomem(e, (size_t)(r->n * r->k) * 4, "the tokens of rows");
	for (int64_t k = 0; k < r->experts; k++)
		first[k + 1] =
			first[k] + (deal_place(deal_of(a), index_of(a, i->part), k) == a->place
					    ? r->first[k + 1] - r->first[k]
					    : 0);
	for (; next_piece(a, i->part, a->place, r->first, &x, &from, &to); m += to - from)
		memcpy(token + m, r->token + from, (size_t)(to - from) * sizeof *token);
	TRY(open_layer(a, s, i->part, first, token, e));
	struct away_layer *l = &s->layer[i->part];
	TRY(copy_pieces(a, i->part, a->place, r->first, v->rows, l->x->at, false, e));
	TRY(compute(a, s, i->part, e));
	TRY(copy_pieces(a, i->part, a->place, r->first, v->rows, l->y->at, true, e));
	if (!s->b.train)
		done_with(s, l);
	return 0;
}

static int own_backward(struct away *a, const struct instr *i, struct slot *sl, struct err *e)
{
	const struct halves *v = &sl->halves[i->part];
	const int64_t *first = v->w.r->first;
	struct away_pass *s = find_pass(a, i->microbatch);
	struct away_layer *l = s ? &s->layer[i->part] : NULL;
	if (!l || !l->y)
		return err_set(e, ERR_INTERNAL, "rows of microbatch %d are not here",
			       i->microbatch);
	struct tape t = tape_of(a, s, false, &s->mem);
	TRY(tape_new(&t, &s->mem, a->stage->opt.act, 2, l->y->dim, &l->y->grad, e));
	TRY(copy_pieces(a, i->part, a->place, first, v->grad, l->y->grad->at, false, e));
	TRY(compute_back(a, s, i->part, e));
	TRY(copy_pieces(a, i->part, a->place, first, v->rows, l->x->grad->at, true, e));
	done_with(s, l);
	return 0;
}

/* ---- instructions ---- */

static int sum_up(struct away *a, const struct instr *i, struct err *e)
{
	const int parts = layers_of(a), part = parts - 1 - i->part;
	return i->kind == INSTR_BACK_EXPERTS
		       ? group_sum_experts(a->sum, i->microbatch, part, e)
		       : group_sum_backward(a->sum, 0, i->microbatch, part, parts, e);
}

static int execute_home(struct away *a, const struct instr *i, struct slot *sl, struct err *e)
{
	switch (i->kind) {
	case INSTR_ROUTE:
		return halves_route(sl, i->part, e);
	case INSTR_COMBINE:
		return halves_combine(sl, i->part, e);
	case INSTR_BACK_COMBINE:
		TRY(halves_back_combine(sl, i->part, e));
		return a->stage->end && i->part + 1 == layers_of(a)
			       ? group_sum_end(a->sum, i->microbatch, e)
			       : 0;
	case INSTR_BACK_ROUTE:
		TRY(halves_back_route(sl, i->part, e));
		return i->part ? sum_up(a, i, e) : 0; /* the first with the front: BACKWARD */
	case INSTR_SEND_ROWS:
	case INSTR_SEND_ROW_GRADS:
		return home_send(a, i, sl, e);
	case INSTR_RECV_ROWS:
	case INSTR_RECV_ROW_GRADS:
		return home_receive(a, i, sl, e);
	default:
		if (i->kind == INSTR_EXPERTS)
			return own_forward(a, i, sl, e);
		TRY(own_backward(a, i, sl, e));
		return sum_up(a, i, e);
	}
}

static int execute_away(struct away *a, const struct instr *i, const struct stage_batch *b,
			struct err *e)
{
	struct away_pass *s;
	switch (i->kind) {
	case INSTR_RECV_ROWS:
	case INSTR_RECV_ROW_GRADS:
		return expert_receive(a, i, b, e);
	case INSTR_SEND_ROWS:
	case INSTR_SEND_ROW_GRADS:
		return expert_send(a, i, e);
	default:
		s = find_pass(a, i->microbatch);
		if (!s)
			return err_set(e, ERR_INTERNAL, "rows of microbatch %d are not here",
				       i->microbatch);
		if (i->kind == INSTR_EXPERTS)
			return compute(a, s, i->part, e);
		TRY(compute_back(a, s, i->part, e));
		return sum_up(a, i, e);
	}
}

/* Whether an instruction is of a layer through which nothing goes back. */
static bool is_idle(const struct away *a, const struct instr *i)
{
	switch (i->kind) {
	case INSTR_SEND_ROW_GRADS:
	case INSTR_RECV_ROW_GRADS:
	case INSTR_BACK_EXPERTS:
		return !halves_back(a->stage, i->part);
	default:
		return false;
	}
}

int away_execute(struct away *a, const struct instr *i, struct slot *sl,
		 const struct stage_batch *b, struct err *e)
{
	if (is_idle(a, i)) /* but the parts of a sum are added up, each in its turn */
		return i->kind == INSTR_BACK_EXPERTS ? sum_up(a, i, e) : 0;
	return sl ? execute_home(a, i, sl, e) : execute_away(a, i, b, e);
}

/* ---- a job ---- */

static int make_shape(struct away *a, const struct plan_message *p, struct err *e)
{
	const struct crew *c = &p->crew;
	size_t all = 0, at = 0;
	for (int s = 0; s < c->stages; s++)
		all += (size_t)(p->first[s + 1] - p->first[s]) * (size_t)crew_group_size(c, s);
	a->shape = mem_array((size_t)c->stages, sizeof *a->shape);
	a->has = mem_alloc(all);
	if (!a->shape || !a->has)
		return err_nomem(e, all, "the shape of the job");
	for (int s = 0; s < c->stages; s++) {
		const int places = crew_group_size(c, s);
		bool deals = false;
		a->shape[s].places = places;
		a->shape[s].has = a->has + at;
		for (int64_t l = p->first[s]; l < p->first[s + 1]; l++)
			for (int k = 0; k < places; k++, at++) {
				a->has[at] = deal_has_layer(&p->deal, l) &&
					     deal_count(&p->deal, l, k) > 0;
				deals |= a->has[at];
			}
		a->shape[s].layers = deals ? (int)(p->first[s + 1] - p->first[s]) : 0;
	}
	return 0;
}

int away_begin(struct away *a, struct exchange *x, struct worker_model *m, struct group_sum *s,
	       struct err *e)
{
	*a = (struct away){
		.exchange = x, .sum = s, .stage = &m->chunk[0], .place = plan_place(x->plan)
	};
	return x->plan->deal.place ? make_shape(a, x->plan, e) : 0;
}

void away_round(struct away *a)
{
	for (size_t k = 0; k < a->n; k++)
		close_pass(&a->pass[k]);
}

void away_release(struct away *a)
{
	for (size_t k = 0; k < a->n; k++) {
		dmem_release(&a->pass[k].mem);
		arena_release(&a->pass[k].host);
	}
	mem_free(a->pass);
	mem_free(a->shape);
	mem_free(a->has);
	dev_free(a->cast);
	*a = (struct away){ 0 };
}
