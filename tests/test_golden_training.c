/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden_training.c - ten steps of training against PyTorch: loss, gradient norm, learning
 * rate of every step, and what comes out.
 *
 * The cases are folders of tests/golden/models: the hyperparameters in case.json, the first adapter
 * as PEFT saved it, the exact microbatches and what torch.optim makes of them in expect.safetensors
 * (scripts/golden/models.py). Everything in float32 on the CPU backend. A step is put together here
 * from stage and optimizer by the rules of the design: the loss of a step is the sum of token
 * losses over the trained tokens of the global batch, one norm over all trained parameters, one
 * learning rate. */
#include "base/json.h"
#include "base/mem.h"
#include "file/peft.h"
#include "optim/optim.h"
#include "support/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER "tests/golden/models/"

struct job {
	struct golden g;
	struct golden_model m;
	json_t *json;
	struct arena mem;
	struct optim_config oc;
	struct norm_buffer host;
	const struct optimizer *opt;
	const struct lr_curve *curve;
	double rate, least, clip;
	int64_t steps, warmup, accumulation;
	bool lora;
};

static double number(struct job *j, const char *key)
{
	struct err e;
	double v = 0;
	must(json_need_num(j->json, "case.json", key, 0, 1e9, &v, &e), &e);
	return v;
}

static const char *text(struct job *j, const char *key)
{
	struct err e;
	const char *v = NULL;
	must(json_need_str(j->json, "case.json", key, &v, &e), &e);
	return v;
}

/* The adapter's weights as PEFT stores them become those of the stage. */
static void load_adapter(struct job *j, const struct peft_adapter *ad)
{
	char name[128];
	for (size_t i = 0; i < ad->npair; i++) {
		const struct peft_pair *p = &ad->pair[i];
		snprintf(name, sizeof name, "%s.lora_A.weight", p->module);
		golden_set(&j->m, name, p->a, (uint64_t)(ad->cfg.r * p->in));
		snprintf(name, sizeof name, "%s.lora_B.weight", p->module);
		golden_set(&j->m, name, p->b, (uint64_t)(ad->cfg.r * p->out));
	}
}

static void job_open(struct job *j, const char *name, bool recompute)
{
	struct err e;
	char path[160];
	struct stage_options o = { .act = DT_F32, .recompute = recompute };
	struct peft_adapter ad = { 0 };
	*j = (struct job){ 0 };
	snprintf(path, sizeof path, FOLDER "%s/case.json", name);
	must(json_parse_file(path, 0, &j->json, &e), &e);
	snprintf(path, sizeof path, FOLDER "%s/expect.safetensors", name);
	golden_open(&j->g, path);
	j->g.path = golden_name(&j->g, "%s", path);
	j->steps = (int64_t)number(j, "steps");
	j->warmup = (int64_t)number(j, "warmup_steps");
	j->accumulation = (int64_t)number(j, "gradient_accumulation_steps");
	j->curve = lr_curve_find(text(j, "lr_scheduler"));
	assert_non_null(j->curve);
	j->rate = number(j, "learning_rate");
	j->least = number(j, "cosine_min_lr_ratio");
	j->clip = number(j, "max_grad_norm");
	j->oc = (struct optim_config){ .beta1 = number(j, "adam_beta1"),
				       .beta2 = number(j, "adam_beta2"),
				       .epsilon = number(j, "adam_epsilon"),
				       .momentum = number(j, "momentum"),
				       .weight_decay = number(j, "weight_decay") };
	j->opt = optimizer_find(text(j, "optimizer"));
	assert_non_null(j->opt);
	j->lora = json_object_get(j->json, "lora_r") != NULL;
	if (j->lora) {
		snprintf(path, sizeof path, FOLDER "%s/init", name);
		must(peft_read(path, &j->mem, &ad, &e), &e);
		assert_int_equal(ad.cfg.r, (int)number(j, "lora_r"));
		o.lora.r = ad.cfg.r;
		o.lora.scale = (float)peft_scale(&ad.cfg);
		struct model_config cfg;
		snprintf(path, sizeof path, FOLDER "%s", text(j, "model"));
		golden_model_config(path, &cfg);
		must(lora_targets(&cfg, ad.cfg.target, ad.cfg.ntarget, &o.lora, &e), &e);
	} else {
		o.train_all = true;
	}
	o.quantize = o.double_quant = json_is_true(json_object_get(j->json, "load_in_4bit"));
	if (json_object_get(j->json, "router_aux_loss_coef")) {
		o.router_loss = (float)number(j, "router_aux_loss_coef");
		o.router_z = (float)number(j, "router_z_loss_coef");
	}
	snprintf(path, sizeof path, FOLDER "%s", text(j, "model"));
	golden_model_open(&j->m, path, &o);
	load_adapter(j, &ad);
	for (size_t i = 0; i < j->m.stage.nparam; i++)
		if (param_is_trained(&j->m.stage.param[i]))
			must(optim_init(j->opt, &j->m.stage.param[i], &j->oc, &e), &e);
}

static void job_close(struct job *j)
{
	mem_free(j->host.sum);
	golden_model_close(&j->m);
	golden_close(&j->g);
	arena_release(&j->mem);
	json_decref(j->json);
}

