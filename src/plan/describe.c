/* SPDX-License-Identifier: Apache-2.0 */
/* describe.c - see describe.h: reads the file, places devices and links. */
#include "plan/describe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/version.h"
#include "base/yaml.h"
#include "plan/cards.h"
#include "plan/describe_parts.h"

#define GIB_FIXED 0.5
#define CORE_TFLOPS 0.05
#define OF_THE_WIRE 0.94
#define LATENCY_MS 0.2

#define FIELD(type, name) .key = #name, .offset = offsetof(struct type, name)

static const struct opt model_rows[] = {
	{ FIELD(described_model, name), .kind = OPT_STR },
	{ FIELD(described_model, layers), .kind = OPT_INT, .lo = 1, .hi = MODEL_LAYERS_MOST },
	{ FIELD(described_model, hidden), .kind = OPT_INT, .lo = 1, .hi = 1 << 20 },
	{ FIELD(described_model, intermediate), .kind = OPT_INT, .lo = 1, .hi = 1 << 22 },
	{ FIELD(described_model, heads), .kind = OPT_INT, .lo = 1, .hi = 4096 },
	{ FIELD(described_model, kv_heads), .kind = OPT_INT, .lo = 1, .hi = 4096 },
	{ FIELD(described_model, head_dim), .kind = OPT_INT, .lo = 1, .hi = MODEL_HEAD_DIM_MOST },
	{ FIELD(described_model, vocab), .kind = OPT_INT, .lo = 1, .hi = 1 << 24 },
	{ FIELD(described_model, tied), .kind = OPT_BOOL },
};

static const struct opt device_rows[] = {
	{ FIELD(described_device, card), .kind = OPT_STR },
	{ FIELD(described_device, host), .kind = OPT_STR },
	{ FIELD(described_device, id), .kind = OPT_STR },
	{ FIELD(described_device, count), .kind = OPT_INT, .def = "1", .lo = 1,
	  .hi = PROFILE_MAX_DEVICES },
	{ FIELD(described_device, cores), .kind = OPT_INT, .lo = 1, .hi = 4096 },
	{ FIELD(described_device, memory), .kind = OPT_FLOAT, .hi = 1e6, .lo_open = true },
	{ FIELD(described_device, tflops), .kind = OPT_FLOAT, .hi = 1e6, .lo_open = true },
	{ FIELD(described_device, watts), .kind = OPT_FLOAT, .hi = 1e6, .lo_open = true },
};

struct link_text {
	struct opt_list hosts;
	const char *speed, *latency;
};

static const struct opt link_rows[] = {
	{ FIELD(link_text, hosts), .kind = OPT_LIST },
	{ FIELD(link_text, speed), .kind = OPT_STR },
	{ FIELD(link_text, latency), .kind = OPT_STR },
};

static const struct opt rows[] = {
	{ FIELD(description, base_model), .kind = OPT_STR, .arg = "PATH" },
	{ .key = "model", .kind = OPT_CUSTOM },
	{ FIELD(description, adapter), .kind = OPT_ENUM, .choices = "none|lora|qlora" },
	{ FIELD(description, lora_r), .kind = OPT_INT, .def = "8", .lo = 1, .hi = 4096 },
	{ FIELD(description, lora_target_modules), .kind = OPT_LIST, .def = "q_proj,v_proj" },
	{ FIELD(description, sequence_len), .kind = OPT_INT, .def = "2048", .lo = 2,
	  .hi = 1048576 },
	{ FIELD(description, batch), .kind = OPT_INT, .def = "16", .lo = 1,
	  .hi = PROFILE_MAX_BATCH },
	{ FIELD(description, compute_dtype), .kind = OPT_ENUM,
	  .choices = "auto|float32|bfloat16|float16" },
	{ .key = "devices", .kind = OPT_CUSTOM },
	{ .key = "links", .kind = OPT_CUSTOM },
};

/* ---- reading ---- */

