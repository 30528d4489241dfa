/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_away.c - experts on other members than the rest of their stage: the same bits as one
 * process, whoever has which experts, in one stage and in several, with one home and with two, in
 * every order of the microbatches; whatever share of the tokens an expert gets; stopped and
 * resumed. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "runtime/measure_routing.h"
#include "support/long.h"
#include "support/record.h"
#include "support/site.h"
#include "support/tiny.h"
#include "train/train.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 4, MEMBERS_MOST = 4, EXPERTS = 6 };

struct split {
	const char *name, *schedule;
	int stages;
	int members[2], homes[2], share[MEMBERS_MOST];
	/* of the experts of each stage: a digit is a place, '-' says that the stage deals none */
	const char *deal[2];
	bool always; /* in the short test too */
};

static const struct split splits[] = {
	{ "all on one", "zebra", 1, { 2 }, { 1 }, { 1, 0 }, { "111111" }, true },
	{ "on two, unevenly", "zebra", 1, { 3 }, { 1 }, { 1, 0, 0 }, { "122211" }, true },
	{ "some at home", "gpipe", 1, { 3 }, { 1 }, { 1, 0, 0 }, { "010222" }, true },
	{ "one after the other", "1f1b", 1, { 2 }, { 1 }, { 1, 0 }, { "011101" }, false },
	{ "of the second stage",
	  "zebra",
	  2,
	  { 1, 2 },
	  { 1, 1 },
	  { 1, 1, 0 },
	  { "-", "101111" },
	  false },
	{ "of both stages",
	  "zebra",
	  2,
	  { 2, 2 },
	  { 1, 1 },
	  { 1, 0, 1, 0 },
	  { "111111", "001111" },
	  true },
	{ "of two homes", "zebra", 1, { 3 }, { 2 }, { 2, 1, 0 }, { "222222" }, true },
	{ "each has some of all", "zebra", 1, { 2 }, { 2 }, { 2, 1 }, { "010110" }, true },
	{ "a group of one", "zebra", 1, { 1 }, { 1 }, { 1 }, { "000000" }, true },
	{ "homes and another", "gpipe", 1, { 3 }, { 2 }, { 1, 1, 0 }, { "021022" }, false },
	{ "of two homes and a stage",
	  "gpipe",
	  2,
	  { 3, 1 },
	  { 2, 1 },
	  { 1, 1, 0, 1 },
	  { "222222", "-" },
	  false },
};

static int attempt(const struct tiny *t, const char *run, const struct split *s, struct record *r,
		   const char *const *how, struct err *e)
{
	const char *device[MEMBERS_MOST] = { "cpu", "cpu", "cpu", "cpu" };
	struct config *c = tiny_config(t, run, how);
	struct train_result res = { 0 };
	uint8_t place[LAYERS * EXPERTS];
	struct placement p = { .stages = s ? s->stages : 1,
			       .chunks = 1,
			       .members = s ? s->members : NULL,
			       .homes = s ? s->homes : NULL,
			       .share = s ? s->share : NULL,
			       .device = device,
			       .schedule = s ? s->schedule : "1f1b",
			       .reduce_order = SUM_EXACT,
			       .reducer = "direct" };
	for (int i = 0; i <= p.stages; i++)
		p.first[i] = i * LAYERS / p.stages;
	for (int i = 0; s && i < LAYERS * EXPERTS; i++) {
		const char *deal = s->deal[i / EXPERTS * s->stages / LAYERS];
		place[i] = *deal == '-' ? DEAL_HOME : (uint8_t)(deal[i % EXPERTS] - '0');
	}
	if (s)
		p.deal = (struct expert_deal){ LAYERS, EXPERTS, place };
	const struct train_sink sink = record_sink(r);
	const struct train_options o = { .stop = &r->stop, .place = &p, .act = DT_F32 };
	int rc = train_run(c, &o, &sink, &res, e);
	config_free(c);
	return rc;
}

static void run(const struct tiny *t, const char *name, const struct split *s, struct record *r,
		const char *const *how)
{
	struct err e = { 0 };
	if (attempt(t, name, s, r, how, &e) < 0)
		fail_msg("%s, %s: %s", name, s ? s->name : "one process", e.msg);
}

