/* SPDX-License-Identifier: Apache-2.0 */
/* info_run.c - the files of a run: adapters, checkpoints, folders of runs, plans. */
#include "cli/info.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "file/model_file.h"
#include "file/peft.h"
#include "job/checkpoint_list.h"
#include "model/model.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_MOST = 4096, JSON_MOST = 64 << 20 };

static int join(char *out, const char *dir, const char *name, struct err *e)
{
	int n = snprintf(out, PATH_MOST, "%s/%s", dir, name);
	return n > 0 && n < PATH_MOST ? 0 : err_set(e, ERR_INPUT, "%s: the path is too long", dir);
}

static void copy_member(json_t *to, const char *as, const json_t *from, const char *key)
{
	json_t *v = json_object_get(from, key);
	if (v && !json_is_null(v))
		json_object_set(to, as, v);
}

struct adapter {
	struct arena a;
	struct peft_adapter ad;
};

static json_t *module_row(void *ctx, size_t i)
{
	const struct peft_pair *p = &((struct adapter *)ctx)->ad.pair[i];
	return json_pack("{s:s, s:I, s:I}", "module", p->module, "in", (json_int_t)p->in, "out",
			 (json_int_t)p->out);
}

static void adapter_close(void *ctx)
{
	arena_release(&((struct adapter *)ctx)->a);
	mem_free(ctx);
}

int info_adapter(const char *dir, struct info_rows *rows, json_t **o_p, struct err *e)
{
	struct adapter *x = mem_zalloc(sizeof *x);
	if (!x)
		return err_nomem(e, sizeof *x, "an adapter");
	const struct peft_config *c = &x->ad.cfg;
	int rc = peft_read(dir, &x->a, &x->ad, e);
	if (rc < 0) {
		adapter_close(x);
		return rc;
	}
	json_t *o = json_object(), *target = json_array();
	uint64_t parameters = 0;
	for (size_t i = 0; i < c->ntarget; i++)
		json_array_append_new(target, json_string(c->target[i]));
	for (size_t i = 0; i < c->nparameter; i++)
		json_array_append_new(target, json_string(c->parameter[i]));
	for (size_t i = 0; i < x->ad.npair; i++)
		parameters += (uint64_t)(x->ad.pair[i].in + x->ad.pair[i].out) *
				      (uint64_t)x->ad.pair[i].r +
			      (x->ad.pair[i].m ? (uint64_t)x->ad.pair[i].out : 0);
	for (size_t i = 0; i < x->ad.nsaved; i++)
		parameters += (uint64_t)(x->ad.saved[i].rows * x->ad.saved[i].cols);
	json_object_set_new(o, "kind", json_string("LoRA adapter (PEFT)"));
	json_object_set_new(o, "path", json_string(dir));
	if (c->base_model)
		json_object_set_new(o, "base_model", json_string(c->base_model));
	json_object_set_new(o, "r", json_integer(c->r));
	json_object_set_new(o, "lora_alpha", json_real(c->alpha));
	json_object_set_new(o, "scale", json_real(peft_scale(c)));
	json_object_set_new(o, "rslora", json_boolean(c->rslora));
	json_object_set_new(o, "dora", json_boolean(c->dora));
	json_object_set_new(o, "target_modules", target);
	json_object_set_new(o, "modules", json_integer((json_int_t)x->ad.npair));
	json_object_set_new(o, "parameters", json_integer((json_int_t)parameters));
	if (rows)
		*rows = (struct info_rows){ "module_list", x->ad.npair, module_row, adapter_close,
					    x };
	else
		adapter_close(x);
	*o_p = o;
	return 0;
}

static json_t *state_facts(const char *path, const json_t *doc)
{
	static const char *const config[] = { "base_model",
					      "adapter",
					      "lora_r",
					      "learning_rate",
					      "sequence_len",
					      "micro_batch_size",
					      "gradient_accumulation_steps",
					      "seed" };
	json_t *o = json_object();
	json_object_set_new(o, "kind", json_string("checkpoint"));
	json_object_set_new(o, "path", json_string(path));
	copy_member(o, "step", doc, "step");
	copy_member(o, "of_steps", doc, "total_steps");
	copy_member(o, "epoch", doc, "epoch");
	copy_member(o, "next_batch", doc, "batch");
	copy_member(o, "tokens", doc, "tokens");
	copy_member(o, "skipped_steps", doc, "skipped");
	copy_member(o, "compute_dtype", doc, "compute_dtype");
	for (size_t i = 0; i < ARRAY_LEN(config); i++)
		copy_member(o,
			    strcmp(config[i], "gradient_accumulation_steps") ? config[i]
									     : "accumulation",
			    json_object_get(doc, "config"), config[i]);
	return o;
}

