/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.c - see checkpoint.h. */
#include "job/checkpoint.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "job/base_hash.h"
#include "job/checkpoint_check.h"
#include "job/checkpoint_list.h"
#include "job/state_files.h"
#include "runtime/model_folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_MOST = 4096 };

static int join(char out[PATH_MOST], const char *dir, const char *name, struct err *e)
{
	if (snprintf(out, PATH_MOST, "%s/%s", dir, name) >= PATH_MOST)
		return err_set(e, ERR_INPUT, "%s: the path is too long", dir);
	return 0;
}

/* ---- writing ---- */

static int write_values(struct job *j, const char *dir, bool result, struct err *e)
{
	char path[PATH_MOST];
	TRY(join(path, dir, "model.safetensors", e));
	TRY(result ? state_files_result(j, path, e) : state_files_write(j, STATE_VALUES, path, e));
	return j->model.own.n ? model_folder_config(j->file, dir, DT_F32, e)
			      : model_folder_write(j->file, dir, DT_F32, e);
}

static int write_optimizer(struct job *j, const char *dir, struct err *e)
{
	char path[PATH_MOST];
	TRY(join(path, dir, "optimizer.safetensors", e));
	return state_files_write(j, STATE_STATES, path, e);
}

static int write_state(struct job *j, const struct train_state *s, uint64_t serial, const char *dir,
		       struct err *e)
{
	char path[PATH_MOST];
	TRY(join(path, dir, "trainer_state.json", e));
	struct buf b = BUF_INIT;
	buf_addf(&b,
		 "{\n \"version\": %d,\n \"step\": %llu,\n \"updates\": %llu,\n \"epoch\": %llu,\n "
		 "\"batch\": %llu,\n \"tokens\": %llu,\n \"skipped\": %llu,\n",
		 CHECKPOINT_VERSION, (unsigned long long)s->step, (unsigned long long)s->updates,
		 (unsigned long long)s->epoch, (unsigned long long)s->batch,
		 (unsigned long long)s->tokens, (unsigned long long)s->skipped);
	if (s->scale.scale > 0)
		buf_addf(&b, " \"loss_scale\": %.17g,\n \"loss_scale_good_steps\": %llu,\n",
			 s->scale.scale, (unsigned long long)s->scale.good);
	if (s->nonfinite)
		buf_addf(&b, " \"nonfinite\": %llu,\n", (unsigned long long)s->nonfinite);
	if (s->best_step && isfinite(s->best_loss))
		buf_addf(&b, " \"best_loss\": %.17g,\n \"best_step\": %llu,\n", s->best_loss,
			 (unsigned long long)s->best_step);
	if (s->best_step || s->evals_since_best)
		buf_addf(&b, " \"evals_since_best\": %llu,\n",
			 (unsigned long long)s->evals_since_best);
	buf_addf(&b,
		 " \"serial\": %llu,\n \"timed\": %s,\n"
		 " \"rules\": {\"dropout\": %d, \"reduce\": %d, \"lr\": %d},\n"
		 " \"total_steps\": %llu,\n \"dataset_digest\": \"%016llx\",\n \"compute_dtype\": "
		 "\"%s\",\n \"base_hash\": \"%s\",\n \"files\": ",
		 (unsigned long long)serial, s->timed ? "true" : "false", s->rules.dropout,
		 s->rules.reduce, s->rules.lr, (unsigned long long)j->total_steps,
		 (unsigned long long)j->digest, dtype_name(j->opt.act), j->base_hash);
	int rc = checkpoint_hashes(dir, &b, e);
	for (size_t i = 0; i < j->npass; i++)
		buf_addf(&b, "%s%d%s", i ? ", " : ",\n \"passes\": [", j->pass[i],
			 i + 1 == j->npass ? "]" : "");
	buf_adds(&b, ",\n \"config\": ");
	config_to_json(j->cfg, &b);
	if (rc >= 0)
		rc = buf_ok(&b, e);
	if (rc >= 0) {
		checkpoint_seal(&b);
		rc = buf_ok(&b, e);
	}
	if (rc >= 0)
		rc = atomic_write_file(path, b.p, b.n, e);
	buf_release(&b);
	return rc;
}

