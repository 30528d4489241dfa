/* SPDX-License-Identifier: Apache-2.0 */
/* test_job_crew.c - the members of a job: added, lost, moved, and asked for their neighbours; the
 * same crew sent in PLAN and read back. */
#include "base/buf.h"
#include "base/err.h"
#include "base/rng.h"
#include "crew/crew.h"
#include "job/placement.h"
#include "proto/protocol.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct err err;

static void add(struct crew *c, int n)
{
	for (int i = 0; i < n; i++) {
		struct member m = { .stage = 7, .place = 7, .gone = true };
		snprintf(m.id, sizeof m.id, "w%d", c->n);
		snprintf(m.address, sizeof m.address, "10.0.0.%d:9999", c->n + 1);
		int number = c->n;
		assert_int_equal(crew_add(c, &m, &err), number);
		assert_int_equal(crew_stage_of(c, number), -1);
	}
}

/* After any change the places of each stage's group are 0, 1, ..., and order lists every member
 * that holds something once, by stage and place. */
static void check(const struct crew *c)
{
	int order[64], held = 0, n = crew_order(c, order);
	for (int i = 0; i < c->n; i++) {
		held += c->member[i].stage >= 0;
		assert_true((c->member[i].stage < 0) == (c->member[i].place < 0));
		assert_true(!c->member[i].gone || c->member[i].stage < 0);
	}
	assert_int_equal(n, held);
	for (int s = 0; s < c->stages; s++)
		for (int k = 0; k <= crew_group_size(c, s); k++) {
			int m = crew_at(c, s, k);
			assert_true((m >= 0) == (k < crew_group_size(c, s)));
		}
	for (int k = 1; k < n; k++) {
		const struct member *a = &c->member[order[k - 1]], *b = &c->member[order[k]];
		assert_true(a->stage < b->stage ||
			    (a->stage == b->stage && a->place + 1 == b->place));
	}
}

static void numbers_say_nothing_about_stages(void **state)
{
	(void)state;
	struct crew c = { 0 };
	const int stage[] = { 2, 0, 3, 1 };
	int order[4];
	add(&c, 4);
	crew_shape(&c, 4, 1, false);
	for (int i = 0; i < 4; i++)
		assert_int_equal(crew_move(&c, i, stage[i], 1, &err), 0);
	assert_int_equal(crew_check(&c, &err), 0);
	check(&c);
	assert_int_equal(crew_order(&c, order), 4);
	assert_memory_equal(order, ((const int[]){ 1, 3, 0, 2 }), sizeof order);
	assert_true(crew_is_front(&c, 1) && crew_is_end(&c, 2) && !crew_is_end(&c, 3));
	assert_int_equal(crew_stage_before(&c, 0), -1);
	assert_int_equal(crew_stage_behind(&c, 0), 1);
	assert_int_equal(crew_stage_behind(&c, 3), -1);
	crew_shape(&c, 2, 2, false); /* interleaved: a ring */
	assert_int_equal(crew_stage_before(&c, 0), 1);
	assert_int_equal(crew_stage_behind(&c, 1), 0);
	crew_shape(&c, 3, 1, true); /* a tied model: end and front are neighbours */
	assert_int_equal(crew_stage_before(&c, 0), 2);
	assert_int_equal(crew_stage_behind(&c, 2), 0);
	assert_int_equal(crew_stage_behind(&c, 0), 1);
	crew_shape(&c, 1, 1, true);
	assert_int_equal(crew_stage_behind(&c, 0), -1);
	crew_shape(&c, 1, 3, false); /* chunks of one worker: nobody to send to */
	assert_int_equal(crew_stage_behind(&c, 0), -1);
	assert_int_equal(crew_stage_before(&c, 0), -1);
	crew_release(&c);
}

static void added_lost_and_moved(void **state)
{
	(void)state;
	struct crew c = { 0 };
	add(&c, 3);
	crew_shape(&c, 2, 1, false);
	for (int i = 0; i < 3; i++)
		assert_int_equal(crew_move(&c, i, 1, 1, &err), 0);
	assert_int_equal(crew_check(&c, &err), ERR_USAGE);
	assert_non_null(strstr(err.msg, "stage 0"));
	uint32_t changes = c.changes;
	crew_lose(&c, 1); /* the middle of the group: the last one moves up */
	assert_int_equal(crew_at(&c, 1, 1), 2);
	assert_true(c.changes > changes && c.member[1].gone);
	assert_int_equal(crew_move(&c, 1, 0, 1, &err), ERR_INTERNAL);
	assert_int_equal(crew_move(&c, 9, 0, 1, &err), ERR_INTERNAL);
	assert_int_equal(crew_move(&c, 0, 2, 1, &err), ERR_INTERNAL);
	assert_int_equal(crew_move(&c, 0, 0, 1, &err), 0);
	assert_int_equal(crew_at(&c, 1, 0), 2);
	assert_int_equal(crew_check(&c, &err), 0);
	add(&c, 1); /* joins later and has a new number */
	assert_int_equal(crew_move(&c, 3, 1, 1, &err), 0);
	assert_int_equal(c.member[3].place, 1);
	check(&c);
	crew_release(&c);
}

