/* SPDX-License-Identifier: Apache-2.0 */
/* state_files.c - see state_files.h. */
#include "job/state_files.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "runtime/merge_fused.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATH_MOST = 4096 };

static const char *const file_name[] = { "model.safetensors", "optimizer.safetensors" };

/* ---- what is in a file ---- */

struct specs {
	struct st_spec *spec; /* [n]; user: the array in memory */
	size_t n;
	struct arena names;
};

static void specs_release(struct specs *s)
{
	mem_free(s->spec);
	arena_release(&s->names);
}

static struct st_spec value_spec(const struct job *j, const struct trained_param *p)
{
	struct st_spec s = { .name = p->name, .dtype = DT_F32, .user = p->value };
	memcpy(s.shape, p->dim, sizeof p->dim);
	s.ndim = model_file_shape(&j->model, p->name, p->ndim, s.shape);
	return s;
}

/* A state that has a number for each of the parameter has its shape, another one is a row. */
static struct st_spec state_spec(const struct trained_param *p, int k, const char *name)
{
	const bool shaped = p->kind[k].count == p->count;
	return (struct st_spec){ .name = name,
				 .dtype = p->kind[k].dtype,
				 .ndim = shaped ? p->ndim : 1,
				 .shape = { shaped ? p->dim[0] : (int64_t)p->kind[k].count,
					    p->dim[1] },
				 .user = p->state[k] };
}

static int list_states(const struct job *j, struct specs *s, struct err *e)
{
	for (size_t i = 0; i < j->nparam; i++)
		for (int k = 0; k < j->param[i].states; k++) {
			char name[320];
			snprintf(name, sizeof name, "%s.%s", j->param[i].name,
				 j->param[i].kind[k].name);
			const char *kept = arena_strdup(&s->names, name);
			if (!kept)
				return err_nomem(e, sizeof name, "a name");
			s->spec[s->n++] = state_spec(&j->param[i], k, kept);
		}
	return 0;
}

/* In the order of the parameters, and of a parameter's states: place_of(). */
static int list_specs(const struct job *j, enum state_file which, struct specs *s, struct err *e)
{
	const size_t most = j->nparam * (which == STATE_VALUES ? 1 : PARAM_STATES) + 1;
	*s = (struct specs){ .spec = mem_array(most, sizeof *s->spec), .names = ARENA_INIT };
	int rc = s->spec ? 0 : err_nomem(e, most * sizeof *s->spec, "the trained tensors");
	for (size_t i = 0; which == STATE_VALUES && i < j->nparam && rc >= 0; i++)
		s->spec[s->n++] = value_spec(j, &j->param[i]);
	if (which == STATE_STATES && rc >= 0)
		rc = list_states(j, s, e);
	if (rc < 0)
		specs_release(s);
	return rc;
}

/* ---- collecting ---- */

static int path_in(char out[PATH_MOST], const char *dir, const char *name, struct err *e)
{
	if (snprintf(out, PATH_MOST, "%s/%s", dir, name) >= PATH_MOST)
		return err_set(e, ERR_INPUT, "%s: the path is too long", dir);
	return 0;
}

static int begin_file(struct state_files *f, struct job *j, enum state_file which, struct err *e)
{
	char path[PATH_MOST];
	struct specs s;
	TRY(path_in(path, f->dir, file_name[which], e));
	TRY(list_specs(j, which, &s, e));
	int rc = st_out_begin(path, s.spec, s.n, &f->out[which], e);
	specs_release(&s);
	return rc;
}

int state_files_begin(struct state_files *f, struct job *j, const char *dir, struct err *e)
{
	char path[PATH_MOST];
	state_files_release(f);
	TRY(path_in(path, dir, "checkpoints", e));
	TRY(dir_make(path, e));
	TRY(path_in(path, dir, "checkpoints/incoming", e));
	TRY(atomic_dir_begin(path, &f->dir, e));
	for (int k = 0; k < 2; k++)
		f->out[k] = (struct st_out){ .fd = -1 };
	int rc = begin_file(f, j, STATE_VALUES, e);
	rc = rc < 0 ? rc : begin_file(f, j, STATE_STATES, e);
	if (rc < 0)
		state_files_release(f);
	return rc;
}

