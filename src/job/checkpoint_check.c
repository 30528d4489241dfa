/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_check.c - see checkpoint_check.h. */
#include "job/checkpoint_check.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/open.h"
#include "job/checkpoint_list.h"
#include "job/job.h"
#include "sched/sched.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_MOST = 4096, STATE_MOST = 1 << 20 };

#define DUMP (JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(10)) /* for people */

/* ---- whole ---- */

static int is_file(const struct dirent *f)
{
	return f->d_name[0] != '.' && strcmp(f->d_name, "trainer_state.json");
}

int checkpoint_hashes(const char *dir, struct buf *out, struct err *e)
{
	struct dirent **f = NULL;
	int n = scandir(dir, &f, is_file, alphasort), rc = n < 0 ? err_sys(e, errno, "%s", dir) : 0;
	buf_adds(out, "{");
	for (int i = 0; i < n; i++) {
		char path[PATH_MOST], hex[HASH_HEX];
		uint64_t bytes = 0;
		if (rc >= 0 && snprintf(path, sizeof path, "%s/%s", dir, f[i]->d_name) >= PATH_MOST)
			rc = err_set(e, ERR_INPUT, "%s: the path is too long", dir);
		if (rc >= 0)
			rc = hash_file(path, hex, &bytes, e);
		if (rc >= 0) {
			buf_adds(out, i ? ",\n  " : "\n  ");
			json_quote(out, f[i]->d_name, strlen(f[i]->d_name));
			buf_addf(out, ": {\"bytes\": %llu, \"hash\": \"%s\"}",
				 (unsigned long long)bytes, hex);
		}
		free(f[i]);
	}
	free(f);
	buf_adds(out, "}");
	return rc;
}

static const char seal[] = ",\n \"hash\": \"";

void checkpoint_seal(struct buf *text)
{
	char hex[HASH_HEX];
	hash_bytes(text->p, text->n, hex);
	buf_addf(text, "%s%s\"\n}\n", seal, hex);
}

static bool is_sealed(const struct buf *text)
{
	const size_t tail = sizeof seal - 1 + HASH_HEX - 1 + strlen("\"\n}\n");
	char hex[HASH_HEX];
	if (text->n < tail)
		return false;
	const char *at = text->p + text->n - tail;
	hash_bytes(text->p, text->n - tail, hex);
	return !memcmp(at, seal, sizeof seal - 1) &&
	       !memcmp(at + sizeof seal - 1, hex, HASH_HEX - 1);
}

/* Whether the file at `path` is what `file`, its entry in 'files', says. The size is looked at
 * first: a file without end is not read to its end. */
static int verify_file(const char *dir, const char *name, const char *path, const json_t *file,
		       struct err *e)
{
	const char *was = json_string_value(json_object_get(file, "hash"));
	const json_t *bytes = json_object_get(file, "bytes");
	char hex[HASH_HEX];
	uint64_t size;
	int fd;
	TRY(open_read(path, &fd, &size, e));
	close(fd);
	if (bytes && (uint64_t)json_integer_value(bytes) != size)
		return err_set(e, ERR_INPUT,
			       "checkpoint %s: %s: %llu bytes; it had %lld when it was saved", dir,
			       name, (unsigned long long)size,
			       (long long)json_integer_value(bytes));
	TRY(hash_file(path, hex, NULL, e));
	if (strcmp(hex, was))
		return err_set(e, ERR_INPUT,
			       "checkpoint %s: %s: hash differs from trainer_state.json", dir,
			       name);
	return 0;
}

