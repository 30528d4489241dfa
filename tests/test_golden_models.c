/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden_models.c - every family against PyTorch: logits, loss and gradients of the tiny
 * models of tests/golden/models.
 *
 * The names in expect.safetensors are described at the top of scripts/golden/models.py, which makes
 * them. Computed here in float32 on the CPU backend. Logits are had in two ways: from the hidden
 * states of the training path, whose two sequences lie packed behind each other, with norm and head
 * in double on the host; and from generation, token by token over kept keys and values. */
#include "model/decoder.h"
#include "base/mem.h"
#include "file/model_file.h"
#include "support/golden.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER "tests/golden/models/"

static const struct row {
	const char *model, *expect;
	bool logits_only; /* no gradients are stored */
} models[] = {
	{ "llama2", "llama2", false },
	{ "llama3", "llama3", false },
	{ "llama31", "llama31", false },
	{ "llama-linear", "llama-linear", true },
	{ "smollm2", "smollm2", false },
	{ "tinyllama", "tinyllama", false },
	{ "mistral", "mistral", false },
	{ "mistral-full", "mistral-full", true },
	{ "qwen2", "qwen2", false },
	{ "qwen3", "qwen3", false },
	{ "llama-bias", "llama-bias", false },
	{ "qwen2-yarn", "qwen2-yarn", true },
	{ "granite", "granite", false },
	{ "olmo2", "olmo2", false },
	{ "smollm3", "smollm3", false },
	{ "olmo3", "olmo3", false },
	{ "exaone4", "exaone4", false },
	{ "exaone4-gguf", "exaone4-gguf", true },
	{ "ernie4_5", "ernie4_5", false },
	{ "seed_oss", "seed_oss", false },
	{ "ministral3", "ministral3", false },
	{ "qwen3_5", "qwen3_5", false },
	{ "qwen3_5-moe", "qwen3_5-moe", false },
	{ "qwen3-next", "qwen3-next", false },
	{ "gemma", "gemma", false },
	{ "gemma2", "gemma2", false },
	{ "gemma3", "gemma3", false },
	{ "gemma3-vision", "gemma3", true },
	{ "gemma4-vision", "gemma4", true },
	{ "mistral-vision", "mistral-full", true },
	{ "qwen2_5-vision", "qwen2", true },
	{ "qwen3-vision", "qwen3", true },
	{ "qwen3-moe-vision", "qwen3-moe-narrow", true },
	{ "lfm2", "lfm2", false },
	{ "lfm2-moe", "lfm2-moe", false },
	{ "granite4", "granite4", false },
	{ "lfm3", "lfm3", false },
	{ "qwen3_5-vision", "qwen3_5", true },
	{ "qwen3_5-moe-vision", "qwen3_5-moe", true },
	{ "gemma3-new", "gemma3-new", true },
	{ "gemma4", "gemma4", false },
	{ "gemma4-new", "gemma4-new", true },
	{ "gemma4-moe", "gemma4-moe", false },
	{ "phi3", "phi3", false },
	{ "phi4-mini", "phi4-mini", false },
	{ "glm4", "glm4", false },
	{ "glm", "glm", false },
	{ "llama-dynamic", "llama-dynamic", true },
	{ "gemma2-gguf", "gemma2-gguf", true },
	{ "qwen3_5-gguf", "qwen3_5-gguf", true },
	{ "qwen3_5-gguf.gguf", "qwen3_5-gguf", true },
	{ "qwen3_5-moe-gguf", "qwen3_5-moe-gguf", true },
	{ "qwen3_5-moe-gguf.gguf", "qwen3_5-moe-gguf", true },
	{ "gemma3-gguf", "gemma3-gguf", true },
	{ "qwen3-moe", "qwen3-moe", false },
	{ "olmoe", "olmoe", false },
	{ "mixtral", "mixtral", false },
	{ "gpt-oss", "gpt-oss", false }, /* MXFP4 */
	{ "gpt-oss-bf16", "gpt-oss", false },
	{ "gpt-oss.gguf", "gpt-oss", false },
	{ "qwen2-moe", "qwen2-moe", false },
	{ "qwen2-moe.gguf", "qwen2-moe", false },
	{ "glm4-moe", "glm4-moe", false },
	{ "glm4-moe.gguf", "glm4-moe", false },
	{ "ernie4_5-moe", "ernie4_5-moe", false },
	{ "ernie4_5-moe.gguf", "ernie4_5-moe", false },
	{ "glm4-moe-lite", "glm4-moe-lite", false },
	{ "glm4-moe-lite-yarn", "glm4-moe-lite-yarn", false },
	{ "deepseek-v2", "deepseek-v2", false },
	{ "qwen3-moe-mixed", "qwen3-moe-mixed", true },
	{ "qwen3-moe.gguf", "qwen3-moe", false },
	{ "olmoe.gguf", "olmoe", false },
	{ "mixtral.gguf", "mixtral", false },
	{ "granite.gguf", "granite", false },
	{ "olmo2.gguf", "olmo2", true },
	{ "olmo3.gguf", "olmo3", true },
	{ "exaone4-gguf.gguf", "exaone4-gguf", true },
	{ "ernie4_5.gguf", "ernie4_5", false },
	{ "seed_oss.gguf", "seed_oss", false },
	{ "lfm2.gguf", "lfm2", true },
	{ "lfm2-moe.gguf", "lfm2-moe", true },
	{ "granite4.gguf", "granite4", true },
	{ "gemma4.gguf", "gemma4", true },
	{ "gemma4-moe.gguf", "gemma4-moe", true },
	{ "smollm3-gguf", "smollm3-gguf", true },
	{ "smollm3-gguf.gguf", "smollm3-gguf", true },
	{ "gemma.gguf", "gemma", true },
	{ "gemma2-gguf.gguf", "gemma2-gguf", true },
	{ "gemma3-gguf.gguf", "gemma3-gguf", true },
	{ "phi3.gguf", "phi3", false },
	{ "phi4-mini.gguf", "phi4-mini", true },
	{ "glm4.gguf", "glm4", false },
	{ "smollm2-f32.gguf", "smollm2", false },
	{ "llama31-f16.gguf", "llama31", false },
	{ "smollm2-nf4-dq", "smollm2-nf4-dq", true },
	{ "llama2-nf4", "llama2-nf4", true },
};

