/* SPDX-License-Identifier: Apache-2.0 */
/* profile.c - defaults, checks and look-ups of a profile. Reading and writing JSON
 * is profile_json.c. */
#include "plan/profile.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define GIB 1073741824.0

double curve_at(const struct curve *c, int m)
{
	double v = 0;

	if (m <= c->n)
		return c->table[m - 1];
	if (c->line) {
		v = c->slope * m + c->intercept;
	} else if (c->n == 1) {
		v = c->table[0] * m;
	} else if (c->n > 1) {
		int k = c->n < 5 ? c->n : 5;
		double rise = (c->table[c->n - 1] - c->table[c->n - k]) / (k - 1);
		v = c->table[c->n - 1] + rise * (m - c->n);
	}
	return v > 0 ? v : 0;
}

bool profile_trains_tied(const struct profile *p) { return p->tied && p->embedding_state_gib > 0; }

bool profile_estimated(const struct profile *p)
{
	for (int i = 0; i < p->devices; i++)
		if (p->device[i].estimated)
			return true;
	return false;
}

double profile_gradients(const struct profile *p)
{
	return p->gradient_share > 0 ? p->gradient_share : 1.0 / 3;
}

double profile_fullest(const struct profile *p, int m)
{
	return p->fullest.given ? fmax(1, curve_at(&p->fullest, m)) : 1;
}

double profile_dtype_bytes(const struct profile *p) { return !strcmp(p->dtype, "float32") ? 4 : 2; }

void profile_release(struct profile *p)
{
	arena_release(&p->mem);
	mem_free(p->bandwidth);
	mem_free(p->latency_ms);
	mem_free(p->relay);
	*p = (struct profile){ .mem = ARENA_INIT };
}

int profile_find(const struct profile *p, const char *id)
{
	for (int i = 0; i < p->devices; i++)
		if (!strcmp(p->device[i].id, id))
			return i;
	return -1;
}

int profile_remove(struct profile *p, const char *id, struct err *e)
{
	int i = profile_find(p, id);

	if (i < 0)
		return err_set(e, ERR_USAGE, "device '%s' is not in the profile", id);
	if (p->devices == 1)
		return err_set(e, ERR_USAGE, "device '%s' is the only one of the profile", id);
	memmove(&p->device[i], &p->device[i + 1], (size_t)(p->devices - i - 1) * sizeof *p->device);
	p->devices--;
	return 0;
}

double profile_bandwidth(const struct profile *p, int from, int to)
{
	return p->bandwidth[p->device[from].host * p->hosts + p->device[to].host];
}

double profile_latency_ms(const struct profile *p, int from, int to)
{
	return p->latency_ms[p->device[from].host * p->hosts + p->device[to].host];
}

int profile_relay(const struct profile *p, int from, int to)
{
	return p->relay[p->device[from].host * p->hosts + p->device[to].host] - 1;
}

double profile_limit_gib(const struct profile *p, int device, double reserve_gib)
{
	const struct profile_device *d = &p->device[device];
	double reserve = reserve_gib >= 0      ? reserve_gib
			 : d->reserve_gib >= 0 ? d->reserve_gib
					       : 0.05 * d->memory_gib;
	double left = d->memory_gib - d->used_gib - reserve;

	return left > 0 ? left : 0;
}

int profile_set_routing(struct profile *p, const double *picks, struct err *e)
{
	const size_t n = (size_t)p->experts;
	double *v = arena_alloc(&p->mem, (size_t)p->layers * n * sizeof *v);
	if (!v)
		return err_nomem(e, (size_t)p->layers * n * sizeof *v, "a profile");
	for (size_t l = 0; l < (size_t)p->layers; l++) {
		double sum = 0;
		for (size_t x = 0; x < n; x++)
			sum += picks[l * n + x];
		for (size_t x = 0; x < n; x++)
			v[l * n + x] = sum > 0 ? picks[l * n + x] / sum : 1 / (double)n;
	}
	p->routing = v;
	return 0;
}

static void default_to(double *v, double def)
{
	if (isnan(*v))
		*v = def;
}