static int list_only(const struct yaml_node *n, const char *key, const char *file, struct err *e)
{
	if (n->kind != YAML_LIST)
		return err_set(e, ERR_USAGE, "%s:%d: '%s' must be a list", file, n->line, key);
	if (n->count > PROFILE_MAX_DEVICES)
		return err_set(e, ERR_USAGE, "%s:%d: '%s' has %zu entries, %d are allowed", file,
			       n->line, key, n->count, PROFILE_MAX_DEVICES);
	return 0;
}

static int read_devices(struct description *d, const struct yaml_node *n, const char *file,
			struct err *e)
{
	TRY(list_only(n, "devices", file, e));
	d->device = arena_alloc(&d->mem, (n->count + 1) * sizeof *d->device);
	if (!d->device)
		return err_set(e, ERR_NOMEM, "out of memory for a description");
	for (size_t i = 0; i < n->count; i++) {
		struct described_device *v = &d->device[i];
		*v = (struct described_device){ .line = n->child[i]->line };
		TRY(opt_defaults(device_rows, ARRAY_LEN(device_rows), v, &d->mem, e));
		TRY(opt_set_yaml(device_rows, ARRAY_LEN(device_rows), v, n->child[i], file, NULL,
				 NULL, &d->mem, e));
		if (!v->card || !*v->card || !v->host || !*v->host || (v->id && !*v->id))
			return err_set(
				e, ERR_USAGE,
				"%s:%d: a device needs 'card' and 'host': {card: 3090, host: "
				"desk}",
				file, v->line);
		if (v->id && v->count > 1)
			return err_set(e, ERR_USAGE,
				       "%s:%d: 'id' with 'count: %lld': each device needs an id of "
				       "its own; leave 'id' out",
				       file, v->line, (long long)v->count);
		d->devices += (size_t)v->count;
	}
	if (!n->count)
		return err_set(e, ERR_USAGE, "%s:%d: 'devices' is empty", file, n->line);
	if (d->devices > PROFILE_MAX_DEVICES)
		return err_set(e, ERR_USAGE, "%s:%d: %zu devices, %d are allowed", file, n->line,
			       d->devices, PROFILE_MAX_DEVICES);
	d->devices = n->count;
	return 0;
}

static int custom(void *obj, const struct opt *row, const struct yaml_node *n, const char *file,
		  struct arena *a, struct err *e)
{
	struct description *d = obj;

	if (!strcmp(row->key, "devices"))
		return read_devices(d, n, file, e);
	if (!strcmp(row->key, "links")) {
		d->link_list = n;
		return list_only(n, "links", file, e);
	}
	d->has_shape = true;
	return opt_set_yaml(model_rows, ARRAY_LEN(model_rows), &d->shape, n, file, NULL, NULL, a,
			    e);
}

static int read_text(struct description *d, const struct yaml_node *root, struct err *e)
{
	TRY(opt_defaults(rows, ARRAY_LEN(rows), d, &d->mem, e));
	TRY(opt_set_yaml(rows, ARRAY_LEN(rows), d, root, d->path, custom, NULL, &d->mem, e));
	if (!d->device)
		return err_set(
			e, ERR_USAGE,
			"%s: 'devices' is missing: a list such as [{card: 3090, host: desk}]",
			d->path);
	if (!d->base_model == !d->has_shape)
		return err_set(e, ERR_USAGE,
			       "%s: %s: which model? 'base_model: FOLDER', or 'model: {layers: 32, "
			       "hidden: 4096, intermediate: 11008, vocab: 32000}'",
			       d->path,
			       d->has_shape ? "'base_model' and 'model' are both there"
					    : "'base_model' is missing");
	return 0;
}

/* ---- devices ---- */

static bool is_cpu(const struct described_device *v)
{
	return !strcasecmp(v->card, "cpu") || !strcasecmp(v->card, "processor");
}

static const struct card *card_of(const struct description *d, const struct described_device *v,
				  struct err *e)
{
	const struct card *c = NULL;
	char where[300];

	snprintf(where, sizeof where, "%.250s:%d: 'card'", d->path, v->line);
	(void)card_need(v->card, where, "or 'card: cpu'", &c, e);
	return c;
}

