/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_moments.c - workers and coordinators that end at moments that are chosen, where what a
 * run counts exists once: between an evaluation and the state that knows of it, between a step and
 * its checkpoint. The run then ends as one in which nothing happened: its adapter, its best step,
 * its last step.
 *
 * A coordinator is a process of this program, which ends or ends others from within its sink. */
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "config/config.h"
#include "support/child.h"
#include "support/crew_site.h"
#include "train/train.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* What ended: `step` steps, as the coordinator of `run` wrote it down. */
struct ended {
	int code; /* of the error; 0: it went well */
	uint64_t step, best, parts;
	bool early;
	char why[400];
};

struct run;
typedef void (*moment_fn)(struct run *r, uint64_t step);

/* One coordinator. Its moments are functions that are called in it. */
struct run {
	const struct site *s;
	const char *name;     /* "one", "two" */
	const char *more[12]; /* ended by NULL */
	const struct process *w;
	moment_fn step, eval, part;
	uint64_t loses;     /* the step at which loses_one() loses one, once */
	const char *leaver; /* it is asked to leave after a step */
	double (*rate)(uint64_t step, double rate);
	uint64_t parts;
	uint64_t fails; /* the line of this step cannot be written; 0: all can */
	bool done;      /* of a moment that comes once */
	volatile sig_atomic_t stop;
};

static void kill_worker(struct run *r, int i) { kill(r->w[i].pid, SIGKILL); }

static int on_step(void *ctx, const struct train_step *s, struct err *e)
{
	struct run *r = ctx;
	if (r->step)
		r->step(r, s->step);
	return s->step != r->fails
		       ? 0
		       : err_set(e, ERR_INPUT, "the line of step %d is not written", (int)r->fails);
}

static int on_eval(void *ctx, const struct train_eval *v, struct err *e)
{
	struct run *r = ctx;
	(void)e;
	fprintf(stderr, "evaluation after step %llu: %.6f\n", (unsigned long long)v->step, v->loss);
	if (r->eval)
		r->eval(r, v->step);
	return 0;
}

static void on_part(void *ctx, const char *what, uint64_t done, uint64_t all)
{
	struct run *r = ctx;
	(void)all;
	if (strcmp(what, "computing the reference") != 0)
		return;
	r->parts++;
	if (r->part)
		r->part(r, done);
}

static double on_rate(void *ctx, uint64_t step, double rate)
{
	const struct run *r = ctx;
	return r->rate ? r->rate(step, rate) : rate;
}

static bool on_leave(void *ctx, char *id, size_t cap)
{
	struct run *r = ctx;
	if (!r->leaver)
		return false;
	snprintf(id, cap, "%s", r->leaver);
	r->leaver = NULL;
	kill_worker(r, 3);
	return true;
}

/* In a process of its own. */
static void coordinate(struct run *r, const char *result)
{
	char path[600], *words[16];
	int n = 0;
	struct config *c;
	struct err e = { 0 };
	struct train_result res = { 0 };
	snprintf(path, sizeof path, "%s/%s.yaml", r->s->t.dir, r->name);
	for (; r->more[n]; n++)
		words[n] = mem_strdup(r->more[n]);
	const struct train_sink sink = { .ctx = r,
					 .step = on_step,
					 .eval = on_eval,
					 .part = on_part,
					 .rate = on_rate,
					 .leave = on_leave };
	const struct train_options o = { .stop = &r->stop };
	int rc = config_load(path, n, words, &c, &e);
	if (rc >= 0)
		rc = train_run(c, &o, &sink, &res, &e);
	const struct ended end = { .code = rc < 0 ? e.code : 0,
				   .step = res.step,
				   .best = res.best,
				   .parts = r->parts,
				   .early = res.stopped_early };
	FILE *f = fopen(result, "w");
	if (f) {
		fprintf(f, "%d %llu %llu %llu %d %.300s\n", end.code, (unsigned long long)end.step,
			(unsigned long long)end.best, (unsigned long long)end.parts, end.early,
			rc < 0 ? e.msg : "-");
		fclose(f);
	}
	_exit(0);
}

