/* SPDX-License-Identifier: Apache-2.0 */
/* api_worker.c - hs_worker_run(): this process as a worker. */
#include "api/api.h"
#include "config/config.h"
#include "job/network.h"
#include "job/role.h"
#include "peers/invited.h"
#include "worker/work.h"

_Static_assert(sizeof(sig_atomic_t) == sizeof(int), "the stop flag of the interface is an int");

static int serve(const char *config, const char *const *set, size_t sets, const char *id,
		 const volatile int *stop, struct err *e)
{
	struct config *c;
	struct role role;
	if (!api_words(set, sets))
		return err_set(e, ERR_USAGE, "hs_worker_run: one of `set` is NULL");
	TRY(config_load_as(CONFIG_PART, config, (int)sets, (char **)(uintptr_t)set, &c, e));
	int rc = invited_resolve(c, e);
	if (rc >= 0)
		rc = role_find(c, "worker", id, &role, e);
	if (rc >= 0)
		rc = network_check(c, e);
	if (rc >= 0)
		rc = work(c, &role, (const volatile sig_atomic_t *)stop, e);
	config_free(c);
	return rc;
}

int hs_worker_run(const char *config, const char *const *set, size_t sets, const char *id,
		  const volatile int *stop, hs_error *out)
{
	struct err e = { 0 };
	const int rc = serve(config, set, sets, id, stop, &e);
	return rc < 0 ? api_error(&e, out) : 0;
}
