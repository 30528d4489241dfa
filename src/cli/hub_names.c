/* SPDX-License-Identifier: Apache-2.0 */
/* hub_names.c - see hub_names.h. */
#include "cli/hub_names.h"

#include "base/err.h"
#include "hub/hub.h"

#include <string.h>

static int fetch(const char **path, bool dataset, struct arena *a, struct err *e)
{
	const struct hub_options o = { .dataset = dataset };
	struct hub_name n;
	char got[HUB_PATH];
	if (!hub_is_name(*path))
		return 0;
	TRY(hub_parse(*path, &n, e));
	TRY(hub_fetch(&n, &o, got, e));
	*path = arena_strdup(a, got);
	return *path ? 0 : err_nomem(e, strlen(got), "a path");
}

int cli_fetch_model(const char **path, struct arena *a, struct err *e)
{
	return fetch(path, false, a, e);
}

int cli_fetch_data(const char **path, struct arena *a, struct err *e)
{
	return fetch(path, true, a, e);
}

int cli_fetch_config(struct config *c, struct err *e)
{
	if (c->base_model)
		TRY(fetch(&c->base_model, false, &c->arena, e));
	for (size_t i = 0; i < c->ndatasets; i++)
		TRY(fetch(&c->datasets[i].path, true, &c->arena, e));
	return 0;
}
