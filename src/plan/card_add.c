/* SPDX-License-Identifier: Apache-2.0 */
/* card_add.c - adds a card of the library to a profile (cards.h). */
#include "plan/cards.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "plan/profile.h"

#define GIB 1073741824.0
#define DEFAULT_LATENCY_MS 0.2
#define GIGABIT 0.117 /* GB/s of TCP over gigabit Ethernet */

struct wish {
	char kind[64], host[64], id[64];
	double bandwidth, latency, memory; /* NaN: not given */
	int count;
};

static int read_number(const char *key, const char *text, double hi, double *v_p, struct err *e)
{
	char *end;
	double v = strtod(text, &end);

	if (end == text || *end || !(v > 0 && v <= hi))
		return err_set(e, ERR_USAGE, "--add: %s=%s must be a number above 0 and at most %g",
			       key, text, hi);
	*v_p = v;
	return 0;
}

static int set_key(struct wish *w, const char *key, const char *value, struct err *e)
{
	char *word = !strcmp(key, "kind")   ? w->kind
		     : !strcmp(key, "host") ? w->host
		     : !strcmp(key, "id")   ? w->id
					    : NULL;
	double count = 1;

	if (word && (size_t)snprintf(word, sizeof w->kind, "%s", value) >= sizeof w->kind)
		return err_set(e, ERR_USAGE, "--add: %s=%s is too long", key, value);
	if (word)
		return 0;
	if (!strcmp(key, "bandwidth"))
		return read_number(key, value, 1e6, &w->bandwidth, e);
	if (!strcmp(key, "latency"))
		return read_number(key, value, 1e6, &w->latency, e);
	if (!strcmp(key, "memory"))
		return read_number(key, value, 1e6, &w->memory, e);
	if (strcmp(key, "count"))
		return err_set(e, ERR_USAGE,
			       "--add: unknown key '%s' (kind, host, bandwidth, latency, memory, "
			       "id, count)",
			       key);
	TRY(read_number(key, value, PROFILE_MAX_DEVICES, &count, e));
	if (count != floor(count))
		return err_set(e, ERR_USAGE, "--add: count=%s must be a whole number", value);
	w->count = (int)count;
	return 0;
}

static int read_wish(const char *text, struct wish *w, struct err *e)
{
	char copy[512], *at = copy, *item, *state = NULL;

	*w = (struct wish){ .bandwidth = NAN, .latency = NAN, .memory = NAN, .count = 1 };
	if ((size_t)snprintf(copy, sizeof copy, "%s", text) >= sizeof copy)
		return err_set(e, ERR_USAGE, "--add: the text is too long");
	for (; (item = strtok_r(at, ",", &state)); at = NULL) {
		char *value = strchr(item, '=');
		if (!value && !w->kind[0]) {
			TRY(set_key(w, "kind", item, e));
			continue;
		}
		if (!value || !value[1])
			return err_set(e, ERR_USAGE,
				       "--add: '%s' is not key=value (kind, host, bandwidth, "
				       "latency, memory, id, count)",
				       item);
		*value++ = 0;
		TRY(set_key(w, item, value, e));
	}
	if (!w->kind[0])
		return err_set(
			e, ERR_USAGE,
			"--add: which card? Write its name, '3090' or 'kind=3090,host=box2'");
	if (w->count > 1 && w->id[0])
		return err_set(e, ERR_USAGE,
			       "--add: id=%s with count=%d: each device needs an id "
			       "of its own; leave id= out",
			       w->id, w->count);
	return 0;
}

static int find_host(const struct profile *p, const char *name)
{
	for (int i = 0; i < p->hosts; i++)
		if (!strcmp(p->host[i].name, name))
			return i;
	return -1;
}