static struct process begin(struct run *r)
{
	static int serial;
	struct process p;
	char result[600];
	snprintf(p.log, sizeof p.log, "%.200s/run-%d", r->s->t.dir, serial++);
	snprintf(result, sizeof result, "%.500s.result", p.log);
	fflush(stdout);
	fflush(stderr);
	p.pid = fork();
	assert_true(p.pid >= 0);
	if (p.pid)
		return p;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!freopen(p.log, "w", stderr) || !freopen(p.log, "a", stdout))
		_exit(126);
	setvbuf(stderr, NULL, _IONBF, 0);
	coordinate(r, result);
	_exit(125);
}

static struct ended end_of(const struct process *p)
{
	struct ended r = { 0 };
	char path[600];
	unsigned long long step, best, parts;
	int early;
	must_succeed(p);
	snprintf(path, sizeof path, "%.500s.result", p->log);
	char *text = site_text(path);
	if (sscanf(text, "%d %llu %llu %llu %d %399[^\n]", &r.code, &step, &best, &parts, &early,
		   r.why) != 6)
		fail_msg("%s: '%s'", path, text);
	r.step = step;
	r.best = best;
	r.parts = parts;
	r.early = early;
	mem_free(text);
	return r;
}

static struct ended run(struct run *r)
{
	const struct process p = begin(r);
	const struct ended e = end_of(&p);
	if (getenv("HS_SHOW"))
		show_log(&p);
	return e;
}

/* A run still goes on; waits a little. */
static void not_over(const struct process *p, const char *why)
{
	char path[600];
	snprintf(path, sizeof path, "%.500s.result", p->log);
	char *text = site_text(path);
	if (text[0]) {
		show_log(p);
		fail_msg("%s: %s", why, text);
	}
	mem_free(text);
	usleep(20000);
}

static void same_adapter(const struct site *s)
{
	size_t n, m;
	char *a = tiny_read(&s->t, "one/adapter_model.safetensors", &n),
	     *b = tiny_read(&s->t, "two/adapter_model.safetensors", &m);
	if (n != m || memcmp(a, b, n))
		fail_msg("another adapter");
	mem_free(a);
	mem_free(b);
}

static void make(struct site *s, const char *extra)
{
	site_make(s);
	site_configuration(s, "one", 0, extra);
	site_configuration(s, "two", WORKERS, extra);
}

static void end_workers(const struct process *w)
{
	for (int i = 0; i < WORKERS; i++) {
		kill(w[i].pid, SIGCONT);
		kill_now(&w[i]);
	}
}

/* Good until step 4, then the wrong way: that step is the best one. */
static double worse_after_4(uint64_t step, double rate) { return step <= 4 ? rate : -rate; }

#define COMMON "peer_timeout=5", "join_timeout=60", "reduce_order=exact", "save_steps=0"

static void loses_one(struct run *r, uint64_t step)
{
	if (step != r->loses || r->done)
		return;
	r->done = true;
	kill_worker(r, 1);
}

/* ---- the evaluation after the last step ---- */

/* The last step is the best one, which only the evaluation after it knows; then a worker is lost,
 * while sample_prompts are answered. */
static void the_last_evaluation(void **state)
{
	struct site s;
	struct process w[WORKERS];
	(void)state;
	make(&s, "eval_steps: 2\nsample_prompts: ['a, b']\nsample_max_tokens: 8\n"
		 "load_best_model_at_end: true\n");
	struct run one = { .s = &s,
			   .name = "one",
			   .more = { COMMON, "max_steps=5", "save_total_limit=0" } };
	const struct ended a = run(&one);
	assert_int_equal(a.code, 0);
	assert_int_equal(a.best, 5);
	start_workers(&s, w);
	struct run two = { .s = &s,
			   .name = "two",
			   .w = w,
			   .eval = loses_one,
			   .loses = 5,
			   .more = { COMMON, "max_steps=5", crew_plan[1] } };
	const struct ended b = run(&two);
	if (b.code)
		fail_msg("%s", b.why);
	assert_int_equal(b.best, 5);
	same_adapter(&s);
	end_workers(w);
	tiny_remove(&s.t);
}

/* ---- what a new coordinator takes over ---- */

static void dies_after_step_4(struct run *r, uint64_t step)
{
	(void)r;
	if (step == 4)
		raise(SIGKILL);
}

/* The coordinator ends before the evaluation that is due; the next one does it, and loses a worker
 * before there is another state: the run goes back to one that has been evaluated. */