/* One dtype for all, as a run decides it (docs/design.md, section 11). */
static int choose_dtype(const struct description *d, struct profile *p, struct buf *notes,
			struct err *e)
{
	static const char *const name[] = { "float32", "float32", "bfloat16", "float16" };
	enum card_native all = CARD_BF16;
	const char *why = NULL;

	for (size_t i = 0; i < d->devices; i++) {
		const struct described_device *v = &d->device[i];
		const struct card *c = is_cpu(v) ? NULL : card_of(d, v, e);
		enum card_native mine = c ? c->native : CARD_NO16;
		if (!c && !is_cpu(v))
			return e->code;
		if (mine < all) {
			all = mine;
			why = v->card;
		}
	}
	p->dtype = d->compute_dtype   ? name[d->compute_dtype]
		   : all == CARD_BF16 ? "bfloat16"
		   : all == CARD_F16  ? "float16"
				      : "float32";
	if (!d->compute_dtype && why && notes)
		buf_addf(notes,
			 "compute_dtype auto is %s for all devices, because '%s' has no native %s; "
			 "--without ID,.. plans without such devices\n",
			 p->dtype, why, all == CARD_F16 ? "bfloat16" : "16-bit format");
	return 0;
}

static int host_of(struct profile *p, const char *name, struct err *e)
{
	for (int i = 0; i < p->hosts; i++)
		if (!strcmp(p->host[i].name, name))
			return i;
	p->host[p->hosts] = (struct profile_host){ arena_strdup(&p->mem, name), 0, false };
	if (!p->host[p->hosts].name)
		return err_set(e, ERR_NOMEM, "out of memory for a profile");
	return p->hosts++;
}

/* "3090", then "3090-2" and so on. */
static int name_device(struct profile *p, const struct described_device *v,
		       struct profile_device *d, struct err *e)
{
	char id[100];

	for (int n = 1; n <= p->devices + 1; n++) {
		snprintf(id, sizeof id, n > 1 ? "%.80s-%d" : "%.80s", v->id ? v->id : v->card, n);
		for (char *c = id; *c; c++)
			*c = *c == ' ' || *c == ',' ? '-' : *c;
		if (profile_find(p, id) < 0 || v->id)
			break;
	}
	d->id = arena_strdup(&p->mem, id);
	return d->id ? 0 : err_set(e, ERR_NOMEM, "out of memory for a profile");
}

static bool said_before(const struct description *d, const struct described_device *v)
{
	for (const struct described_device *o = d->device; o < v; o++)
		if (!strcasecmp(o->card, v->card) && o->tflops == v->tflops && o->cores == v->cores)
			return true;
	return false;
}

static int add_cpu(const struct description *d, const struct described_device *v, struct profile *p,
		   struct profile_device *x, struct buf *notes, struct err *e)
{
	const double tflops = v->tflops > 0 ? v->tflops : CORE_TFLOPS * (double)v->cores;

	if (!(tflops > 0) || !(v->memory > 0))
		return err_set(
			e, ERR_USAGE,
			"%s:%d: a processor needs 'memory' (GiB) and 'cores', or 'tflops' in "
			"float32 as 'heteroshard bench' prints it",
			d->path, v->line);
	x->kind = "cpu";
	x->on_host = true;
	if (notes && !said_before(d, v))
		buf_addf(notes,
			 v->tflops > 0 ? "%s: %.3g TFLOP/s, as the description says\n"
				       : "%s: %.3g TFLOP/s, assumed: 0.05 a core\n",
			 v->card, tflops);
	return card_times(p, x, tflops, 0, e);
}

static int add_card(const struct description *d, const struct described_device *v,
		    struct profile *p, struct profile_device *x, struct buf *notes, struct err *e)
{
	const struct card *c = card_of(d, v, e);
	struct card_speed s;