/* The tensor of an array in its file. */
static size_t place_of(const struct job *j, const struct trained_param *p, int index)
{
	size_t at = 0;
	if (!index)
		return (size_t)(p - j->param);
	for (const struct trained_param *q = j->param; q < p; q++)
		at += (size_t)q->states;
	return at + (size_t)index - 1;
}

int state_files_put(struct state_files *f, struct job *j, const struct trained_param *p, int index,
		    uint64_t off, const void *v, uint64_t n, struct err *e)
{
	return st_out_put(&f->out[index ? STATE_STATES : STATE_VALUES], place_of(j, p, index), off,
			  v, n, e);
}

void state_files_release(struct state_files *f)
{
	struct err ignored = { 0 };
	for (int k = 0; k < 2 && f->dir; k++)
		st_out_end(&f->out[k]);
	if (f->dir)
		dir_remove(f->dir, &ignored);
	mem_free(f->dir);
	*f = (struct state_files){ 0 };
}

/* ---- mapping ---- */

/* One tensor of a file, as `kind` says. */
static int find_tensor(const struct st_file *f, const char *path, const char *name,
		       const struct optim_state *kind, bool finite, void **at_p, struct err *e)
{
	enum { LOOK = 1 << 20 };
	const struct st_tensor *t = st_find(f, name);
	if (!t)
		return err_set(e, ERR_INPUT,
			       "%s: the tensor '%s' is missing: the checkpoint is of another job",
			       path, name);
	if (t->dtype != kind->dtype || t->count != kind->count)
		return err_set(e, ERR_INPUT,
			       "%s: '%s' has %llu numbers of %s; %llu of %s were expected", path,
			       name, (unsigned long long)t->count, dtype_name(t->dtype),
			       (unsigned long long)kind->count, dtype_name(kind->dtype));
	if ((uintptr_t)t->data % dtype_size(t->dtype))
		return err_set(e, ERR_INPUT, "%s: '%s' begins at an odd byte of the file", path,
			       name);
	const float *v = t->data;
	for (uint64_t i = 0; finite && t->dtype == DT_F32 && i < t->count; i++) {
		if (!isfinite(v[i]))
			return err_set(e, ERR_INPUT,
				       "%s: number %llu of '%s' is %g; use an earlier checkpoint",
				       path, (unsigned long long)i, name, (double)v[i]);
		if ((i + 1) % LOOK == 0 || i + 1 == t->count)
			st_drop_range(f, v + i / LOOK * LOOK, (i % LOOK + 1) * sizeof *v);
	}
	*at_p = (void *)(uintptr_t)t->data;
	return 0;
}

/* What the files hold, array after array: [nparam * (1 + PARAM_STATES)]. */
static int find_all(struct job *j, struct st_file *const f[2], const char *const path[2],
		    const char *inside, bool finite, void **at, struct err *e)
{
	for (size_t i = 0; i < j->nparam; i++) {
		const struct trained_param *p = &j->param[i];
		char name[320];
		peft_name(name, sizeof name, inside, p->name);
		const struct optim_state value = optim_state_f32("value", p->count);
		TRY(find_tensor(f[0], path[0], name, &value, finite, at++, e));
		for (int k = 0; k < p->states; k++) {
			snprintf(name, sizeof name, "%s.%s", p->name, p->kind[k].name);
			TRY(find_tensor(f[1], path[1], name, &p->kind[k], finite, at++, e));
		}
	}
	return 0;
}

static int map_files(struct job *j, const char *const path[2], const char *inside, bool finite,
		     struct err *e)
{
	struct st_file *f[2] = { NULL, NULL };
	void **at = mem_array(j->nparam * (1 + PARAM_STATES) + 1, sizeof *at);
	int rc = at ? 0 : err_nomem(e, j->nparam * sizeof *at, "the trained tensors");
	for (int k = 0; k < 2 && rc >= 0; k++)
		rc = st_open(path[k], &f[k], e);
	rc = rc < 0 ? rc : find_all(j, f, path, inside, finite, at, e);
	if (rc < 0) {
		st_close(f[0]);
		st_close(f[1]);
	} else {
		job_drop_state(j);
		void *const *a = at;
		for (size_t i = 0; i < j->nparam; i++) {
			j->param[i].value = *a++;
			for (int k = 0; k < j->param[i].states; k++)
				j->param[i].state[k] = *a++;
		}
		memcpy(j->mapped, f, sizeof f);
	}
	mem_free(at);
	return rc;
}

