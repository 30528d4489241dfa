/* SPDX-License-Identifier: Apache-2.0 */
/* config_json.c - writes a configuration as JSON, for checkpoints and for workers. */
#include "config/config.h"
#include "config/config_parts.h"

#include "base/buf.h"
#include "base/json.h"

#include <string.h>

static void str(struct buf *o, const char *s) { json_quote(o, s, strlen(s)); }

static void choice(struct buf *o, const char *choices, int index)
{
	for (; index > 0; index--)
		choices += strcspn(choices, "|") + 1;
	json_quote(o, choices, strcspn(choices, "|"));
}

static void field(struct buf *o, const char *key, bool *first)
{
	buf_adds(o, *first ? "" : ", ");
	str(o, key);
	buf_adds(o, ": ");
	*first = false;
}

static void opt_field(struct buf *o, const char *key, const char *value, bool *first)
{
	if (!value)
		return;
	field(o, key, first);
	str(o, value);
}

static void one(struct buf *o, const struct config *c, const struct opt *r)
{
	const void *f = (const char *)c + r->offset;
	switch (r->kind) {
	case OPT_BOOL:
		buf_adds(o, *(const bool *)f ? "true" : "false");
		return;
	case OPT_INT:
		buf_addf(o, "%lld", (long long)*(const int64_t *)f);
		return;
	case OPT_FLOAT:
		json_number(o, *(const double *)f);
		return;
	case OPT_STR:
	case OPT_NAME:
		str(o, *(const char *const *)f);
		return;
	case OPT_ENUM:
		choice(o, r->choices, *(const int *)f);
		return;
	case OPT_LIST: {
		const struct opt_list *l = f;
		buf_addc(o, '[');
		for (size_t i = 0; i < l->n; i++) {
			buf_adds(o, i ? ", " : "");
			str(o, l->item[i]);
		}
		buf_addc(o, ']');
		return;
	}
	case OPT_CUSTOM:
		return;
	}
}

/* Not written: keys that were not given, and keys that would fail the checks (settings of a part
 * that is not used). */
static bool wanted(const struct config *c, const struct opt *r)
{
	if (r->kind == OPT_CUSTOM)
		return false;
	if (r->kind == OPT_STR || r->kind == OPT_NAME)
		return *(const char *const *)((const char *)c + r->offset) != NULL;
	if (!strcmp(r->key, "lora_target_modules") && c->lora_target_linear)
		return false;
	if (!strcmp(r->key, "lora_modules_to_save"))
		return c->lora_modules_to_save.n > 0;
	if (!strcmp(r->key, "peft_layers_to_transform"))
		return c->peft_layers_to_transform.n > 0;
	if (!strcmp(r->key, "lora_rank_pattern"))
		return c->lora_rank_pattern.n > 0;
	if (!strcmp(r->key, "lora_alpha_pattern"))
		return c->lora_alpha_pattern.n > 0;
	if (!strcmp(r->key, "special_tokens"))
		return c->special_tokens.n > 0;
	if (!strcmp(r->key, "passes"))
		return c->passes.n > 0;
	if (!strcmp(r->key, "interleave"))
		return config_interleaves(c);
	return c->adapter != ADAPTER_NONE ||
	       (strncmp(r->key, "lora_", 5) && strncmp(r->key, "peft_", 5) &&
		strcmp(r->key, "use_rslora") && strcmp(r->key, "loraplus_lr_ratio"));
}

static void limits(struct buf *o, const struct config_limits *l)
{
	if (l->threads)
		buf_addf(o, ", \"threads\": %lld", (long long)l->threads);
	if (l->memory > 0) {
		buf_adds(o, ", \"memory\": ");
		json_number(o, l->memory);
	}
	if (l->nice)
		buf_addf(o, ", \"nice\": %lld", (long long)l->nice);
}

static void list(struct buf *o, const char *key, const struct opt_list *l)
{
	if (!l->n)
		return;
	buf_addf(o, ", \"%s\": [", key);
	for (size_t i = 0; i < l->n; i++) {
		buf_adds(o, i ? ", " : "");
		str(o, l->item[i]);
	}
	buf_addc(o, ']');
}

static void meshed(struct buf *o, const struct config_meshed *m)
{
	static const char *const family[] = { NULL, "ipv4", "ipv6", "both" };
	bool first = false;
	opt_field(o, "wg_public_key", m->wg_public_key, &first);
	list(o, "endpoint", &m->endpoint);
	list(o, "mesh_ip", &m->mesh_ip);
	opt_field(o, "family", (unsigned)m->family < 4 ? family[m->family] : NULL, &first);
}

static void mesh(struct buf *o, const struct config_mesh *m)
{
	bool first = false;
	buf_addf(o, ",\n  \"mesh\": {\"port\": %lld, \"mtu\": %lld", (long long)m->port,
		 (long long)m->mtu);
	list(o, "range", &m->range);
	opt_field(o, "hub", m->hub, &first);
	opt_field(o, "interface", m->interface, &first);
	opt_field(o, "key_file", m->key_file, &first);
	opt_field(o, "dir", m->dir, &first);
	buf_addc(o, '}');
}