static void an_owed_evaluation(void **state)
{
	struct site s;
	struct process w[WORKERS];
	(void)state;
	make(&s, "coordinator_timeout: 60\neval_steps: 2\nearly_stopping_patience: 2\n");
	struct run one = {
		.s = &s, .name = "one", .rate = worse_after_4, .more = { COMMON, "max_steps=16" }
	};
	const struct ended a = run(&one);
	assert_int_equal(a.code, 0);
	assert_int_equal(a.best, 4);
	assert_true(a.early && a.step == 8);
	start_workers(&s, w);
	struct run two = one;
	two.name = "two";
	two.w = w;
	two.more[5] = crew_plan[1];
	two.more[6] = "snapshot_steps=100";
	two.step = dies_after_step_4;
	const struct process p = begin(&two);
	assert_int_equal(finished(&p, PATIENCE), 1000 + SIGKILL);
	two.step = loses_one;
	two.loses = 5;
	const struct ended b = run(&two);
	if (b.code)
		fail_msg("%s", b.why);
	assert_int_equal(b.best, 4);
	assert_true(b.early);
	assert_int_equal(b.step, 8);
	same_adapter(&s);
	end_workers(w);
	tiny_remove(&s.t);
}

static void dies_while_step_4_is_saved(struct run *r, uint64_t step)
{
	if (step != 4)
		return;
	kill(r->w[0].pid, SIGSTOP); /* its part of the state is waited for */
	alarm(3);
}

/* The coordinator ends when its workers know that step 4 is the best one, and before that is on the
 * disk: the next one saves it. */
static void the_best_is_not_saved(void **state)
{
	struct site s;
	struct process w[WORKERS];
	(void)state;
	make(&s, "coordinator_timeout: 60\neval_steps: 2\nload_best_model_at_end: true\n");
	struct run one = {
		.s = &s, .name = "one", .rate = worse_after_4, .more = { COMMON, "max_steps=8" }
	};
	const struct ended a = run(&one);
	assert_int_equal(a.code, 0);
	assert_int_equal(a.best, 4);
	start_workers(&s, w);
	struct run two = one;
	two.name = "two";
	two.w = w;
	two.more[5] = crew_plan[0];
	two.eval = dies_while_step_4_is_saved;
	struct process p = begin(&two);
	assert_int_equal(finished(&p, PATIENCE), 1000 + SIGALRM);
	kill(w[0].pid, SIGCONT);
	until(&w[0], "waiting up to");
	two.eval = NULL;
	p = begin(&two);
	const struct ended b = end_of(&p);
	if (b.code) {
		show_log(&p);
		fail_msg("%s", b.why);
	}
	assert_int_equal(b.best, 4);
	same_adapter(&s);
	end_workers(w);
	tiny_remove(&s.t);
}

/* ---- steps that are not finite, evaluations that are none ---- */

/* The first step makes parameters so large that nothing after it is finite. */
static double far_away(uint64_t step, double rate) { return step == 1 ? 1e18 : rate; }

static void stops_after_step_3(struct run *r, uint64_t step) { r->stop = step == 3; }

/* Steps in a row that were not finite are counted over a resume, and over a loss. */
static void steps_in_a_row(void **state)
{
	static const char said[] = "4 steps in a row were not finite, beginning with ";
	struct site s;
	struct process w[WORKERS];
	(void)state;
	make(&s, "");
	struct run one = { .s = &s,
			   .name = "one",
			   .rate = far_away,
			   .more = { COMMON, "max_steps=20", "max_nonfinite_steps=4" } };
	const struct ended a = run(&one);
	if (!strstr(a.why, said) || !strstr(a.why, "in step 2,"))
		fail_msg("%s", a.why);
	one.more[6] = "overwrite_output_dir=true";
	one.step = stops_after_step_3;
	assert_int_equal(run(&one).code, 0);
	one.more[6] = "resume_from_checkpoint=latest";
	one.step = NULL;
	const struct ended b = run(&one);
	if (!strstr(b.why, "4 steps in a row were not finite, beginning with step 2"))
		fail_msg("%s", b.why);
	start_workers(&s, w);
	struct run two = { .s = &s,
			   .name = "two",
			   .w = w,
			   .rate = far_away,
			   .step = loses_one,
			   .loses = 3,
			   .more = { COMMON, "max_steps=20", "max_nonfinite_steps=4",
				     "snapshot_steps=1", crew_plan[1] } };
	const struct ended c = run(&two);
	if (!strstr(c.why, said) || !strstr(c.why, "in step 2,"))
		fail_msg("%s", c.why);
	end_workers(w);
	tiny_remove(&s.t);
}