/* Checks one checkpoint; the message gives no advice. */
static int verify(const char *dir, json_t **doc_p, struct err *e)
{
	char path[PATH_MOST];
	struct buf text = BUF_INIT;
	json_t *doc = NULL;
	int64_t version = 0;
	if (snprintf(path, sizeof path, "%s/trainer_state.json", dir) >= PATH_MOST)
		return err_set(e, ERR_INPUT, "%s: the path is too long", dir);
	int rc = buf_read_file(&text, path, STATE_MOST, e);
	if (rc >= 0)
		rc = json_parse_text(text.p, text.n, path, &doc, e);
	if (rc >= 0)
		rc = json_need_int(doc, path, "version", 1, INT64_MAX, &version, e);
	if (rc >= 0 && version >= 2 && !is_sealed(&text))
		rc = err_set(e, ERR_INPUT,
			     "checkpoint %s: trainer_state.json: its text differs from its hash "
			     "of",
			     dir);
	buf_release(&text);
	const char *name;
	json_t *file;
	if (rc >= 0 && version >= 2)
		json_object_foreach(json_object_get(doc, "files"), name, file)
		{
			if (strchr(name, '/') || !json_is_string(json_object_get(file, "hash")) ||
			    snprintf(path, sizeof path, "%s/%s", dir, name) >= PATH_MOST)
				rc = err_set(e, ERR_INPUT, "checkpoint %s: 'files' is not valid",
					     dir);
			else
				rc = verify_file(dir, name, path, file, e);
			if (rc < 0)
				break;
		}
	if (rc < 0)
		json_decref(doc);
	else
		*doc_p = doc;
	return rc;
}

/* The newest complete checkpoint of the folder that holds `dir`. */
static bool find_whole(const char *dir, char out[PATH_MOST])
{
	char top[PATH_MOST];
	struct checkpoint_entry *v = NULL;
	size_t n = 0;
	struct err ignored = { 0 };
	if (snprintf(top, sizeof top, "%s/../..", dir) >= PATH_MOST ||
	    checkpoint_list(top, &v, &n, &ignored) < 0)
		return false;
	bool found = false;
	for (size_t i = n; i-- > 0 && !found;) {
		json_t *doc;
		if (checkpoint_path(top, v[i].step, out, PATH_MOST, &ignored) < 0 ||
		    verify(out, &doc, &ignored) < 0)
			continue;
		json_decref(doc);
		snprintf(out, PATH_MOST, "step-%06llu", (unsigned long long)v[i].step);
		found = true;
	}
	mem_free(v);
	return found;
}

int checkpoint_verify(const char *dir, json_t **doc_p, struct err *e)
{
	char whole[PATH_MOST];
	int rc = verify(dir, doc_p, e);
	if (rc >= 0)
		return 0;
	struct err why = *e;
	if (find_whole(dir, whole))
		return err_set(e, why.code, "%.800s; use another checkpoint (%.32s is whole)",
			       why.msg, whole);
	*e = why;
	return rc;
}

/* ---- of the same job ---- */

/* If one of these changes, the state cannot be used. */
static const char *const fixed_keys[] = {
	"adapter",           "lora_r",        "lora_target_modules",  "lora_target_linear",
	"lora_rank_pattern", "peft_use_dora", "lora_modules_to_save", "peft_layers_to_transform",
	"optimizer"
};
/* These change the result. */
static const char *const result_keys[] = {
	"load_in_4bit",
	"bnb_4bit_use_double_quant",
	"lora_alpha",
	"lora_alpha_pattern",
	"lora_dropout",
	"use_rslora",
	"sequence_len",
	"val_set_size",
	"sample_packing",
	"seed",
	"train_on_inputs",
	"data_seed",
	"micro_batch_size",
	"adam_beta1",
	"gradient_accumulation_steps",
	"adam_beta2",
	"learning_rate",
	"adam_epsilon",
	"lr_scheduler",
	"weight_decay",
	"warmup_steps",
	"momentum",
	"warmup_ratio",
	"max_grad_norm",
	"cosine_min_lr_ratio",
	"lr_min_ratio",
	"lr_num_cycles",
	"lr_power",
	"lr_decay_ratio",
	"lora_model_dir",
	"loraplus_lr_ratio",
	"neftune_noise_alpha",
	"router_aux_loss_coef",
	"router_z_loss_coef",
	"rl",
	"rl_beta",
	"orpo_alpha",
	"dpo_label_smoothing",
	"rpo_alpha",
	"cpo_alpha",
	"simpo_gamma",
	"kto_desirable_weight",
	"kto_undesirable_weight",
};
/* These only change the length of the run. */
static const char *const length_keys[] = { "max_steps", "num_epochs" };

static void add_difference(struct buf *out, const char *key, const char *was, const char *is)
{
	buf_addf(out, "%s'%s' was %.120s and is %.120s now", out->n ? ", " : "", key,
		 was ? was : "not set", is ? is : "not set");
}