static void one_worker(struct buf *o, const struct config_worker *w)
{
	bool first = true;
	if (w->invited && !w->ssh) {
		buf_addc(o, ' ');
		str(o, w->id);
		return;
	}
	buf_adds(o, "\n    {");
	opt_field(o, "id", w->id, &first);
	if (!w->invited) {
		opt_field(o, "hostname", w->hostname, &first);
		opt_field(o, "ip", w->ip, &first);
		buf_addf(o, ", \"port\": %lld, \"num_gpus\": %lld", (long long)w->port,
			 (long long)w->num_gpus);
		opt_field(o, "public_key", w->public_key, &first);
		opt_field(o, "listen", w->listen == LISTEN_IP ? "ip" : NULL, &first);
	}
	opt_field(o, "device", w->device, &first);
	if (w->spare) {
		buf_addf(o, "%s\"spare\": true", first ? "" : ", ");
		first = false;
	}
	opt_field(o, "ssh", w->ssh, &first);
	limits(o, &w->limits);
	meshed(o, &w->meshed);
	buf_addc(o, '}');
}

static void cluster(struct buf *o, const struct config *c)
{
	bool first = true;
	const struct config_coordinator *k = &c->coordinator;
	buf_adds(o, ",\n  \"coordinator\": {");
	opt_field(o, "hostname", k->hostname, &first);
	opt_field(o, "ip", k->ip, &first);
	field(o, "port", &first);
	buf_addf(o, "%lld", (long long)k->port);
	opt_field(o, "device", k->device, &first);
	opt_field(o, "public_key", k->public_key, &first);
	opt_field(o, "listen", k->listen == LISTEN_IP ? "ip" : NULL, &first);
	limits(o, &k->limits);
	meshed(o, &k->meshed);
	if (c->workers_all)
		buf_adds(o, "},\n  \"workers\": \"all\",");
	else
		buf_adds(o, "},\n  \"workers\": [");
	for (size_t i = 0; !c->workers_all && i < c->nworkers; i++) {
		buf_adds(o, i ? "," : "");
		one_worker(o, &c->workers[i]);
	}
	buf_adds(o, c->workers_all ? "\n  \"shard_plan\": [" : "],\n  \"shard_plan\": [");
	for (size_t i = 0; i < c->nshards; i++) {
		const struct config_shard *s = &c->shard_plan[i];
		buf_adds(o, i ? ",\n    {\"id\": " : "\n    {\"id\": ");
		if (s->homes > 1)
			buf_addc(o, '[');
		for (size_t j = 0; j < s->homes; j++) {
			buf_adds(o, j ? ", " : "");
			str(o, s->id.item[j]);
		}
		if (s->homes > 1)
			buf_addc(o, ']');
		for (size_t j = 0; j < s->experts.n; j++) {
			buf_adds(o, j ? ", " : ", \"experts\": [");
			str(o, s->experts.item[j]);
			buf_adds(o, j + 1 == s->experts.n ? "]" : "");
		}
		for (size_t j = 0; s->share && j < s->homes; j++)
			buf_addf(o, "%s%d%s", j ? ", " : ", \"share\": [", s->share[j],
				 j + 1 == s->homes ? "]" : "");
		for (size_t j = 0; s->state && j < s->id.n; j++)
			buf_addf(o, "%s%.9g%s", j ? ", " : ", \"state_share\": [", s->state[j],
				 j + 1 == s->id.n ? "]" : "");
		for (size_t j = 0; s->size && j < s->id.n; j++)
			buf_addf(o, "%s%d%s", j ? ", " : ", \"micro_batch_size\": [", s->size[j],
				 j + 1 == s->id.n ? "]" : "");
		buf_addf(o, ", \"start\": %lld, \"end\": %lld%s}", (long long)s->start,
			 (long long)s->end, s->is_last ? ", \"is_last\": true" : "");
	}
	buf_addc(o, ']');
}

void config_to_json(const struct config *c, struct buf *out)
{
	size_t n;
	const struct opt *rows = config_rows(&n);
	bool first = true;
	buf_addc(out, '{');
	for (size_t i = 0; i < n; i++) {
		if (!wanted(c, &rows[i]))
			continue;
		buf_adds(out, first ? "\n  " : ",\n  ");
		first = false;
		str(out, rows[i].key);
		buf_adds(out, ": ");
		one(out, c, &rows[i]);
	}
	if (c->ndatasets)
		config_data_json(out, c);
	if (c->mesh.given)
		mesh(out, &c->mesh);
	if (c->coordinator.given || c->workers_invited)
		cluster(out, c);
	buf_adds(out, "\n}\n");
}

static const char *const adapter_names[] = { "none", "lora", "qlora" };
static const char *const compute_names[] = { "auto", "float32", "bfloat16", "float16" };
static const char *const wire_names[] = { "bfloat16", "float32", "float16" };

const char *config_adapter_name(int a) { return (unsigned)a < 3 ? adapter_names[a] : "?"; }
const char *config_compute_name(int t) { return (unsigned)t < 4 ? compute_names[t] : "?"; }
const char *config_wire_name(int t) { return (unsigned)t < 3 ? wire_names[t] : "?"; }
