/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - see metrics.h. */
#include "report/metrics.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/open.h"
#include "file/lines.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct series {
	double *v;
	size_t cap;
};

struct metrics {
	int fd;
	char *path;
	struct buf line; /* lines that are not in the file yet */
	bool waits;      /* and that was said */
	struct series step, loss, lr, val_step, val_loss;
	size_t nstep, nval;
	int64_t back; /* lines of later steps are to go; INT64_MAX: none are */
};

static bool push_value(struct series *s, size_t n, double v)
{
	if (!mem_grow(&s->v, &s->cap, n + 1, sizeof *s->v))
		return false;
	s->v[n] = v;
	return true;
}

static int add_step(struct metrics *m, double step, double loss, double lr, struct err *e)
{
	if (!push_value(&m->step, m->nstep, step) || !push_value(&m->loss, m->nstep, loss) ||
	    !push_value(&m->lr, m->nstep, lr))
		return err_nomem(e, m->nstep * sizeof(double), "the loss curve");
	m->nstep++;
	return 0;
}

static int add_val(struct metrics *m, double step, double loss, struct err *e)
{
	if (!push_value(&m->val_step, m->nval, step) || !push_value(&m->val_loss, m->nval, loss))
		return err_nomem(e, m->nval * sizeof(double), "the loss curve");
	m->nval++;
	return 0;
}

static double read_number(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	return json_is_number(v) ? json_number_value(v) : NAN;
}

/* An earlier run's lines up to step `last`, and events, stay; the curve takes them up. */
struct earlier {
	struct metrics *m;
	int64_t last;
};

static int take_line(void *ctx, const char *line, size_t n, struct err *e)
{
	const struct earlier *x = ctx;
	json_t *o = NULL;
	struct err ignored;
	json_parse_text_in(line, n, x->m->path, JSON_MEMORY_LINE, &o, &ignored);
	const json_t *step = json_object_get(o, "step");
	const bool event = json_object_get(o, "event") != NULL; /* that has happened */
	int stays = json_is_integer(step) && (event || json_integer_value(step) <= x->last), rc = 0;
	if (stays && json_object_get(o, "val_loss"))
		rc = add_val(x->m, json_number_value(step), read_number(o, "val_loss"), e);
	else if (stays && !event)
		rc = add_step(x->m, json_number_value(step), read_number(o, "loss"),
			      read_number(o, "learning_rate"), e);
	json_decref(o);
	return rc < 0 ? rc : stays;
}

static int cut_back(struct metrics *m, int64_t last, struct err *e)
{
	return lines_keep(m->path, take_line, &(struct earlier){ m, last }, e);
}

int metrics_open(const char *dir, int64_t resume_step, struct metrics **m_p, struct err *e)
{
	struct metrics *m = mem_zalloc(sizeof *m);
	struct buf path = BUF_INIT;
	int rc;
	if (!m)
		return err_nomem(e, sizeof *m, "the metrics");
	m->fd = -1;
	m->back = INT64_MAX;
	buf_init(&m->line);
	buf_addf(&path, "%s/metrics.jsonl", dir);
	m->path = buf_detach(&path);
	if (!m->path) {
		rc = err_nomem(e, strlen(dir), "a path");
		goto out;
	}
	if (resume_step >= 0)
		TRYOUT(cut_back(m, resume_step, e));
	TRYOUT(open_write_err(m->path, resume_step < 0 ? OPEN_EMPTY : OPEN_APPEND, 0666, &m->fd,
			      e));
	*m_p = m;
out:
	if (rc < 0)
		metrics_close(m);
	return rc;
}

/* Writes every line that waits. What the disk does not take stays for the next time, and the file
 * ends with a whole line. */
static int flush_lines(struct metrics *m, struct err *e)
{
	TRY(buf_ok(&m->line, e));
	off_t end = lseek(m->fd, 0, SEEK_END);
	ssize_t n = write(m->fd, m->line.p, m->line.n);
	if (n == (ssize_t)m->line.n) {
		buf_reset(&m->line);
		m->waits = false;
		return 0;
	}
	int errnum = n < 0 ? errno : ENOSPC;
	if (n > 0 && end >= 0 && ftruncate(m->fd, end) < 0)
		return err_sys(e, errno, "cannot write %s", m->path);
	if (!m->waits)
		log_warn("%s cannot be written now (%s): its lines are kept and written later",
			 m->path, strerror(errnum));
	m->waits = true;
	return 0;
}

static int cut(struct metrics *m, struct err *e)
{
	TRY(flush_lines(m, e));
	m->nstep = m->nval = 0;
	struct buf kept = BUF_INIT;
	int rc = cut_back(m, m->back, e);
	/* and those that could not be written */
	if (rc >= 0)
		rc = lines_copy(&m->line, take_line, &(struct earlier){ m, m->back }, &kept, e);
	if (rc < 0) {
		buf_release(&kept);
		return rc;
	}
	buf_release(&m->line);
	m->line = kept;
	/* the file may be another one now */
	close(m->fd);
	m->fd = -1;
	return open_write_err(m->path, OPEN_APPEND, 0666, &m->fd, e);
}

