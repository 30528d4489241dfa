/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.c - see checkpoint.h. */
#include "job/checkpoint.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "file/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_MOST = 4096 };

static int join(char out[PATH_MOST], const char *dir, const char *name, struct err *e)
{
	if (snprintf(out, PATH_MOST, "%s/%s", dir, name) >= PATH_MOST)
		return err_set(e, ERR_INPUT, "%s: the path is too long", dir);
	return 0;
}

/* ---- writing ---- */

static int from_memory(void *ctx, const struct st_spec *t, uint64_t off, uint64_t n, void *dst,
		       struct err *e)
{
	(void)ctx;
	(void)e;
	memcpy(dst, (const char *)t->user + off, n);
	return 0;
}

static int write_values(struct job *j, const char *dir, struct err *e)
{
	char path[PATH_MOST];
	TRY(join(path, dir, "model.safetensors", e));
	struct st_spec *spec = mem_array(j->nparam, sizeof *spec);
	if (!spec)
		return err_nomem(e, j->nparam * sizeof *spec, "the model's tensors");
	for (size_t i = 0; i < j->nparam; i++)
		spec[i] = (struct st_spec){ .name = j->param[i].name,
					    .dtype = DT_F32,
					    .ndim = j->param[i].ndim,
					    .shape = { j->param[i].dim[0], j->param[i].dim[1] },
					    .user = j->param[i].value };
	int rc = st_write(path, spec, j->nparam, NULL, from_memory, NULL, e);
	mem_free(spec);
	if (rc < 0)
		return rc;
	TRY(join(path, dir, "config.json", e));
	json_t *config = json_deep_copy(model_file_config(j->file));
	if (config)
		json_object_del(config, "quantization_config");
	char *text = config ? json_dumps(config, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
	rc = text ? atomic_write_file(path, text, strlen(text), e)
		  : err_nomem(e, 4096, "config.json");
	free(text);
	json_decref(config);
	return rc;
}

static int write_optimizer(struct job *j, const char *dir, struct err *e)
{
	char path[PATH_MOST];
	TRY(join(path, dir, "optimizer.safetensors", e));
	size_t states = (size_t)j->optimizer->states, n = 0;
	struct arena names = ARENA_INIT;
	struct st_spec *spec = mem_array(j->nparam * states + 1, sizeof *spec);
	int rc = 0;
	if (!spec)
		return err_nomem(e, j->nparam * sizeof *spec, "the optimizer's tensors");
	for (size_t i = 0; i < j->nparam; i++)
		for (size_t k = 0; k < states; k++) {
			const struct trained_param *p = &j->param[i];
			char name[320];
			snprintf(name, sizeof name, "%s.%s", p->name, j->optimizer->state_names[k]);
			const char *kept = arena_strdup(&names, name);
			if (!kept) {
				rc = err_nomem(e, sizeof name, "a name");
				goto out;
			}
			spec[n++] = (struct st_spec){ .name = kept,
						      .dtype = DT_F32,
						      .ndim = p->ndim,
						      .shape = { p->dim[0], p->dim[1] },
						      .user = p->state[k] };
		}
	rc = st_write(path, spec, n, NULL, from_memory, NULL, e);
out:
	mem_free(spec);
	arena_release(&names);
	return rc;
}

static int write_state(struct job *j, const struct train_state *s, const char *dir, struct err *e)
{
	char path[PATH_MOST];
	TRY(join(path, dir, "trainer_state.json", e));
	struct buf b = BUF_INIT;
	buf_addf(&b,
		 "{\n \"version\": 1,\n \"step\": %llu,\n \"updates\": %llu,\n \"epoch\": %llu,\n "
		 "\"batch\": %llu,\n \"tokens\": "
		 "%llu,\n \"skipped\": %llu,\n",
		 (unsigned long long)s->step, (unsigned long long)s->updates,
		 (unsigned long long)s->epoch, (unsigned long long)s->batch,
		 (unsigned long long)s->tokens, (unsigned long long)s->skipped);
	if (s->scale.scale > 0)
		buf_addf(&b, " \"loss_scale\": %.17g,\n \"loss_scale_good_steps\": %llu,\n",
			 s->scale.scale, (unsigned long long)s->scale.good);
	buf_addf(&b,
		 " \"total_steps\": %llu,\n \"dataset_digest\": \"%016llx\",\n \"compute_dtype\": "
		 "\"%s\",\n \"config\": ",
		 (unsigned long long)j->total_steps, (unsigned long long)j->digest,
		 dtype_name(j->opt.act));
	config_to_json(j->cfg, &b);
	buf_adds(&b, "\n}\n");
	int rc = buf_ok(&b, e);
	if (!rc)
		rc = atomic_write_file(path, b.p, b.n, e);
	buf_release(&b);
	return rc;
}

int checkpoint_export(struct job *j, const char *dir, struct err *e)
{
	if (j->opt.train_all)
		return write_values(j, dir, e);
	struct arena a = ARENA_INIT;
	struct peft_adapter ad;
	int rc = job_adapter(j, &a, &ad, e);
	if (rc >= 0)
		rc = peft_write(dir, &ad, e);
	arena_release(&a);
	return rc;
}

int checkpoint_write(struct job *j, const struct train_state *s, struct arena *a,
		     const char **path_p, struct err *e)
{
	char path[PATH_MOST], name[64];
	TRY(join(path, j->cfg->output_dir, "checkpoints", e));
	TRY(dir_make(path, e));
	snprintf(name, sizeof name, "checkpoints/step-%06llu", (unsigned long long)s->step);
	TRY(join(path, j->cfg->output_dir, name, e));
	struct stat st;
	if (!stat(path, &st)) /* the same step again, after going back to an earlier one */
		TRY(dir_remove(path, e));
	char *tmp;
	TRY(atomic_dir_begin(path, &tmp, e));
	int rc = checkpoint_export(j, tmp, e);
	if (rc >= 0)
		rc = write_optimizer(j, tmp, e);
	if (rc >= 0)
		rc = write_state(j, s, tmp, e);
	if (rc >= 0)
		rc = atomic_dir_commit(path, tmp, e);
	if (rc < 0) {
		struct err ignored;
		dir_remove(tmp, &ignored);
	}
	mem_free(tmp);
	if (rc < 0)
		return err_prefix(e, "saving step %llu (the checkpoints before it are whole)",
				  (unsigned long long)s->step);
	const char *kept = arena_strdup(a, path);
	if (!kept)
		return err_nomem(e, strlen(path), "a path");
	*path_p = kept;
	return 0;
}

/* ---- finding and removing ---- */

/* Step numbers of the complete checkpoints, ascending. */
static int list_steps(const char *output_dir, uint64_t **step_p, size_t *n_p, struct err *e)
{
	char path[PATH_MOST];
	TRY(join(path, output_dir, "checkpoints", e));
	uint64_t *step = NULL;
	size_t n = 0, cap = 0;
	DIR *d = opendir(path);
	if (!d && errno != ENOENT)
		return err_sys(e, errno, "%s", path);
	for (struct dirent *i; d && (i = readdir(d));) {
		char *end;
		if (strncmp(i->d_name, "step-", 5) || i->d_name[5] < '0' || i->d_name[5] > '9')
			continue;
		uint64_t v = strtoull(i->d_name + 5, &end, 10);
		if (*end)
			continue; /* step-000020.tmp: never finished */
		if (!mem_grow(&step, &cap, n + 1, sizeof *step)) {
			closedir(d);
			mem_free(step);
			return err_nomem(e, (n + 1) * sizeof *step, "the list of checkpoints");
		}
		size_t at = n++;
		for (; at && step[at - 1] > v; at--)
			step[at] = step[at - 1];
		step[at] = v;
	}
	if (d)
		closedir(d);
	*step_p = step;
	*n_p = n;
	return 0;
}

static int step_path(const char *output_dir, uint64_t step, char path[PATH_MOST], struct err *e)
{
	char name[64];
	snprintf(name, sizeof name, "checkpoints/step-%06llu", (unsigned long long)step);
	return join(path, output_dir, name, e);
}

int checkpoint_prune(const char *output_dir, int64_t keep, struct err *e)
{
	uint64_t *step;
	size_t n;
	TRY(list_steps(output_dir, &step, &n, e));
	int rc = 0;
	for (size_t i = 0; keep > 0 && rc >= 0 && i + (size_t)keep < n; i++) {
		char path[PATH_MOST];
		rc = step_path(output_dir, step[i], path, e);
		if (rc >= 0)
			rc = dir_remove(path, e);
	}
	mem_free(step);
	return rc;
}

int checkpoint_latest(const char *output_dir, struct arena *a, const char **path_p, struct err *e)
{
	uint64_t *step;
	size_t n;
	TRY(list_steps(output_dir, &step, &n, e));
	char path[PATH_MOST];
	int rc = n ? step_path(output_dir, step[n - 1], path, e) : 0;
	mem_free(step);
	if (rc < 0)
		return rc;
	*path_p = NULL;
	if (n && !(*path_p = arena_strdup(a, path)))
		return err_nomem(e, strlen(path), "a path");
	return 0;
}

/* Everything a run writes into its folder. */
static const char *const run_files[] = { "adapter_config.json", "adapter_model.safetensors",
					 "metrics.jsonl",       "loss.png",
					 "plan.json",           "trace.json",
					 "architecture.png",    "architecture.svg",
					 "architecture.dot",    "architecture.mmd",
					 "architecture.pdf",    "model.safetensors",
					 "config.json",         "tensorboard",
					 "checkpoints",         "samples.jsonl" };

bool run_exists(const char *output_dir)
{
	static const char *const signs[] = { "metrics.jsonl", "checkpoints",
					     "adapter_model.safetensors", "model.safetensors" };
	for (size_t i = 0; i < ARRAY_LEN(signs); i++) {
		char path[PATH_MOST];
		struct err ignored;
		struct stat st;
		if (join(path, output_dir, signs[i], &ignored) >= 0 && !stat(path, &st))
			return true;
	}
	return false;
}

int run_remove(const char *output_dir, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(run_files); i++) {
		char path[PATH_MOST];
		TRY(join(path, output_dir, run_files[i], e));
		if (unlink(path) < 0 && errno != ENOENT)
			TRY(dir_remove(path, e));
	}
	return 0;
}