	if (!c)
		return e->code;
	s = card_speed(c, p->dtype);
	x->kind = c->name;
	x->on_host = c->on_host;
	x->fixed_gib = GIB_FIXED;
	if (!(v->memory > 0))
		x->memory_gib = c->memory_gib;
	if (notes && !said_before(d, v)) {
		buf_addf(notes, "%s (%s): ", v->card, c->name);
		if (v->tflops > 0)
			buf_addf(notes, "%.3g TFLOP/s, as the description says", v->tflops);
		else
			card_speed_text(&s, notes);
		buf_addc(notes, '\n');
	}
	return card_times(p, x, v->tflops > 0 ? v->tflops : s.tflops, c->gbytes_per_s, e);
}

static int add_devices(const struct description *d, const struct model_config *c, struct profile *p,
		       struct buf *notes, struct err *e)
{
	for (size_t i = 0; i < d->devices; i++) {
		const struct described_device *v = &d->device[i];
		struct profile_device x = { .memory_gib = v->memory,
					    .reserve_gib = -1,
					    .watts = v->watts,
					    .estimated = true };
		TRY(is_cpu(v) ? add_cpu(d, v, p, &x, notes, e) : add_card(d, v, p, &x, notes, e));
		describe_memory(d, p, c, &x);
		x.host = host_of(p, v->host, e);
		TRY(x.host);
		for (int64_t k = 0; k < v->count; k++) {
			TRY(name_device(p, v, &x, e));
			if (profile_find(p, x.id) >= 0)
				return err_set(e, ERR_USAGE,
					       "%s:%d: two devices have the 'id' '%s'", d->path,
					       v->line, x.id);
			p->device[p->devices++] = x;
		}
	}
	return 0;
}

/* A card goes through linear attention token by token (docs/kernels.md), and none was measured. */
static void say_linear(const struct description *d, struct buf *notes)
{
	for (size_t i = 0; i < d->devices; i++)
		if (!is_cpu(&d->device[i])) {
			buf_adds(notes,
				 "linear attention: its time on a card was never measured and is "
				 "not counted; steps take longer than predicted\n");
			return;
		}
}

/* ---- links ---- */

/* "10 Gbit/s": in GB/s. */
static int read_speed(const char *text, const char *at, double *v_p, struct err *e)
{
	static const struct {
		const char *unit;
		double factor;
	} unit[] = { { "gbit/s", OF_THE_WIRE / 8 },
		     { "mbit/s", OF_THE_WIRE / 8e3 },
		     { "gbit", OF_THE_WIRE / 8 },
		     { "mbit", OF_THE_WIRE / 8e3 },
		     { "gb/s", 1 },
		     { "mb/s", 1e-3 } };
	char *end;
	double v = text ? strtod(text, &end) : 0;

	for (size_t i = 0; text && end != text && i < ARRAY_LEN(unit); i++)
		if (!strcasecmp(end + strspn(end, " "), unit[i].unit) && v > 0 && v <= 1e6) {
			*v_p = v * unit[i].factor;
			return 0;
		}
	return err_set(e, ERR_USAGE,
		       "%s: 'speed'%s%s%s: write it as 10 Gbit/s, 100 Mbit/s or 4 GB/s", at,
		       text ? " is '" : " is missing", text ? text : "", text ? "'" : "");
}

static int read_latency(const char *text, const char *at, double *v_p, struct err *e)
{
	char *end = NULL;
	double v = text ? strtod(text, &end) : LATENCY_MS;

	if (text &&
	    (end == text || strcasecmp(end + strspn(end, " "), "ms") != 0 || !(v >= 0 && v <= 1e5)))
		return err_set(e, ERR_USAGE, "%s: 'latency' is '%s': write it as 0.2 ms", at, text);
	*v_p = v;
	return 0;
}

static int link_host(const struct profile *p, const char *name, const char *at, int *host_p,
		     struct err *e)
{
	char list[300];
	size_t n = 0;

	for (*host_p = 0; *host_p < p->hosts; (*host_p)++)
		if (!strcmp(p->host[*host_p].name, name))
			return 0;
	for (int i = 0; i < p->hosts && n < sizeof list; i++)
		n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "",
				      p->host[i].name);
	return err_set(e, ERR_USAGE, "%s: 'hosts': no device is on '%s'; the hosts are %s", at,
		       name, list);
}