/* Weights that are not trained themselves. */
static bool four_bits(const struct row *r)
{
	return !strcmp(r->model, "gpt-oss") || !strcmp(r->model, "gpt-oss.gguf");
}

static void begin(const struct row *r, struct golden *g, struct golden_model *m,
		  const struct stage_options *o)
{
	char path[128];
	snprintf(path, sizeof path, FOLDER "%s/expect.safetensors", r->expect);
	golden_open(g, path);
	g->path = golden_name(g, "%s", path);
	snprintf(path, sizeof path, FOLDER "%s", r->model);
	golden_model_open(m, path, o);
}

static void end(struct golden *g, struct golden_model *m)
{
	golden_model_close(m);
	golden_close(g);
}

static void check(const char *model, const char *what, double error, double most)
{
	printf("%-18s %-34s %.2e\n", model, what, error);
	if (!(error <= most))
		fail_msg("%s: %s: difference %g, at most %g is allowed", model, what, error, most);
}

static float *file_matrix(struct golden_model *m, const char *name, int64_t rows, int64_t cols)
{
	struct err e;
	const struct model_tensor *t = model_file_find(m->file, name);
	if (!t)
		fail_msg("no tensor %s", name);
	assert_true(t->count == (uint64_t)(rows * cols));
	float *p = mem_array(t->count, 4);
	assert_non_null(p);
	must(model_file_read_f32(m->file, t, 0, t->shape[0], p, &e), &e);
	return p;
}

