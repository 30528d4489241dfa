/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_worker.c - a worker that a coordinator, two neighbours and two members of its group tell
 * anything, in any order, over links in memory.
 *
 * The input: a byte for the plan (the worker's place in the pipeline, schedule, what is trained,
 * whether the parameters come over the link; with the schedule interleaved on several workers the
 * worker's links are full at once), and the last one for the group (255: no PLAN comes
 * first); then messages, each a byte that says what and over which link, and its own bytes:
 * well-formed ones with values from the input, fields of any kind with any bytes, and bytes that
 * are no frame. All messages are sent before the worker reads any; the last one is FINISH, so that
 * the worker always ends. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "net/net.h"
#include "small.h"
#include "proto/weights_blob.h"
#include "worker/weights_in.h"
#include "worker/worker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum {
	JOB = 7,
	TOKENS = 16,
	MESSAGES = 64,
	COORDINATOR = 0,
	PREV,
	NEXT,
	BESIDE,
	FAR,
	LINKS,
	GROUP = 3
};

static struct model_config cfg;
static char cache[64], model[64]; /* a cache, and a model file of the worker's own */

struct ends {
	struct link *here[LINKS], *there[LINKS]; /* there: the worker's */
	struct weights_in *weights;
	struct peer peer[2], beside[GROUP];
};

/* ---- parameters ---- */

static int find(void *ctx, const char *name, struct source_tensor *t, struct err *e)
{
	(void)ctx;
	(void)e;
	*t = (struct source_tensor){ 0 };
	t->ndim = small_shape(&cfg, name, t->shape);
	return t->ndim > 0;
}

static int read_rows(void *ctx, const char *name, int64_t row0, int64_t rows, float *dst,
		     struct err *e)
{
	int64_t shape[2];
	(void)ctx;
	(void)e;
	if (!small_shape(&cfg, name, shape) || row0 < 0 || rows < 0 || row0 + rows > shape[0])
		abort();
	for (int64_t i = 0; i < rows * shape[1]; i++)
		dst[i] = (float)((row0 * 7 + i * 5 + name[strlen(name) / 2]) % 13 - 6) * 0.1f;
	return 0;
}

static void drop(void *ctx, const char *name)
{
	(void)ctx;
	(void)name;
}

static const struct weight_source source = { .find = find, .read = read_rows, .drop = drop };

static int weights(void *ctx, const struct plan_message *p, struct weight_source *src,
		   struct err *e)
{
	struct ends *x = ctx;
	const struct weights_in_options o = { .coordinator = x->there[COORDINATOR],
					      .plan = p,
					      .cache_dir = cache,
					      .model = model,
					      .cache_limit = p->opt.lora.dropout > 0,
					      .job = JOB };
	TRY(weights_in_open(&o, &x->weights, e));
	*src = weights_in_source(x->weights);
	return 0;
}

/* Of the PLAN that was sent: stage k is member k; the rest of the group follow them. */
static struct {
	int self, stages, members, place;
	int at[GROUP];                  /* the group's members by place */
	size_t count[SMALL_LAYERS + 1]; /* of the gradients of each chunk and of the head */
	bool needs[SMALL_TENSORS], quantize, doubled;
	bool cached; /* what is offered was fetched before */
} sent;
static char names[SMALL_TENSORS][96];

static int probe(void *ctx, const struct frame *f, struct err *e)
{
	(void)ctx;
	return f->size ? err_set(e, ERR_PROTOCOL, "PROBE: an order") : 0;
}