static int read_link(const struct description *d, const struct yaml_node *n,
		     const struct profile *p, struct profile_link *l, struct arena *mem,
		     struct err *e)
{
	struct link_text t = { 0 };
	char at[300];

	snprintf(at, sizeof at, "%.280s:%d", d->path, n->line);
	TRY(opt_set_yaml(link_rows, ARRAY_LEN(link_rows), &t, n, d->path, NULL, NULL, mem, e));
	*l = (struct profile_link){ .from = -1, .to = -1 };
	TRY(read_speed(t.speed, at, &l->bandwidth, e));
	TRY(read_latency(t.latency, at, &l->latency_ms, e));
	l->reverse_bandwidth = l->bandwidth;
	l->reverse_latency_ms = l->latency_ms;
	if (t.hosts.n == 1 && !strcmp(t.hosts.item[0], "all"))
		return 0;
	if (t.hosts.n != 2)
		return err_set(e, ERR_USAGE,
			       "%s: 'hosts' must be two names, or 'all' for every pair that is not "
			       "named",
			       at);
	TRY(link_host(p, t.hosts.item[0], at, &l->from, e));
	return link_host(p, t.hosts.item[1], at, &l->to, e);
}

static bool connected(const struct profile *p, int a, int b)
{
	for (int i = 0; i < p->links; i++) {
		const struct profile_link *l = &p->link[i];
		if (l->from < 0 || (l->from == a && l->to == b) || (l->from == b && l->to == a))
			return true;
	}
	return false;
}

static int add_links(struct description *d, struct profile *p, struct err *e)
{
	const size_t n = d->link_list && !d->equal ? d->link_list->count : 0;

	p->link = arena_alloc(&p->mem, (n + 1) * sizeof *p->link);
	if (!p->link)
		return err_set(e, ERR_NOMEM, "out of memory for a profile");
	if (d->equal) {
		const struct equal_cards *w = d->equal;
		double rate = w->bandwidth > 0 ? w->bandwidth : OF_THE_WIRE / 8,
		       ms = w->latency_ms > 0 ? w->latency_ms : LATENCY_MS;
		p->link[p->links++] =
			(struct profile_link){ -1, -1, rate, ms, rate, ms, NULL, 0, 0 };
	}
	for (size_t i = 0; i < n; i++)
		TRY(read_link(d, d->link_list->child[i], p, &p->link[p->links++], &d->mem, e));
	for (int a = 0; a < p->hosts; a++)
		for (int b = a + 1; b < p->hosts; b++)
			if (!connected(p, a, b))
				return err_set(
					e, ERR_USAGE,
					"%s: 'links'%s nothing connects '%s' and '%s'; add {hosts: "
					"[%s, %s], speed: 1 Gbit/s}, or {hosts: all, speed: 1 "
					"Gbit/s} for every pair",
					d->path, n ? ":" : " is missing:", p->host[a].name,
					p->host[b].name, p->host[a].name, p->host[b].name);
	return 0;
}

/* ---- the profile ---- */

static int make(struct description *d, struct profile *p, struct buf *notes, struct err *e)
{
	struct model_config *c = mem_alloc(sizeof *c);
	size_t all = 0;
	char source[300];
	int rc = c ? 0 : err_set(e, ERR_NOMEM, "out of memory for a description");

	for (size_t i = 0; i < d->devices; i++)
		all += (size_t)d->device[i].count;
	p->device = arena_alloc(&p->mem, all * sizeof *p->device);
	p->host = arena_alloc(&p->mem, all * sizeof *p->host);
	snprintf(source, sizeof source,
		 "estimated by heteroshard " HS_VERSION " from %.200s: nothing was measured",
		 d->path);
	p->source = arena_strdup(&p->mem, source);
	if (rc >= 0 && (!p->device || !p->host || !p->source))
		rc = err_set(e, ERR_NOMEM, "out of memory for a profile");
	p->sequence_len = (int)d->sequence_len;
	p->global_batch = (int)d->batch;
	p->wire_bytes = 2;
	if (rc >= 0)
		rc = choose_dtype(d, p, notes, e);
	if (rc >= 0)
		rc = describe_model(d, p, c, e);
	if (rc >= 0)
		rc = add_devices(d, c, p, notes, e);
	if (rc >= 0 && notes && c->delta_layers && !c->lfm2)
		say_linear(d, notes);
	if (rc >= 0)
		rc = add_links(d, p, e);
	if (rc >= 0)
		rc = profile_finish(p, d->path, e);
	mem_free(c);
	return rc;
}