/* Logits (N,V) from hidden states (N,C), norm and head in double. */
static void head(struct golden_model *m, const float *h, int64_t n, float *logits)
{
	int64_t width = m->cfg.hidden, vocab = m->cfg.vocab;
	float *norm = file_matrix(m, final_norm_name(&m->cfg), 1, width);
	float *table = file_matrix(m, m->cfg.tied ? "model.embed_tokens.weight" : "lm_head.weight",
				   vocab, width);
	for (int64_t i = 0; i < n; i++) {
		double square = 0;
		for (int64_t c = 0; c < width; c++)
			square += (double)h[i * width + c] * h[i * width + c];
		double scale = 1 / sqrt(square / (double)width + m->cfg.norm_eps);
		for (int64_t v = 0; v < vocab; v++) {
			double sum = 0;
			for (int64_t c = 0; c < width; c++)
				sum += h[i * width + c] * scale * (norm[c] + m->cfg.norm_plus) *
				       table[v * width + c];
			float l = (float)sum * model_factor(m->cfg.logit_scale);
			if (m->cfg.logit_cap > 0)
				l = (float)(m->cfg.logit_cap * tanh(l / m->cfg.logit_cap));
			logits[i * vocab + v] = l;
		}
	}
	mem_free(norm);
	mem_free(table);
}

static void packed_logits(const struct row *r)
{
	struct golden g;
	struct golden_model m;
	struct err e;
	int64_t trained;
	begin(r, &g, &m, &(struct stage_options){ .act = DT_F32 });
	struct stage_batch b = golden_batch(&g, "", &trained);
	const float *want = golden_f32(&g, "logits", NULL), *loss = golden_f32(&g, "loss", NULL);
	float *h = mem_array((size_t)(b.n * m.cfg.hidden), 4),
	      *logits = mem_array((size_t)(b.n * m.cfg.vocab), 4);
	assert_true(h && logits);
	must(stage_begin(&m.slot, &b, &e), &e);
	must(stage_forward(&m.slot, &e), &e);
	must(dev_download(h, m.slot.out, (size_t)(b.n * m.cfg.hidden) * 4, &e), &e);
	head(&m, h, b.n, logits);
	check(r->model, "logits, packed",
	      golden_distance(logits, want, (uint64_t)(b.n * m.cfg.vocab)), 1e-4);
	check(r->model, "loss", fabs(m.slot.loss / (double)trained - loss[0]) / loss[0], 1e-5);
	stage_end(&m.slot);
	mem_free(h);
	mem_free(logits);
	end(&g, &m);
}

/* The first sequence token by token, the others with half of their tokens at once. */
static void generated_logits(const struct row *r)
{
	struct golden g;
	struct golden_model m;
	struct err e;
	int64_t trained;
	begin(r, &g, &m, &(struct stage_options){ .act = DT_F32 });
	struct stage_batch b = golden_batch(&g, "", &trained);
	const float *want = golden_f32(&g, "logits", NULL);
	double worst = 0;
	for (int64_t s = 0; s < b.nseq; s++) {
		struct kv_cache kv;
		int64_t at = b.start[s], stop = b.start[s + 1], some = s ? (stop - at) / 2 : 1;
		must(kv_init(&kv, &m.stage, stop - at, &e), &e);
		while (at < stop) {
			must(kv_step(&kv, b.id + at, DEV_NONE, some, &e), &e);
			at += some;
			some = 1;
			double d = golden_distance(kv.logits, want + (at - 1) * m.cfg.vocab,
						   (uint64_t)m.cfg.vocab);
			if (!(d <= worst))
				worst = d;
		}
		kv_release(&kv);
	}
	check(r->model, "logits, generated", worst, 1e-4);
	end(&g, &m);
}

static void run(struct golden_model *m, const struct stage_batch *b)
{
	struct err e;
	must(stage_begin(&m->slot, b, &e), &e);
	must(stage_forward(&m->slot, &e), &e);
	must(stage_backward(&m->slot, &e), &e);
}

/* The gradient of the mean loss; the stage adds up that of the sum. */
static float *gradient(struct param *p, int64_t trained)
{
	struct err e;
	size_t n = (size_t)param_count(p);
	float *v = mem_array(n, 4);
	assert_non_null(v);
	must(dev_download(v, DEV_REF(p->grad, 0), n * 4, &e), &e);
	for (size_t i = 0; i < n; i++)
		v[i] /= (float)trained;
	return v;
}

/* Asks for the losses of routers that are part of what is expected; the loss with them. */
static const float *with_routers(struct golden *g, struct stage_options *o)
{
	if (!golden_has(g, "router_loss"))
		return golden_f32(g, "loss", NULL);
	o->router_loss = *golden_f32(g, "router_loss", NULL);
	o->router_z = *golden_f32(g, "router_z", NULL);
	return golden_f32(g, "loss.routers", NULL);
}