/* ---- reading ---- */

static int read_tensor(const struct st_file *f, const char *path, const char *name,
		       const struct trained_param *p, float *dst, struct err *e)
{
	const struct st_tensor *t = st_find(f, name);
	if (!t)
		return err_set(e, ERR_INPUT,
			       "%s: the tensor '%s' is missing: the checkpoint is of another job",
			       path, name);
	if (t->dtype != DT_F32 || t->count != p->count)
		return err_set(e, ERR_INPUT,
			       "%s: '%s' has %llu numbers of %s; %llu of float32 were expected",
			       path, name, (unsigned long long)t->count, dtype_name(t->dtype),
			       (unsigned long long)p->count);
	memcpy(dst, t->data, t->bytes);
	return 0;
}

static int read_tensors(struct job *j, const char *dir, struct err *e)
{
	char path[PATH_MOST];
	struct st_file *f;
	TRY(job_alloc_state(j, e));
	TRY(join(path, dir, j->opt.train_all ? "model.safetensors" : "adapter_model.safetensors",
		 e));
	TRY(st_open(path, &f, e));
	int rc = 0;
	for (size_t i = 0; i < j->nparam && rc >= 0; i++) {
		char name[320];
		snprintf(name, sizeof name, "%s%s", j->opt.train_all ? "" : "base_model.model.",
			 j->param[i].name);
		rc = read_tensor(f, path, name, &j->param[i], j->param[i].value, e);
	}
	st_close(f);
	if (rc < 0)
		return rc;
	TRY(join(path, dir, "optimizer.safetensors", e));
	TRY(st_open(path, &f, e));
	for (size_t i = 0; i < j->nparam && rc >= 0; i++)
		for (int k = 0; k < j->optimizer->states && rc >= 0; k++) {
			char name[320];
			snprintf(name, sizeof name, "%s.%s", j->param[i].name,
				 j->optimizer->state_names[k]);
			rc = read_tensor(f, path, name, &j->param[i], j->param[i].state[k], e);
		}
	st_close(f);
	return rc;
}

