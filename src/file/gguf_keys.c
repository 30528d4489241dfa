/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_keys.c - see gguf_keys.h. */
#include "file/gguf_keys.h"

#include "base/err.h"
#include "file/ggml_blocks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct gguf_kv *keys_find(const struct gguf_keys *m, const char *name)
{
	char key[128];
	snprintf(key, sizeof key, "%s.%s", m->arch->name, name);
	return gguf_find(m->g, key);
}

/* A number under "<arch>.name"; a missing one leaves *v_p. */
int keys_number(const struct gguf_keys *m, const char *name, bool need, double lo, double hi,
		double *v_p, struct err *e)
{
	const struct gguf_kv *kv = keys_find(m, name);
	json_t *v = NULL;
	if (!kv)
		return need ? err_set(e, ERR_INPUT, "%s: the key '%s.%s' is missing", m->g->path,
				      m->arch->name, name)
			    : 0;
	if (kv->array)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: '%s' differs from layer to layer, which is not supported",
			       m->g->path, kv->key);
	TRY(gguf_kv_one(m->g, kv, &v, e));
	double d = json_number_value(v);
	bool ok = json_is_number(v) && d >= lo && d <= hi;
	json_decref(v);
	if (!ok)
		return err_set(e, ERR_INPUT, "%s: '%s' must be a number from %g to %g", m->g->path,
			       kv->key, lo, hi);
	*v_p = d;
	return 0;
}

int keys_integer(const struct gguf_keys *m, const char *name, bool need, int64_t lo, int64_t *v_p,
		 struct err *e)
{
	double d = (double)*v_p;
	TRY(keys_number(m, name, need, (double)lo, GGUF_INT_MOST, &d, e));
	if (d != floor(d))
		return err_set(e, ERR_INPUT, "%s: '%s.%s' must be a whole number", m->g->path,
			       m->arch->name, name);
	*v_p = (int64_t)d;
	return 0;
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
	for (size_t i = 0; i < g->ntensor; i++)
		if (!strcmp(g->tensor[i].name, name))
			return &g->tensor[i];
	return NULL;
}

/* A vector of positive numbers, one for each rotary frequency. */
int keys_factors(const struct gguf_keys *m, const struct gguf_tensor *t, int64_t rot,
		 json_t **list_p, struct err *e)
{
	if (t->ndim != 1 || t->ne[0] != rot / 2 || t->type != GGML_F32)
		return err_set(e, ERR_INPUT, "%s: '%s' must be %lld numbers of F32", m->g->path,
			       t->name, (long long)(rot / 2));
	json_t *list = json_array();
	for (int64_t i = 0; i < t->ne[0]; i++) {
		float f;
		memcpy(&f, t->data + 4 * i, 4);
		if (!(isfinite(f) && f > 0)) {
			json_decref(list);
			return err_set(e, ERR_INPUT, "%s: '%s' must hold positive numbers",
				       m->g->path, t->name);
		}
		json_array_append_new(list, json_real(f));
	}
	*list_p = list;
	return 0;
}

void keys_set(const struct gguf_keys *m, const char *key, int64_t v)
{
	json_object_set_new(m->o, key, json_integer(v));
}