static void full_gradients(const struct row *r, bool recompute)
{
	struct golden g;
	struct golden_model m;
	int64_t trained;
	double worst = 0, worst_norm = 0;
	int seen = 0;
	begin(r, &g, &m,
	      &(struct stage_options){ .act = DT_F32, .train_all = true, .recompute = recompute });
	const float *loss = with_routers(&g, &m.stage.opt);
	struct stage_batch b = golden_batch(&g, "", &trained);
	b.train = true;
	run(&m, &b);
	struct err e;
	must(stage_tie(&m.stage, &m.stage, &e), &e);
	check(r->model, "loss, training", fabs(m.slot.loss / (double)trained - loss[0]) / loss[0],
	      1e-5);
	for (size_t i = 0; i < m.stage.nparam; i++) {
		struct param *p = &m.stage.param[i];
		const char *name = golden_name(&g, "grad.%s", p->name);
		if (p->replica || !golden_has(&g, name))
			continue;
		uint64_t n;
		const float *want = golden_f32(&g, name, &n),
			    *norm = golden_f32(&g, golden_name(&g, "gradnorm.%s", p->name), NULL);
		assert_true(n <= (uint64_t)param_count(p));
		float *got = gradient(p, trained);
		double square = 0;
		for (int64_t k = 0; k < param_count(p); k++)
			square += (double)got[k] * got[k];
		worst = fmax(worst, golden_relative(got, want, n));
		worst_norm = fmax(worst_norm, fabs(sqrt(square) - *norm) / *norm);
		if (!(golden_relative(got, want, n) <= 1e-4 &&
		      fabs(sqrt(square) - *norm) / *norm <= 1e-4))
			fail_msg("%s: gradient of %s: difference %g, norm %g instead of %g",
				 r->model, p->name, golden_relative(got, want, n), sqrt(square),
				 *norm);
		mem_free(got);
		seen++;
	}
	assert_true(seen >= 7);
	check(r->model, recompute ? "gradients, recomputed" : "gradients", worst, 1e-4);
	check(r->model, "their norms", worst_norm, 1e-4);
	stage_end(&m.slot);
	end(&g, &m);
}

static void lora_gradients(const struct row *r, const char *set, bool recompute)
{
	static const enum linear attention[] = {
		LIN_Q,          LIN_K,         LIN_V,       LIN_O,        LIN_QKV,
		LIN_DELTA_QKV,  LIN_DELTA_Z,   LIN_DELTA_B, LIN_DELTA_A,  LIN_DELTA_OUT,
		LIN_DELTA_QKVZ, LIN_DELTA_BA,  LIN_Q_A,     LIN_Q_B,      LIN_KV_A,
		LIN_KV_B,       LIN_HEAD_GATE, LIN_CONV_IN, LIN_CONV_OUT, LIN_ATTN_OUT
	};
	static const char *const all[] = { "all-linear" };
	struct model_config cfg;
	struct golden g;
	struct golden_model m;
	struct err e;
	int64_t trained;
	double worst = 0;
	size_t seen = 0;
	char path[128];
	snprintf(path, sizeof path, FOLDER "%s/expect.safetensors", r->expect);
	golden_open(&g, path);
	struct stage_options o = { .act = DT_F32, .recompute = recompute };
	float rank = *golden_f32(&g, "lora_r", NULL);
	o.lora.r = (int64_t)rank;
	o.lora.scale = lora_scale(o.lora.r, *golden_f32(&g, "lora_alpha", NULL), false);
	snprintf(path, sizeof path, FOLDER "%s", r->model);
	golden_model_config(path, &cfg);
	if (set[0] == 'a')
		must(lora_targets(&cfg, all, 1, &o.lora, &e), &e);
	size_t adapters = 0;
	for (size_t i = 0; i < ARRAY_LEN(attention); i++)
		o.lora.target[attention[i]] = model_has_linear(&cfg, attention[i]);
	for (enum linear l = 0; l < LIN_COUNT; l++)
		for (int64_t i = 0; i < cfg.layers && o.lora.target[l]; i++)
			adapters += (size_t)linear_copies(&cfg, i, l);
	with_routers(&g, &o);
	golden_close(&g);
	begin(r, &g, &m, &o);
	struct stage_batch b = golden_batch(&g, "", &trained);
	b.train = true;
	for (size_t i = 0; i < m.stage.nparam; i++) {
		const char *name = m.stage.param[i].name, *at = strstr(name, ".lora_");
		if (!at)
			continue;
		uint64_t n;
		const float *v = golden_f32(
			&g, golden_name(&g, "lora.%.*s.%c", (int)(at - name), name, at[6]), &n);
		golden_set(&m, name, v, n);
	}
	run(&m, &b);
	const float *loss = golden_f32(&g, golden_name(&g, "%s.loss", set), NULL);
	check(r->model, golden_name(&g, "loss, adapters on %s", set),
	      fabs(m.slot.loss / (double)trained - *loss) / *loss, 1e-5);
	for (size_t i = 0; i < m.stage.nparam; i++) {
		struct param *p = &m.stage.param[i];
		const char *at = strstr(p->name, ".lora_");
		assert_true(p->trainable == (at != NULL));
		if (!at)
			continue;
		uint64_t n;
		const float *want = golden_f32(&g,
					       golden_name(&g, "%s.grad.%.*s.%c", set,
							   (int)(at - p->name), p->name, at[6]),
					       &n);
		assert_true(n == (uint64_t)param_count(p));
		float *got = gradient(p, trained);
		double d = golden_relative(got, want, n);
		if (!(d <= 1e-4))
			fail_msg("%s: gradient of %s: difference %g", r->model, p->name, d);
		worst = fmax(worst, d);
		mem_free(got);
		seen++;
	}
	assert_true(seen == 2 * adapters);
	check(r->model, golden_name(&g, "gradients, adapters on %s", set), worst, 1e-4);
	stage_end(&m.slot);
	end(&g, &m);
}

