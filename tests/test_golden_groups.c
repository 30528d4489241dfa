/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden_groups.c - a step of real workers in groups, with uneven shares and very uneven
 * numbers of trained tokens, against PyTorch in one process: losses, norm, gradients, and the
 * weights after AdamW with clipping.
 *
 * The microbatches and what PyTorch makes of them are in tests/golden/groups
 * (scripts/golden/groups.py). Tolerances: 1e-5 of losses and norm, 2e-5 of the largest number of a
 * gradient and of a parameter. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "config/config.h"
#include "coord/session.h"
#include "job/job.h"
#include "support/golden.h"
#include "file/atomic.h"
#include "train/round.h"
#include "worker/serve.h"

enum { MOST = 5, MICROBATCHES = 7 };

static struct err err;
#define MUST(what)                                                                                 \
	do {                                                                                       \
		if ((what) < 0)                                                                    \
			fail_msg("line %d: %s: %s", __LINE__, #what, err.msg);                     \
	} while (0)

/* The rules of case.json. */
static const char *const rules =
	"adapter: none\ncompute_dtype: float32\nwire_dtype: float32\nsequence_len: 64\n"
	"gradient_accumulation_steps: 7\nmicro_batch_size: 1\noptimizer: adamw\n"
	"learning_rate: 0.01\nadam_beta1: 0.9\nadam_beta2: 0.999\nadam_epsilon: 1e-8\n"
	"weight_decay: 0.01\nmax_grad_norm: 1.0\nmax_steps: 1\n";
static const double rate = 1e-2, clip = 1, beta1 = 0.9;

struct mixture {
	const char *name, *schedule, *reducer;
	enum sum_order order;
	int stages, members[2], share[MOST];
};

static const struct mixture mixtures[] = {
	{ "alone", "1f1b", "direct", SUM_EXACT, 1, { 1 }, { 1 } },
	{ "3 members, exact", "1f1b", "direct", SUM_EXACT, 1, { 3 }, { 1, 4, 2 } },
	{ "3 members, direct", "1f1b", "direct", SUM_FAST, 1, { 3 }, { 1, 4, 2 } },
	{ "3 members, ring", "gpipe", "ring", SUM_FAST, 1, { 3 }, { 5, 1, 1 } },
	{ "3 members, tree", "1f1b", "tree", SUM_FAST, 1, { 3 }, { 3, 0, 2 } },
	{ "2 to 3, exact", "1f1b", "direct", SUM_EXACT, 2, { 2, 3 }, { 1, 3, 2, 1, 3 } },
};

struct played {
	struct net *net;
	pthread_t thread;
	char id[8], address[32];
	int rc;
	struct err e;
};

static void *work(void *ctx)
{
	struct played *w = ctx;
	const struct serve o = { .net = w->net, .id = w->id, .device = "cpu", .join_timeout = 60 };
	w->rc = worker_serve(&o, &w->e);
	net_close(w->net, 2);
	return NULL;
}

static struct config *configuration(const char *model, const char *dir)
{
	char text[2000], *over[] = { NULL };
	struct config *c;
	int n = snprintf(text, sizeof text,
			 "base_model: tests/golden/models/%s\n"
			 "datasets: [{path: %s/data.jsonl, type: completion}]\n%s"
			 "output_dir: %s/run\ncache_dir: %s/cache\n",
			 model, dir, rules, dir, dir);
	if (config_parse(CONFIG_TRAIN, text, (size_t)n, "golden", 0, over, &c, &err) < 0)
		fail_msg("%s", err.msg);
	return c;
}

/* The largest difference as a share of the largest number that was expected. */
static double rows_differ(struct golden *g, const char *kind, const struct trained_param *p,
			  const float *got, double scale, double most)
{
	const char *name = golden_name(g, "%s.%s", kind, p->name);
	uint64_t n;
	if (!golden_has(g, name))
		return 0;
	const float *want = golden_f32(g, name, &n);
	float *v = mem_array(n, sizeof *v);
	assert_true(v && n <= p->count);
	for (uint64_t i = 0; i < n; i++)
		v[i] = (float)((double)got[i] * scale);
	const double d = golden_relative(v, want, n);
	mem_free(v);
	if (!(d <= most))
		fail_msg("%s: difference %g", name, d);
	return d;
}

static void step_on(struct job *job, struct golden *g, const struct mixture *k)
{
	static int number;
	struct played w[MOST] = { 0 };
	struct seat_spec seat[MOST];
	static struct placement place;
	static struct rounds r;
	struct arena a = ARENA_INIT;
	struct session *s;
	const char *device[MOST] = { "cpu", "cpu", "cpu", "cpu", "cpu" };
	int order[MOST], n = 0;
	double sum, sqnorm, worst = 0, far = 0, grads = 0, weights = 0;
	uint64_t trained;
	for (int i = 0; i < k->stages; i++)
		n += k->members[i];
	for (int i = 0; i < n; i++) {
		snprintf(w[i].id, sizeof w[i].id, "w%d", i);
		snprintf(w[i].address, sizeof w[i].address, "golden-%d", number++);
		seat[i] = (struct seat_spec){
			.kind = SEAT_REMOTE, .id = w[i].id, .host = "here", .device = "cpu"
		};
		snprintf(seat[i].address, sizeof seat[i].address, "%s", w[i].address);
		MUST(net_open("loop", &(struct net_options){ 0 }, &w[i].net, &err));
		MUST(net_listen(w[i].net, w[i].address, NULL, &err));
		assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
		order[i] = i;
	}
	const struct session_options o = { .seat = seat, .n = n, .join_timeout = 60 };
	MUST(session_join(job, &o, &s, &err));
	place = (struct placement){ .stages = k->stages,
				    .chunks = 1,
				    .first = { 0, k->stages > 1 ? 1 : job->model.layers,
					       job->model.layers },
				    .members = k->members,
				    .share = k->share,
				    .device = device,
				    .schedule = k->schedule,
				    .reduce_order = k->order,
				    .reducer = k->reducer };
	MUST(session_assign(s, &place, order, &err));
	MUST(rounds_init(&r, s, &(struct round_options){ 0 }, &a, &err));
	MUST(session_begin(s, &place, false, &err));
	const struct patience patience = { .stall = 60, .silent = 60 };
	session_set_patience(s, &patience);

	round_begin(&r, ROUND_TRAIN, MICROBATCHES, 1, 1);
	for (uint32_t i = 0; i < MICROBATCHES; i++) {
		int64_t count;
		const struct stage_batch b = golden_batch(g, golden_name(g, "m%u.", i), &count);
		const struct microbatch mb = { .n = (uint32_t)b.n,
					       .nseq = (uint32_t)b.nseq,
					       .id = b.id,
					       .pos = b.pos,
					       .label = b.label,
					       .start = b.start,
					       .trained = (uint32_t)count };
		MUST(round_send(&r, i, &mb, &err));
	}
	MUST(round_losses(&r, &sum, &trained, &err));
	MUST(round_norms(&r, &sqnorm, &err));
	const double *loss = golden_f64(g, "loss", NULL), *counts = golden_f64(g, "trained", NULL);
	double all = 0;
	for (int i = 0; i < MICROBATCHES; i++) {
		worst = fmax(worst, fabs(r.loss[i].sum / loss[i] - 1));
		all += counts[i];
	}
	assert_true((double)trained == all && worst <= 1e-5);
	const double norm = sqrt(sqnorm) / all, factor = fmin(1, clip / (norm + 1e-6));
	far = fabs(norm / golden_f64(g, "grad_norm", NULL)[0] - 1);
	if (!(far <= 1e-5))
		fail_msg("%s: norm %.9g, %.9g was expected", k->name, norm,
			 golden_f64(g, "grad_norm", NULL)[0]);
	const struct step_message step = {
		.apply = true,
		.s = { .step = 1, .lr = (float)rate, .scale = (float)(factor / all) },
		.lr = rate
	};
	MUST(round_step(&r, &step, &err));
	MUST(round_end(&r, &err));
	MUST(session_pull_state(s, ++r.number, NULL, &err));
	for (size_t i = 0; i < job->nparam; i++) {
		const struct trained_param *p = &job->param[i];
		assert_string_equal(p->kind[0].name, "exp_avg");
		/* the first moment after one step is (1 - beta1) of the clipped gradient */
		grads = fmax(grads, rows_differ(g, "grad", p, p->state[0], 1 / (1 - beta1) / factor,
						2e-5));
		weights = fmax(weights, rows_differ(g, "step", p, p->value, 1, 2e-5));
	}
	printf("  %-20s loss %.1e  norm %.1e  gradients %.1e  weights %.1e\n", k->name, worst, far,
	       grads, weights);
	session_close(s, NULL);
	for (int i = 0; i < n; i++) {
		pthread_join(w[i].thread, NULL);
		if (w[i].rc < 0)
			fail_msg("%s", w[i].e.msg);
	}
	rounds_release(&r);
	arena_release(&a);
}

static void groups_make_the_gradients_of_pytorch(const char *model)
{
	char dir[] = "/tmp/hs-golden-XXXXXX", path[200], line[100];
	struct golden g;
	struct job job;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/data.jsonl", dir);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	for (int i = 0; i < 14; i++) { /* a job needs data; its own batches are not used */
		snprintf(line, sizeof line, "{\"prompt\": \"%d\", \"completion\": \"%d\"}\n", i, i);
		fputs(line, f);
	}
	fclose(f);
	struct config *c = configuration(model, dir);
	snprintf(path, sizeof path, "tests/golden/groups/expect-%s.safetensors", model);
	golden_open(&g, path);
	MUST(job_open(c, DT_F32, NULL, &job, &err));
	printf("%s\n", model);
	for (size_t i = 0; i < ARRAY_LEN(mixtures); i++)
		step_on(&job, &g, &mixtures[i]);
	job_close(&job);
	golden_close(&g);
	config_free(c);
	MUST(dir_remove(dir, &err));
}

static void tied(void **state)
{
	(void)state;
	groups_make_the_gradients_of_pytorch("smollm2");
}

static void untied(void **state)
{
	(void)state;
	groups_make_the_gradients_of_pytorch("llama31");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(tied), cmocka_unit_test(untied) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
