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
#include "plan/worth.h"

struct wish {
	char kind[64], rest[256]; /* rest: keys for profile_add_card, each with a comma before it */
	int count, hosts;         /* count 0: by price */
};

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

static int read_wish(const char *text, struct wish *w, struct err *e)
{
	char copy[256], *at = copy, *item, *state = NULL;
	size_t n = 0;

	*w = (struct wish){ .hosts = 1 };
	if ((size_t)snprintf(copy, sizeof copy, "%s", text) >= sizeof copy)
		return err_set(e, ERR_USAGE, "--compare-with: the text is too long");
	for (; (item = strtok_r(at, ",", &state)); at = NULL) {
		if (!strncmp(item, "count=", 6))
			TRY(whole("count", item + 6, &w->count, e));
		else if (!strncmp(item, "hosts=", 6))
			TRY(whole("hosts", item + 6, &w->hosts, e));
		else if (!strncmp(item, "kind=", 5) || !strchr(item, '='))
			snprintf(w->kind, sizeof w->kind, "%s",
				 strchr(item, '=') ? item + 5 : item);
		else if (!strncmp(item, "bandwidth=", 10) || !strncmp(item, "latency=", 8) ||
			 !strncmp(item, "memory=", 7))
			n += (size_t)snprintf(w->rest + n, sizeof w->rest - n, ",%s", item);
		else
			return err_set(e, ERR_USAGE,
				       "--compare-with: unknown key in '%s' (kind, count, hosts, "
				       "bandwidth, latency, memory)",
				       item);
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

/* The memory= and so on of `rest` are in the text of every host; links only of a new one. */
static int add(struct profile *out, const struct wish *w, struct buf *notes, struct err *e)
{
	char text[512];

	for (int h = 0; h < w->hosts; h++) {
		const int mine = w->count / w->hosts + (h < w->count % w->hosts);
		snprintf(text, sizeof text, "kind=%s,host=uniform%d,count=%d%s%s", w->kind, h, mine,
			 strstr(w->rest, "bandwidth=") ? "" : ",bandwidth=0.117", w->rest);
		if (mine)
			TRY(profile_add_card(out, text, h ? NULL : notes, e));
	}
	return 0;
}

static int fill(const struct profile *p, struct wish *w, struct prices *prices, double euro,
		struct profile *out, const char **name_p, struct buf *notes, struct err *e)
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
	TRY(copy(p, out, e));
	TRY(add(out, w, notes, e));
	for (int i = 0; i < p->devices; i++)
		TRY(profile_remove(out, p->device[i].id, e));
	snprintf(name, sizeof name, "%d x %s", w->count, card->name);
	*name_p = arena_strdup(&out->mem, name);
	return *name_p ? 0 : err_set(e, ERR_NOMEM, "out of memory for a profile");
}

int profile_uniform(const struct profile *p, const char *text, struct prices *prices, double euro,
		    struct profile *out, const char **name_p, struct buf *notes, struct err *e)
{
	struct wish w;
	int rc = read_wish(text, &w, e);

	*out = (struct profile){ 0 };
	if (rc >= 0)
		rc = fill(p, &w, prices, euro, out, name_p, notes, e);
	if (rc < 0)
		profile_release(out);
	return rc;
}