static void test_logits(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(models); i++)
		packed_logits(&models[i]);
}

static void test_generation(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(models); i++)
		generated_logits(&models[i]);
}

static void test_full_gradients(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(models); i++)
		for (int again = 0; again < 2 && !models[i].logits_only && !four_bits(&models[i]);
		     again++)
			full_gradients(&models[i], again);
}

static void test_lora_gradients(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(models); i++) {
		for (int again = 0; again < 2 && !models[i].logits_only; again++) {
			lora_gradients(&models[i], "qkvo", again);
			lora_gradients(&models[i], "all", again);
		}
	}
}

/* Folders that scripts/golden/random_models.py has made: TEST_MODELS names where they are. */
static void test_other_folders(void **state)
{
	(void)state;
	const char *dir = getenv("TEST_MODELS");
	DIR *d = dir ? opendir(dir) : NULL;
	double worst = 0;
	int seen = 0;
	for (struct dirent *f; d && (f = readdir(d));) {
		char path[600];
		struct golden g;
		struct golden_model m;
		struct err e;
		int64_t trained;
		if (f->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "%s/%s/expect.safetensors", dir, f->d_name);
		golden_open(&g, path);
		g.path = golden_name(&g, "%.200s", path);
		snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
		golden_model_open(&m, path, &(struct stage_options){ .act = DT_F32 });
		struct stage_batch b = golden_batch(&g, "", &trained);
		must(stage_begin(&m.slot, &b, &e), &e);
		must(stage_forward(&m.slot, &e), &e);
		const float loss = *golden_f32(&g, "loss", NULL);
		const double off = fabs(m.slot.loss / (double)trained - loss) / loss;
		worst = fmax(worst, off);
		check(f->d_name, "loss", off, 2e-5);
		stage_end(&m.slot);
		end(&g, &m);
		seen++;
	}
	if (d)
		closedir(d);
	if (!dir) {
		printf("no folder of random models is named (TEST_MODELS)\n");
		return;
	}
	printf("%d folders, largest difference of a loss %.2e\n", seen, worst);
	assert_true(seen > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_logits),         cmocka_unit_test(test_generation),
		cmocka_unit_test(test_full_gradients), cmocka_unit_test(test_lora_gradients),
		cmocka_unit_test(test_other_folders),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