/* Whether a key that an older program did not know has its default, which is what that did. */
static bool is_default(const char *key, const json_t *now)
{
	size_t n;
	const struct opt *rows = config_rows(&n), *r = opt_find(rows, n, key);
	if (r && r->def && r->kind == OPT_NAME && json_is_string(now))
		return !strcmp(json_string_value(now), r->def);
	return r && r->def && r->kind == OPT_FLOAT &&
	       json_number_value(now) == strtod(r->def, NULL);
}

static void compare(const json_t *then, const json_t *now, const char *const *key, size_t n,
		    struct buf *out)
{
	for (size_t i = 0; i < n; i++) {
		json_t *x = json_object_get(then, key[i]), *y = json_object_get(now, key[i]);
		if ((!x && (!y || is_default(key[i], y))) || json_equal(x, y))
			continue;
		char *xs = json_dumps(x, DUMP), *ys = json_dumps(y, DUMP);
		add_difference(out, key[i], xs, ys);
		free(xs);
		free(ys);
	}
}

int checkpoint_identity(const struct job *j, char hex[HASH_HEX], struct err *e)
{
	const char *const *list[] = { fixed_keys, result_keys };
	const size_t count[] = { ARRAY_LEN(fixed_keys), ARRAY_LEN(result_keys) };
	struct buf b = BUF_INIT, all = BUF_INIT;
	json_t *now = NULL;
	config_to_json(j->cfg, &b);
	int rc = buf_ok(&b, e);
	if (rc >= 0)
		rc = json_parse_text(b.p, b.n, "the configuration", &now, e);
	for (int k = 0; k < 2 && rc >= 0; k++)
		for (size_t i = 0; i < count[k]; i++) {
			char *text = json_dumps(json_object_get(now, list[k][i]),
						JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
			buf_addf(&all, "%s %s\n", list[k][i], text ? text : "");
			free(text);
		}
	buf_addf(&all, "%s %016llx\n", j->base_hash, (unsigned long long)j->digest);
	rc = rc < 0 ? rc : buf_ok(&all, e);
	if (rc >= 0)
		hash_bytes(all.p, all.n, hex);
	json_decref(now);
	buf_release(&b);
	buf_release(&all);
	return rc;
}

/* Differences that are not keys of the configuration. */
static void compare_rest(const struct job *j, const json_t *doc, struct buf *out)
{
	const char *base = json_string_value(json_object_get(doc, "base_hash")),
		   *data = json_string_value(json_object_get(doc, "dataset_digest")),
		   *dtype = json_string_value(json_object_get(doc, "compute_dtype")),
		   *was = json_string_value(
			   json_object_get(json_object_get(doc, "config"), "base_model"));
	int wanted = j->cfg->compute_dtype;
	if (base && strcmp(base, j->base_hash))
		buf_addf(out, "%sthe base model is another one (%.200s then, %.200s now)",
			 out->n ? ", " : "", was ? was : "?", j->cfg->base_model);
	const json_t *test = json_object_get(json_object_get(doc, "config"), "test_datasets");
	if (!job_same_data(j, data) || json_array_size(test) != j->cfg->ntest)
		buf_addf(out,
			 "%sthe training data has changed since this run was saved (or the "
			 "tokenizer changed)",
			 out->n ? ", " : "");
	if (dtype && wanted != COMPUTE_AUTO && strcmp(dtype, config_compute_name(wanted)))
		add_difference(out, "compute_dtype", dtype, config_compute_name(wanted));
}

/* The passes of the checkpoint, or none; *v_p is the caller's. */
static int read_passes(const json_t *doc, const char *path, int **v_p, size_t *n_p, struct err *e)
{
	const json_t *list = json_object_get(doc, "passes");
	const size_t n = json_array_size(list);
	if (!list)
		return 0;
	if (!json_is_array(list) || n < 1 || n > PASSES_MOST)
		return err_set(e, ERR_INPUT, "%s: 'passes' must list 1 to %d numbers of rows", path,
			       PASSES_MOST);
	int *v = mem_array(n, sizeof *v);
	if (!v)
		return err_nomem(e, n * sizeof *v, "passes");
	for (size_t i = 0; i < n; i++) {
		const json_t *x = json_array_get(list, i);
		const json_int_t rows = json_integer_value(x);
		if (!json_is_integer(x) || rows < 1 || rows > PASS_ROWS_MOST) {
			mem_free(v);
			return err_set(e, ERR_INPUT,
				       "%s: number %zu of 'passes' is none from 1 to %d", path,
				       i + 1, PASS_ROWS_MOST);
		}
		v[i] = (int)rows;
	}
	*v_p = v;
	*n_p = n;
	return 0;
}

/* A run goes on with the passes that it began with; a configuration that says nothing of them gets
 * them. */
static int take_passes(struct job *j, const json_t *doc, const char *path, struct buf *differ,
		       struct err *e)
{
	const struct config *c = j->cfg;
	const json_t *then = json_object_get(doc, "config");
	const json_int_t size = json_integer_value(json_object_get(then, "micro_batch_size")),
			 steps = json_integer_value(
				 json_object_get(then, "gradient_accumulation_steps"));
	char was[100], is[100];
	int *v = NULL, rc = 0;
	size_t n = 0;
	TRY(read_passes(doc, path, &v, &n, e));
	const bool same = n == j->npass && (!n || !memcmp(v, j->pass, n * sizeof *v));
	uint64_t rows;
	const bool batch = size > 0 && steps > 0 &&
			   mul_ok((uint64_t)size, (uint64_t)steps, &rows) &&
			   rows == (uint64_t)(c->micro_batch_size * c->gradient_accumulation_steps);
	if (!same && n && batch && !j->pass && !c->passes.n) {
		rc = job_set_passes(j, v, n, e);
	} else if (!same) {
		snprintf(was, sizeof was, "%lld microbatch%s of %lld", (long long)steps,
			 steps == 1 ? "" : "es", (long long)size);
		if (n)
			sched_passes_text(v, n, was, sizeof was);
		job_passes_text(j, is, sizeof is);
		add_difference(differ, "passes", was, is);
	}
	mem_free(v);
	return rc;
}

/* With compute_dtype auto a run goes on in the dtype that it began with. */
static int take_dtype(struct job *j, const json_t *doc, const char *path, struct err *e)
{
	static const enum dtype all[] = { DT_F32, DT_BF16, DT_F16 };
	const char *name = json_string_value(json_object_get(doc, "compute_dtype"));
	for (size_t i = 0; name && i < ARRAY_LEN(all); i++)
		if (!strcmp(name, dtype_name(all[i]))) {
			j->opt.act = all[i];
			j->resumed_act = true;
			return 0;
		}
	return name ? err_set(e, ERR_INPUT, "%s: 'compute_dtype' is '%.32s'", path, name) : 0;
}

int checkpoint_same_job(struct job *j, const json_t *doc, const char *path, bool allow_changes,
			struct err *e)
{
	struct buf b = BUF_INIT, fixed = BUF_INIT, differ = BUF_INIT, length = BUF_INIT;
	config_to_json(j->cfg, &b);
	json_t *now = NULL;
	int rc = buf_ok(&b, e);
	if (rc >= 0)
		rc = json_parse_text(b.p, b.n, "the configuration", &now, e);
	if (rc < 0)
		goto out;
	const json_t *then = json_object_get(doc, "config");
	compare(then, now, fixed_keys, ARRAY_LEN(fixed_keys), &fixed);
	compare(then, now, result_keys, ARRAY_LEN(result_keys), &differ);
	compare(then, now, length_keys, ARRAY_LEN(length_keys), &length);
	compare_rest(j, doc, &differ);
	TRYOUT(take_passes(j, doc, path, &differ, e));
	if (fixed.n)
		rc = err_set(e, ERR_USAGE, "%s: %s: set it back or begin a new run", path, fixed.p);
	else if (differ.n && !allow_changes)
		rc = err_set(e, ERR_USAGE,
			     "%s: %s: set it as it was, or resume with --allow-changes", path,
			     differ.p);
	if (rc >= 0 && j->cfg->compute_dtype == COMPUTE_AUTO)
		rc = take_dtype(j, doc, path, e);
	if (rc >= 0 && differ.n)
		log_warn("resumed with changes: %s", differ.p);
	if (rc >= 0 && length.n)
		log_info("the run has another length: %s; the learning-rate curve follows it",
			 length.p);
out:
	json_decref(now);
	buf_release(&b);
	buf_release(&fixed);
	buf_release(&differ);
	buf_release(&length);
	return rc;
}