int profile_scale_curve(struct profile *p, struct curve *to, const struct curve *from,
			double factor, struct err *e)
{
	double *table = NULL;

	if (from->n > 0) {
		table = arena_alloc(&p->mem, (size_t)from->n * sizeof *table);
		if (!table)
			return err_nomem(e, (size_t)from->n * sizeof *table, "a profile");
		for (int i = 0; i < from->n; i++)
			table[i] = from->table[i] * factor;
	}
	*to = (struct curve){ table,
			      from->n,
			      from->line,
			      false,
			      from->slope * factor,
			      from->intercept * factor,
			      from->residual };
	return 0;
}

int profile_slow_device(struct profile *p, int device, double factor, struct err *e)
{
	struct profile_device *d = &p->device[device];
	struct curve *const curve[] = { &d->forward_ms,           &d->backward_ms,
					&d->warm_forward_ms,      &d->warm_backward_ms,
					&d->embedding_forward_ms, &d->embedding_backward_ms,
					&d->head_forward_ms,      &d->head_backward_ms,
					&d->experts_forward_ms,   &d->experts_backward_ms };
	for (size_t i = 0; i < sizeof curve / sizeof *curve; i++) {
		const struct curve was = *curve[i];
		TRY(profile_scale_curve(p, curve[i], &was, factor, e));
		curve[i]->given = was.given;
	}
	d->optimizer_ms *= factor;
	d->embedding_optimizer_ms *= factor;
	d->head_optimizer_ms *= factor;
	return 0;
}

void profile_slow_link(struct profile *p, int from, int to, double factor)
{
	const int a = p->device[from].host, b = p->device[to].host;
	if (a != b)
		p->bandwidth[a * p->hosts + b] /= factor;
}

/* A default is not written to a file. */
static struct curve unmarked(struct curve c)
{
	c.given = false;
	return c;
}

static int fill_device(struct profile *p, struct profile_device *d, const char *where,
		       struct err *e)
{
	double head =
		p->parameters_per_layer > 0 ? p->head_parameters / p->parameters_per_layer : 0;
	double kept = 34.0 * p->sequence_len * p->hidden / GIB;

	if (!(curve_at(&d->forward_ms, 1) > 0) || !(curve_at(&d->backward_ms, 1) > 0))
		return err_set(e, ERR_INPUT,
			       "%s: device '%s': the time of one layer is not above zero; measure "
			       "it again with 'heteroshard profile'",
			       where, d->id);
	if (!d->head_forward_ms.given)
		TRY(profile_scale_curve(p, &d->head_forward_ms, &d->forward_ms, head, e));
	if (!d->head_backward_ms.given)
		TRY(profile_scale_curve(p, &d->head_backward_ms, &d->backward_ms, head, e));
	if (!d->copy_ms.given)
		d->copy_ms = unmarked(d->upload_ms);
	if (!d->warm_forward_ms.given)
		d->warm_forward_ms = unmarked(d->forward_ms);
	if (!d->warm_backward_ms.given)
		d->warm_backward_ms = unmarked(d->backward_ms);
	if (!d->kept_gib.given)
		d->kept_gib = (struct curve){ .line = true, .slope = kept };
	if (!d->activation_gib.given)
		d->activation_gib = d->kept_gib;
	/* planners leave out one without room for `fixed`, as any that is too small */
	if (d->used_gib > d->memory_gib)
		return err_set(e, ERR_INPUT,
			       "%s: device '%s': %.3g GiB in use by other programs are more than "
			       "its %.3g GiB",
			       where, d->id, d->used_gib, d->memory_gib);
	return 0;
}

static void set_link(struct profile *p, int from, int to, double bandwidth, double latency,
		     int relay)
{
	size_t at = (size_t)from * (size_t)p->hosts + (size_t)to;

	if (bandwidth > p->bandwidth[at]) {
		p->bandwidth[at] = bandwidth;
		p->latency_ms[at] = latency;
		p->relay[at] = relay;
	}
}

/* A machine that only passes on has none. */
static bool has_device(const struct profile *p, int host)
{
	for (int i = 0; i < p->devices; i++)
		if (p->device[i].host == host)
			return true;
	return false;
}

/* Of a host whose network card was not given: as fast as its fastest link, or as what it passes
 * on. */
