/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_protocol.c - the fields of every frame between coordinator and workers: the first byte says
 * of which kind the rest is. A reader either fails with one line or gives what its users rely
 * on. */
#include "base/log.h"
#include "base/mem.h"
#include "net/frame.h"
#include "net/wire.h"
#include "small.h"
#include "proto/hello.h"
#include "worker/link_probe.h"
#include "proto/measure_wire.h"
#include "proto/record.h"
#include "proto/weights_blob.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define MUST(x)                                                                                    \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

static struct batch_store store;

static int read_batch(const uint8_t *p, size_t n, bool ids, bool labels, struct err *e)
{
	int rc = batch_read(p, n, ids, labels, &store, e);
	if (rc < 0)
		return rc;
	const struct batch_head *h = &store.head;
	MUST(h->n && h->nseq && h->nseq <= h->n && h->microbatches && store.start[0] == 0 &&
	     store.start[h->nseq] == (int32_t)h->n);
	MUST(h->nrows && h->nrows <= h->nseq && store.row[0] == 0 &&
	     store.row[h->nrows] == (int32_t)h->n);
	for (uint32_t i = 0; i < h->nrows; i++)
		MUST(store.row[i] < store.row[i + 1]);
	for (uint32_t s = 0; s < h->nseq; s++)
		MUST(store.start[s] < store.start[s + 1] && store.pos[store.start[s]] == 0);
	for (uint32_t s = 0; h->pairs && s < h->nseq; s++)
		MUST(labels && store.pairs.answer[s] >= store.start[s] &&
		     store.pairs.answer[s] + 1 < store.start[s + 1]);
	return 0;
}

static int read_plan(const uint8_t *p, size_t n, struct err *e)
{
	static struct plan_message plan;
	TRY(plan_message_read(p, n, &plan, e));
	int stages = plan.crew.stages, chunks = stages * plan.crew.chunks, held = 0;
	MUST(plan_stage(&plan) >= 0 && plan_stage(&plan) < stages && chunks <= CHUNKS_MOST &&
	     plan.first[0] == 0 && plan.first[chunks] == plan.cfg.layers);
	for (int i = 0; i < chunks; i++)
		MUST(plan.first[i] < plan.first[i + 1]);
	static const char *const name[] = { "model.embed_tokens.weight", "lm_head.weight",
					    "model.layers.1.input_layernorm.weight", "other" };
	for (size_t i = 0; i < ARRAY_LEN(name); i++)
		MUST(!plan_needs(&plan, name[i]) || i < 3);
	MUST(plan_place(&plan) >= 0 && (plan_is_front(&plan) || plan_stage(&plan) > 0) &&
	     (plan_is_end(&plan) || plan_stage(&plan) < stages - 1));
	for (int i = 0; i < stages; i++) {
		MUST(crew_group_size(&plan.crew, i) > 0 && crew_at(&plan.crew, i, 0) >= 0);
		held += crew_group_size(&plan.crew, i);
	}
	MUST(held <= plan.crew.n);
	plan_message_release(&plan);
	return 0;
}

