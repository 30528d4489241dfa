/* SPDX-License-Identifier: Apache-2.0 */
/* backends.c - the list of backends, and opening a device by name or the best there is. */
#include "dev/dev.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHOICES = 256 };

#define BACKEND(name) extern const struct backend backend_##name;
#include "dev/backend.def"
#undef BACKEND

const struct backend *const backends[] = {
#define BACKEND(name) &backend_##name,
#include "dev/backend.def"
#undef BACKEND
	NULL
};

const struct backend *backend_find(const char *name)
{
	for (size_t i = 0; backends[i]; i++)
		if (!strcmp(backends[i]->name, name))
			return backends[i];
	return NULL;
}

static int open_at(const struct backend *be, int index, const char *spec, struct dev **d_p,
		   struct err *e)
{
	struct dev *d = mem_zalloc(sizeof *d);
	if (!d)
		return err_nomem(e, sizeof *d, "a device");
	d->be = be;
	d->index = index;
	int rc = be->open(d, index, e);
	if (rc < 0) {
		mem_free(d);
		return err_prefix(e, "device '%s'", spec);
	}
	*d_p = d;
	return 0;
}

struct choice {
	const struct backend *be;
	int index, rank;
};

static size_t choices(struct choice *v, size_t most)
{
	size_t n = 0;
	for (size_t i = 0; backends[i]; i++) {
		const struct backend *be = backends[i];
		struct err why = { 0 };
		const int count = be->rank ? be->count(&why) : 0;
		if (count < 0)
			log_warn("%s is left out: %s", be->name, why.msg);
		for (int k = 0; k < count && n < most; k++) {
			const struct choice c = { be, k, be->rank(k) };
			size_t at = n;
			if (c.rank <= 0)
				continue;
			for (; at && v[at - 1].rank < c.rank; at--)
				v[at] = v[at - 1];
			v[at] = c;
			n++;
		}
	}
	return n;
}

static int open_best(struct dev **d_p, struct err *e)
{
	struct choice v[CHOICES];
	const size_t n = choices(v, CHOICES);
	for (size_t i = 0; i < n; i++) {
		char spec[DEV_SPEC];
		snprintf(spec, sizeof spec, "%s:%d", v[i].be->name, v[i].index);
		err_clear(e);
		int rc = open_at(v[i].be, v[i].index, spec, d_p, e);
		if (rc >= 0 || i + 1 == n)
			return rc;
		log_warn("%s; the next one is tried", e->msg);
	}
	return err_set(e, ERR_DEVICE, "device 'auto': there is none (see 'heteroshard devices')");
}

void dev_successive(int k, char spec[DEV_SPEC])
{
	struct choice v[CHOICES], best[CHOICES];
	const size_t n = choices(v, CHOICES);
	bool done[CHOICES] = { false };
	for (size_t i = 0; i < n; i++) {
		size_t same = 0;
		for (size_t j = i; j < n && !done[i]; j++)
			if (v[j].be == v[i].be) {
				best[same++] = v[j];
				done[j] = j > i;
			}
		struct dev *d;
		struct err why = { 0 };
		if (!same)
			continue;
		const struct choice *c = &best[(size_t)k % same];
		snprintf(spec, DEV_SPEC, "%s:%d", c->be->name, c->index);
		if (open_at(c->be, c->index, spec, &d, &why) >= 0) {
			dev_close(d);
			return;
		}
		log_warn("%s; the next backend is tried", why.msg);
	}
	snprintf(spec, DEV_SPEC, "auto");
}

int dev_open(const char *spec, struct dev **d_p, struct err *e)
{
	char name[32];
	size_t n = strcspn(spec, ":");
	if (!strcmp(spec, "auto"))
		return open_best(d_p, e);
	if (n >= sizeof name)
		return err_set(e, ERR_USAGE, "device '%s': no such backend", spec);
	memcpy(name, spec, n);
	name[n] = 0;
	int index = 0;
	if (spec[n] == ':') {
		char *end;
		long v = strtol(spec + n + 1, &end, 10);
		if (*end || end == spec + n + 1 || v < 0 || v > 4095)
			return err_set(e, ERR_USAGE,
				       "device '%s': a number was expected behind the colon", spec);
		index = (int)v;
	}
	const struct backend *be = backend_find(name);
	if (!be)
		return err_set(e, ERR_USAGE,
			       "device '%s': no such backend (see 'heteroshard devices')", spec);
	int count = be->count(e);
	if (count < 0)
		return err_prefix(e, "device '%s'", spec);
	if (index >= count)
		return err_set(e, ERR_DEVICE,
			       "device '%s': this machine has %d such device%s (see 'heteroshard "
			       "devices')",
			       spec, count, count == 1 ? "" : "s");
	return open_at(be, index, spec, d_p, e);
}
