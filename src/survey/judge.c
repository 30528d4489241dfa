/* SPDX-License-Identifier: Apache-2.0 */
/* judge.c - see judge.h. */
#include "survey/judge.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/stat.h"
#include "file/atomic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB 1073741824.0

int judge_init(struct judge *j, const struct job_plan *p, struct err *e)
{
	*j = (struct judge){ .job_plan = p, .predicted = NAN, .measured = NAN };
	for (int k = 0; k < p->plan.stages; k++)
		j->members += p->plan.stage[k].members;
	j->member = mem_array((size_t)j->members, sizeof *j->member);
	if (!j->member)
		return err_nomem(e, (size_t)j->members * sizeof *j->member, "members");
	for (int k = 0, at = 0; k < p->plan.stages; k++)
		for (int i = 0; i < p->plan.stage[k].members; i++, at++) {
			j->member[at].stage = k;
			j->member[at].planned = &p->plan.stage[k].member[i];
		}
	return 0;
}

void judge_release(struct judge *j)
{
	mem_free(j->seconds);
	mem_free(j->member);
	*j = (struct judge){ 0 };
}

double judge_predict(const struct judge *j, uint64_t tokens)
{
	const struct profile *p = &j->job_plan->profile;
	return j->job_plan->plan.simulated_ms / 1e3 * (double)tokens /
	       ((double)p->global_batch * p->sequence_len);
}

int judge_step(struct judge *j, uint64_t tokens, double seconds, const struct train_stage *row,
	       struct err *e)
{
	if (!j->warm) {
		j->warm = true;
		return 0;
	}
	if (!mem_grow(&j->seconds, &j->cap, 2 * (j->steps + 1), sizeof *j->seconds))
		return err_nomem(e, 2 * (j->steps + 1) * sizeof *j->seconds, "step times");
	j->seconds[2 * j->steps] = judge_predict(j, tokens);
	j->seconds[2 * j->steps++ + 1] = seconds;
	for (int k = 0; k < j->members; k++) {
		j->member[k].busy += row[k].busy;
		j->member[k].wait += row[k].wait;
		j->member[k].memory = row[k].mem_peak;
		j->member[k].host = row[k].host_peak;
	}
	return 0;
}

/* The median of every second number from `first` on. */
static double median(const struct judge *j, size_t first, double *scratch)
{
	size_t n = j->steps;
	for (size_t i = 0; i < n; i++)
		scratch[i] = j->seconds[2 * i + first];
	return stat_median(scratch, n);
}

bool judge_end(struct judge *j)
{
	double *scratch = j->steps ? mem_array(j->steps, sizeof *scratch) : NULL;
	if (!scratch)
		return false;
	j->predicted = median(j, 0, scratch);
	j->measured = median(j, 1, scratch);
	mem_free(scratch);
	for (int k = 0; k < j->members; k++) {
		j->member[k].busy /= (double)j->steps;
		j->member[k].wait /= (double)j->steps;
	}
	return true;
}

static double percent_off(double predicted, double measured)
{
	return measured > 0 ? 100 * (predicted / measured - 1) : 0;
}

/* The member whose computing or waiting differs most from the prediction. */
static void what_differed(const struct judge *j, struct buf *out)
{
	const struct job_plan *p = j->job_plan;
	double most = 0;
	char text[300] = "";
	for (int k = 0; k < j->members; k++) {
		const struct judge_member *m = &j->member[k];
		const struct plan_member *x = m->planned;
		double busy = x->busy * j->predicted, off = fabs(m->busy - busy);
		if (off <= most)
			continue;
		most = off;
		snprintf(text, sizeof text,
			 "stage %d ('%s') computed %.0f ms of each step where %.0f ms were "
			 "predicted%s",
			 m->stage, p->profile.device[x->device].id, m->busy * 1e3, busy * 1e3,
			 off > 0.5 * busy || off > 0.5 * m->busy
				 ? "; 'heteroshard profile --refresh CONFIG' measures it again"
				 : "");
	}
	if (most > 0)
		buf_addf(out, "what differed most: %s\n", text);
}

void judge_text(const struct judge *j, struct buf *out)
{
	const struct job_plan *p = j->job_plan;
	double off = percent_off(j->predicted, j->measured);
	buf_addf(out, "predicted %.1f ms a step, measured %.1f ms: %+.1f %%\n", j->predicted * 1e3,
		 j->measured * 1e3, off);
	for (int k = 0; k < j->members; k++) {
		const struct judge_member *m = &j->member[k];
		const struct plan_member *x = m->planned;
		double gib = (double)m->memory / GIB;
		buf_addf(out,
			 "memory of stage %d ('%s'): predicted %.3f GiB, measured %.3f GiB: %+.1f "
			 "%%\n",
			 m->stage, p->profile.device[x->device].id, x->memory_gib, gib,
			 percent_off(x->memory_gib, gib));
		const double host = (double)m->host / GIB;
		if (x->host_gib > 0 || host > 0)
			buf_addf(out,
				 "memory of its host: predicted %.3f GiB, measured %.3f GiB: %+.1f "
				 "%%\n",
				 x->host_gib, host, percent_off(x->host_gib, host));
	}
	if (fabs(off) > 10)
		what_differed(j, out);
}

static void put(struct buf *b, const char *key, double v)
{
	buf_addf(b, "\"%s\": ", key);
	json_number(b, v);
}

int judge_write(const struct judge *j, const char *dir, struct err *e)
{
	const struct job_plan *p = j->job_plan;
	struct buf b = BUF_INIT;
	buf_addc(&b, '{');
	put(&b, "predicted_seconds", j->predicted);
	buf_adds(&b, ", ");
	put(&b, "measured_seconds", j->measured);
	buf_adds(&b, ", ");
	put(&b, "error_percent", percent_off(j->predicted, j->measured));
	buf_adds(&b, ",\n \"stages\": [");
	for (int k = 0; k < j->members; k++) {
		const struct judge_member *m = &j->member[k];
		const struct plan_member *x = m->planned;
		const char *id = p->profile.device[x->device].id;
		const struct {
			const char *key;
			double v;
		} fact[] = { { "stage", m->stage },
			     { "predicted_gib", x->memory_gib },
			     { "measured_gib", (double)m->memory / GIB },
			     { "predicted_host_gib", x->host_gib },
			     { "measured_host_gib", (double)m->host / GIB },
			     { "predicted_busy_seconds", x->busy * j->predicted },
			     { "measured_busy_seconds", m->busy },
			     { "measured_wait_seconds", m->wait } };
		buf_adds(&b, k ? ",\n  {\"id\": " : "\n  {\"id\": ");
		json_quote(&b, id, strlen(id));
		for (size_t i = 0; i < sizeof fact / sizeof *fact; i++) {
			buf_adds(&b, ", ");
			put(&b, fact[i].key, fact[i].v);
		}
		buf_addc(&b, '}');
	}
	buf_adds(&b, "\n ]}\n");
	int rc = buf_ok(&b, e);
	if (rc >= 0)
		rc = atomic_write_in(dir, "prediction.json", b.p, b.n, e);
	buf_release(&b);
	return rc;
}