static void any_order_of_changes(void **state)
{
	(void)state;
	const struct rng_key key = rng_key(17);
	uint64_t at = 0;
	struct crew c = { 0 };
	add(&c, 5);
	crew_shape(&c, 3, 1, false);
	for (int i = 0; i < 4000; i++) {
		int who = (int)(rng_u32(key, at++) % (unsigned)c.n);
		switch (rng_u32(key, at++) % 16) {
		case 0:
			if (c.n < 40)
				add(&c, 1);
			break;
		case 1:
			crew_lose(&c, who);
			break;
		case 2:
			crew_shape(&c, 1 + (int)(rng_u32(key, at++) % 5), 1, false);
			break;
		default:
			crew_move(&c, who, (int)(rng_u32(key, at++) % (unsigned)(c.stages + 1)) - 1,
				  1, &err);
		}
		check(&c);
	}
	crew_release(&c);
}

static const char untied_config[] =
	"{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":16,"
	"\"num_hidden_layers\":3,\"num_attention_heads\":2,"
	"\"num_key_value_heads\":1,\"vocab_size\":16,\"rms_norm_eps\":1e-5,"
	"\"max_position_embeddings\":64,\"tie_word_embeddings\":false}";
static const char tied_config[] =
	"{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":16,"
	"\"num_hidden_layers\":3,\"num_attention_heads\":2,"
	"\"num_key_value_heads\":1,\"vocab_size\":16,\"rms_norm_eps\":1e-5,"
	"\"max_position_embeddings\":64,\"tie_word_embeddings\":true}";
static const char *config;

static struct plan_message *plan_make(bool tied)
{
	static struct plan_message p;
	memset(&p, 0, sizeof p);
	add(&p.crew, 4);
	crew_shape(&p.crew, 3, 1, tied);
	p.opt.train_all = tied;
	config = tied ? tied_config : untied_config;
	for (int i = 0; i < 3; i++)
		crew_move(&p.crew, i, (i + 1) % 3, 1, &err);
	crew_lose(&p.crew, 3);
	p.self = 1;
	for (int v = 0; v <= 3; v++)
		p.first[v] = v;
	snprintf(p.schedule, sizeof p.schedule, "1f1b");
	snprintf(p.optimizer, sizeof p.optimizer, "adamw");
	snprintf(p.crew.member[2].best, NET_ADDRESS, "10.0.0.1;10.0.0.9:9999");
	p.progress = 3;
	p.reduce_order = SUM_EXACT;
	snprintf(p.reducer, sizeof p.reducer, "direct");
	p.crew.member[1].share = 7;
	p.sharding = SHARD_OPTIMIZER;
	for (int i = 0; i < 3; i++)
		p.crew.member[i].state_share = STATE_WHOLE;
	return &p;
}