static int neighbours(void *ctx, const struct plan_message *p, struct peers *before,
		      struct peers *behind, struct peers *beside, struct err *e)
{
	struct ends *x = ctx;
	(void)e;
	int stage = plan_stage(p), b = crew_stage_before(&p->crew, stage),
	    n = crew_stage_behind(&p->crew, stage), links = 0;
	x->peer[0] = (struct peer){ .member = b, .link = x->there[PREV] };
	x->peer[1] = (struct peer){ .member = n, .link = x->there[NEXT] };
	if (b >= 0)
		*before = (struct peers){ &x->peer[0], 1 };
	if (n >= 0)
		*behind = (struct peers){ &x->peer[1], 1 };
	for (int k = 0; k < sent.members; k++)
		x->beside[k] = (struct peer){
			.member = sent.at[k],
			.link = k == sent.place ? NULL : x->there[BESIDE + links++],
		};
	*beside = (struct peers){ x->beside, sent.members };
	return 0;
}

/* ---- what is said ---- */

static void say(struct link *l, const struct frame *f)
{
	struct err e = { 0 };
	link_send_frame(l, f, NET_NOW, &e);
}

static void fields(struct link *l, enum frame_kind kind, uint64_t step, uint32_t m, const void *p,
		   size_t n)
{
	say(l, &(struct frame){ .kind = kind,
				.job = JOB,
				.step = step,
				.microbatch = m,
				.size = n,
				.payload = p });
}

/* small_config with a head that is the embedding */
static const char *tied_config(void)
{
	static char text[sizeof small_config];
	const char *at = strstr(small_config, "false");
	size_t n = (size_t)(at - small_config);
	snprintf(text, sizeof text, "%.*strue%s", (int)n, small_config, at + 5);
	return text;
}

/* This stage becomes a group of 2 or 3, and the worker one of them. */
static void group_up(struct plan_message *p, unsigned how)
{
	static const char *const way[] = { "direct", "ring", "tree", "direct" };
	struct err e = { 0 };
	const int stage = p->self;
	p->reduce_order = how & 4 ? SUM_FAST : SUM_EXACT;
	snprintf(p->reducer, sizeof p->reducer, "%s", way[how & 4 ? how / 8 % 4 : 0]);
	for (int k = 0; k < (int)(how % 4) - 1 && k + 1 < GROUP; k++)
		if (crew_add(&p->crew, &(struct member){ .id = "b" }, &e) < 0 ||
		    crew_move(&p->crew, p->crew.n - 1, stage, (int)(how >> 6), &e) < 0)
			abort();
	sent.members = crew_group_size(&p->crew, stage);
	sent.place = (int)(how / 32 % 2) * (sent.members - 1);
	for (int k = 0; k < sent.members; k++)
		sent.at[k] = crew_at(&p->crew, stage, k);
	p->self = sent.at[sent.place];
}

/* How many numbers the sums of the group have. */
static void count_gradients(const struct plan_message *p)
{
	const int stage = plan_stage(p), all = p->crew.stages * p->crew.chunks;
	const int64_t table = cfg.vocab * cfg.hidden;
	int64_t layer = p->opt.train_all ? 2 * cfg.hidden : 0;
	for (int l = 0; l < LIN_COUNT; l++) {
		int64_t shape[2];
		linear_dims(&cfg, 0, (enum linear)l, shape);
		layer += p->opt.train_all ? shape[0] * shape[1]
					  : p->opt.lora.r * (shape[0] + shape[1]);
	}
	for (int c = 0; c < p->crew.chunks; c++) {
		const int v = chunk_number(p->crew.stages, stage, c);
		int64_t n = (p->first[v + 1] - p->first[v]) * layer;
		n += p->opt.train_all && v == 0 ? table : 0;
		n += p->opt.train_all && v + 1 == all ? cfg.hidden : 0;
		sent.count[c] = (size_t)n;
	}
	sent.count[p->crew.chunks] =
		p->opt.train_all && stage + 1 == p->crew.stages ? (size_t)table : 0;
}

