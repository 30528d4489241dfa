/* SPDX-License-Identifier: Apache-2.0 */
/* api_plan.c - hs_profile() and hs_plan(): what devices and links of a job can do, and the plan
 * that is made with it, as the commands `profile` and `plan` write them. */
#include "api/api_config.h"

#include "base/buf.h"
#include "base/mem.h"
#include "plan/plan.h"
#include "survey/job_plan.h"
#include "survey/profiler.h"

#include <string.h>

static int measure(const struct config *c, const hs_options *o, struct profile *p, struct err *e)
{
	const struct join_options join = { .program = o->worker, .stop = o->stop };
	const struct profiler_options how = { .links = true };
	return profiler_config(c, &join, &how, p, e);
}

/* The text to the caller. */
static int give(struct buf *b, char **text_p, struct err *e)
{
	TRY(buf_ok(b, e));
	*text_p = buf_detach(b);
	return *text_p ? 0 : err_nomem(e, b->n, "a text");
}

static int profile(const hs_options *o, char **json_p, struct err *e)
{
	struct api_config a;
	struct profile p;
	struct buf b = BUF_INIT;
	TRY(api_config_open(&a, NULL, o, 0, e));
	int rc = api_check_role(a.c, e);
	if (rc >= 0)
		rc = measure(a.c, o, &p, e);
	if (rc >= 0) {
		profile_write(&p, &b);
		rc = give(&b, json_p, e);
		profile_release(&p);
	}
	buf_release(&b);
	api_config_close(&a);
	return rc;
}

/* The profile of a file, of the configuration's file, or measured now. */
static int get_profile(struct config *c, const hs_options *o, const char *file, struct profile *p,
		       struct err *e)
{
	if (!file && c->profile && strcmp(c->profile, "none") && strcmp(c->profile, "auto"))
		file = c->profile;
	if (file)
		return profile_read_file(p, file, e);
	TRY(api_check_role(c, e));
	return measure(c, o, p, e);
}

static int plan_of(struct config *c, const hs_options *o, const char *file, char **json_p,
		   struct err *e)
{
	struct job_plan p = { 0 };
	struct buf b = BUF_INIT;
	TRY(get_profile(c, o, file, &p.profile, e));
	job_plan_options(&p, c, false);
	int rc = job_plan_given(&p, c, NULL, e);
	if (rc >= 0)
		rc = job_plan_make(&p, false, e);
	if (rc >= 0) {
		plan_to_json(&p.profile, &p.plan, &b);
		rc = give(&b, json_p, e);
	}
	buf_release(&b);
	job_plan_release(&p);
	return rc;
}

static int plan(const hs_options *o, const char *file, char **json_p, struct err *e)
{
	struct api_config a;
	if (!o->config && !o->sets && file)
		return plan_of(NULL, o, file, json_p, e);
	TRY(api_config_open(&a, NULL, o, 0, e));
	const int rc = plan_of(a.c, o, file, json_p, e);
	api_config_close(&a);
	return rc;
}

static int once(const hs_options *options, const char *file, bool planned, char **json_p,
		hs_error *out)
{
	struct err e = { 0 };
	hs_options o;
	if (!json_p || !api_take(&o, sizeof o, options, API_OPTIONS_LEAST))
		return api_refuse(out, ERR_USAGE,
				  "an argument is NULL, or the options have no `size`: use "
				  "hs_options_init()");
	if (!api_run_begin())
		return api_refuse(out, ERR_USAGE, "another run is going on in this process");
	const int rc = planned ? plan(&o, file, json_p, &e) : profile(&o, json_p, &e);
	api_run_end();
	return rc < 0 ? api_error(&e, out) : 0;
}

int hs_profile(const hs_options *o, char **json_p, hs_error *e)
{
	return once(o, NULL, false, json_p, e);
}

int hs_plan(const hs_options *o, const char *profile_file, char **json_p, hs_error *e)
{
	return once(o, profile_file, true, json_p, e);
}

void hs_text_release(char *text) { mem_free(text); }