/* The devices of the description become equal cards, its links one for all hosts. */
static int replace(struct description *d, const struct equal_cards *with, struct err *e)
{
	d->device = arena_alloc(&d->mem, (size_t)with->hosts * sizeof *d->device);
	d->devices = 0;
	if (!d->device)
		return err_set(e, ERR_NOMEM, "out of memory for a description");
	for (int h = 0; h < with->hosts; h++) {
		char host[32];
		const int mine = with->count / with->hosts + (h < with->count % with->hosts);
		snprintf(host, sizeof host, "uniform%d", h);
		if (mine)
			d->device[d->devices++] =
				(struct described_device){ .card = with->kind,
							   .host = arena_strdup(&d->mem, host),
							   .count = mine,
							   .memory = with->memory };
		if (mine && !d->device[d->devices - 1].host)
			return err_set(e, ERR_NOMEM, "out of memory for a description");
	}
	d->equal = with;
	return 0;
}

static int remove_all(struct profile *p, const char *const *without, size_t n, const char *path,
		      struct err *e)
{
	for (size_t i = 0; i < n; i++)
		if (profile_remove(p, without[i], e) < 0)
			return err_prefix(e, "%s", path);
	return 0;
}

/* What `auto` is for the devices that are left. */
static int dtype_of(const struct profile *p)
{
	enum card_native all = CARD_BF16;

	for (int i = 0; i < p->devices; i++) {
		const struct card *c = card_find(p->device[i].kind);
		enum card_native mine = c ? c->native : CARD_NO16;
		all = mine < all ? mine : all;
	}
	return all == CARD_BF16  ? COMPUTE_BFLOAT16
	       : all == CARD_F16 ? COMPUTE_FLOAT16
				 : COMPUTE_FLOAT32;
}

static int make_without(struct description *d, const char *const *without, size_t n,
			struct profile *p, struct buf *notes, struct err *e)
{
	TRY(make(d, p, n ? NULL : notes, e));
	if (!n)
		return 0;
	TRY(remove_all(p, without, n, d->path, e));
	d->compute_dtype = d->compute_dtype ? d->compute_dtype : dtype_of(p);
	profile_release(p);
	TRY(make(d, p, notes, e));
	return remove_all(p, without, n, d->path, e);
}

static int describe(const char *path, const struct equal_cards *with, const char *const *without,
		    size_t n, struct profile *p, struct buf *notes, struct err *e)
{
	struct description d = { .path = path };
	struct yaml *y;
	int rc;

	TRY(yaml_parse_file(path, &y, e));
	*p = (struct profile){ 0 };
	rc = read_text(&d, yaml_root(y), e);
	if (rc >= 0 && with)
		rc = replace(&d, with, e);
	if (rc >= 0)
		rc = make_without(&d, without, n, p, notes, e);
	if (rc < 0)
		profile_release(p);
	arena_release(&d.mem);
	yaml_doc_free(y);
	return rc;
}

int profile_describe(const char *path, const char *const *without, size_t n, struct profile *p,
		     struct buf *notes, struct err *e)
{
	return describe(path, NULL, without, n, p, notes, e);
}

int profile_describe_equal(const char *path, const struct equal_cards *with, struct profile *p,
			   struct buf *notes, struct err *e)
{
	return describe(path, with, NULL, 0, p, notes, e);
}