int info_checkpoint(const char *dir, json_t **o_p, struct err *e)
{
	char path[PATH_MOST];
	json_t *doc;
	TRY(join(path, dir, "trainer_state.json", e));
	TRY(json_parse_file(path, JSON_MOST, &doc, e));
	*o_p = state_facts(dir, doc);
	json_decref(doc);
	return 0;
}

/* First, last and best losses of metrics.jsonl; lines that cannot be read are skipped. */
static void add_metrics(json_t *o, const char *path)
{
	struct err e;
	struct buf b = BUF_INIT;
	json_t *first = NULL, *last = NULL, *val_first = NULL, *val_last = NULL;
	if (buf_read_file(&b, path, 0, &e) < 0)
		return;
	for (const char *p = b.p, *end = b.p + b.n, *nl;
	     p < end && (nl = memchr(p, '\n', (size_t)(end - p))); p = nl + 1) {
		json_t *line = NULL;
		json_parse_text_in(p, (size_t)(nl - p), path, JSON_MEMORY_LINE, &line, &e);
		json_t **from = json_object_get(line, "val_loss") ? &val_first : &first,
		       **to = from == &first ? &last : &val_last;
		if (from == &first && !json_object_get(line, "loss")) { /* an event, or damaged */
			json_decref(line);
			continue;
		}
		if (!*from)
			*from = json_incref(line);
		json_decref(*to);
		*to = line;
	}
	copy_member(o, "steps", last, "step");
	copy_member(o, "first_loss", first, "loss");
	copy_member(o, "last_loss", last, "loss");
	copy_member(o, "first_validation_loss", val_first, "val_loss");
	copy_member(o, "last_validation_loss", val_last, "val_loss");
	copy_member(o, "tokens_per_second", last, "tokens_per_second");
	json_decref(first);
	json_decref(last);
	json_decref(val_first);
	json_decref(val_last);
	buf_release(&b);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_checkpoints(json_t *o, const char *dir, struct arena *a)
{
	const char **name = NULL;
	size_t n = 0, cap = 0;
	DIR *d = opendir(dir);
	for (struct dirent *ent; d && (ent = readdir(d));) {
		const char *s = ent->d_name;
		if (strncmp(s, "step-", 5) || strstr(s, ".tmp") ||
		    !mem_grow(&name, &cap, n + 1, sizeof *name))
			continue;
		name[n] = arena_strdup(a, s);
		n += name[n] != NULL;
	}
	if (d)
		closedir(d);
	if (n)
		qsort(name, n, sizeof *name, by_name);
	json_t *list = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, json_string(name[i]));
	json_object_set_new(o, "checkpoints", list);
	mem_free(name);
}

/* The base as the newest checkpoint names it, and what kind of model that is; nothing where it
 * cannot be found. */
static void add_base(json_t *o, const char *dir, struct arena *a)
{
	const char *newest = NULL, *base;
	char path[PATH_MOST];
	struct err ignored = { 0 };
	struct model_file *f;
	struct model_config c;
	json_t *doc = NULL;
	if (checkpoint_latest(dir, a, &newest, &ignored) >= 0 && newest &&
	    join(path, newest, "trainer_state.json", &ignored) >= 0 &&
	    json_parse_file(path, JSON_MOST, &doc, &ignored) >= 0 &&
	    !json_object_get(o, "base_model"))
		copy_member(o, "base_model", json_object_get(doc, "config"), "base_model");
	json_decref(doc);
	base = json_string_value(json_object_get(o, "base_model"));
	if (!base || model_file_open(base, &f, &ignored) < 0)
		return;
	if (model_config_read(model_file_config(f), base, &c, &ignored) >= 0) {
		json_object_set_new(o, "family", json_string(c.family));
		json_object_set_new(o, "base_parameters",
				    json_integer((json_int_t)model_parameters(&c)));
	}
	model_file_close(f);
}

int info_run(const char *dir, json_t **o_p, struct err *e)
{
	char path[PATH_MOST];
	struct arena a = ARENA_INIT;
	struct err why = { 0 };
	TRY(join(path, dir, "metrics.jsonl", e));
	json_t *o = json_object(), *adapter = NULL;
	json_object_set_new(o, "kind", json_string("run"));
	json_object_set_new(o, "path", json_string(dir));
	if (info_adapter(dir, NULL, &adapter, &why) >= 0) {
		static const char *const keys[] = { "base_model", "r", "lora_alpha",
						    "target_modules", "parameters" };
		for (size_t i = 0; i < ARRAY_LEN(keys); i++)
			copy_member(o, keys[i], adapter, keys[i]);
		json_decref(adapter);
	}
	add_base(o, dir, &a);
	add_metrics(o, path);
	int rc = join(path, dir, "checkpoints", e);
	if (rc >= 0)
		add_checkpoints(o, path, &a);
	arena_release(&a);
	if (rc < 0)
		json_decref(o);
	else
		*o_p = o;
	return rc;
}