/* Evaluations of which none had a finite loss are counted over a resume. */
static void evaluations_without_a_best(void **state)
{
	struct site s;
	(void)state;
	make(&s, "eval_steps: 1\nearly_stopping_patience: 4\n");
	struct run one = { .s = &s,
			   .name = "one",
			   .rate = far_away,
			   .step = stops_after_step_3,
			   .more = { COMMON, "max_steps=20", "max_nonfinite_steps=20" } };
	assert_int_equal(run(&one).code, 0);
	one.more[6] = "resume_from_checkpoint=latest";
	one.step = NULL;
	const struct ended a = run(&one);
	assert_int_equal(a.code, 0);
	assert_int_equal(a.best, 0);
	assert_int_equal(a.step, 4);
	assert_true(a.early);
	tiny_remove(&s.t);
}

/* ---- a save that failed ---- */

static void blocks_saving(struct run *r, uint64_t step)
{
	char path[600];
	snprintf(path, sizeof path, "%s/two/checkpoints", r->s->t.dir);
	if (step == 4)
		site_put(r->s, "two/checkpoints", "", 0600);
	if (step != 5)
		return;
	unlink(path);
	kill_worker(r, 1);
}

/* The state that could not be saved is saved when the run has to end. */
static void saved_at_the_end(void **state)
{
	struct site s;
	struct process w[WORKERS];
	(void)state;
	make(&s, "");
	start_workers(&s, w);
	struct run two = { .s = &s,
			   .name = "two",
			   .w = w,
			   .step = blocks_saving,
			   .more = { COMMON, "save_steps=4", "max_steps=20", "min_workers=4",
				     "rejoin_timeout=1", "snapshot_steps=100", crew_plan[0] } };
	const struct ended a = run(&two);
	if (a.code != ERR_NET || !strstr(a.why, "min_workers"))
		fail_msg("%d %s", a.code, a.why);
	assert_true(run_says(&s, "two", "checkpoints/step-000004/trainer_state.json", "\"step\""));
	no_torn_checkpoint(&s, "two");
	end_workers(w);
	tiny_remove(&s.t);
}

/* The run ends with an error that is nobody's loss: the newest snapshot, which was in memory only,
 * becomes a checkpoint. */
static void a_snapshot_is_saved_at_the_end(void **state)
{
	struct site s;
	struct process w[WORKERS];
	(void)state;
	make(&s, "");
	start_workers(&s, w);
	struct run two = { .s = &s,
			   .name = "two",
			   .w = w,
			   .fails = 5,
			   .more = { COMMON, "save_steps=100", "max_steps=8", "snapshot_steps=2",
				     crew_plan[0] } };
	const struct ended a = run(&two);
	if (a.code != ERR_INPUT || !strstr(a.why, "the line of step 5"))
		fail_msg("%d %s", a.code, a.why);
	assert_true(run_says(&s, "two", "checkpoints/step-000004/trainer_state.json", "\"step\""));
	no_torn_checkpoint(&s, "two");
	end_workers(w);
	tiny_remove(&s.t);
}

/* ---- who leaves, who waits ---- */

static void leaves_after_step_2(struct run *r, uint64_t step)
{
	char path[64];
	if (step == 2 && !r->done) {
		r->done = true;
		r->leaver = "c";
	}
	if (step != 12)
		return;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)r->w[2].pid);
	for (int k = 0; k < 2000; k++) {
		char *text = site_text(path);
		const bool gone = !text[0] || strstr(text, ") Z ");
		mem_free(text);
		if (gone)
			return;
		usleep(10000);
	}
	fprintf(stderr, "it has not left\n");
}

/* One wants to leave, and another one is lost while the state is collected for that: it leaves all
 * the same, afterwards. */
static void leaves_while_one_is_lost(void **state)
{
	struct site s;
	struct process w[WORKERS];
	(void)state;
	make(&s, "");
	struct run one = { .s = &s, .name = "one", .more = { COMMON, "max_steps=12" } };
	assert_int_equal(run(&one).code, 0);
	start_workers(&s, w);
	struct run two = { .s = &s,
			   .name = "two",
			   .w = w,
			   .step = leaves_after_step_2,
			   .more = { COMMON, "max_steps=12", crew_plan[0] } };
	const struct process p = begin(&two);
	const struct ended b = end_of(&p);
	if (b.code || says(&p, "it has not left")) {
		show_log(&p);
		fail_msg("%s", b.why);
	}
	assert_int_equal(finished(&w[2], PATIENCE), 0);
	w[2] = start_worker(&s, 2);
	same_adapter(&s);
	end_workers(w);
	tiny_remove(&s.t);
}