static void plan(struct link *l, struct feed *in, unsigned how, unsigned group)
{
	static struct plan_message p;
	struct buf out = BUF_INIT;
	struct err e = { 0 };
	static const char *const schedule[] = { "1f1b", "gpipe", "sequential", "interleaved" };
	unsigned more = feed_byte(in);
	p = (struct plan_message){ .cfg = cfg };
	p.crew.stages = 1 + (int)(how % 3);
	p.crew.chunks = 1;
	p.self = (int)(how / 4 % 4) % p.crew.stages;
	for (int k = 0; k < p.crew.stages; k++)
		if (crew_add(&p.crew, &(struct member){ .id = "a" }, &e) < 0)
			abort();
	snprintf(p.schedule, sizeof p.schedule, "%s", schedule[how / 16 % 4]);
	if (p.crew.stages == 1 && how / 16 % 4 == 3)
		p.crew.chunks = 3;
	int chunks = p.crew.stages * p.crew.chunks;
	for (int v = 0; v <= chunks; v++)
		p.first[v] = v == chunks ? SMALL_LAYERS : v;
	p.wire = more % 3;
	p.opt.act = DT_F32;
	p.opt.quantize = more & 4;
	p.opt.double_quant = more & 8;
	p.opt.train_all = (more & 16) && !p.opt.quantize;
	const bool tied = how % 4 == 3;
	crew_shape(&p.crew, p.crew.stages, p.crew.chunks, tied && p.opt.train_all);
	for (int k = 0; k < p.crew.stages; k++)
		if (crew_move(&p.crew, k, k, 1, &e) < 0)
			abort();
	group_up(&p, group);
	p.opt.recompute = more & 32;
	p.trace = more & 64;
	p.offered = how & 64;
	if (!p.opt.train_all) {
		p.opt.lora = (struct lora_options){ .r = 2,
						    .scale = 1,
						    .dropout = more & 128 ? 0.5f : 0 };
		for (int i = 0; i < LIN_COUNT; i++)
			p.opt.lora.target[i] = i < SMALL_LINEARS;
	}
	if ((more & 224) == 224) /* a loss of preferences */
		p.opt.prefer = (struct prefer_options){
			.name = "dpo", .beta = 0.1, .likelihood = 1, .good = 1, .bad = 1
		};
	snprintf(p.optimizer, sizeof p.optimizer, "%s", how & 128 ? "sgd" : "adamw");
	p.optim = (struct optim_config){ .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8 };
	if (plan_message_write(&p, tied ? tied_config() : small_config, &out, &e) < 0)
		abort();
	fields(l, FRAME_PLAN, 0, 0, out.p, out.n);
	sent.self = p.self;
	sent.stages = p.crew.stages;
	count_gradients(&p);
	for (size_t i = 0; i < SMALL_TENSORS; i++)
		sent.needs[i] = plan_needs(&p, names[i]);
	sent.quantize = p.opt.quantize;
	sent.doubled = p.opt.double_quant;
	plan_message_release(&p);
	buf_release(&out);
}

static void batch(struct link *l, struct feed *in, uint64_t step)
{
	int32_t id[TOKENS], pos[TOKENS], label[TOKENS], start[TOKENS + 1] = { 0 };
	unsigned char out[1024];
	size_t size;
	struct err e = { 0 };
	unsigned how = feed_byte(in), n = 1 + feed_byte(in) % TOKENS, some = feed_byte(in);
	for (unsigned i = 0; i < n; i++) {
		unsigned v = feed_byte(in);
		id[i] = v == 255 ? 1 << 30 : (int32_t)(v % SMALL_VOCAB);
		label[i] = v == 254 ? SMALL_VOCAB : v & 64 ? -100 : (int32_t)(v / 3 % SMALL_VOCAB);
		pos[i] = (int32_t)i;
	}
	struct microbatch mb = { .n = n,
				 .nseq = n > 2 && how & 1 ? 2 : 1,
				 .id = id,
				 .pos = pos,
				 .label = label,
				 .start = start };
	start[mb.nseq] = (int32_t)n;
	if (mb.nseq == 2)
		start[1] = 1 + (int32_t)(how / 2 % (n - 1));
	/* one row of two sequences, whose second halves are the answers */
	const int32_t row[2] = { 0, (int32_t)n };
	int32_t answer[2] = { 0, start[1] }, good[1] = { 1 };
	double ref[2] = { -1, -(double)n };
	struct pairs pairs = { answer, good, ref };
	if (how & 32) {
		mb.pairs = &pairs;
		mb.row = row;
		mb.nrows = 1;
	}
	if ((how & 36) == 36 && n > 3) {
		mb.nseq = 2;
		start[1] = answer[1] = (int32_t)n / 2;
		start[2] = (int32_t)n;
	}
	const enum round kind = how & 64               ? ROUND_SAMPLE
				: how & 16 && how & 32 ? ROUND_REFER
						       : some & 1;
	if (batch_write(&mb, kind, step, 1 + some / 2 % 4, how & 128 ? 8 : 1,
			&(struct draw){ how & 128 ? 0.8 : 0, 0.9, step }, some & 16, some & 32, out,
			sizeof out, &size, &e) < 0)
		abort();
	fields(l, FRAME_BATCH, step, some >> 6, out, size);
}