static json_t *plan_facts(const char *path, const json_t *doc)
{
	static const char *const keys[] = {
		"planner",           "model",        "schedule",   "microbatch",   "microbatches",
		"global_batch",      "sequence_len", "dtype",      "predicted_ms", "simulated_ms",
		"tokens_per_second", "fits",         "executable", "why_not",      "left_out"
	};
	json_t *o = json_object(), *list = json_array(), *stage, *device;
	size_t i, k;
	json_object_set_new(o, "kind", json_string("plan"));
	json_object_set_new(o, "path", json_string(path));
	for (i = 0; i < ARRAY_LEN(keys); i++)
		copy_member(o, keys[i], doc, keys[i]);
	json_array_foreach(json_object_get(doc, "stages"), i, stage)
	{
		json_array_foreach(json_object_get(stage, "devices"), k, device)
		{
			json_t *row = json_object(), *layers = json_object_get(stage, "layers");
			char text[64];
			snprintf(text, sizeof text, "%lld to %lld",
				 (long long)json_integer_value(json_array_get(layers, 0)),
				 (long long)json_integer_value(json_array_get(layers, 1)) - 1);
			json_object_set_new(row, "stage", json_integer((json_int_t)i));
			json_object_set_new(row, "layers", json_string(text));
			copy_member(row, "device", device, "id");
			copy_member(row, "host", device, "host");
			copy_member(row, "microbatches", device, "microbatches");
			copy_member(row, "memory_gib", device, "memory_gib");
			copy_member(row, "busy", device, "busy");
			json_array_append_new(list, row);
		}
	}
	json_object_set_new(o, "stages", list);
	return o;
}

/* prediction.json: what the plan said and what the run did. */
static json_t *prediction_facts(const char *path, const json_t *doc)
{
	static const char *const keys[] = { "predicted_seconds", "measured_seconds",
					    "error_percent" };
	static const char *const of[] = { "stage", "predicted_gib", "measured_gib",
					  "predicted_busy_seconds", "measured_busy_seconds" };
	json_t *o = json_object(), *list = json_array(), *stage;
	size_t i;
	json_object_set_new(o, "kind", json_string("prediction of a run"));
	json_object_set_new(o, "path", json_string(path));
	for (i = 0; i < ARRAY_LEN(keys); i++)
		copy_member(o, keys[i], doc, keys[i]);
	json_array_foreach(json_object_get(doc, "stages"), i, stage)
	{
		json_t *row = json_object();
		copy_member(row, "device", stage, "id");
		for (size_t k = 0; k < ARRAY_LEN(of); k++)
			copy_member(row, of[k], stage, of[k]);
		json_array_append_new(list, row);
	}
	json_object_set_new(o, "stages", list);
	return o;
}

static json_t *profile_facts(const char *path, const json_t *doc)
{
	json_t *o = json_object(), *list = json_array(), *device;
	size_t i;
	json_object_set_new(o, "kind", json_string("profile"));
	json_object_set_new(o, "path", json_string(path));
	copy_member(o, "model", json_object_get(doc, "model"), "name");
	copy_member(o, "layers", json_object_get(doc, "model"), "layers");
	copy_member(o, "sequence_len", doc, "sequence_len");
	copy_member(o, "dtype", doc, "dtype");
	copy_member(o, "global_batch", doc, "global_batch");
	json_object_set_new(
		o, "links",
		json_integer((json_int_t)json_array_size(json_object_get(doc, "links"))));
	json_array_foreach(json_object_get(doc, "devices"), i, device)
	{
		json_t *row = json_object();
		copy_member(row, "device", device, "id");
		copy_member(row, "name", device, "kind");
		copy_member(row, "host", device, "host");
		copy_member(row, "memory_gib", device, "memory_gib");
		json_array_append_new(list, row);
	}
	json_object_set_new(o, "devices", list);
	return o;
}

int info_json(const char *path, json_t **o_p, struct err *e)
{
	json_t *doc;
	int rc = 0;
	TRY(json_parse_file(path, JSON_MOST, &doc, e));
	if (json_object_get(doc, "predicted_seconds"))
		*o_p = prediction_facts(path, doc);
	else if (json_is_array(json_object_get(doc, "stages")))
		*o_p = plan_facts(path, doc);
	else if (json_is_array(json_object_get(doc, "devices")))
		*o_p = profile_facts(path, doc);
	else if (json_object_get(doc, "step") && json_object_get(doc, "config"))
		*o_p = state_facts(path, doc);
	else
		rc = err_set(e, ERR_INPUT,
			     "%s: is not a plan, a profile, a prediction or a "
			     "trainer_state.json",
			     path);
	json_decref(doc);
	return rc;
}
