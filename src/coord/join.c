/* SPDX-License-Identifier: Apache-2.0 */
/* join.c - see join.h. */
#include "coord/join.h"

#include "base/err.h"
#include "coord/seats.h"

#include <stdatomic.h>
#include <stdio.h>

bool join_is_cluster(const struct config *c) { return c->coordinator.given; }

int join_device(const struct config *c, char spec[DEV_SPEC], enum dtype *act_p, struct err *e)
{
	struct dev *d;
	TRY(runtime_device(c->device, &d, e));
	int rc = runtime_dtype(d, c->compute_dtype, act_p, e);
	dev_spec(d, spec);
	dev_close(d);
	return rc;
}

/* Whether every worker computes in the dtype that was decided. */
static int check_dtype(const struct job *job, const struct seat_spec *seat, const struct session *s,
		       struct err *e)
{
	const struct welcome *caps = session_caps(s);
	for (int i = 0; i < session_members(s); i++)
		if (session_has(s, i) && !(caps[i].formats & 1u << job->opt.act))
			return err_set(e, ERR_UNSUPPORTED,
				       "compute_dtype %s%s is not available on worker '%s' (%s)",
				       dtype_name(job->opt.act),
				       job->resumed_act ? ", with which the run began," : "",
				       seat[i].id, caps[i].device);
	return 0;
}

static void choose_dtype(struct job *job, const struct session *s)
{
	const struct welcome *caps = session_caps(s);
	int wanted = job->cfg->compute_dtype;
	bool bf16 = true, f16 = true; /* native everywhere */
	if (job->resumed_act)
		return;
	for (int i = 0; i < session_members(s); i++) {
		bf16 = bf16 && (caps[i].bf16 || !session_has(s, i));
		f16 = f16 && (caps[i].f16 || !session_has(s, i));
	}
	job->opt.act = wanted == COMPUTE_FLOAT32    ? DT_F32
		       : wanted == COMPUTE_FLOAT16  ? DT_F16
		       : wanted == COMPUTE_BFLOAT16 ? DT_BF16
		       : bf16                       ? DT_BF16
		       : f16                        ? DT_F16
						    : DT_F32;
}

int join_cluster(struct job *job, const struct join_options *g, struct arena *a,
		 struct seat_spec **seat_p, struct session **s_p, struct err *e)
{
	const struct config *c = job->cfg;
	struct session_options o = { .program = g->program,
				     .join_timeout = c->join_timeout,
				     .run = g->run,
				     .term = g->term,
				     .stop = g->stop };
	struct seat_spec *seat;
	struct session *s;
	if (g->ranks)
		TRY(seats_of_ranks(c, g->ranks, a, &seat, &o.n, e));
	else
		TRY(seats_of_config(c, a, &seat, &o.n, e));
	if (c->nshards && c->shard_plan[c->nshards - 1].end != job->model.layers)
		return err_set(
			e, ERR_USAGE,
			"%s: 'shard_plan' ends at layer %lld, but the model %s has %lld layers",
			c->path, (long long)c->shard_plan[c->nshards - 1].end, c->base_model,
			(long long)job->model.layers);
	o.seat = seat;
	if (g->ranks)
		o.net = g->ranks->net;
	else
		TRY(seats_open(c, seat, &o.n, a, o.stop, &o.net, &o.reception, e));
	TRY(session_join(job, &o, &s, e));
	/* The host of a rank is known only now. */
	for (int i = 0; g->ranks && i < o.n; i++) {
		const char *host = arena_strdup(a, session_caps(s)[i].host);
		seat[i].host = host ? host : seat[i].host;
	}
	int rc = g->met ? g->met(g->ctx, s, e) : 0;
	if (rc >= 0) {
		choose_dtype(job, s);
		rc = check_dtype(job, seat, s, e);
	}
	if (rc < 0) {
		session_close(s, e);
		return rc;
	}
	*seat_p = seat;
	*s_p = s;
	return 0;
}

int join_threads(struct job *job, const char *const *device, int n, uint64_t window,
		 struct arena *a, struct seat_spec **seat_p, struct session **s_p, struct err *e)
{
	static atomic_uint serial;
	unsigned number = atomic_fetch_add(&serial, 1);
	struct session_options o = { .n = n, .join_timeout = 60 };
	struct seat_spec *seat = arena_alloc(a, (size_t)n * sizeof *seat);
	if (!seat)
		return err_nomem(e, (size_t)n * sizeof *seat, "workers");
	for (int i = 0; i < n; i++) {
		struct seat_spec *s = &seat[i];
		char id[32];
		snprintf(id, sizeof id, "local%d", i);
		*s = (struct seat_spec){ .kind = SEAT_THREAD,
					 .id = i ? arena_strdup(a, id) : "local",
					 .host = "this machine",
					 .device = device[i],
					 .cache_dir = job->cfg->cache_dir,
					 .window = window };
		if (!s->id)
			return err_nomem(e, sizeof id, "workers");
		snprintf(s->address, sizeof s->address, "worker-%u-%d", number, i);
	}
	o.seat = seat;
	struct session *ses;
	TRY(session_join(job, &o, &ses, e));
	int rc = check_dtype(job, seat, ses, e);
	if (rc < 0) {
		session_close(ses, e);
		return rc;
	}
	*seat_p = seat;
	*s_p = ses;
	return 0;
}
