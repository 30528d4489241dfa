/* SPDX-License-Identifier: Apache-2.0 */
/* pissa.c - see pissa.h. The base is made by merging an adapter with -B. */
#include "train/pissa.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "file/lock.h"
#include "job/job.h"
#include "runtime/loftq.h"
#include "runtime/merge.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MARK "pissa.json"
enum { MARK_MOST = 1 << 16 };

struct places {
	const char *dir, *base, *first, *minus;
};

static const char *inside(struct arena *a, const struct config *c, const char *name)
{
	char path[4096];
	size_t n = strlen(c->output_dir);
	while (n > 1 && c->output_dir[n - 1] == '/')
		n--;
	const int k = snprintf(path, sizeof path, "%.*s-pissa%s", (int)n, c->output_dir, name);
	return k > 0 && (size_t)k < sizeof path ? arena_strdup(a, path) : NULL;
}

static int name_places(const struct config *c, struct arena *a, struct places *p, struct err *e)
{
	*p = (struct places){ inside(a, c, ""), inside(a, c, "/base"), inside(a, c, "/first"),
			      inside(a, c, "/minus") };
	return p->dir && p->base && p->first && p->minus
		       ? 0
		       : err_set(e, ERR_USAGE, "output_dir is too long a path");
}

static void add_list(struct buf *b, const char *key, const struct opt_list *l)
{
	buf_addf(b, ", \"%s\": [", key);
	for (size_t i = 0; i < l->n; i++) {
		buf_adds(b, i ? ", " : "");
		json_quote(b, l->item[i], strlen(l->item[i]));
	}
	buf_adds(b, "]");
}

/* What base and first adapter follow from. */
static int describe(const struct job *j, struct buf *b, struct err *e)
{
	const struct config *c = j->cfg;
	buf_adds(b, "{\"base_model\": ");
	json_quote(b, c->base_model, strlen(c->base_model));
	buf_addf(b, ", \"base_hash\": \"%s\", \"lora_r\": %lld, \"lora_alpha\": ", j->base_hash,
		 (long long)c->lora_r);
	json_number(b, c->lora_alpha);
	buf_addf(b, ", \"use_rslora\": %s, \"lora_target_linear\": %s",
		 c->use_rslora ? "true" : "false", c->lora_target_linear ? "true" : "false");
	add_list(b, "lora_target_modules", &c->lora_target_modules);
	add_list(b, "peft_layers_to_transform", &c->peft_layers_to_transform);
	add_list(b, "lora_rank_pattern", &c->lora_rank_pattern);
	add_list(b, "lora_alpha_pattern", &c->lora_alpha_pattern);
	buf_adds(b, "}\n");
	return buf_ok(b, e);
}

/* 1: they are there, of these inputs. */
static int are_there(const struct places *p, const struct buf *want, struct err *e)
{
	char path[4096];
	struct stat st;
	struct buf b = BUF_INIT;
	struct err none = { 0 }; /* without it they are not whole */
	if (lstat(p->dir, &st) < 0)
		return 0;
	snprintf(path, sizeof path, "%s/" MARK, p->dir);
	const size_t n = buf_read_file(&b, path, MARK_MOST, &none) < 0 ? 0 : b.n;
	const bool same = n == want->n && !memcmp(b.p, want->p, n);
	buf_release(&b);
	if (same)
		return 1;
	if (!n && !lstat(p->minus, &st))
		return 0; /* a run was killed while it made them */
	return err_set(e, ERR_USAGE,
		       "%s is there already and %s: remove it, or choose another output_dir",
		       p->dir, n ? "was made of another model, rank or modules" : "is not whole");
}

static int decompose(struct job *j, const struct peft_pair *p, double *left_p, struct err *e)
{
	char name[256];
	snprintf(name, sizeof name, "%s.weight", p->module);
	const struct model_tensor *t = model_file_find(j->file, name);
	snprintf(name, sizeof name, "%s.lora_A.weight", p->module);
	struct trained_param *a = job_param(j, name);
	snprintf(name, sizeof name, "%s.lora_B.weight", p->module);
	struct trained_param *b = job_param(j, name);
	if (!t || !a || !b || t->ndim != 2 || t->shape[0] != p->out || t->shape[1] != p->in)
		return err_set(e, ERR_INTERNAL, "%s: there is no matrix %s",
			       model_file_path(j->file), p->module);
	if (t->kind != STORE_PLAIN)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: %s is in 4 bits or in blocks: peft_init_lora_weights: pissa "
			       "changes the base, and needs it in F32, F16 or BF16",
			       model_file_path(j->file), t->name);
	float *w = mem_array(t->count, sizeof *w);
	if (!w)
		return err_nomem(e, t->count * 4, t->name);
	int rc = model_file_read_f32(j->file, t, 0, p->out, w, e);
	if (rc >= 0)
		rc = loftq_divide(w, p->out, p->in, p->r, p->scale, a->value, b->value, left_p, e);
	mem_free(w);
	model_file_drop(j->file, t);
	return rc;
}

