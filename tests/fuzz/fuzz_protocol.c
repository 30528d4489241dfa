/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_protocol.c - the fields of every frame between coordinator and workers: the first byte says
 * of which kind the rest is. A reader either fails with one line or gives what its users rely
 * on. */
#include "base/log.h"
#include "base/mem.h"
#include "net/frame.h"
#include "small.h"
#include "proto/hello.h"
#include "worker/link_probe.h"
#include "proto/measure_wire.h"
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
	for (uint32_t s = 0; s < h->nseq; s++)
		MUST(store.start[s] < store.start[s + 1] && store.pos[store.start[s]] == 0);
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
	for (int i = 0; i < stages; i++) {
		MUST(crew_group_size(&plan.crew, i) > 0 && crew_at(&plan.crew, i, 0) >= 0);
		held += crew_group_size(&plan.crew, i);
	}
	MUST(held <= plan.crew.n);
	plan_message_release(&plan);
	return 0;
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
	MUST(m.count * 4 <= n && (const uint8_t *)m.data + m.count * 4 <= p + n &&
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
	switch (data[0] % 19) {
	case 0:
		rc = hello_read(&f, &h, &e);
		break;
	case 1:
	case 2:
		f.kind = data[0] % 19 == 1 ? FRAME_WELCOME : FRAME_REFUSE;
		rc = welcome_read(&f, &w, &e);
		break;
	case 3:
		rc = read_plan(p, n, &e);
		break;
	case 4:
	case 5:
	case 6:
		rc = read_batch(p, n, data[0] % 19 == 4, data[0] % 19 == 5, &e);
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
	default:
		abort_read(p, n, &e);
		MUST(e.code < 0 && e.msg[0]);
	}
	MUST(rc >= 0 || (e.code == rc && e.msg[0] && !strchr(e.msg, '\n')));
	return 0;
}
