/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_mixture.c - mixtures of experts on unlike devices: a pipeline over the processor and
 * OpenCL, with LoRA on experts and routers, in 4 bits too; and with the experts of a card in the
 * memory of its host, of which those come that tokens chose: the same bits as without. The card is
 * OpenCL's device, and the stand-in for a card of CUDA (PoCL and the stand-in work on the
 * processor). */
#include "base/err.h"
#include "base/mem.h"
#include "support/cards.h"
#include "support/long.h"
#include "support/record.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 4 };

#define QWEN                                                                                       \
	"{\"model_type\":\"qwen3_moe\"," TINY_COMMON                                               \
	",\"head_dim\":16,\"moe_intermediate_size\":32,\"num_experts\":6,"                         \
	"\"num_experts_per_tok\":2,\"norm_topk_prob\":true,"                                       \
	"\"router_aux_loss_coef\":0.02,\"output_router_logits\":true}"
#define QWEN2                                                                                      \
	"{\"model_type\":\"qwen2_moe\"," TINY_COMMON                                               \
	",\"moe_intermediate_size\":32,\"shared_expert_intermediate_size\":48,\"num_experts\":4,"  \
	"\"num_experts_per_tok\":2,\"mlp_only_layers\":[2]}"
#define GLM                                                                                        \
	"{\"model_type\":\"glm4_moe\"," TINY_COMMON                                                \
	",\"head_dim\":16,\"moe_intermediate_size\":32,\"n_routed_experts\":6,"                    \
	"\"num_experts_per_tok\":2,\"n_shared_experts\":1,\"routed_scaling_factor\":1.5,"          \
	"\"use_qk_norm\":true,\"first_k_dense_replace\":1,\"num_nextn_predict_layers\":1}"
#define QWEN35                                                                                     \
	"{\"model_type\":\"qwen3_5_moe_text\"," TINY_COMMON                                        \
	",\"head_dim\":16,\"full_attention_interval\":2,\"linear_num_key_heads\":1,"               \
	"\"linear_num_value_heads\":2,\"linear_key_head_dim\":8,\"linear_value_head_dim\":8,"      \
	"\"moe_intermediate_size\":32,\"shared_expert_intermediate_size\":20,\"num_experts\":6,"   \
	"\"num_experts_per_tok\":2,\"router_aux_loss_coef\":0.02,\"output_router_logits\":true}"

/* Beside what a run says: how often experts were on the device. */
struct seen {
	struct record r;
	struct train_sink sink;
	double hits, steps;
	uint64_t peak;
};

static int on_step(void *ctx, const struct train_step *s, struct err *e)
{
	struct seen *v = ctx;
	const double share = train_expert_hits(s->stage, s->stages);
	if (!isnan(share)) {
		v->hits += share;
		v->steps++;
	}
	return v->sink.step(&v->r, s, e);
}

struct way {
	const char *device[2];
	int stages;
	unsigned offload;
	uint64_t cache;
};

static void run(const struct tiny *t, const char *name, const struct way *w, struct seen *v,
		const char *const *how)
{
	struct config *c = tiny_config(t, name, how);
	struct err e = { 0 };
	struct train_result res = { 0 };
	struct placement p = { .stages = w->stages,
			       .chunks = 1,
			       .device = (const char *[]){ w->device[0], w->device[1] },
			       .schedule = "1f1b",
			       .offload = w->offload,
			       .expert_cache = w->cache };
	for (int i = 0; i <= w->stages; i++)
		p.first[i] = i * LAYERS / w->stages;
	*v = (struct seen){ .hits = 0 };
	v->sink = record_sink(&v->r);
	struct train_sink sink = v->sink;
	sink.ctx = v;
	sink.step = on_step;
	const struct train_options o = { .stop = &v->r.stop, .place = &p, .act = DT_F32 };
	if (train_run(c, &o, &sink, &res, &e) < 0)
		fail_msg("%s: %s", name, e.msg);
	v->peak = res.mem_peak;
	config_free(c);
}

static const char *const lora[] = { "lora_target_linear=true",
				    "lora_dropout=0.1",
				    "reduce_order=exact",
				    "profile=none",
				    "max_steps=3",
				    NULL };