int state_files_map(struct job *j, const char *values, const char *states, struct err *e)
{
	const char *const path[] = { values, states };
	return map_files(j, path, j->opt.train_all ? NULL : model_file_inside(j->file), true, e);
}

int state_files_end(struct state_files *f, struct job *j, struct err *e)
{
	char path[2][PATH_MOST];
	const char *const two[] = { path[0], path[1] };
	for (int k = 0; k < 2; k++) {
		TRY(path_in(path[k], f->dir, file_name[k], e));
		st_out_end(&f->out[k]);
	}
	TRY(map_files(j, two, NULL, false, e));
	for (int k = 0; k < 2; k++)
		j->incoming[k] = mem_strdup(path[k]); /* NULL: it is written anew */
	return 0;
}

/* ---- writing ---- */

/* Where the arrays are mappings, the pages are given back. */
static int from_array(void *ctx, const struct st_spec *t, uint64_t off, uint64_t n, void *dst,
		      struct err *e)
{
	const struct job *j = ctx;
	(void)e;
	memcpy(dst, (const char *)t->user + off, n);
	job_drop_pages(j, (const char *)t->user + off, n);
	return 0;
}

int state_files_write(struct job *j, enum state_file which, const char *path, struct err *e)
{
	struct specs s;
	const char *from = j->incoming[which];
	if (from && rename(from, path) == 0)
		return 0;
	TRY(list_specs(j, which, &s, e));
	int rc = st_write(path, s.spec, s.n, NULL, from_array, j, e);
	specs_release(&s);
	return rc;
}

/* ---- as transformers reads it ---- */

static int param_rows(void *ctx, const char *name, int64_t row0, int64_t rows, float *dst,
		      struct err *e)
{
	const struct job *j = ctx;
	for (size_t i = 0; i < j->nparam; i++) {
		const struct trained_param *p = &j->param[i];
		if (strcmp(p->name, name) != 0)
			continue;
		const size_t cols = p->ndim > 1 ? (size_t)p->dim[1] : 1;
		const float *from = p->value + (size_t)row0 * cols;
		memcpy(dst, from, (size_t)rows * cols * sizeof *dst);
		job_drop_pages(j, from, (size_t)rows * cols * sizeof *dst);
		return 0;
	}
	return err_set(e, ERR_INTERNAL, "there is no parameter '%s'", name);
}

static int from_params(void *ctx, const struct st_spec *t, uint64_t off, uint64_t n, void *dst,
		       struct err *e)
{
	struct job *j = ctx;
	return merge_is_fused(&j->model, t->name)
		       ? merge_fused_bytes(t, off, n, dst, param_rows, j, e)
		       : from_array(j, t, off, n, dst, e);
}

int state_files_result(struct job *j, const char *path, struct err *e)
{
	bool fused = false;
	for (size_t i = 0; i < j->nparam; i++)
		fused |= merge_is_fused(&j->model, j->param[i].name);
	if (!fused)
		return state_files_write(j, STATE_VALUES, path, e);
	struct specs s = { .spec = mem_array(j->nparam + 4 * (size_t)j->model.layers + 1,
					     sizeof *s.spec),
			   .names = ARENA_INIT };
	int rc = s.spec ? 0 : err_nomem(e, j->nparam * sizeof *s.spec, "the trained tensors");
	for (size_t i = 0; i < j->nparam && rc >= 0; i++)
		if (!merge_is_fused(&j->model, j->param[i].name))
			s.spec[s.n++] = value_spec(j, &j->param[i]);
	if (rc >= 0)
		rc = merge_fused_specs(&j->model, DT_F32, &s.names, s.spec, &s.n, e);
	if (rc >= 0)
		rc = st_write(path, s.spec, s.n, NULL, from_params, j, e);
	specs_release(&s);
	return rc;
}
