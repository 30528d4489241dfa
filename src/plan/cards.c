/* SPDX-License-Identifier: Apache-2.0 */
/* cards.c - see cards.h. */
#include "plan/cards.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "plan/profile.h"

#define DEFAULT_LATENCY_MS 0.2

static const struct card cards[] = {
#define CARD(name, memory, fp32, fp16, bf16) { name, memory, fp32, fp16, bf16 },
#include "plan/cards.def"
#undef CARD
};

const struct card *card_at(size_t i) { return i < ARRAY_LEN(cards) ? &cards[i] : NULL; }

const struct card *card_find(const char *kind)
{
	const struct card *found = NULL;

	for (size_t i = 0; i < ARRAY_LEN(cards); i++)
		if (!strcasecmp(cards[i].name, kind))
			return &cards[i];
	for (size_t i = 0; i < ARRAY_LEN(cards); i++)
		if (*kind && !strncasecmp(cards[i].name, kind, strlen(kind))) {
			if (found)
				return NULL;
			found = &cards[i];
		}
	return found;
}

static double card_rate(const struct card *c, const char *dtype)
{
	return !strcmp(dtype, "float32") ? c->fp32 : c->fp16;
}

struct wish {
	char kind[64], host[64], id[64];
	double bandwidth, latency, memory; /* NaN: not given */
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

static int read_wish(const char *text, struct wish *w, struct err *e)
{
	char copy[512], *at = copy, *item, *state = NULL;

	*w = (struct wish){ .bandwidth = NAN, .latency = NAN, .memory = NAN };
	if ((size_t)snprintf(copy, sizeof copy, "%s", text) >= sizeof copy)
		return err_set(e, ERR_USAGE, "--add: the text is too long");
	for (; (item = strtok_r(at, ",", &state)); at = NULL) {
		char *value = strchr(item, '=');
		char *word = NULL;
		if (!value || !value[1])
			return err_set(e, ERR_USAGE,
				       "--add: '%s' is not key=value (kind, host, bandwidth, "
				       "latency, memory, id)",
				       item);
		*value++ = 0;
		if (!strcmp(item, "kind"))
			word = w->kind;
		else if (!strcmp(item, "host"))
			word = w->host;
		else if (!strcmp(item, "id"))
			word = w->id;
		if (word && (size_t)snprintf(word, sizeof w->kind, "%s", value) >= sizeof w->kind)
			return err_set(e, ERR_USAGE, "--add: %s=%s is too long", item, value);
		if (word)
			continue;
		if (!strcmp(item, "bandwidth"))
			TRY(read_number(item, value, 1e6, &w->bandwidth, e));
		else if (!strcmp(item, "latency"))
			TRY(read_number(item, value, 1e6, &w->latency, e));
		else if (!strcmp(item, "memory"))
			TRY(read_number(item, value, 1e6, &w->memory, e));
		else
			return err_set(e, ERR_USAGE,
				       "--add: unknown key '%s' (kind, host, bandwidth, latency, "
				       "memory, id)",
				       item);
	}
	if (!w->kind[0] || !w->host[0])
		return err_set(e, ERR_USAGE, "--add: kind=... and host=... are needed");
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
	for (int i = 0; i < p->hosts && !isnan(w->bandwidth); i++)
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
	TRY(profile_scale_curve(p, &to->forward_ms, &from->forward_ms, factor, e));
	TRY(profile_scale_curve(p, &to->backward_ms, &from->backward_ms, factor, e));
	TRY(profile_scale_curve(p, &to->embedding_forward_ms, &from->embedding_forward_ms, factor,
				e));
	TRY(profile_scale_curve(p, &to->embedding_backward_ms, &from->embedding_backward_ms, factor,
				e));
	TRY(profile_scale_curve(p, &to->head_forward_ms, &from->head_forward_ms, factor, e));
	TRY(profile_scale_curve(p, &to->head_backward_ms, &from->head_backward_ms, factor, e));
	to->forward_ms.given = to->backward_ms.given = to->head_forward_ms.given =
		to->head_backward_ms.given = true;
	to->embedding_forward_ms.given = from->embedding_forward_ms.given;
	to->embedding_backward_ms.given = from->embedding_backward_ms.given;
	to->optimizer_ms *= factor;
	to->embedding_optimizer_ms *= factor;
	to->head_optimizer_ms *= factor;
	return 0;
}

static void from_rate(const struct profile *p, struct profile_device *to, double tflops)
{
	double T = p->sequence_len, flop = 2 * p->parameters_per_layer * T + 2 * T * T * p->hidden,
	       ms = flop / (tflops * 1e9);
	bool full = p->layer_state_gib * 1073741824.0 >= 4 * p->parameters_per_layer;

	to->forward_ms = (struct curve){ .line = true, .given = true, .slope = ms };
	to->backward_ms =
		(struct curve){ .line = true, .given = true, .slope = full ? 2 * ms : ms };
	to->kept_gib = p->device[0].kept_gib;
	to->activation_gib = p->device[0].activation_gib;
	to->head_gib = p->device[0].head_gib;
	to->reserve_gib = -1;
}

static int unknown_card(const char *kind, struct err *e)
{
	char names[256];
	size_t at = 0;

	names[0] = 0;
	for (size_t i = 0; i < ARRAY_LEN(cards); i++) {
		int n = snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "",
				 cards[i].name);
		if (n < 0 || (size_t)n >= sizeof names - at)
			break;
		at += (size_t)n;
	}
	return err_set(e, ERR_USAGE,
		       "--add: no card '%s' in the library or the profile; known are %s", kind,
		       names);
}