static const char *const qlora[] = { "lora_target_modules=[q_proj]",
				     "adapter=qlora",
				     "load_in_4bit=true",
				     "reduce_order=exact",
				     "profile=none",
				     "max_steps=3",
				     NULL };

static bool stand_in;

static bool has_opencl(void)
{
	const char *vendors = getenv("OCL_ICD_VENDORS");
	return !vendors || strcmp(vendors, "/nonexistent") != 0;
}

/* cpu | OpenCL against the processor alone. */
static void unlike_devices(void **state)
{
	(void)state;
	static const struct {
		const char *name, *config;
		const char *const *how;
	} kind[] = { { "qwen3", QWEN, lora },
		     { "qwen3-4bit", QWEN, qlora },
		     { "qwen2", QWEN2, lora },
		     { "qwen3.5", QWEN35, lora },
		     { "glm", GLM, lora } };
	if (!has_opencl())
		skip();
	for (size_t k = 0; k < ARRAY_LEN(kind); k++) {
		const struct way alone = { { "cpu" }, 1, 0, 0 },
				 two = { { "cpu", "opencl:0" }, 2, 0, 0 };
		struct tiny t;
		struct seen a, b;
		tiny_make_model(&t, kind[k].config, 40);
		run(&t, "alone", &alone, &a, kind[k].how);
		run(&t, "two", &two, &b, kind[k].how);
		assert_true(a.r.n == 3 && b.r.n == 3);
		for (size_t i = 0; i < a.r.n; i++)
			if (!(fabs(b.r.loss[i] / a.r.loss[i] - 1) < 1e-5) ||
			    !(fabs(b.r.norm[i] / a.r.norm[i] - 1) < 1e-3))
				fail_msg("%s, step %zu: loss %.9g, norm %.9g; alone %.9g, %.9g",
					 kind[k].name, i + 1, b.r.loss[i], b.r.norm[i], a.r.loss[i],
					 a.r.norm[i]);
		printf("%s over cpu and opencl:0: loss %.5f to %.5f, alone %.5f\n", kind[k].name,
		       b.r.loss[0], b.r.loss[2], a.r.loss[2]);
		assert_true(isnan(b.hits / b.steps));
		tiny_remove(&t);
	}
}

static void experts_in_the_host(void **state)
{
	(void)state;
	static const char *const cards[] = { "opencl:0", "cuda:0" };
	static const struct {
		const char *name, *config;
		const char *const *how;
	} kind[] = { { "4 bits", QWEN, qlora }, { "adapters on experts", GLM, lora } };
	int done = 0;
	for (size_t i = 0; i < ARRAY_LEN(cards); i++) {
		if (i ? !stand_in || (done && !test_is_long()) : !has_opencl())
			continue;
		for (size_t k = 0; k < ARRAY_LEN(kind); k++) {
			const struct way on = { { cards[i] }, 1, 0, 0 },
					 all = { { cards[i] }, 1, OFFLOAD_EXPERTS, 1 << 30 },
					 few = { { cards[i] }, 1, OFFLOAD_EXPERTS, 24 << 10 };
			struct tiny t;
			struct seen a, b, c;
			tiny_make_model(&t, kind[k].config, 40);
			run(&t, "on", &on, &a, kind[k].how);
			run(&t, "all", &all, &b, kind[k].how);
			run(&t, "few", &few, &c, kind[k].how);
			record_same(&a.r, &b.r, "room for all");
			record_same(&a.r, &c.r, "room for few");
			record_same_file(&t, "on/adapter_model.safetensors",
					 "few/adapter_model.safetensors");
			const double share[2] = { b.hits / b.steps, c.hits / c.steps };
			printf("%s, %s: there were %.0f %% with room for all, %.0f %% with room "
			       "for few\n",
			       cards[i], kind[k].name, 100 * share[0], 100 * share[1]);
			assert_true(share[0] > 0.8 && share[1] < share[0]);
			assert_true(c.peak < b.peak);
			tiny_remove(&t);
			done++;
		}
	}
	if (!done)
		skip();
}

int main(void)
{
	stand_in = fake_cards("fake_rt.so", false);
	const struct CMUnitTest tests[] = { cmocka_unit_test(unlike_devices),
					    cmocka_unit_test(experts_in_the_host) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