static void negate(struct job *j)
{
	for (size_t i = 0; i < j->nparam; i++)
		for (uint64_t k = 0;
		     strstr(j->param[i].name, ".lora_B.") && k < (uint64_t)j->param[i].count; k++)
			j->param[i].value[k] = -j->param[i].value[k];
}

static int make(struct job *j, const struct places *p, const struct buf *mark,
		const volatile sig_atomic_t *stop, struct arena *a, struct err *e)
{
	struct peft_adapter ad;
	double sum = 0, left;
	TRY(job_alloc_state(j, e));
	TRY(job_adapter(j, a, &ad, e));
	log_info("pissa: the largest singular values of %zu matrices go from the base, which is "
		 "written to %s, into the adapters",
		 ad.npair, p->base);
	for (size_t i = 0; i < ad.npair; i++) {
		if (stop && *stop)
			return err_set(e, ERR_CANCELLED, "interrupted while pissa made the base");
		TRY(decompose(j, &ad.pair[i], &left, e));
		sum += left;
	}
	log_info("pissa: the base keeps %.1f %% of them, in squares",
		 100 * sum / (double)(ad.npair ? ad.npair : 1));
	TRY(dir_remove(p->base, e));
	TRY(dir_make_result(p->first, e));
	ad.cfg.inside = NULL; /* the new base is the language model alone */
	TRY(peft_write(p->first, &ad, e));
	negate(j);
	TRY(peft_write(p->minus, &ad, e));
	const struct merge_options o = { .model = j->cfg->base_model,
					 .adapter = p->minus,
					 .out = p->base,
					 .as_base = true,
					 .stop = stop };
	TRY(merge(&o, e));
	return atomic_write_in(p->dir, MARK, mark->p, mark->n, e);
}

/* The folder `minus` is there while they are made; its lock says by whom. */
static int make_alone(struct job *j, const struct places *p, const struct buf *mark,
		      const volatile sig_atomic_t *stop, struct arena *a, struct err *e)
{
	char path[4096], stale[200];
	struct file_lock lock = FILE_LOCK_INIT;
	struct err ignored = { 0 };
	TRY(dir_make_result(p->dir, e));
	TRY(dir_make_result(p->minus, e));
	snprintf(path, sizeof path, "%.4000s/lock", p->minus);
	if (file_lock_take(path, &lock, stale, sizeof stale, e) < 0)
		return err_prefix(e, "another run makes the base of peft_init_lora_weights: pissa");
	const int there = are_there(p, mark, e); /* made meanwhile */
	const int rc = there ? there : make(j, p, mark, stop, a, e);
	dir_remove(rc < 0 && !there ? p->dir : p->minus, &ignored);
	file_lock_release(&lock);
	return rc;
}

int pissa_begin(const struct config **c_p, enum dtype act, const volatile sig_atomic_t *stop,
		struct arena *a, struct err *e)
{
	struct places p;
	struct buf mark = BUF_INIT;
	struct job j = { 0 };
	const struct config *c = *c_p;
	if (!c->peft_init_lora_weights || strcmp(c->peft_init_lora_weights, "pissa") != 0)
		return 0;
	struct config *changed = arena_alloc(a, sizeof *changed);
	if (!changed)
		return err_nomem(e, sizeof *changed, "a configuration");
	TRY(name_places(c, a, &p, e));
	TRY(job_open(c, act, NULL, &j, e));
	int rc = job_hash_base(&j, e);
	if (rc >= 0)
		rc = describe(&j, &mark, e);
	if (rc >= 0)
		rc = are_there(&p, &mark, e);
	if (rc == 0)
		rc = make_alone(&j, &p, &mark, stop, a, e);
	buf_release(&mark);
	job_close(&j);
	if (rc < 0)
		return rc;
	*changed = *c;
	changed->base_model = p.base;
	changed->pissa_first = p.first;
	*c_p = changed;
	return 0;
}