/* Where the times of the new device come from, and what is not in them. */
static void note(struct buf *b, const struct profile *p, const struct wish *w,
		 const struct card *card, const struct profile_device *from, double mine,
		 double theirs)
{
	const char *dtype = !strcmp(p->dtype, "float32") ? "float32" : "float16";

	if (!b)
		return;
	if (from && theirs > 0)
		buf_addf(b,
			 "%s: the measured times of '%s', scaled by the cards' rates in %s (%g and "
			 "%g "
			 "TFLOP/s); what launching kernels costs is scaled with them\n",
			 w->kind, from->id, dtype, theirs, mine);
	else if (from)
		buf_addf(b, "%s: the measured times of '%s'\n", w->kind, from->id);
	else
		buf_addf(b,
			 "%s: by its rate in %s alone, %g TFLOP/s; what launching kernels costs is "
			 "not "
			 "in it, so small microbatches will be slower than this says\n",
			 w->kind, dtype, mine);
	if (card && !card->bf16 && !strcmp(p->dtype, "bfloat16"))
		buf_addf(b,
			 "%s has no bfloat16: with it compute_dtype auto becomes float16 on all "
			 "devices "
			 "(float32 where one lacks that too); float16 is what is counted for it\n",
			 w->kind);
}

static int make_device(struct profile *p, const struct wish *w, struct profile_device *d,
		       struct buf *notes, struct err *e)
{
	const struct card *card = card_find(w->kind);
	double mine = card ? card_rate(card, p->dtype) : 0;

	for (int i = 0; i < p->devices; i++)
		if (!strcasecmp(p->device[i].kind, w->kind)) {
			TRY(copy_scaled(p, d, &p->device[i], 1, e));
			note(notes, p, w, card, &p->device[i], mine, 0);
			goto named;
		}
	if (!card)
		return unknown_card(w->kind, e);
	if (!(mine > 0))
		return err_set(e, ERR_USAGE, "--add: the library has no figure for '%s' in %s",
			       card->name, p->dtype);
	for (int i = 0; i < p->devices; i++) {
		const struct card *other = card_find(p->device[i].kind);
		double theirs = other ? card_rate(other, p->dtype) : 0;
		if (theirs > 0) {
			TRY(copy_scaled(p, d, &p->device[i], theirs / mine, e));
			d->memory_gib = card->memory_gib;
			note(notes, p, w, card, &p->device[i], mine, theirs);
			goto named;
		}
	}
	*d = (struct profile_device){ .memory_gib = card->memory_gib };
	from_rate(p, d, mine);
	note(notes, p, w, card, NULL, mine, 0);
named:
	if (!isnan(w->memory))
		d->memory_gib = w->memory;
	d->kind = arena_strdup(&p->mem, card ? card->name : w->kind);
	return d->kind ? 0 : err_set(e, ERR_NOMEM, "out of memory for a profile");
}

int profile_add_card(struct profile *p, const char *text, struct buf *notes, struct err *e)
{
	struct profile_device *all, d;
	struct wish w;
	int host;

	TRY(read_wish(text, &w, e));
	if (p->devices >= PROFILE_MAX_DEVICES)
		return err_set(e, ERR_USAGE, "--add: more than %d devices", PROFILE_MAX_DEVICES);
	TRY(make_device(p, &w, &d, notes, e));
	host = find_host(p, w.host);
	if (host >= 0 && !isnan(w.bandwidth))
		return err_set(e, ERR_USAGE,
			       "--add: the host '%s' is in the profile with its links; leave "
			       "bandwidth= out",
			       w.host);
	if (host < 0 && isnan(w.bandwidth))
		return err_set(e, ERR_USAGE,
			       "--add: '%s' is a new host: say how fast its link is, bandwidth=... "
			       "in GB/s (gigabit Ethernet: 0.117)",
			       w.host);
	if (!w.id[0])
		for (int n = 0; n <= p->devices; n++) {
			snprintf(w.id, sizeof w.id, "%.48s-new%d", d.kind, n);
			if (profile_find(p, w.id) < 0)
				break;
		}
	if (profile_find(p, w.id) >= 0)
		return err_set(e, ERR_USAGE, "--add: there is a device '%s' already", w.id);
	if (host < 0)
		TRY(add_host(p, &w, &host, e));
	all = arena_alloc(&p->mem, ((size_t)p->devices + 1) * sizeof *all);
	d.id = arena_strdup(&p->mem, w.id);
	d.host = host;
	if (!all || !d.id)
		return err_set(e, ERR_NOMEM, "out of memory for a profile");
	memcpy(all, p->device, (size_t)p->devices * sizeof *all);
	all[p->devices++] = d;
	p->device = all;
	return profile_finish(p, "--add", e);
}