static void step(struct job *j, int64_t s, double *loss_p, double *norm_p, double *rate_p)
{
	struct err e;
	int64_t trained = 0;
	double loss = 0;
	for (int64_t i = 0; i < j->accumulation; i++) {
		int64_t here;
		struct stage_batch b = golden_batch(
			&j->g, golden_name(&j->g, "s%lld.m%lld.", (long long)s, (long long)i),
			&here);
		b.train = true;
		b.step = (uint64_t)s;
		b.microbatch = (uint64_t)i;
		must(stage_begin(&j->m.slot, &b, &e), &e);
		must(stage_forward(&j->m.slot, &e), &e);
		must(stage_backward(&j->m.slot, &e), &e);
		loss += j->m.slot.loss;
		trained += here;
		stage_end(&j->m.slot);
	}
	must(stage_tie(&j->m.stage, &j->m.stage, &e), &e);
	*loss_p = loss / (double)trained;
	*norm_p = sqrt(golden_sqnorm(&j->m)) / (double)trained;
	/* rule 1 is the one that made the golden files */
	const struct lr_shape shape = { .cosine_min_lr_ratio = j->least };
	*rate_p = lr_at(j->curve, 1, j->rate, (uint64_t)s + 1, (uint64_t)j->steps,
			(uint64_t)j->warmup, &shape);
	double factor = j->clip > 0 ? fmin(1, j->clip / (*norm_p + 1e-6)) : 1;
	struct optim_step os = { .step = (uint64_t)s + 1,
				 .lr = (float)*rate_p,
				 .scale = (float)(factor / (double)trained) };
	const struct optim_work work = { j->m.stage.scratch, &j->host };
	for (size_t i = 0; i < j->m.stage.nparam; i++)
		if (param_is_trained(&j->m.stage.param[i]))
			must(optim_update(j->opt, &j->m.stage.param[i], &j->oc, &os, &work, &e),
			     &e);
}

/* Parameters after the last step. */
static double final_error(struct job *j)
{
	struct err e;
	double worst = 0;
	int seen = 0;
	for (size_t i = 0; i < j->m.stage.nparam; i++) {
		struct param *p = &j->m.stage.param[i];
		const char *at = strstr(p->name, ".lora_"), *name;
		name = at ? golden_name(&j->g, "final.%.*s.%c", (int)(at - p->name), p->name, at[6])
			  : golden_name(&j->g, "final.%s", p->name);
		if (!param_is_trained(p) || !golden_has(&j->g, name))
			continue;
		uint64_t n;
		const float *want = golden_f32(&j->g, name, &n);
		float *got = mem_array(n, 4);
		assert_non_null(got);
		must(param_download_f32(p, 0, (int64_t)n, got, &e), &e);
		double d = golden_relative(got, want, n);
		if (!(d <= 1e-4))
			fail_msg("%s after the last step: difference %g", p->name, d);
		worst = fmax(worst, d);
		mem_free(got);
		seen++;
	}
	assert_true(seen >= 5);
	return worst;
}

/* Returns the norm of the last gradient, which depends on every step before it. */
static double train(const char *name, bool recompute)
{
	struct job j;
	double worst_loss = 0, worst_norm = 0, worst_rate = 0, last = 0;
	job_open(&j, name, recompute);
	const double *loss = golden_f64(&j.g, "loss", NULL),
		     *norm = golden_f64(&j.g, "grad_norm", NULL),
		     *rate = golden_f64(&j.g, "lr", NULL);
	for (int64_t s = 0; s < j.steps; s++) {
		double l, n, r;
		step(&j, s, &l, &n, &r);
		double dl = fabs(l - loss[s]) / loss[s], dn = fabs(n - norm[s]) / norm[s],
		       dr = fabs(r - rate[s]) / rate[s];
		if (!(dl <= 1e-4 && dn <= 1e-3 && dr <= 1e-12))
			fail_msg("%s, step %lld: loss %.8g (expected %.8g), norm %.8g (%.8g), rate "
				 "%.8g (%.8g)",
				 name, (long long)s + 1, l, loss[s], n, norm[s], r, rate[s]);
		worst_loss = fmax(worst_loss, dl);
		worst_norm = fmax(worst_norm, dn);
		worst_rate = fmax(worst_rate, dr);
		last = n;
	}
	printf("%-20s loss %.2e  norm %.2e  rate %.2e  final %.2e\n", name, worst_loss, worst_norm,
	       worst_rate, final_error(&j));
	job_close(&j);
	return last;
}

/* Recomputing the layers gives the same bits. */
static void both_ways(const char *name)
{
	double kept = train(name, false), again = train(name, true);
	assert_memory_equal(&kept, &again, sizeof kept);
}

static void test_lora(void **state)
{
	(void)state;
	both_ways("train-lora");
}

static void test_lora_packed(void **state)
{
	(void)state;
	both_ways("train-lora-packed");
}

static void test_qlora(void **state)
{
	(void)state;
	train("train-qlora", false);
}

/* Adapters on router and experts, with the losses of routers. */
static void test_experts(void **state)
{
	(void)state;
	both_ways("train-experts-qwen3-moe");
	both_ways("train-experts-olmoe");
	both_ways("train-experts-mixtral");
	both_ways("train-experts-gpt-oss");
	train("train-experts-qwen2-moe", false);
	train("train-experts-qwen3_5-moe", true);
	train("train-experts-glm4-moe", true);
	train("train-experts-nf4", false);
}

static void test_full(void **state)
{
	(void)state;
	both_ways("train-full-adamw");
	train("train-full-sgd", false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lora),  cmocka_unit_test(test_lora_packed),
		cmocka_unit_test(test_qlora), cmocka_unit_test(test_experts),
		cmocka_unit_test(test_full),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