static int export(struct job *j, const char *dir, bool result, struct err *e)
{
	if (j->opt.train_all)
		return write_values(j, dir, result, e);
	struct arena a = ARENA_INIT;
	struct peft_adapter ad;
	int rc = job_adapter(j, &a, &ad, e);
	if (rc >= 0)
		rc = peft_write(dir, &ad, e);
	arena_release(&a);
	return rc;
}

int checkpoint_export(struct job *j, const char *dir, struct err *e)
{
	return export(j, dir, true, e);
}

int checkpoint_write(struct job *j, const struct train_state *s, const char *dir, struct arena *a,
		     const char **path_p, struct err *e)
{
	char path[PATH_MOST];
	uint64_t serial = 0;
	TRY(join(path, dir, "checkpoints", e));
	TRY(dir_make(path, e));
	TRY(checkpoint_path(dir, s->step, path, sizeof path, e));
	TRY(checkpoint_serial(dir, &serial, e));
	TRY(job_hash_base(j, e));
	char *tmp;
	TRY(atomic_dir_begin(path, &tmp, e));
	int rc = export(j, tmp, false, e);
	if (rc >= 0)
		rc = write_optimizer(j, tmp, e);
	if (rc >= 0)
		rc = write_state(j, s, serial, tmp, e);
	if (rc >= 0) /* the same step may exist already, after resuming from an earlier one */
		rc = atomic_dir_replace(path, tmp, e);
	if (rc < 0) {
		struct err ignored;
		dir_remove(tmp, &ignored);
	}
	mem_free(tmp);
	if (rc >= 0)
		rc = checkpoint_written(dir, s->step, serial, e);
	if (rc < 0)
		return err_prefix(e, "saving step %llu (the earlier checkpoints are complete)",
				  (unsigned long long)s->step);
	const char *kept = arena_strdup(a, path);
	if (!kept)
		return err_nomem(e, strlen(path), "a path");
	*path_p = kept;
	return 0;
}

uint64_t checkpoint_bytes(const struct job *j)
{
	/* values and states, the tensors' names and shapes, the other files */
	uint64_t bytes = j->trained_numbers * 4 + j->nparam * 256 + (64 << 10);
	for (size_t i = 0; i < j->nparam; i++)
		for (int k = 0; k < j->param[i].states; k++)
			bytes += j->param[i].kind[k].count * dtype_size(j->param[i].kind[k].dtype) +
				 256;
	return bytes;
}

uint64_t checkpoint_result_bytes(const struct job *j)
{
	return j->trained_numbers * 4 + j->nparam * 256 + (16 << 20) * (uint64_t)j->opt.train_all +
	       (64 << 10);
}

/* ---- reading ---- */

static int read_tensors(struct job *j, const char *dir, struct err *e)
{
	char values[PATH_MOST], states[PATH_MOST];
	TRY(join(values, dir, j->opt.train_all ? "model.safetensors" : "adapter_model.safetensors",
		 e));
	TRY(join(states, dir, "optimizer.safetensors", e));
	return state_files_map(j, values, states, e);
}

/* Only runs in float16 have one; another run that is continued in float16 starts with a new one. */
static int read_scale(const json_t *doc, const char *path, struct loss_scale *s, struct err *e)
{
	if (!json_object_get(doc, "loss_scale"))
		return 0;
	const double v = json_number_value(json_object_get(doc, "loss_scale"));
	if (!(v >= 1 && v <= LOSS_SCALE_MOST))
		return err_set(e, ERR_INPUT, "%s: 'loss_scale' is not between 1 and %g", path,
			       LOSS_SCALE_MOST);
	int64_t good = 0;
	TRY(json_need_int(doc, path, "loss_scale_good_steps", 0, INT64_MAX, &good, e));
	*s = (struct loss_scale){ v, (uint64_t)good };
	return 0;
}