#define QWEN                                                                                       \
	"{\"model_type\":\"qwen3_moe\"," TINY_COMMON                                               \
	",\"head_dim\":16,\"moe_intermediate_size\":24,\"num_experts\":6,"                         \
	"\"num_experts_per_tok\":2,\"norm_topk_prob\":true,\"decoder_sparse_step\":1,"             \
	"\"rms_norm_eps\":1e-6,\"router_aux_loss_coef\":0.02,\"output_router_logits\":true}"
#define MIXTRAL                                                                                    \
	"{\"model_type\":\"mixtral\"," TINY_COMMON                                                 \
	",\"num_local_experts\":6,\"num_experts_per_tok\":1,\"rms_norm_eps\":1e-5}"

#define OSS                                                                                        \
	"{\"model_type\":\"gpt_oss\"," TINY_COMMON                                                 \
	",\"head_dim\":16,\"num_local_experts\":4,\"num_experts_per_tok\":2,\"sliding_window\":8}"

#define GLM                                                                                        \
	"{\"model_type\":\"glm4_moe\"," TINY_COMMON                                                \
	",\"head_dim\":16,\"moe_intermediate_size\":24,\"n_routed_experts\":4,"                    \
	"\"num_experts_per_tok\":2,\"n_shared_experts\":1,\"routed_scaling_factor\":1.5,"          \
	"\"use_qk_norm\":true,\"first_k_dense_replace\":1}"

#define QWEN35                                                                                     \
	"{\"model_type\":\"qwen3_5_moe_text\"," TINY_COMMON                                        \
	",\"head_dim\":16,\"full_attention_interval\":2,\"linear_num_key_heads\":1,"               \
	"\"linear_num_value_heads\":2,\"linear_key_head_dim\":8,\"linear_value_head_dim\":8,"      \
	"\"moe_intermediate_size\":24,\"shared_expert_intermediate_size\":20,\"num_experts\":6,"   \
	"\"num_experts_per_tok\":2,\"router_aux_loss_coef\":0.02,\"output_router_logits\":true}"

#define GEMMA4                                                                                     \
	"{\"model_type\":\"gemma4_text\"," TINY_COMMON                                             \
	",\"head_dim\":16,\"global_head_dim\":24,\"hidden_size_per_layer_input\":0,"               \
	"\"attention_k_eq_v\":true,\"num_global_key_value_heads\":1,\"sliding_window\":8,"         \
	"\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","         \
	"\"full_attention\"],\"enable_moe_block\":true,\"num_experts\":6,\"top_k_experts\":2,"     \
	"\"moe_intermediate_size\":24}"

#define LFM2                                                                                       \
	"{\"model_type\":\"lfm2_moe\"," TINY_COMMON                                                \
	",\"moe_intermediate_size\":24,\"num_experts\":6,\"num_experts_per_tok\":2,"               \
	"\"num_dense_layers\":0,\"layer_types\":[\"conv\",\"full_attention\",\"conv\",\"conv\"]}"

static void splits_have_the_bits_of_one_process(void **state)
{
	(void)state;
	static const struct {
		const char *name, *config, *how[10], *result;
	} kind[] = {
		{ "lora",
		  QWEN,
		  { "reduce_order=exact", "lora_dropout=0.1", "router_z_loss_coef=0.01",
		    "lora_target_linear=true", "gradient_accumulation_steps=5", "max_steps=3" },
		  "adapter_model.safetensors" },
		{ "full",
		  MIXTRAL,
		  { "reduce_order=exact", "adapter=none", "router_aux_loss_coef=0.05",
		    "learning_rate=0.001", "gradient_accumulation_steps=4", "max_steps=2",
		    "val_set_size=5", "eval_steps=1" },
		  "model.safetensors" },
		{ "beside an MLP",
		  GEMMA4,
		  { "reduce_order=exact", "adapter=none", "learning_rate=0.01",
		    "gradient_accumulation_steps=4", "max_steps=2" },
		  "model.safetensors" },
		{ "short convolutions",
		  LFM2,
		  { "reduce_order=exact", "lora_target_linear=true",
		    "gradient_accumulation_steps=4", "max_steps=2" },
		  "adapter_model.safetensors" },
		{ "linear attention",
		  QWEN35,
		  { "reduce_order=exact", "lora_target_linear=true",
		    "gradient_accumulation_steps=4", "max_steps=2" },
		  "adapter_model.safetensors" },
	};
	for (size_t k = 0; k < ARRAY_LEN(kind); k++) {
		struct tiny t;
		struct record one = { 0 };
		tiny_make_model(&t, kind[k].config, 40);
		run(&t, kind[k].name, NULL, &one, kind[k].how);
		assert_true(one.loss[one.n - 1] < one.loss[0]);
		for (size_t i = 0; i < ARRAY_LEN(splits); i++) {
			struct record r = { 0 };
			if (!test_is_long() && (!splits[i].always || (k > 1 && i % 3)))
				continue;
			char name[64], file[160], of_one[160];
			snprintf(name, sizeof name, "%s-%zu", kind[k].name, i);
			run(&t, name, &splits[i], &r, kind[k].how);
			record_same(&one, &r, splits[i].name);
			snprintf(file, sizeof file, "%s/%s", name, kind[k].result);
			snprintf(of_one, sizeof of_one, "%s/%s", kind[k].name, kind[k].result);
			record_same_file(&t, of_one, file);
			printf("%s, %s: identical, loss %.4f to %.4f\n", kind[k].name,
			       splits[i].name, r.loss[0], r.loss[r.n - 1]);
		}
		tiny_remove(&t);
	}
}

