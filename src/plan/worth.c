/* SPDX-License-Identifier: Apache-2.0 */
/* worth.c - see worth.h. */
#include "plan/worth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "plan/cards.h"

static double watts_of(const struct profile_device *d)
{
	const struct card *c = d->watts > 0 ? NULL : card_find(d->kind);
	return d->watts > 0 ? d->watts : c ? c->watts : 0;
}

struct plan_energy plan_energy(const struct profile *p, const struct plan *plan)
{
	struct plan_energy e = { 0 };
	size_t at = 0;

	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++) {
			const struct plan_member *m = &plan->stage[k].member[i];
			double watts = watts_of(&p->device[m->device]);
			e.used++;
			if (watts > 0) {
				e.known++;
				e.watts += watts * m->busy;
			} else if (at < sizeof e.unknown) {
				at += (size_t)snprintf(e.unknown + at, sizeof e.unknown - at,
						       "%s%s", at ? ", " : "",
						       p->device[m->device].id);
			}
		}
	if (e.watts > 0)
		e.tokens_per_wh = 3600 * plan->tokens_per_s / e.watts;
	else
		e.known = 0;
	return e;
}

/* ---- prices ---- */

static int add(struct prices *l, char *item, const char *at, struct err *e)
{
	size_t mark = strcspn(item, "="), n;
	struct price *all, price = { 0 };
	const char *value;
	char *end;

	mark = item[mark] ? mark : strcspn(item, ":");
	if (!item[mark])
		return err_set(e, ERR_USAGE, "%s: '%s' is not NAME=EUROS", at, item);
	item[mark] = 0;
	value = item + mark + 1;
	for (n = strlen(item); n && (item[n - 1] == ' ' || item[n - 1] == '\t'); n--)
		item[n - 1] = 0;
	while (*item == ' ' || *item == '\t')
		item++;
	if (!*item || strlen(item) >= sizeof price.name)
		return err_set(e, ERR_USAGE, "%s: '%s' is no id and no kind of a device", at, item);
	price.euro = strtod(value, &end);
	end += strspn(end, " \t\r");
	if (end == value || *end || !(price.euro >= 0 && price.euro <= 1e9))
		return err_set(e, ERR_USAGE,
			       "%s: the price of '%s' is '%s': write euros, a number "
			       "from 0 to 1e9",
			       at, item, value);
	snprintf(price.name, sizeof price.name, "%s", item);
	for (int i = 0; i < l->n; i++)
		if (!strcasecmp(l->item[i].name, item))
			return err_set(e, ERR_USAGE, "%s: two prices for '%s'", at, item);
	all = mem_realloc(l->item, ((size_t)l->n + 1) * sizeof *all);
	if (!all)
		return err_set(e, ERR_NOMEM, "out of memory for prices");
	l->item = all;
	l->item[l->n++] = price;
	return 0;
}

static int add_all(struct prices *l, char *text, bool file, struct err *e)
{
	char *at = text, at_line[300];

	for (int line = 1; at; line++) {
		char *item = at;
		size_t n = strcspn(at, file ? "\n" : ",");
		at = item[n] ? item + n + 1 : NULL;
		item[n] = 0;
		if (file)
			item[strcspn(item, "#")] = 0;
		if (!item[strspn(item, " \t\r")])
			continue;
		snprintf(at_line, sizeof at_line, file ? "%s: line %d" : "%s", l->where, line);
		TRY(add(l, item, at_line, e));
	}
	return l->n ? 0 : err_set(e, ERR_USAGE, "%s: no prices in it", l->where);
}

int prices_read(struct prices *l, const char *text, struct err *e)
{
	const bool file = access(text, F_OK) == 0 || !strchr(text, '=');
	struct buf b = BUF_INIT;
	int rc = 0;

	*l = (struct prices){ 0 };
	snprintf(l->where, sizeof l->where, "%s", file ? text : "--price");
	if (file)
		rc = buf_read_file(&b, text, 1u << 20, e);
	else
		buf_adds(&b, text);
	if (rc >= 0)
		rc = buf_ok(&b, e);
	if (rc >= 0)
		rc = b.n ? add_all(l, b.p, file, e)
			 : err_set(e, ERR_USAGE, "%s: no prices in it", l->where);
	buf_release(&b);
	if (rc < 0)
		prices_release(l);
	return rc;
}

void prices_release(struct prices *l)
{
	mem_free(l->item);
	*l = (struct prices){ 0 };
}

static bool same_kind(const char *a, const char *b)
{
	const struct card *c = card_find(a);
	return !strcasecmp(a, b) || (c && c == card_find(b));
}

static struct price *find(struct prices *l, const char *id, const char *kind)
{
	for (int i = 0; id && i < l->n; i++)
		if (!strcasecmp(l->item[i].name, id))
			return &l->item[i];
	for (int i = 0; i < l->n; i++)
		if (same_kind(l->item[i].name, kind))
			return &l->item[i];
	return NULL;
}

int prices_sum(struct prices *l, const struct profile *p, double *euro_p, struct err *e)
{
	double sum = 0;

	for (int i = 0; i < p->devices; i++) {
		const struct profile_device *d = &p->device[i];
		struct price *price = find(l, d->id, d->kind);
		if (!price)
			return err_set(e, ERR_USAGE,
				       "%s: no price for '%s' (%s); add %s=EUROS, 0 if it costs "
				       "nothing",
				       l->where, d->id, d->kind, d->id);
		price->used = true;
		sum += price->euro;
	}
	*euro_p = sum;
	return 0;
}

int prices_kind(struct prices *l, const char *kind, double *euro_p, struct err *e)
{
	struct price *price = find(l, NULL, kind);

	if (!price || !(price->euro > 0))
		return err_set(e, ERR_USAGE, "%s: no price above 0 for '%s'; add '%s=EUROS'",
			       l->where, kind, kind);
	price->used = true;
	*euro_p = price->euro;
	return 0;
}

int prices_all_used(const struct prices *l, const struct profile *p, struct err *e)
{
	for (int i = 0; i < l->n; i++) {
		char list[200];
		size_t at = 0;
		if (l->item[i].used)
			continue;
		list[0] = 0;
		for (int k = 0; k < p->devices && at < sizeof list; k++)
			at += (size_t)snprintf(list + at, sizeof list - at, "%s%s (%s)",
					       k ? ", " : "", p->device[k].id, p->device[k].kind);
		return err_set(e, ERR_USAGE,
			       "%s: '%s' is no device and no kind of this cluster, which has %s; "
			       "take its price out",
			       l->where, l->item[i].name, list);
	}
	return 0;
}