/* Only runs that evaluate in training have one; evaluations may have been without a best. */
static int read_best(const json_t *doc, const char *path, struct train_state *s, struct err *e)
{
	int64_t step = 0, since = 0;
	const bool best = json_object_get(doc, "best_step");
	if (!best && !json_object_get(doc, "evals_since_best"))
		return 0;
	TRY(json_need_int(doc, path, "evals_since_best", 0, INT64_MAX, &since, e));
	if (best) {
		TRY(json_need_int(doc, path, "best_step", 1, INT64_MAX, &step, e));
		TRY(json_need_num(doc, path, "best_loss", -1e300, 1e300, &s->best_loss, e));
	}
	s->best_step = (uint64_t)step;
	s->evals_since_best = (uint64_t)since;
	return 0;
}

static int read_rules(const json_t *doc, const char *path, struct rules *r, struct err *e)
{
	const json_t *o = json_object_get(doc, "rules");
	const struct {
		const char *key;
		int *v;
		int most;
	} rule[] = { { "dropout", &r->dropout, RULES_NOW.dropout },
		     { "reduce", &r->reduce, RULES_NOW.reduce },
		     { "lr", &r->lr, RULES_NOW.lr } };
	for (size_t i = 0; i < ARRAY_LEN(rule); i++) {
		int64_t v = 1; /* the rules of version 1, which does not record them */
		if (o)
			TRY(json_opt_int(o, path, rule[i].key, 1, rule[i].most, &v, e));
		*rule[i].v = (int)v;
	}
	return 0;
}

static int read_counters(const json_t *doc, const char *path, struct train_state *s, struct err *e)
{
	static const struct {
		const char *key;
		size_t offset;
	} field[] = { { "step", offsetof(struct train_state, step) },
		      { "updates", offsetof(struct train_state, updates) },
		      { "epoch", offsetof(struct train_state, epoch) },
		      { "batch", offsetof(struct train_state, batch) },
		      { "tokens", offsetof(struct train_state, tokens) },
		      { "skipped", offsetof(struct train_state, skipped) } };
	int64_t version = 0, nonfinite = 0;
	TRY(json_need_int(doc, path, "version", 1, INT64_MAX, &version, e));
	if (version > CHECKPOINT_VERSION)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: version %lld; this program reads up to %d: use a newer one",
			       path, (long long)version, CHECKPOINT_VERSION);
	for (size_t i = 0; i < ARRAY_LEN(field); i++) {
		int64_t v = 0;
		TRY(json_need_int(doc, path, field[i].key, 0, INT64_MAX, &v, e));
		memcpy((char *)s + field[i].offset, &v, sizeof v);
	}
	TRY(json_opt_int(doc, path, "nonfinite", 0, INT64_MAX, &nonfinite, e));
	s->nonfinite = (uint64_t)nonfinite;
	TRY(read_rules(doc, path, &s->rules, e));
	TRY(read_best(doc, path, s, e));
	return read_scale(doc, path, &s->scale, e);
}

int checkpoint_fits(struct job *j, const char *dir, bool allow_changes, struct err *e)
{
	char path[PATH_MOST];
	struct err ignored = { 0 };
	json_t *doc = NULL;
	TRY(join(path, dir, "trainer_state.json", e));
	TRY(job_hash_base(j, e));
	if (json_parse_file(path, 0, &doc, &ignored) < 0)
		return 0;
	int rc = checkpoint_same_job(j, doc, path, allow_changes, e);
	json_decref(doc);
	return rc;
}

int checkpoint_read(struct job *j, const char *dir, bool allow_changes, struct train_state *s_p,
		    struct err *e)
{
	char path[PATH_MOST];
	TRY(join(path, dir, "trainer_state.json", e));
	TRY(job_hash_base(j, e));
	json_t *doc;
	struct train_state s = { 0 };
	TRY(checkpoint_verify(dir, &doc, e));
	int rc = read_counters(doc, path, &s, e);
	if (rc >= 0)
		rc = checkpoint_same_job(j, doc, path, allow_changes, e);
	json_decref(doc);
	if (rc < 0)
		return rc;
	TRY(read_tensors(j, dir, e));
	*s_p = s;
	return 0;
}