static void until_it_is_there(struct run *r, uint64_t step)
{
	char path[600];
	(void)step;
	usleep(20000);
	snprintf(path, sizeof path, "%s/there", r->s->t.dir);
	r->stop = !access(path, F_OK);
}

/* A spare worker ends, and is started again, while nobody needs it: it is met again. */
static void a_spare_one_comes_again(void **state)
{
	struct site s;
	struct process w[WORKERS];
	char text[1200];
	size_t n = 0;
	(void)state;
	make(&s, "");
	start_workers(&s, w);
	for (int i = 0; i < WORKERS; i++)
		n += (size_t)snprintf(text + n, sizeof text - n,
				      "%s{id: %c, ip: 127.0.0.%d, port: %d, public_key: '%s'%s",
				      i ? ", " : "workers=[", 'a' + i, i + 2, s.port + 1 + i,
				      s.key.pub, i == 3 ? ", spare: true}]" : "}");
	struct run two = { .s = &s,
			   .name = "two",
			   .w = w,
			   .step = until_it_is_there,
			   .more = { COMMON, "max_steps=600", text,
				     "shard_plan=[{id: a, start: 0, end: 2}, {id: [b, c], start: "
				     "2, end: 6}]" } };
	const struct process p = begin(&two);
	while (!says(&p, "evaluation after step 0"))
		not_over(&p, "it did not begin");
	kill_now(&w[3]);
	w[3] = start_worker(&s, 3);
	while (!says(&w[3], "has joined"))
		not_over(&p, "it was not met");
	site_put(&s, "there", "", 0600);
	assert_int_equal(end_of(&p).code, 0);
	end_workers(w);
	tiny_remove(&s.t);
}

static void loses_one_then_stops(struct run *r, uint64_t done)
{
	if (r->done) /* a loss and a signal are looked for a few times a second */
		usleep(50000);
	if (done == 1 && !r->done)
		kill_worker(r, 1);
	else if (done == 1)
		r->stop = 1;
	r->done = true;
}

/* Ctrl-C while the reference is computed, after a worker was lost in it. */
static void stopped_after_a_loss(void **state)
{
	struct site s;
	struct process w[WORKERS];
	char data[600];
	(void)state;
	make(&s, "adapter: none\n");
	tiny_preferences(&s.t, PREFER_PAIRS);
	snprintf(data, sizeof data,
		 "datasets=[{path: %s/preferences.jsonl, type: passthrough.default}]", s.t.dir);
	start_workers(&s, w);
	struct run two = { .s = &s,
			   .name = "two",
			   .w = w,
			   .part = loses_one_then_stops,
			   .more = { COMMON, "max_steps=60", "rl=dpo", "learning_rate=0.0001", data,
				     crew_plan[1] } };
	const struct process p = begin(&two);
	const struct ended a = end_of(&p);
	if (a.code != ERR_CANCELLED || !strstr(a.why, "while the reference was computed")) {
		show_log(&p);
		fail_msg("%d %s, after %d parts", a.code, a.why, (int)a.parts);
	}
	end_workers(w);
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	/* as many as the workers have: "Matrix products" in docs/kernels.md */
	one_thread_each(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_last_evaluation),
		cmocka_unit_test(an_owed_evaluation),
		cmocka_unit_test(the_best_is_not_saved),
		cmocka_unit_test(steps_in_a_row),
		cmocka_unit_test(evaluations_without_a_best),
		cmocka_unit_test(saved_at_the_end),
		cmocka_unit_test(a_snapshot_is_saved_at_the_end),
		cmocka_unit_test(leaves_while_one_is_lost),
		cmocka_unit_test(a_spare_one_comes_again),
		cmocka_unit_test(stopped_after_a_loss),
	};
	const char *only = getenv("HS_ONLY"); /* one test, by name */
	if (only)
		cmocka_set_test_filter(only);
	site_program(argv[0]);
	return cmocka_run_group_tests_name("train_moments", tests, NULL, NULL);
}