static double fastest_link(const struct profile *p, int host)
{
	const size_t n = (size_t)p->hosts, own = (size_t)host;
	double fastest = 0;
	for (size_t b = 0; b < n; b++)
		if (b != own)
			fastest = fmax(fastest,
				       fmax(p->bandwidth[own * n + b], p->bandwidth[b * n + own]));
	for (size_t i = 0; p->relays && i < n * n; i++)
		if (p->relay[i] == host + 1)
			fastest = fmax(fastest, p->bandwidth[i]);
	return fastest;
}

static int fill_links(struct profile *p, const char *where, struct err *e)
{
	size_t n = (size_t)p->hosts;
	const struct profile_link *any = NULL;

	mem_free(p->bandwidth);
	mem_free(p->latency_ms);
	mem_free(p->relay);
	p->bandwidth = mem_array(n * n, sizeof(double));
	p->latency_ms = mem_array(n * n, sizeof(double));
	p->relay = mem_array(n * n, sizeof(int));
	p->relays = false;
	if (!p->bandwidth || !p->latency_ms || !p->relay)
		return err_nomem(e, n * n * sizeof(double), "the links of a profile");
	for (int i = 0; i < p->links; i++) {
		const struct profile_link *l = &p->link[i];
		if (l->from < 0) {
			any = l;
			continue;
		}
		set_link(p, l->from, l->to, l->bandwidth, l->latency_ms, l->relay);
		if (l->from != l->to)
			set_link(p, l->to, l->from, l->reverse_bandwidth, l->reverse_latency_ms,
				 l->relay);
	}
	for (int a = 0; a < p->hosts; a++)
		for (int b = 0; b < p->hosts; b++) {
			size_t at = (size_t)a * n + (size_t)b;
			if (p->bandwidth[at] > 0 || !has_device(p, a) || !has_device(p, b))
				continue;
			if (a == b) {
				set_link(p, a, b, PROFILE_LOCAL_GBYTES_PER_S,
					 PROFILE_LOCAL_LATENCY_MS, 0);
			} else if (any) {
				set_link(p, a, b, any->bandwidth, any->latency_ms, 0);
			} else {
				return err_set(e, ERR_INPUT,
					       "%s: no link between the hosts '%s' and '%s'; "
					       "measure it with 'heteroshard "
					       "profile', or give "
					       "{\"hosts\": [\"*\", \"*\"], ...} for all that are "
					       "not named",
					       where, p->host[a].name, p->host[b].name);
			}
		}
	for (size_t i = 0; i < n * n; i++)
		p->relays |= p->relay[i] > 0;
	for (int a = 0; a < p->hosts; a++)
		if (!p->host[a].card_given)
			p->host[a].card = fastest_link(p, a);
	return 0;
}

int profile_finish(struct profile *p, const char *where, struct err *e)
{
	double rest = p->parameters - p->layers * p->parameters_per_layer,
	       bytes = profile_dtype_bytes(p);

	if (p->devices < 1)
		return err_set(e, ERR_INPUT, "%s: no devices", where);
	if (rest < -0.5)
		return err_set(e, ERR_INPUT,
			       "%s: %d layers of %.0f parameters are more than the model's %.0f",
			       where, p->layers, p->parameters_per_layer, p->parameters);
	if (rest < 0)
		rest = 0;
	default_to(&p->embedding_parameters, rest / 2);
	default_to(&p->head_parameters, rest / 2);
	default_to(&p->layer_gib, p->parameters_per_layer * bytes / GIB);
	default_to(&p->embedding_gib, p->embedding_parameters * bytes / GIB);
	default_to(&p->head_gib, p->head_parameters * bytes / GIB);
	default_to(&p->layer_state_gib, p->parameters_per_layer * 12 / GIB);
	default_to(&p->embedding_state_gib, p->embedding_parameters * 12 / GIB);
	default_to(&p->head_state_gib, p->head_parameters * 12 / GIB);
	default_to(&p->wire_bytes, 2);
	for (int i = 0; i < p->devices; i++) {
		for (int k = 0; k < i; k++)
			if (!strcmp(p->device[i].id, p->device[k].id))
				return err_set(e, ERR_INPUT, "%s: two devices are called '%s'",
					       where, p->device[i].id);
		TRY(fill_device(p, &p->device[i], where, e));
	}
	return fill_links(p, where, e);
}