static void tensor(struct link *l, struct feed *in, enum frame_kind kind, uint64_t step)
{
	float v[SMALL_VOCAB * SMALL_HIDDEN] = { 0 };
	const bool behind = kind == FRAME_ACTIVATION || kind == FRAME_TIED_GRADIENT;
	unsigned how = feed_byte(in), n = 1 + feed_byte(in) % TOKENS;
	if (kind == FRAME_TIED_GRADIENT || kind == FRAME_TIED_VALUE)
		n = n == TOKENS ? 1 : SMALL_VOCAB;
	feed_copy(in, how & 128 ? sizeof v : 4, v);
	say(l, &(struct frame){
		       .kind = kind,
		       .dtype = how / 4 % 3,
		       .job = JOB,
		       .step = step,
		       /* now and then in the name of somebody else */
		       .from = FRAME_MEMBER((how & 64 ? sent.self
					     : behind ? (sent.at[0] + sent.stages - 1) % sent.stages
						      : (sent.at[0] + 1) % sent.stages)),
		       .to = FRAME_MEMBER(sent.self),
		       .microbatch = how & 3,
		       .chunk = how / 16 % 4,
		       .ndim = 2,
		       .dim = { n, SMALL_HIDDEN },
		       .payload = v });
}

/* A part of a sum, of the size that the worker expects, or of another. */
static void sum(struct ends *x, struct feed *in, uint64_t step)
{
	static float v[1 << 12];
	unsigned how = feed_byte(in), number = feed_byte(in), more = feed_byte(in);
	const int other = sent.members > 2 ? (int)(how & 1) : 0;
	const int place = other >= sent.place ? other + 1 : other;
	const size_t chunk = how / 2 % 4, of = how & 8 ? (size_t)sent.place : (size_t)place,
		     parts = (size_t)(sent.members > 1 ? sent.members : 2), all = sent.count[chunk];
	size_t first = all * of / parts, n = all * (of + 1) / parts - first;
	if (how & 16) { /* a lane of a ring */
		const size_t lane = number % 4;
		n = n * (lane + 1) / 4 - n * lane / 4;
	}
	if (how & 32)
		n = all;
	if (how & 64)
		n = more | (size_t)number << 4;
	n = n < ARRAY_LEN(v) ? n : ARRAY_LEN(v);
	memset(v, (int)more, sizeof v);
	say(x->here[BESIDE + other],
	    &(struct frame){ .kind = FRAME_SUM,
			     .dtype = how & 128 ? more % 3 : DT_F32,
			     .job = JOB,
			     .step = step,
			     .from = FRAME_MEMBER(sent.at[place < sent.members ? place : 0]),
			     .to = FRAME_MEMBER(sent.self),
			     .microbatch = number,
			     .chunk = (uint16_t)chunk,
			     .ndim = 1,
			     .dim = { n },
			     .payload = v });
}

