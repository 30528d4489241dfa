/* SPDX-License-Identifier: Apache-2.0 */
/* api_config.c - see api_config.h. */
#include "api/api_config.h"

#include "base/mem.h"
#include "file/atomic.h"
#include "job/network.h"
#include "ops/ranks.h"
#include "job/role.h"
#include "peers/invited.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MORE = 16 };

struct words {
	const char **v; /* the caller's, then ours */
	size_t n;
	char text[MORE][4200];
	size_t nown;
};

static bool given(const hs_options *o, const char *key)
{
	const size_t n = strlen(key);
	for (size_t i = 0; i < o->sets; i++)
		if (!strncmp(o->set[i], key, n) && o->set[i][n] == '=')
			return true;
	return false;
}

static void add(struct words *w, const char *key, const char *value)
{
	if (w->nown == MORE)
		return;
	snprintf(w->text[w->nown], sizeof w->text[0], "%s=%s", key, value);
	w->v[w->n++] = w->text[w->nown++];
}

/* What a key is where neither the caller nor a file says it. */
static void add_default(struct words *w, const hs_options *o, const char *key, const char *value)
{
	if (!o->config && !given(o, key))
		add(w, key, value);
}

static int load(const hs_options *o, const struct words *w, enum config_need need,
		struct config **c_p, struct err *e)
{
	return config_load_as(need, o->config, (int)w->n, (char **)(uintptr_t)w->v, c_p, e);
}

static char *join(const char *a, const char *b)
{
	const size_t n = strlen(a) + strlen(b) + 1;
	char *s = mem_array(n, 1);
	if (s)
		snprintf(s, n, "%s%s", a, b);
	return s;
}

/* A folder of its own for a run that leaves nothing. */
static int make_own(struct api_config *a, struct words *w, struct err *e)
{
	const char *tmp = getenv("TMPDIR");
	a->own_dir = join(tmp && tmp[0] ? tmp : "/tmp", "/heteroshard-XXXXXX");
	if (!a->own_dir)
		return err_nomem(e, 64, "a path");
	if (!mkdtemp(a->own_dir)) {
		mem_free(a->own_dir);
		a->own_dir = NULL;
		return err_set(e, ERR_IO,
			       "no folder for the run can be made in %s: give "
			       "'output_dir'",
			       tmp && tmp[0] ? tmp : "/tmp");
	}
	char *run = join(a->own_dir, "/run");
	if (!run)
		return err_nomem(e, 64, "a path");
	add(w, "output_dir", run);
	mem_free(run);
	return 0;
}

static int open_own(struct api_config *a, const hs_model *m, const hs_options *o, uint64_t held,
		    struct words *w, struct err *e)
{
	char number[32];
	add_default(w, o, "compute_dtype", "float32");
	add_default(w, o, "wire_dtype", "float32");
	add_default(w, o, "profile", "none");
	if (held && !given(o, "val_set_size")) {
		snprintf(number, sizeof number, "%llu", (unsigned long long)held);
		add(w, "val_set_size", number);
	}
	TRY(load(o, w, CONFIG_PART, &a->c, e));
	const bool resumes = a->c->resume_from_checkpoint != NULL;
	if (!a->c->output_dir || !a->c->output_dir[0])
		TRY(make_own(a, w, e));
	a->model_dir = a->own_dir ? join(a->own_dir, "/model") : join(a->c->output_dir, "-model");
	if (!a->model_dir)
		return err_nomem(e, 64, "a path");
	char *file = join(a->model_dir, "/model.safetensors");
	const bool there = file && access(file, F_OK) == 0;
	mem_free(file);
	if (!resumes || !there) /* a run goes on from the values that it began with */
		TRY(api_save(m, a->model_dir, e));
	add(w, "base_model", a->model_dir);
	config_free(a->c);
	a->c = NULL;
	return load(o, w, CONFIG_MODEL, &a->c, e);
}

int api_config_open(struct api_config *a, const hs_model *m, const hs_options *o, uint64_t held,
		    struct err *e)
{
	*a = (struct api_config){ 0 };
	if (!api_words(o->set, o->sets) || !api_words(o->device, o->devices))
		return err_set(e, ERR_USAGE, "the options: one of `set` or `device` is NULL");
	struct words *w = mem_zalloc(sizeof *w);
	if (!w || !(w->v = mem_array(o->sets + MORE, sizeof *w->v))) {
		mem_free(w);
		return err_nomem(e, sizeof *w, "a configuration");
	}
	for (size_t i = 0; i < o->sets; i++)
		w->v[w->n++] = o->set[i];
	const int rc = m ? open_own(a, m, o, held, w, e) : load(o, w, CONFIG_TRAIN, &a->c, e);
	mem_free(w->v);
	mem_free(w);
	if (rc < 0)
		api_config_close(a);
	return rc;
}

void api_config_close(struct api_config *a)
{
	struct err ignored = { 0 };
	config_free(a->c);
	if (a->own_dir)
		dir_remove(a->own_dir, &ignored);
	mem_free(a->own_dir);
	mem_free(a->model_dir);
	*a = (struct api_config){ 0 };
}

int api_check_role(struct config *c, struct err *e)
{
	struct role role;
	TRY(ranks_absent(c, e));
	TRY(invited_resolve(c, e));
	TRY(role_find(c, NULL, NULL, &role, e));
	if (role.kind == ROLE_WORKER)
		return err_set(e, ERR_USAGE,
			       "this machine is a worker of the configuration: call "
			       "hs_worker_run() here");
	return network_check(c, e);
}

static atomic_flag running = ATOMIC_FLAG_INIT;

bool api_run_begin(void) { return !atomic_flag_test_and_set(&running); }
void api_run_end(void) { atomic_flag_clear(&running); }