/* Keys that must not change between a run and its continuation. */
static const char *const fixed_keys[] = { "adapter",
					  "load_in_4bit",
					  "bnb_4bit_use_double_quant",
					  "lora_r",
					  "lora_alpha",
					  "lora_dropout",
					  "lora_target_modules",
					  "lora_target_linear",
					  "use_rslora",
					  "sequence_len",
					  "sample_packing",
					  "train_on_inputs",
					  "val_set_size",
					  "micro_batch_size",
					  "gradient_accumulation_steps",
					  "optimizer",
					  "seed",
					  "data_seed" };

static int same_job(struct job *j, const json_t *doc, const char *path, struct err *e)
{
	struct buf b = BUF_INIT;
	config_to_json(j->cfg, &b);
	json_t *now;
	int rc = buf_ok(&b, e);
	if (rc >= 0)
		rc = json_parse_text(b.p, b.n, "the configuration", &now, e);
	buf_release(&b);
	if (rc < 0)
		return rc;
	const json_t *then = json_object_get(doc, "config");
	for (size_t i = 0; i < ARRAY_LEN(fixed_keys) && rc >= 0; i++) {
		json_t *x = json_object_get(then, fixed_keys[i]),
		       *y = json_object_get(now, fixed_keys[i]);
		if ((!x && !y) || json_equal(x, y))
			continue;
		char *xs = json_dumps(x, JSON_ENCODE_ANY | JSON_COMPACT),
		     *ys = json_dumps(y, JSON_ENCODE_ANY | JSON_COMPACT);
		rc = err_set(e, ERR_USAGE, "%s: '%s' was %s in the run to be resumed and is %s now",
			     path, fixed_keys[i], xs ? xs : "not set", ys ? ys : "not set");
		free(xs);
		free(ys);
	}
	json_decref(now);
	return rc;
}