static void state(struct link *l, struct feed *in, uint64_t step)
{
	static const char *const name[] = { "model.layers.0.self_attn.q_proj.lora_A.weight",
					    "model.layers.1.mlp.up_proj.lora_B.weight",
					    "model.norm.weight",
					    "model.embed_tokens.weight",
					    "lm_head.weight",
					    "model.layers.2.mlp.down_proj.weight",
					    "nothing",
					    "" };
	static const char *const what[] = { "value", "exp_avg", "exp_avg_sq", "momentum" };
	float v[64] = { 0 };
	unsigned char out[1024];
	size_t size;
	struct err e = { 0 };
	unsigned how = feed_byte(in);
	struct state_message m = { .first = feed_byte(in),
				   .bytes = feed_byte(in) % 65 * 4,
				   .data = v };
	feed_copy(in, 4, v);
	snprintf(m.name, sizeof m.name, "%s", name[how % 8]);
	snprintf(m.what, sizeof m.what, "%s", what[how / 8 % 4]);
	if (state_write(&m, out, sizeof out, &size, &e) < 0)
		abort();
	fields(l, FRAME_STATE, step, 0, out, size);
}

static void send_bytes(struct link *l, uint32_t index, const unsigned char *p, uint64_t all,
		       unsigned piece)
{
	unsigned char out[4096];
	struct err e = { 0 };
	size_t n;
	for (uint64_t at = 0; at < all; at += piece) {
		struct wire_writer w = wire_write(out, sizeof out);
		wire_put_u32(&w, index);
		wire_put_u64(&w, at);
		wire_put_bytes(&w, p + at, all - at > piece ? piece : all - at);
		if (wire_write_end(&w, &n, &e) < 0)
			abort();
		fields(l, FRAME_WEIGHTS, 0, 0, out, n);
	}
}

/* All tensors that the plan needs, as NF4 or not. how & 32: other values than in the worker's own
 * file; 64: other bytes than the hashes say; 128: a wrong shape; 1: one of them twice. */
static void offer_all(struct link *l, unsigned how, unsigned piece)
{
	static unsigned char out[1 << 14], bytes[SMALL_TENSORS][2048];
	static struct blob_head h[SMALL_TENSORS];
	struct wire_writer w = wire_write(out, sizeof out);
	struct err e = { 0 };
	uint32_t count = 0;
	size_t n;
	for (size_t i = 0; i < SMALL_TENSORS; i++) {
		struct blob_head *t = &h[count];
		if (!sent.needs[i])
			continue;
		*t = (struct blob_head){ .dtype = DT_F32 };
		t->ndim = small_shape(&cfg, names[i], t->shape);
		snprintf(t->name, sizeof t->name, "%s", names[i]);
		t->nf4 = sent.quantize && strstr(names[i], "_proj");
		t->doubled = t->nf4 && sent.doubled;
		t->block = t->nf4 ? 64 : 0;
		t->shape[0] += how & 128 && !count;
		if (blob_size(t, &t->bytes, &e) < 0 || t->bytes > sizeof bytes[0])
			abort();
		memset(bytes[count], 0, sizeof bytes[0]);
		for (uint64_t k = 0; !t->nf4 && k < t->bytes / 4; k++)
			((float *)(void *)bytes[count])[k] = small_value(k) + (how & 32 ? 0.5f : 0);
		blob_hash(bytes[count], t->bytes, t->hash);
		bytes[count][0] += how & 64 ? 1 : 0;
		count++;
	}
	if (how & 1 && count > 1) /* one of them twice */
		h[count - 1] = h[0];
	wire_put_u32(&w, count);
	for (uint32_t i = 0; i < count; i++)
		blob_head_put(&w, &h[i]);
	if (wire_write_end(&w, &n, &e) < 0)
		abort();
	fields(l, FRAME_WEIGHTS_OFFER, 0, 0, out, n);
	for (uint32_t i = 0; i < count && !sent.cached; i++)
		if (h[i].nf4 || how & 96)
			send_bytes(l, i, bytes[i], h[i].bytes, piece * 64);
}