static void travels(bool tied)
{
	struct plan_message *p = plan_make(tied), q;
	struct buf b = BUF_INIT;
	assert_int_equal(plan_message_write(p, config, &b, &err), 0);
	if (plan_message_read(b.p, b.n, &q, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(q.crew.n, 4);
	assert_true(q.crew.tied == tied);
	assert_int_equal(crew_stage_behind(&q.crew, 2), tied ? 0 : -1);
	assert_memory_equal(q.crew.member, p->crew.member, 4 * sizeof *q.crew.member);
	assert_int_equal(plan_stage(&q), 2);
	assert_true(plan_is_end(&q) && !plan_is_front(&q));
	plan_message_release(&q);
	for (size_t n = 0; n < b.n; n++) /* cut off at every byte */
		assert_int_equal(plan_message_read(b.p, n, &q, &err), ERR_PROTOCOL);
	buf_release(&b);
	plan_message_release(p);
}

static void travels_in_plan(void **state)
{
	(void)state;
	travels(false);
	travels(true);
}

static void refused(struct plan_message *p, const char *word)
{
	struct plan_message q;
	struct buf b = BUF_INIT;
	assert_int_equal(plan_message_write(p, config, &b, &err), 0);
	assert_int_equal(plan_message_read(b.p, b.n, &q, &err), ERR_PROTOCOL);
	if (!strstr(err.msg, word))
		fail_msg("'%s' says nothing of '%s'", err.msg, word);
	buf_release(&b);
	plan_message_release(p);
}

/* A coordinator sends a model configuration that would take much memory when it is parsed. */
static void values_without_end_in_plan(void **state)
{
	(void)state;
	struct plan_message *p = plan_make(false), q;
	struct buf text = BUF_INIT, b = BUF_INIT;
	buf_adds(&text, "{\"x\":[{}");
	for (int i = 0; i < 300000; i++)
		buf_adds(&text, ",{}");
	buf_adds(&text, "]}");
	assert_int_equal(plan_message_write(p, text.p, &b, &err), 0);
	assert_int_equal(plan_message_read(b.p, b.n, &q, &err), ERR_INPUT);
	assert_string_equal(err.msg,
			    "PLAN: the model's configuration: too many JSON values: they would "
			    "take 77 MiB of memory, 16 are allowed here");
	buf_release(&text);
	buf_release(&b);
	plan_message_release(p);
}

static void crews_that_cannot_be(void **state)
{
	(void)state;
	struct plan_message *p = plan_make(false);
	p->crew.member[0].stage = 2; /* two at the same place, none at stage 1 */
	refused(p, "stage 1");
	p = plan_make(false);
	p->crew.member[2].place = 5;
	refused(p, "places");
	p = plan_make(false);
	p->crew.member[0].stage = 40;
	refused(p, "stage 40");
	p = plan_make(false);
	p->crew.member[1].share = 0;
	refused(p, "shares of stage 2 are all 0");
	p = plan_make(false);
	p->crew.member[1].share = SCHED_MAX_SHARE + 1;
	refused(p, "a share of 1000001");
	p = plan_make(false);
	p->reduce_order = 3;
	refused(p, "order 3");
	p = plan_make(false);
	p->crew.member[1].gone = true;
	refused(p, "member 1");
	p = plan_make(false);
	p->self = 3;
	refused(p, "holds no stage");
	p = plan_make(false);
	p->self = 4;
	refused(p, "member 4 of 4");
	p = plan_make(false);
	p->progress = 1e-9;
	refused(p, "PROGRESS");
	p = plan_make(false); /* the crew and what is trained contradict each other */
	p->crew.tied = true;
	refused(p, "do not train one embedding");
	p = plan_make(true);
	p->crew.tied = false;
	refused(p, "front and end train one embedding");
}

/* Two stages of two chunks: 0-1, 2-4, 5, 6-7. */
static void where_a_parameter_lies(void **state)
{
	(void)state;
	static const int64_t first[] = { 0, 2, 5, 6, 8 };
	static const int stage[] = { 0, 0, 1, 1, 1, 0, 1, 1 };
	char name[64];
	for (int i = 0; i < 8; i++) {
		assert_int_equal(chunk_stage_of_layer(2, 2, first, i), stage[i]);
		snprintf(name, sizeof name, "model.layers.%d.mlp.up_proj.weight", i);
		assert_int_equal(chunk_stage_of_param(2, 2, first, name), stage[i]);
	}
	assert_int_equal(chunk_stage_of_layer(2, 2, first, -1), 0);
	assert_int_equal(chunk_stage_of_layer(2, 2, first, 8), 1);
	assert_int_equal(chunk_stage_of_param(2, 2, first, "model.embed_tokens.weight"), 0);
	assert_int_equal(chunk_stage_of_param(2, 2, first, "model.norm.weight"), 1);
	assert_int_equal(chunk_stage_of_param(2, 2, first, "lm_head.weight"), 1);
	assert_int_equal(chunk_stage_of_param(2, 2, first, "model.layers.8.x"), -1);
	assert_int_equal(chunk_stage_of_param(2, 2, first, "model.layers.-1.x"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_say_nothing_about_stages),
		cmocka_unit_test(added_lost_and_moved),
		cmocka_unit_test(any_order_of_changes),
		cmocka_unit_test(travels_in_plan),
		cmocka_unit_test(crews_that_cannot_be),
		cmocka_unit_test(where_a_parameter_lies),
		cmocka_unit_test(values_without_end_in_plan),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
