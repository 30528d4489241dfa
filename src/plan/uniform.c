/* SPDX-License-Identifier: Apache-2.0 */
/* uniform.c - see uniform.h. The cards are added as any others (card_add.c), then the mixed
 * cluster's devices are removed. */
#include "plan/uniform.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "plan/cards.h"
#include "plan/describe.h"
#include "plan/worth.h"

static int whole(const char *key, const char *value, int *v_p, struct err *e)
{
	char *end;
	long v = strtol(value, &end, 10);

	if (end == value || *end || v < 1 || v > PROFILE_MAX_DEVICES)
		return err_set(e, ERR_USAGE,
			       "--compare-with: %s=%s must be a whole number from 1 to %d", key,
			       value, PROFILE_MAX_DEVICES);
	*v_p = (int)v;
	return 0;
}

static int number(const char *key, const char *value, double *v_p, struct err *e)
{
	char *end;
	double v = strtod(value, &end);

	if (end == value || *end || !(v > 0 && v <= 1e6))
		return err_set(e, ERR_USAGE,
			       "--compare-with: %s=%s must be a number above 0 and at most 1e6",
			       key, value);
	*v_p = v;
	return 0;
}

static int set_key(struct equal_cards *w, const char *key, const char *value, struct err *e)
{
	if (!strcmp(key, "count"))
		return whole(key, value, &w->count, e);
	if (!strcmp(key, "hosts"))
		return whole(key, value, &w->hosts, e);
	if (!strcmp(key, "bandwidth"))
		return number(key, value, &w->bandwidth, e);
	if (!strcmp(key, "latency"))
		return number(key, value, &w->latency_ms, e);
	if (!strcmp(key, "memory"))
		return number(key, value, &w->memory, e);
	if (strcmp(key, "kind"))
		return err_set(e, ERR_USAGE,
			       "--compare-with: unknown key '%s' (kind, count, hosts, bandwidth, "
			       "latency, memory)",
			       key);
	if ((size_t)snprintf(w->kind, sizeof w->kind, "%s", value) >= sizeof w->kind)
		return err_set(e, ERR_USAGE, "--compare-with: kind=%s is too long", value);
	return 0;
}

static int read_wish(const char *text, struct equal_cards *w, struct err *e)
{
	char words[256], *at = words, *item, *state = NULL;

	*w = (struct equal_cards){ .hosts = 1 };
	if ((size_t)snprintf(words, sizeof words, "%s", text) >= sizeof words)
		return err_set(e, ERR_USAGE, "--compare-with: the text is too long");
	for (; (item = strtok_r(at, ",", &state)); at = NULL) {
		char *value = strchr(item, '=');
		if (value)
			*value++ = 0;
		TRY(set_key(w, value ? item : "kind", value ? value : item, e));
	}
	if (!w->kind[0])
		return err_set(e, ERR_USAGE, "--compare-with: which card? 'kind=3090,count=2'");
	return 0;
}

static int copy(const struct profile *p, struct profile *out, struct err *e)
{
	struct buf b = BUF_INIT;
	int rc;

	profile_write(p, &b);
	rc = buf_ok(&b, e);
	if (rc >= 0)
		rc = profile_read_text(out, b.p, b.n, "--compare-with", e);
	buf_release(&b);
	return rc;
}

static int add(struct profile *out, const struct equal_cards *w, struct buf *notes, struct err *e)
{
	for (int h = 0; h < w->hosts; h++) {
		const int mine = w->count / w->hosts + (h < w->count % w->hosts);
		char text[300], more[100] = "";
		size_t n = 0;
		if (w->latency_ms > 0)
			n += (size_t)snprintf(more, sizeof more, ",latency=%g", w->latency_ms);
		if (w->memory > 0)
			snprintf(more + n, sizeof more - n, ",memory=%g", w->memory);
		snprintf(text, sizeof text, "kind=%s,host=uniform%d,count=%d,bandwidth=%g%s",
			 w->kind, h, mine, w->bandwidth > 0 ? w->bandwidth : 0.117, more);
		if (mine)
			TRY(profile_add_card(out, text, h ? NULL : notes, e));
	}
	return 0;
}

static int measured(const struct profile *p, const struct equal_cards *w, struct profile *out,
		    struct buf *notes, struct err *e)
{
	TRY(copy(p, out, e));
	TRY(add(out, w, notes, e));
	for (int i = 0; i < p->devices; i++)
		TRY(profile_remove(out, p->device[i].id, e));
	return 0;
}

static int fill(const struct profile *p, struct equal_cards *w, struct prices *prices, double euro,
		const char *path, struct profile *out, const char **name_p, struct buf *notes,
		struct err *e)
{
	const struct card *card = NULL;
	double each = 0;
	char name[128];

	TRY(card_need(w->kind, "--compare-with", NULL, &card, e));
	if (!w->count && !prices)
		return err_set(
			e, ERR_USAGE,
			"--compare-with: how many '%s'? Give count=N, or --price with a price "
			"of it for as many as this cluster's price buys",
			w->kind);
	if (!w->count) {
		TRY(prices_kind(prices, w->kind, &each, e));
		w->count = (int)fmin(floor(euro / each + 1e-9), PROFILE_MAX_DEVICES - p->devices);
		if (w->count < 1)
			return err_set(e, ERR_USAGE,
				       "--compare-with: this cluster costs %.0f euro and one '%s' "
				       "%.0f: that buys none; give count=N",
				       euro, w->kind, each);
	}
	TRY(path ? profile_describe_equal(path, w, out, notes, e) : measured(p, w, out, notes, e));
	snprintf(name, sizeof name, "%d x %s", w->count, card->name);
	*name_p = arena_strdup(&out->mem, name);
	return *name_p ? 0 : err_set(e, ERR_NOMEM, "out of memory for a profile");
}

int profile_uniform(const struct profile *p, const char *text, struct prices *prices, double euro,
		    const char *path, struct profile *out, const char **name_p, struct buf *notes,
		    struct err *e)
{
	struct equal_cards w;
	int rc = read_wish(text, &w, e);

	*out = (struct profile){ 0 };
	if (rc >= 0)
		rc = fill(p, &w, prices, euro, path, out, name_p, notes, e);
	if (rc < 0)
		profile_release(out);
	return rc;
}