/* One tensor offered, and its bytes: the hash is right, the rest as the input has it. */
static void offer(struct link *l, struct feed *in)
{
	unsigned char out[4096], bytes[512] = { 0 };
	struct blob_head h = {
		.dtype = DT_F32, .ndim = 1, .shape = { SMALL_HIDDEN, 1 }, .bytes = SMALL_HIDDEN * 4
	};
	struct wire_writer w = wire_write(out, sizeof out);
	struct err e = { 0 };
	size_t n;
	unsigned how = feed_byte(in), piece = 1 + feed_byte(in) % 32;
	if (how & 16) {
		offer_all(l, how, piece);
		return;
	}
	snprintf(h.name, sizeof h.name, "model.layers.%u.input_layernorm.weight", how & 3);
	feed_copy(in, 4, bytes);
	blob_hash(bytes, h.bytes, h.hash);
	wire_put_u32(&w, 1);
	blob_head_put(&w, &h);
	if (wire_write_end(&w, &n, &e) < 0)
		abort();
	fields(l, FRAME_WEIGHTS_OFFER, 0, 0, out, n);
	for (unsigned at = 0; at < h.bytes; at += piece) {
		w = wire_write(out, sizeof out);
		wire_put_u32(&w, how & 4 ? how : 0);
		wire_put_u64(&w, at);
		wire_put_bytes(&w, bytes + at,
			       how & 8 || h.bytes - at > piece ? piece : h.bytes - at);
		if (wire_write_end(&w, &n, &e) < 0)
			abort();
		fields(l, FRAME_WEIGHTS, 0, 0, out, n);
	}
}

/* Fields of any kind, with any bytes. */
static void anything(struct link *l, struct feed *in, uint64_t step)
{
	unsigned kind = feed_byte(in), n = feed_byte(in), how = feed_byte(in);
	const uint8_t *p;
	n = (unsigned)feed_bytes(in, n, &p);
	if (kind == FRAME_PROFILE)
		return; /* seconds of measuring are what it orders */
	if (kind == FRAME_BATCH && n > 24 && (p[22] || p[23] || p[24]))
		return; /* that many tokens are an order the worker may fill its memory for */
	say(l, &(struct frame){ .kind = kind,
				.job = how & 1 ? how : JOB,
				.epoch = how / 16 % 2,
				.step = step,
				.microbatch = how / 2 % 8,
				.size = n,
				.payload = p });
}

static void speak(struct ends *x, struct feed *in)
{
	uint64_t step = 1;
	struct err e = { 0 };
	unsigned first = feed_byte(in);
	unsigned group = in->n ? in->p[in->n - 1] : 0;
	if (group != 255)
		plan(x->here[COORDINATOR], in, first, group);
	else
		feed_byte(in);
	for (int k = 0; k < MESSAGES && in->n; k++) {
		unsigned how = feed_byte(in);
		struct link *l = x->here[how / 16 % LINKS];
		const uint8_t *p;
		size_t n;
		step += how >> 7;
		switch (how % 11) {
		case 10:
			sum(x, in, step);
			break;
		case 0:
		case 1:
			batch(x->here[COORDINATOR], in, step);
			break;
		case 2: {
			unsigned char out[64];
			struct step_message m = { .apply = how & 16,
						  .s = { .step = step, .scale = 0.5f },
						  .lr = 0.01 };
			if (step_write(&m, out, sizeof out, &n, &e) < 0)
				abort();
			fields(x->here[COORDINATOR], FRAME_STEP, step, 0, out, n);
			break;
		}
		case 3:
			tensor(x->here[PREV], in,
			       how / 10 == 11 ? FRAME_TIED_GRADIENT : FRAME_ACTIVATION, step);
			break;
		case 4:
			tensor(x->here[NEXT], in,
			       how / 10 == 11 ? FRAME_TIED_VALUE : FRAME_GRADIENT, step);
			break;
		case 5:
			state(x->here[COORDINATOR], in, step);
			break;
		case 6:
			fields(x->here[COORDINATOR], FRAME_SAVE, step, 0, NULL, 0);
			break;
		case 7:
			offer(x->here[COORDINATOR], in);
			break;
		case 8:
			anything(l, in, step);
			break;
		default:
			n = feed_bytes(in, feed_byte(in), &p);
			link_send_copy(l, p, n, NET_NOW, &e);
		}
	}
	fields(x->here[COORDINATOR], FRAME_FINISH, step, 0, NULL, 0);
}