/* What metrics_go_back() has put off. */
static void take_back(struct metrics *m)
{
	struct err e = { 0 };
	if (m->back == INT64_MAX)
		return;
	if (cut(m, &e) < 0)
		log_warn("%s; lines of steps that are computed again stay there", e.msg);
	m->back = INT64_MAX;
}

void metrics_close(struct metrics *m)
{
	if (!m)
		return;
	struct err ignored;
	if (m->fd >= 0)
		take_back(m);
	if (m->fd >= 0 && m->line.n)
		flush_lines(m, &ignored);
	if (m->fd >= 0)
		close(m->fd);
	struct series *s[] = { &m->step, &m->loss, &m->lr, &m->val_step, &m->val_loss };
	for (size_t i = 0; i < ARRAY_LEN(s); i++)
		mem_free(s[i]->v);
	buf_release(&m->line);
	mem_free(m->path);
	mem_free(m);
}

static void put_number(struct buf *b, const char *key, double v)
{
	if (isnan(v))
		return;
	buf_addf(b, ", \"%s\": ", key);
	json_number(b, v);
}

static void put_rewards(struct buf *b, const char *head, const struct metrics_rewards *r)
{
	const struct {
		const char *name;
		double v;
	} row[] = { { "chosen", r->chosen },
		    { "rejected", r->rejected },
		    { "margins", r->margin },
		    { "accuracies", r->accuracy } };
	char key[48];
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		snprintf(key, sizeof key, "%srewards/%s", head, row[i].name);
		put_number(b, key, row[i].v);
	}
}

int metrics_add(struct metrics *m, const struct metrics_step *s, struct err *e)
{
	struct buf *b = &m->line;
	take_back(m);
	buf_addf(b, "{\"step\": %lld, \"loss\": ", (long long)s->step);
	json_number(b, s->loss);
	put_number(b, "learning_rate", s->learning_rate);
	put_number(b, "grad_norm", s->grad_norm);
	put_number(b, "token_accuracy", s->token_accuracy);
	put_number(b, "epoch", s->epoch);
	buf_addf(b, ", \"tokens\": %lld", (long long)s->tokens);
	put_number(b, "tokens_per_second", s->tokens_per_second);
	put_number(b, "seconds", s->seconds);
	put_number(b, "predicted_seconds", s->predicted_seconds);
	put_number(b, "memory_peak", s->memory_peak);
	put_number(b, "expert_hits", s->expert_hits);
	if (s->rewards)
		put_rewards(b, "", s->rewards);
	if (s->loss_scale > 0)
		put_number(b, "loss_scale", s->loss_scale);
	buf_adds(b, s->skipped ? ", \"skipped\": true}\n" : "}\n");
	TRY(flush_lines(m, e));
	return add_step(m, (double)s->step, s->loss, s->learning_rate, e);
}

static void put_parts(struct buf *b, const struct metrics_val *v)
{
	if (v->parts)
		buf_adds(b, ", \"val_datasets\": {");
	for (size_t i = 0; i < v->parts; i++) {
		buf_adds(b, i ? ", " : "");
		json_quote(b, v->part[i].name, strlen(v->part[i].name));
		buf_adds(b, ": {\"loss\": ");
		json_number(b, v->part[i].loss);
		if (!v->rewards)
			put_number(b, "perplexity", exp(v->part[i].loss));
		buf_addc(b, '}');
	}
	buf_adds(b, v->parts ? "}" : "");
}

int metrics_eval(struct metrics *m, int64_t step, const struct metrics_val *v, struct err *e)
{
	struct buf *b = &m->line;
	take_back(m);
	buf_addf(b, "{\"step\": %lld, \"val_loss\": ", (long long)step);
	json_number(b, v->loss);
	if (v->rewards) {
		put_rewards(b, "val_", v->rewards);
	} else {
		put_number(b, "val_perplexity", exp(v->loss));
		put_number(b, "val_token_accuracy", v->token_accuracy);
	}
	put_parts(b, v);
	buf_adds(b, "}\n");
	TRY(flush_lines(m, e));
	return add_val(m, (double)step, v->loss, e);
}

int metrics_event(struct metrics *m, int64_t step, const char *event, const char *text,
		  struct err *e)
{
	struct buf *b = &m->line;
	buf_addf(b, "{\"step\": %lld, \"event\": ", (long long)step);
	json_quote(b, event, strlen(event));
	buf_adds(b, ", \"text\": ");
	json_quote(b, text, strlen(text));
	buf_adds(b, "}\n");
	return flush_lines(m, e);
}

void metrics_go_back(struct metrics *m, int64_t step)
{
	m->back = step < m->back ? step : m->back;
	while (m->nstep && m->step.v[m->nstep - 1] > (double)step)
		m->nstep--;
	while (m->nval && m->val_step.v[m->nval - 1] > (double)step)
		m->nval--;
}

struct metrics_curve metrics_curve(const struct metrics *m)
{
	return (struct metrics_curve){ m->step.v,     m->loss.v,     m->lr.v, m->nstep,
				       m->val_step.v, m->val_loss.v, m->nval };
}