/* A host with links to all others. */
static int add_host(struct profile *p, const struct wish *w, int *host_p, struct err *e)
{
	struct profile_host *h = arena_alloc(&p->mem, ((size_t)p->hosts + 1) * sizeof *h);
	struct profile_link *l =
		arena_alloc(&p->mem, ((size_t)p->links + (size_t)p->hosts + 1) * sizeof *l);
	double latency = isnan(w->latency) ? DEFAULT_LATENCY_MS : w->latency;

	if (!h || !l)
		return err_set(e, ERR_NOMEM, "out of memory for a profile");
	memcpy(h, p->host, (size_t)p->hosts * sizeof *h);
	memcpy(l, p->link, (size_t)p->links * sizeof *l);
	for (int i = 0; i < p->hosts; i++)
		l[p->links++] = (struct profile_link){ .from = p->hosts,
						       .to = i,
						       .bandwidth = w->bandwidth,
						       .latency_ms = latency,
						       .reverse_bandwidth = w->bandwidth,
						       .reverse_latency_ms = latency };
	h[p->hosts] = (struct profile_host){ arena_strdup(&p->mem, w->host), 0, false };
	if (!h[p->hosts].name)
		return err_set(e, ERR_NOMEM, "out of memory for a profile");
	*host_p = p->hosts++;
	p->host = h;
	p->link = l;
	return 0;
}

/* `to` gets the times of `from` times `factor`, and the memory curves of `from` unchanged. */
static int copy_scaled(struct profile *p, struct profile_device *to,
		       const struct profile_device *from, double factor, struct err *e)
{
	*to = *from;
	to->used_gib = 0;
	to->reserve_gib = -1;
	to->watts = 0;
	to->measured = (struct profile_measured){ 0 };
	TRY(profile_scale_curve(p, &to->forward_ms, &from->forward_ms, factor, e));
	TRY(profile_scale_curve(p, &to->backward_ms, &from->backward_ms, factor, e));
	TRY(profile_scale_curve(p, &to->embedding_forward_ms, &from->embedding_forward_ms, factor,
				e));
	TRY(profile_scale_curve(p, &to->embedding_backward_ms, &from->embedding_backward_ms, factor,
				e));
	TRY(profile_scale_curve(p, &to->head_forward_ms, &from->head_forward_ms, factor, e));
	TRY(profile_scale_curve(p, &to->head_backward_ms, &from->head_backward_ms, factor, e));
	TRY(profile_scale_curve(p, &to->warm_forward_ms, &from->warm_forward_ms, factor, e));
	TRY(profile_scale_curve(p, &to->warm_backward_ms, &from->warm_backward_ms, factor, e));
	to->warm_forward_ms.given = from->warm_forward_ms.given;
	to->warm_backward_ms.given = from->warm_backward_ms.given;
	to->forward_ms.given = to->backward_ms.given = to->head_forward_ms.given =
		to->head_backward_ms.given = true;
	to->embedding_forward_ms.given = from->embedding_forward_ms.given;
	to->embedding_backward_ms.given = from->embedding_backward_ms.given;
	to->optimizer_ms *= factor;
	to->embedding_optimizer_ms *= factor;
	to->head_optimizer_ms *= factor;
	return 0;
}

enum { TABLE_MOST = 64 };

/* m passes of `ms` each, but together at least `floor`. */
static int roofline(struct profile *p, struct curve *c, double ms, double floor_ms, struct err *e)
{
	int n = floor_ms > ms ? (int)fmin(TABLE_MOST, ceil(floor_ms / ms)) : 0;
	double *t = n ? arena_alloc(&p->mem, (size_t)n * sizeof *t) : NULL;

	if (n && !t)
		return err_set(e, ERR_NOMEM, "out of memory for a profile");
	for (int m = 1; m <= n; m++)
		t[m - 1] = fmax(floor_ms, m * ms);
	*c = (struct curve){ .table = t, .n = n, .line = true, .given = true, .slope = ms };
	return 0;
}

int card_times(struct profile *p, struct profile_device *d, double tflops, double gbytes_per_s,
	       struct err *e)
{
	const double T = p->sequence_len, rate = tflops * 1e9, /* FLOP a millisecond */
		layer = (2 * p->parameters_per_layer * T + 2 * T * T * p->hidden) / rate,
		     table = p->tied ? p->embedding_parameters : p->head_parameters,
		     head = 2 * table * T / rate;
	const double per_gib = gbytes_per_s > 0 ? GIB / (gbytes_per_s * 1e6) : 0;
	const bool full = p->layer_state_gib * GIB >= 4 * p->parameters_per_layer;
	const double back = full ? 2 : 1;