/* Of runs in float16; the others have none, and begin anew when they are continued in float16. */
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

int checkpoint_read(struct job *j, const char *dir, struct train_state *s_p, struct err *e)
{
	char path[PATH_MOST], digest[32];
	TRY(join(path, dir, "trainer_state.json", e));
	json_t *doc;
	TRY(json_parse_file(path, 1 << 20, &doc, e));
	struct train_state s = { 0 };
	static const struct {
		const char *key;
		size_t offset;
	} field[] = { { "step", offsetof(struct train_state, step) },
		      { "updates", offsetof(struct train_state, updates) },
		      { "epoch", offsetof(struct train_state, epoch) },
		      { "batch", offsetof(struct train_state, batch) },
		      { "tokens", offsetof(struct train_state, tokens) },
		      { "skipped", offsetof(struct train_state, skipped) } };
	int rc = 0;
	for (size_t i = 0; i < ARRAY_LEN(field) && rc >= 0; i++) {
		int64_t v = 0;
		rc = json_need_int(doc, path, field[i].key, 0, INT64_MAX, &v, e);
		memcpy((char *)&s + field[i].offset, &v, sizeof v);
	}
	if (rc >= 0)
		rc = read_scale(doc, path, &s.scale, e);
	const char *was = "";
	snprintf(digest, sizeof digest, "%016llx", (unsigned long long)j->digest);
	if (rc >= 0)
		rc = json_need_str(doc, path, "dataset_digest", &was, e);
	if (rc >= 0)
		rc = same_job(j, doc, path, e);
	if (rc >= 0 && strcmp(was, digest))
		rc = err_set(e, ERR_USAGE,
			     "%s: the training data is not what it was when this run was saved (or "
			     "the tokenizer changed)",
			     path);
	json_decref(doc);
	if (rc < 0)
		return rc;
	TRY(read_tensors(j, dir, e));
	*s_p = s;
	return 0;
}