/* A PLAN whose parts are in order, each now and then wrong. */
static int made_plan(const uint8_t *p, size_t n, struct err *e)
{
	static struct plan_message m;
	static const char *const optimizer[] = { "adamw", "sgd", "", "other" };
	static const double progress[] = { 0, 1, -1, 1e9 };
	struct feed in = { p, n };
	struct buf out = BUF_INIT;
	m = (struct plan_message){ .self = (int)(feed_byte(&in) % 4) };
	small_model(&m.cfg);
	unsigned how = feed_byte(&in), more = feed_byte(&in), members = 1 + feed_byte(&in) % 5;
	m.crew.stages = 1 + (int)(how % 3);
	m.crew.chunks = 1 + (int)(how / 4 % 2);
	m.crew.tied = how & 8;
	for (unsigned i = 0; i < members; i++) {
		unsigned v = feed_byte(&in);
		MUST(crew_add(&m.crew, &(struct member){ .id = "a" }, e) >= 0);
		struct member *at = &m.crew.member[m.crew.n - 1];
		at->stage = (int)(v % 4) - 1;
		at->place = at->stage < 0 ? -1 : (int)(v / 4 % 4);
		at->share = (int)(v / 16 % 4);
		at->gone = v > 250;
	}
	int chunks = m.crew.stages * m.crew.chunks;
	for (int i = 0; i <= chunks; i++)
		m.first[i] = how & 16 ? feed_byte(&in) % 4 : i == chunks ? SMALL_LAYERS : i;
	m.reduce_order = (enum sum_order)(more % 4);
	m.wire = (enum dtype)(more / 4 % 4);
	m.progress = progress[more / 16 % 4];
	m.opt.act = (enum dtype)(how / 32 % 4);
	m.opt.train_all = how & 128;
	m.opt.lora.r = more & 64 ? 70000 : 2;
	m.opt.lora.dropout = more & 128 ? 1 : 0.5f;
	snprintf(m.optimizer, sizeof m.optimizer, "%s", optimizer[feed_byte(&in) % 4]);
	snprintf(m.schedule, sizeof m.schedule, "1f1b");
	unsigned config = feed_byte(&in), sums = feed_byte(&in);
	m.reduce_dtype = (enum dtype)(sums % 3);
	m.crew.parts = sums & 128 ? (int)(sums / 4 % 32) * 8 : 1;
	int rc = plan_message_write(&m, config % 8 ? small_config : "{}", &out, e);
	plan_message_release(&m);
	if (rc >= 0)
		rc = read_plan((const uint8_t *)out.p, out.n, e);
	buf_release(&out);
	return rc;
}

/* HELLO and WELCOME whose numbers are right, so that what follows them is looked at. */
static int made_greeting(const uint8_t *p, size_t n, struct err *e)
{
	struct hello h;
	struct welcome w;
	static uint8_t out[1 << 16];
	struct feed in = { p, n };
	struct wire_writer v = wire_write(out, sizeof out - 4096);
	unsigned how = feed_byte(&in), ways = feed_byte(&in) % 20;
	struct frame f = { .kind = how & 1 ? FRAME_HELLO : FRAME_WELCOME, .payload = out };
	if (how & 1) {
		wire_put_u32(&v, how & 2 ? HELLO_PROTOCOL : HELLO_PROTOCOL + 1);
		wire_put_u8(&v, (uint8_t)(how / 4 % 8));
		wire_put_u32(&v, feed_byte(&in));
		wire_put_u32(&v, 0);
		wire_put_u64(&v, 7);
		wire_put_u64(&v, how / 32);
		wire_put_u64(&v, how / 16);
		wire_put_str(&v, "model");
		wire_put_str(&v, "to");
		wire_put_str(&v, "host");
	} else {
		for (int i = 0; i < 4; i++)
			wire_put_str(&v, "word");
		wire_put_u64(&v, 1 << 30);
		for (int i = 0; i < 3; i++)
			wire_put_u8(&v, 1);
		wire_put_str(&v, "arithmetic");
		wire_put_u64(&v, 1);
		wire_put_u8(&v, how & 8 ? 2 : 1);
		wire_put_u8(&v, 0);
		wire_put_u32(&v, 1);
		for (int i = 0; i < 3; i++)
			wire_put_u64(&v, how);
		wire_put_str(&v, "machine");
		wire_put_u32(&v, how & 2 ? 70000 : 7000);
		wire_put_u32(&v, ways);
		for (unsigned i = 0; i < ways; i++) {
			wire_put_str(&v, "eth0");
			wire_put_str(&v, feed_byte(&in) % 8 ? "10.0.0.1" : "name");
			wire_put_str(&v, how & 4 ? "" : "00ff");
		}
	}
	/* what the input has left stands behind it */
	const uint8_t *rest;
	f.size = v.n;
	n = feed_bytes(&in, 16, &rest);
	if (n)
		memcpy(out + f.size, rest, n);
	f.size += n;
	return how & 1 ? hello_read(&f, &h, e) : welcome_read(&f, &w, e);
}

static int read_offer(const uint8_t *p, size_t n, struct err *e)
{
	struct wire_reader r = wire_read(p, n);
	uint32_t count = wire_get_count(&r, 32 + BLOB_HASH, BLOB_TENSORS_MOST);
	struct blob_head h;
	uint64_t bytes;
	for (uint32_t i = 0; i < count; i++) {
		TRY(blob_head_get(&r, &h, e));
		MUST(blob_size(&h, &bytes, e) >= 0 && bytes == h.bytes && h.shape[0] > 0 &&
		     h.shape[1] > 0);
	}
	return wire_read_end(&r, "WEIGHTS_OFFER", e);
}