	TRY(roofline(p, &d->forward_ms, layer, p->layer_gib * per_gib, e));
	TRY(roofline(p, &d->backward_ms, back * layer, back * p->layer_gib * per_gib, e));
	TRY(roofline(p, &d->head_forward_ms, head, 0, e));
	TRY(roofline(p, &d->head_backward_ms, (p->head_state_gib > 0 ? 2 : 1) * head, 0, e));
	/* every byte of the state is read and written */
	d->optimizer_ms = 2 * p->layer_state_gib * per_gib;
	d->embedding_optimizer_ms = 2 * p->embedding_state_gib * per_gib;
	d->head_optimizer_ms = 2 * p->head_state_gib * per_gib;
	return 0;
}

/* Where the times of the new device come from, and what is not in them. */
static void note(struct buf *b, const struct profile *p, const struct wish *w,
		 const struct card *card, const struct profile_device *from, double theirs)
{
	const char *dtype = !strcmp(p->dtype, "float32") ? "float32" : "float16";
	struct card_speed mine = { 0 };

	if (!b)
		return;
	if (card)
		mine = card_speed(card, p->dtype);
	if (from && theirs > 0) {
		buf_addf(b,
			 "%s: estimated: the measured times of '%s', scaled by the cards' rates in "
			 "%s (%.3g and %.3g TFLOP/s); what launching kernels costs is scaled with "
			 "them\n",
			 w->kind, from->id, dtype, theirs, mine.tflops);
	} else if (from) {
		buf_addf(b, "%s: the measured times of '%s'\n", w->kind, from->id);
	} else {
		buf_addf(b, "%s: estimated by its rate in %s alone, ", w->kind, dtype);
		card_speed_text(&mine, b);
		buf_adds(b, "; what launching kernels costs is not in it, so small microbatches "
			    "will be slower than this says\n");
	}
	if (from && theirs > 0 && !mine.measured) {
		buf_addf(b, "%s: its rate is ", w->kind);
		card_speed_text(&mine, b);
		buf_addc(b, '\n');
	}
	if (card && card->native == CARD_F16 && !strcmp(p->dtype, "bfloat16"))
		buf_addf(b,
			 "%s has no bfloat16: with it compute_dtype auto becomes float16 on all "
			 "devices (float32 where one lacks that too); float16 is what is counted "
			 "for "
			 "it\n",
			 w->kind);
	if (card && (!from || theirs > 0) && card->native == CARD_NO16 &&
	    strcmp(p->dtype, "float32") != 0)
		buf_addf(b,
			 "%s has neither bfloat16 nor float16: with it compute_dtype auto becomes "
			 "float32 on all devices; what is counted is %s, as 'compute_dtype: %s' "
			 "would have it\n",
			 w->kind, p->dtype, p->dtype);
}

/* The device of a profile that is the same card. */
static const struct profile_device *same_card(const struct profile *p, const char *kind,
					      const struct card *card)
{
	for (int i = 0; i < p->devices; i++)
		if (!strcasecmp(p->device[i].kind, kind) ||
		    (card && card_find(p->device[i].kind) == card))
			return &p->device[i];
	return NULL;
}

static int make_device(struct profile *p, const struct wish *w, struct profile_device *d,
		       struct buf *notes, struct err *e)
{
	const struct card *card = card_find(w->kind);
	const struct profile_device *same = same_card(p, w->kind, card);
	double mine;

