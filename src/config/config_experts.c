/* SPDX-License-Identifier: Apache-2.0 */
/* config_experts.c - `experts` of an entry of shard_plan: "old1", or with the numbers of its
 * experts "old1=0-31,40". */
#include "config/config_parts.h"

#include "base/err.h"
#include "base/mem.h"
#include "model/deal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OWN_NOBODY = 255 };

static size_t find_id(const struct config_shard *s, const char *id, size_t n)
{
	for (size_t k = 0; k < n; k++)
		if (!strcmp(s->id.item[k], id))
			return k;
	return n;
}

int config_experts_read(struct config *c, struct config_shard *s, const char *file, int line,
			struct err *e)
{
	const size_t most = s->id.n + s->experts.n;
	s->homes = s->id.n;
	if (!s->experts.n)
		return 0;
	const char **id = arena_alloc(&c->arena, most * sizeof *id),
		   **own = arena_alloc(&c->arena, most * sizeof *own);
	if (!id || !own)
		return err_nomem(e, most * sizeof *id, "the shard plan");
	if (s->id.n)
		memcpy(id, s->id.item, s->id.n * sizeof *id);
	s->id.item = id;
	size_t given = 0;
	for (size_t i = 0; i < s->experts.n; i++) {
		const char *text = s->experts.item[i], *numbers = strchr(text, '=');
		const size_t length = numbers ? (size_t)(numbers - text) : strlen(text);
		char name[300];
		snprintf(name, sizeof name, "%.*s", (int)(length < 299 ? length : 299), text);
		const size_t k = find_id(s, name, s->id.n);
		if (!name[0] || (k < s->id.n && own[k]))
			return err_set(e, ERR_USAGE, "%s:%d: 'experts' names %s%.60s%s", file, line,
				       name[0] ? "'" : "nobody", name, name[0] ? "' twice" : "");
		if (k == s->id.n)
			id[s->id.n++] = arena_strdup(&c->arena, name);
		own[k] = arena_strdup(&c->arena, numbers ? numbers + 1 : "");
		if (!id[k] || !own[k])
			return err_nomem(e, sizeof name, "the shard plan");
		given += numbers != NULL;
	}
	if (given && given < s->experts.n)
		return err_set(e, ERR_USAGE,
			       "%s:%d: some entries of 'experts' say which they get ('id=0-3'), "
			       "others do not: say it of all, or of none",
			       file, line);
	if (s->states.n || s->sizes.n)
		return err_set(e, ERR_USAGE,
			       "%s:%d: '%s' together with 'experts' is not supported: leave it out",
			       file, line, s->states.n ? "state_share" : "micro_batch_size");
	if (s->id.n > OWN_NOBODY)
		return err_set(e, ERR_USAGE,
			       "%s:%d: 'experts' makes a stage of %zu members: at most %d", file,
			       line, s->id.n, OWN_NOBODY);
	s->own = own;
	return 0;
}

/* "0-3,8" for member k. */
static int take_numbers(const struct config_shard *s, size_t k, int64_t experts, uint8_t *place,
			const char *where, struct err *e)
{
	for (const char *p = s->own[k], *at = p; *at;) {
		char *end;
		long from = strtol(at, &end, 10), to = from;
		bool good = *at >= '0' && *at <= '9';
		if (good && *end == '-') {
			const char *second = end + 1;
			to = strtol(second, &end, 10);
			good = *second >= '0' && *second <= '9' && to >= from;
		}
		if (!good || (*end && *end != ','))
			return err_set(e, ERR_USAGE,
				       "%s: 'experts' of '%.60s' is '%.60s': numbers such as "
				       "0-3,8 were expected",
				       where, s->id.item[k], p);
		for (long x = from; x <= to; x++) {
			if (x >= experts)
				return err_set(e, ERR_USAGE,
					       "%s: 'experts' gives expert %ld to '%.60s'; the "
					       "model has experts 0 to %lld",
					       where, x, s->id.item[k], (long long)experts - 1);
			if (place[x] != OWN_NOBODY)
				return err_set(e, ERR_USAGE,
					       "%s: 'experts' gives expert %ld to '%.60s' and to "
					       "'%.60s': each is in one place",
					       where, x, s->id.item[place[x]], s->id.item[k]);
			place[x] = (uint8_t)k;
		}
		at = *end ? end + 1 : end;
	}
	return 0;
}

int config_experts_deal(const struct config_shard *s, int64_t experts, const double *load,
			const double *speed, uint8_t *place, const char *where, struct err *e)
{
	bool given = false;
	if (!experts)
		return err_set(e, ERR_USAGE,
			       "%s: 'shard_plan' of '%.60s' has 'experts', but the model has none",
			       where, s->id.item[0]);
	memset(place, OWN_NOBODY, (size_t)experts);
	for (size_t k = 0; k < s->id.n; k++) {
		if (s->own[k] && s->own[k][0]) {
			given = true;
			TRY(take_numbers(s, k, experts, place, where, e));
		}
	}
	if (!given)
		deal_by_speed(0, experts, load, speed, (int)s->id.n, place);
	for (int64_t x = 0; x < experts; x++)
		if (place[x] == OWN_NOBODY)
			return err_set(e, ERR_USAGE,
				       "%s: 'experts' of '%.60s' leaves out expert %lld of %lld",
				       where, s->id.item[0], (long long)x, (long long)experts);
	return 0;
}