static int read_stepped(const uint8_t *p, size_t n, struct err *e)
{
	static struct span span[16];
	struct stepped_message m;
	size_t count = 0;
	int rc = stepped_read(p, n, &m, span, 16, &count, e);
	MUST(count <= 16);
	return rc;
}

static int read_norm(const uint8_t *p, size_t n, struct err *e)
{
	static struct norm_entry v[16];
	size_t count = 0;
	int rc = norm_read(p, n, v, 16, &count, e);
	MUST(count <= 16);
	return rc;
}

static int read_state(const uint8_t *p, size_t n, struct err *e)
{
	struct state_message m;
	TRY(state_read(p, n, &m, e));
	MUST(m.bytes <= n && (const uint8_t *)m.data + m.bytes <= p + n &&
	     memchr(m.name, 0, sizeof m.name));
	return 0;
}

static int read_order(const struct frame *f, struct err *e)
{
	static struct probe_order o;
	TRY(probe_order_read(f, &o, e));
	MUST(o.n <= PROBE_WAYS_MOST && o.seconds > 0);
	return 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	log_set_sink(NULL, NULL, LOG_ERROR);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = { 0 };
	struct frame f = { .kind = FRAME_HELLO };
	struct hello h;
	struct welcome w;
	struct loss_message loss;
	struct step_message step;
	int rc = 0;
	if (!size)
		return 0;
	const uint8_t *p = data + 1;
	size_t n = size - 1;
	f.payload = p;
	f.size = n;
	switch (data[0] % 25) {
	case 0:
		rc = hello_read(&f, &h, &e);
		break;
	case 1:
	case 2:
		f.kind = data[0] % 25 == 1 ? FRAME_WELCOME : FRAME_REFUSE;
		rc = welcome_read(&f, &w, &e);
		break;
	case 3:
		rc = read_plan(p, n, &e);
		break;
	case 4:
	case 5:
	case 6:
		rc = read_batch(p, n, data[0] % 25 == 4, data[0] % 25 == 5, &e);
		break;
	case 7:
		rc = loss_read(p, n, &loss, &e);
		break;
	case 8:
		rc = read_norm(p, n, &e);
		break;
	case 9:
		rc = step_read(p, n, &step, &e);
		break;
	case 10:
		rc = read_stepped(p, n, &e);
		break;
	case 11:
		rc = read_state(p, n, &e);
		break;
	case 12:
		rc = read_offer(p, n, &e);
		break;
	case 14: {
		struct clock_message m;
		rc = clock_read(p, n, &m, &e);
		break;
	}
	case 15:
		rc = read_order(&f, &e);
		break;
	case 16: {
		struct probe_way way[2];
		rc = probe_ways_read(&f, 2, way, &e);
		break;
	}
	case 17: {
		static struct measure_request q;
		rc = measure_request_read(p, n, &q, &e);
		break;
	}
	case 18: {
		static struct measure_result r;
		rc = measure_result_read(p, n, &r, &e);
		break;
	}
	case 19:
		rc = made_plan(p, n, &e);
		break;
	case 20:
		rc = made_greeting(p, n, &e);
		break;
	case 21: {
		int32_t id;
		rc = token_read(p, n, &id, &e);
		MUST(rc < 0 || id >= 0);
		break;
	}
	case 22: {
		struct progress m;
		rc = progress_read(p, n, &m, &e);
		MUST(rc < 0 || m.state <= PROGRESS_WAITING);
		break;
	}
	case 23: {
		struct run_record r;
		struct state_name name;
		rc = record_read(p, n, &r, &e);
		MUST((rc < 0) == (record_name(p, n, &name, &e) < 0));
		for (uint32_t i = 0; rc >= 0 && i < r.npass; i++)
			MUST(record_pass(&r, i) > 0);
		break;
	}
	default:
		abort_read(p, n, &e);
		MUST(e.code < 0 && e.msg[0]);
		int lost;
		broken_read(p, n, &e, &lost);
		MUST(e.code < 0 && e.msg[0] && lost >= -1);
	}
	MUST(rc >= 0 || (e.code == rc && e.msg[0] && !strchr(e.msg, '\n')));
	return 0;
}