/* The numbers of the routers for the experts from `kept` on become 0. Their logits are alike then,
 * so of them only the first is ever chosen: with 0 every token chooses expert 0. */
static void clear_routers(const struct tiny *t, size_t kept)
{
	char path[400];
	size_t n = 0;
	char *all = tiny_read(t, "model/model.safetensors", &n);
	uint64_t head;
	memcpy(&head, all, sizeof head);
	int found = 0;
	for (int i = 0; i < LAYERS; i++) {
		char name[64];
		unsigned long long from, to;
		snprintf(name, sizeof name, "model.layers.%d.block_sparse_moe.gate.weight", i);
		char *at = memmem(all, n, name, strlen(name));
		char *where = at ? memmem(at, n - (size_t)(at - all), "data_offsets", 12) : NULL;
		assert_non_null(where);
		where += strcspn(where, "0123456789");
		assert_int_equal(sscanf(where, "%llu,%llu", &from, &to), 2);
		from += (to - from) / EXPERTS * kept;
		memset(all + 8 + head + from, 0, to - from);
		found++;
	}
	assert_int_equal(found, LAYERS);
	snprintf(path, sizeof path, "%s/model/model.safetensors", t->dir);
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(all, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
	mem_free(all);
}

/* Of the rows of a layer, those of its busiest expert, in the mean of the layers. */
static double busiest(const struct tiny *t)
{
	static int32_t id[64], label[64], pos[64], start[] = { 0, 64 };
	const struct microbatch mb = {
		.n = 64, .nseq = 1, .id = id, .pos = pos, .label = label, .start = start
	};
	const struct stage_options o = { .act = DT_F32 };
	struct model_config *c = mem_zalloc(sizeof *c);
	struct model_file *f = NULL;
	struct err e = { 0 };
	double picks[LAYERS * EXPERTS], sum = 0;
	char path[300];
	for (int i = 0; i < 64; i++) {
		id[i] = i * 37 % 250;
		label[i] = pos[i] = i;
	}
	snprintf(path, sizeof path, "%s/model", t->dir);
	if (model_file_open(path, &f, &e) < 0 ||
	    model_config_read(model_file_config(f), path, c, &e) < 0)
		fail_msg("%s", e.msg);
	const struct routing_ask ask = {
		.file = f, .cfg = c, .opt = &o, .mb = &mb, .n = 1, .seconds = 1e9
	};
	if (measure_routing(&ask, picks, &e) < 0)
		fail_msg("%s", e.msg);
	for (int l = 0; l < LAYERS; l++) {
		double most = 0, all = 0;
		for (int x = 0; x < EXPERTS; x++) {
			most = picks[l * EXPERTS + x] > most ? picks[l * EXPERTS + x] : most;
			all += picks[l * EXPERTS + x];
		}
		assert_true(all == 64);
		sum += most / all / LAYERS;
	}
	model_file_close(f);
	mem_free(c);
	return sum;
}

/* From tokens that spread over all experts to one that takes all: whoever has it gets all rows,
 * the others none. */
static void from_even_to_one_expert(void **state)
{
	(void)state;
	static const char *const how[] = { "reduce_order=exact", "lora_target_linear=true",
					   "max_steps=2", NULL };
	static const size_t kept[] = { EXPERTS, 3, 1, 0 };
	double before = 0;
	for (size_t k = 0; k < ARRAY_LEN(kept); k++) {
		struct tiny t;
		struct record one = { 0 };
		tiny_make_model(&t, MIXTRAL, 40);
		clear_routers(&t, kept[k]);
		const double most = busiest(&t);
		printf("the busiest expert has %.2f of the rows\n", most);
		assert_true(most > before && (kept[k] ? most < 0.9 : most == 1));
		before = most;
		run(&t, "one", NULL, &one, how);
		for (size_t i = 1; i < 3; i++) {
			struct record r = { 0 };
			char name[32], file[80];
			snprintf(name, sizeof name, "away-%zu", i);
			snprintf(file, sizeof file, "%s/adapter_model.safetensors", name);
			run(&t, name, &splits[i], &r, how);
			record_same(&one, &r, splits[i].name);
			record_same_file(&t, "one/adapter_model.safetensors", file);
		}
		tiny_remove(&t);
	}
}

/* Checkpoints do not know who had which experts. */
static void stopped_and_resumed(void **state)
{
	(void)state;
	static const char *const how[] = { "reduce_order=exact", "lora_dropout=0.1",
					   "lora_target_linear=true", "max_steps=4", NULL },
				 *const again[] = { "lora_dropout=0.1", "lora_target_linear=true",
						    "max_steps=4", "resume_from_checkpoint=latest",
						    NULL };
	struct tiny t;
	struct record one = { 0 }, first = { .stop_after = 2 }, second = { 0 };
	tiny_make_model(&t, QWEN, 40);
	run(&t, "whole", NULL, &one, how);
	run(&t, "parts", &splits[1], &first, how);
	run(&t, "parts", &splits[5], &second, again);
	assert_true(second.n == 2 && second.loss[1] == one.loss[3]);
	record_same_file(&t, "whole/adapter_model.safetensors", "parts/adapter_model.safetensors");
	tiny_remove(&t);
}

#define EXACT "reduce_order: exact\n"

/* Over processes, as a configuration says it; of gpt-oss with its biases and sinks, and of a model
 * whose first layer has no experts. */
static void by_configuration(void **state)
{
	(void)state;
	static const struct {
		const char *model, *home, *deal;
	} kind[] = { { QWEN, "a", "[\"b=0-1,4\", c=2-3, a=5]" },
		     { QWEN, "[a, b]", "[\"a=0-1\", \"c=2-5\"]" },
		     { OSS, "a", "[\"b=0,3\", c=1, a=2]" },
		     { GLM, "a", "[b, c]" } };
	for (size_t i = 0; i < ARRAY_LEN(kind); i++) {
		struct site s;
		char extra[200];
		site_make_model(&s, kind[i].model);
		snprintf(extra, sizeof extra,
			 EXACT "shard_plan: [{id: %s, experts: %s, start: 0, end: 4}]\n",
			 kind[i].home, kind[i].deal);
		site_configuration(&s, "one", 0, EXACT);
		site_configuration(&s, "two", 3, extra);
		struct process p = site_start(&s, "train", "one.yaml", NULL);
		must_succeed(&p);
		p = site_start(&s, "train", "two.yaml", NULL);
		must_succeed(&p);
		same_result(&s, "one", "two", true);
		assert_true(run_says(&s, "two", "plan.json", "\"schedule\": \"zebra\""));
		tiny_remove(&s.t);
	}
}

/* One of those that have experts is lost: the others get its own, and then the home has all. */
static void a_lost_member(void **state)
{
	(void)state;
	struct site s;
	struct process w[3], p;
	site_make_model(&s, QWEN);
	site_configuration(&s, "one", 0, EXACT);
	site_configuration(&s, "two", 3,
			   EXACT "shard_plan: [{id: a, experts: [b, c], start: 0, end: 4}]\n");
	p = site_start(&s, "train", "one.yaml", "max_steps=60", "save_steps=0", NULL);
	must_succeed(&p);
	for (int i = 0; i < 3; i++) {
		const char name[2] = { (char)('a' + i), 0 };
		w[i] = site_start(&s, "worker", "--worker", name, "two.yaml", NULL);
		until(&w[i], "listens");
	}
	p = site_start(&s, "train", "two.yaml", "max_steps=60", "save_steps=0", "peer_timeout=5",
		       "join_timeout=30", NULL);
	until(&p, " 5/60");
	kill(w[2].pid, SIGKILL);
	until(&p, " 25/60");
	kill(w[1].pid, SIGKILL);
	if (finished(&p, 100) != 0) {
		show_log(&p);
		fail_msg("the job did not go on");
	}
	finished(&w[0], PATIENCE);
	same_result(&s, "one", "two", true);
	tiny_remove(&s.t);
}

/* A group has 255 places. */
static void too_many_members(const struct site *s)
{
	for (int n = 254; n <= 255; n++) {
		struct buf b = BUF_INIT;
		buf_adds(&b, "shard_plan: [{id: a, experts: [");
		for (int i = 0; i < n; i++)
			buf_addf(&b, "%sx%d", i ? ", " : "", i);
		buf_adds(&b, "], start: 0, end: 4}]\n");
		site_configuration(s, "bad", 3, b.p);
		struct process p = site_start(s, "train", "bad.yaml", NULL);
		must_fail(&p, 2,
			  n < 255 ? "names 'x0', which is no worker's id"
				  : "'experts' makes a stage of 256 members: at most 255");
		buf_release(&b);
	}
}

static void plans_that_do_not_fit(void **state)
{
	(void)state;
	static const struct {
		const char *plan, *says;
	} bad[] = {
		{ "id: a, experts: [\"b=0-3\"]", "leaves out expert 4 of 6" },
		{ "id: a, experts: [\"b=0-3\", \"c=3-5\"]",
		  "gives expert 3 to 'b' and to 'c': each is in one place" },
		{ "id: a, experts: [\"b=0-6\"]",
		  "gives expert 6 to 'b'; the model has experts 0 to 5" },
		{ "id: a, experts: [\"b=0-3\", c]", "some entries of 'experts' say which" },
		{ "id: a, experts: [b, b]", "'experts' names 'b' twice" },
		{ "id: a, experts: [\"b=x\"]", "numbers such as 0-3,8 were expected" },
		{ "id: a, experts: [b], state_share: [1]",
		  "'state_share' together with 'experts'" },
		{ "id: a, experts: [d]", "'shard_plan' names 'd', which is no worker's id" },
	};
	struct site s;
	site_make_model(&s, QWEN);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char extra[200];
		snprintf(extra, sizeof extra, "shard_plan: [{%s, start: 0, end: 4}]\n",
			 bad[i].plan);
		site_configuration(&s, "bad", 3, extra);
		struct process p = site_start(&s, "train", "bad.yaml", NULL);
		must_fail(&p, 2, bad[i].says);
	}
	too_many_members(&s);
	static const char *const key[] = { "gradient_checkpointing: true", "offload: [optimizer]",
					   "shard: optimizer", "shard: parameters" };
	for (size_t i = 0; i < ARRAY_LEN(key); i++) {
		char extra[200], says[120];
		snprintf(extra, sizeof extra,
			 "%s\nshard_plan: [{id: a, experts: [b], start: 0, end: 4}]\n", key[i]);
		snprintf(says, sizeof says, "'%.*s' together with experts on other members",
			 (int)strcspn(key[i], ":"), key[i]);
		site_configuration(&s, "bad", 3, extra);
		struct process p = site_start(&s, "train", "bad.yaml", NULL);
		must_fail(&p, 2, says);
	}
	tiny_remove(&s.t);
	/* its first layer has no experts */
	site_make_model(&s, GLM);
	site_configuration(&s, "bad", 3,
			   "shard_plan: [{id: c, experts: [a], start: 0, end: 1}, "
			   "{id: b, start: 1, end: 4}]\n");
	struct process p = site_start(&s, "train", "bad.yaml", NULL);
	/* the worker that the job started may say it too */
	assert_int_equal(finished(&p, PATIENCE), 1);
	assert_true(
		says(&p, "none of the layers 0 to 0 has experts that other members could have"));
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	site_program(argv[0]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(splits_have_the_bits_of_one_process),
		cmocka_unit_test(from_even_to_one_expert),
		cmocka_unit_test(stopped_and_resumed),
		cmocka_unit_test(by_configuration),
		cmocka_unit_test(a_lost_member),
		cmocka_unit_test(plans_that_do_not_fit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