	if (same) {
		TRY(copy_scaled(p, d, same, 1, e));
		d->watts = same->watts;
		note(notes, p, w, card, same, 0);
		goto named;
	}
	TRY(card_need(w->kind, "--add", NULL, &card, e));
	mine = card_speed(card, p->dtype).tflops;
	for (int i = 0; i < p->devices; i++) {
		const struct profile_device *from = &p->device[i];
		const struct card *other = card_find(from->kind);
		double theirs = other ? card_speed(other, p->dtype).tflops : 0;
		if (other && !from->estimated) {
			TRY(copy_scaled(p, d, from, theirs / mine, e));
			note(notes, p, w, card, from, theirs);
			goto estimated;
		}
	}
	*d = (struct profile_device){ .kept_gib = p->device[0].kept_gib,
				      .activation_gib = p->device[0].activation_gib,
				      .head_gib = p->device[0].head_gib,
				      .head_kept_gib = p->device[0].head_kept_gib,
				      .fixed_gib = p->device[0].fixed_gib,
				      .reserve_gib = -1 };
	TRY(card_times(p, d, mine, card->gbytes_per_s, e));
	note(notes, p, w, card, NULL, 0);
estimated:
	d->memory_gib = card->memory_gib;
	d->on_host = card->on_host;
	d->host_memory_gib = 0;
	d->estimated = true;
named:
	if (!isnan(w->memory))
		d->memory_gib = w->memory;
	d->kind = arena_strdup(&p->mem, card ? card->name : w->kind);
	return d->kind ? 0 : err_set(e, ERR_NOMEM, "out of memory for a profile");
}

/* The host of the new devices; a new one gets a link. */
static int place(struct profile *p, struct wish *w, struct buf *notes, int *host, struct err *e)
{
	for (int n = 0; !w->host[0] && n <= p->hosts; n++) {
		char name[32];
		snprintf(name, sizeof name, n ? "new%d" : "new", n);
		if (find_host(p, name) < 0)
			snprintf(w->host, sizeof w->host, "%s", name);
	}
	*host = find_host(p, w->host);
	if (*host >= 0 && !isnan(w->bandwidth))
		return err_set(e, ERR_USAGE,
			       "--add: the host '%s' is in the profile with its links; leave "
			       "bandwidth= out",
			       w->host);
	if (*host >= 0)
		return 0;
	if (isnan(w->bandwidth)) {
		w->bandwidth = GIGABIT;
		if (notes)
			buf_addf(notes,
				 "%s: on a host of its own, '%s', with a gigabit link (%g GB/s) "
				 "to every other; host=... puts it elsewhere, bandwidth=... (GB/s) "
				 "gives another link\n",
				 w->kind, w->host, GIGABIT);
	}
	return add_host(p, w, host, e);
}

static int add_one(struct profile *p, struct wish *w, struct profile_device d, struct err *e)
{
	struct profile_device *all = arena_alloc(&p->mem, ((size_t)p->devices + 1) * sizeof *all);
	char id[64];

	snprintf(id, sizeof id, "%s", w->id);
	for (int n = 0; !w->id[0] && n <= p->devices; n++) {
		snprintf(id, sizeof id, "%.48s-new%d", d.kind, n);
		for (char *c = id; *c; c++)
			*c = *c == ' ' ? '-' : *c;
		if (profile_find(p, id) < 0)
			break;
	}
	if (profile_find(p, id) >= 0)
		return err_set(e, ERR_USAGE, "--add: there is a device '%s' already", id);
	d.id = arena_strdup(&p->mem, id);
	if (!all || !d.id)
		return err_set(e, ERR_NOMEM, "out of memory for a profile");
	memcpy(all, p->device, (size_t)p->devices * sizeof *all);
	all[p->devices++] = d;
	p->device = all;
	return 0;
}

int profile_add_card(struct profile *p, const char *text, struct buf *notes, struct err *e)
{
	struct profile_device d;
	struct wish w;

	TRY(read_wish(text, &w, e));
	if (p->devices + w.count > PROFILE_MAX_DEVICES)
		return err_set(e, ERR_USAGE, "--add: more than %d devices", PROFILE_MAX_DEVICES);
	TRY(make_device(p, &w, &d, notes, e));
	if (w.id[0] && profile_find(p, w.id) >= 0)
		return err_set(e, ERR_USAGE, "--add: there is a device '%s' already", w.id);
	TRY(place(p, &w, notes, &d.host, e));
	for (int i = 0; i < w.count; i++)
		TRY(add_one(p, &w, d, e));
	return profile_finish(p, "--add", e);
}