/* ---- */

static void stepped(void *ctx, const struct worker_step *s)
{
	(void)ctx;
	if (s->end < s->begin)
		abort();
}

static void ready(void *ctx, const struct plan_message *p)
{
	(void)ctx;
	if (plan_stage(p) < 0)
		abort();
}

static void visitors(void *ctx, bool refuse)
{
	(void)ctx;
	(void)refuse;
}

static void *work(void *env)
{
	struct err e = { 0 };
	int rc = worker_run(env, &e);
	if (rc < 0 && (e.code != rc || !e.msg[0]))
		abort();
	return NULL;
}

static void leave(void)
{
	struct err e = { 0 };
	dir_remove(cache, &e);
	dir_remove(model, &e);
}

static void folder(char *path, size_t cap)
{
	snprintf(path, cap, "%s/hs-fuzz-XXXXXX",
		 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (!mkdtemp(path))
		abort();
}

static void quiet(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	(void)line;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	log_set_sink(quiet, NULL, LOG_ERROR);
	small_model(&cfg);
	small_names(names);
	folder(cache, sizeof cache);
	folder(model, sizeof model);
	small_write_model(&cfg, model);
	atexit(leave);
	return 0;
}

static void once(const uint8_t *data, size_t size)
{
	struct feed in = { data, size };
	struct err e = { 0 };
	struct ends x = { 0 };
	struct net *here, *there;
	pthread_t thread;
	/* nobody reads what the worker says */
	const struct net_options o = { .window = data[0] / 16 % 4 == 3 && data[0] % 3 ? 64 : 0 };
	static const volatile sig_atomic_t leaves = 1;
	if (net_open("loop", &o, &here, &e) < 0 ||
	    net_open("loop", &(struct net_options){ 0 }, &there, &e) < 0 ||
	    net_listen(there, "worker", NULL, &e) < 0)
		abort();
	for (int i = 0; i < LINKS; i++)
		if (net_connect(here, "worker", NULL, net_in(10), &x.here[i], &e) < 0 ||
		    net_accept(there, net_in(10), &x.there[i], &e) != 1)
			abort();
	uint64_t forgets = 0;
	struct worker_env env = { .net = there,
				  .coordinator = x.there[COORDINATOR],
				  .job = JOB,
				  .device = "cpu",
				  .neighbours = neighbours,
				  .forgets = &forgets,
				  .probe = probe,
				  .ctx = &x,
				  .source = data[0] & 64 ? NULL : &source,
				  .weights = weights,
				  .stepped = stepped,
				  .ready = ready,
				  .visitors = visitors,
				  .stop = data[0] & 128 ? &leaves : NULL,
				  .timeout = 0.05 };
	speak(&x, &in);
	if (pthread_create(&thread, NULL, work, &env))
		abort();
	pthread_join(thread, NULL);
	weights_in_close(x.weights);
	for (int i = 0; i < LINKS; i++) {
		link_close(x.here[i]);
		link_close(x.there[i]);
	}
	net_close(here, 0);
	net_close(there, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[80];
	struct err e = { 0 };
	if (size < 2)
		return 0;
	memset(&sent, 0, sizeof sent);
	sent.stages = 1;
	once(data, size);
	if (!(data[0] & 64)) /* nothing is offered */
		return 0;
	sent.cached = true;
	if (data[1] & 64)
		once(data, size);
	snprintf(path, sizeof path, "%s/weights", cache);
	dir_remove(path, &e);
	return 0;
}
