/* session.c - see session.h. Each worker listens; the coordinator dials all of them, then each worker dials the stage behind it.
 * A worker's first connection is therefore the coordinator's, the second that of the stage before it. */
#include "train/session.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/worker.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { STACK = 8 << 20, STATE_PIECE = 4 << 20 /* numbers */ };
static const double patience = 60; /* seconds for local workers to find each other */

struct worker_seat {
	struct session *s;
	int stage;
	char address[NET_ADDRESS];
	struct net *net;   /* the worker's end */
	struct link *link; /* the coordinator's end */
	pthread_t thread;
	bool running;
	struct worker_env env;
	struct err err;
	int rc;
};

struct session {
	struct job *job;
	const struct placement *place;
	struct net *net;
	struct worker_seat *seat;
	int n;
	uint64_t id;
	struct weight_source source;
	struct buf out;
};

static int neighbours(void *ctx, const struct worker_plan *p, struct link **prev_p, struct link **next_p, struct err *e)
{
	struct worker_seat *w = ctx;
	bool ring = p->chunks > 1;
	if (ring || p->stage + 1 < p->stages)
		TRY(net_connect(w->net, w->s->seat[(p->stage + 1) % p->stages].address, NULL, net_in(patience), next_p, e));
	if (!ring && p->stage == 0)
		return 0;
	int rc = net_accept(w->net, net_in(patience), prev_p, e);
	if (rc == 0)
		return err_set(e, ERR_NET, "stage %d: the stage before it did not connect within %g s", p->stage, patience);
	return rc < 0 ? rc : 0;
}

static void *run_worker(void *ctx)
{
	struct worker_seat *w = ctx;
	int rc = net_accept(w->net, net_in(patience), &w->env.coordinator, &w->err);
	if (rc == 0)
		rc = err_set(&w->err, ERR_NET, "the coordinator did not connect within %g s", patience);
	if (rc > 0)
		rc = worker_run(&w->env, &w->err);
	w->rc = rc;
	net_close(w->net, 5);
	w->net = NULL;
	return NULL;
}

static int start(struct session *s, int i, struct err *e)
{
	static atomic_uint serial;
	struct worker_seat *w = &s->seat[i];
	char word[64];
	w->s = s;
	w->stage = i;
	snprintf(word, sizeof word, "worker-%u-%d", atomic_fetch_add(&serial, 1), i);
	TRY(net_open("loop", &(struct net_options){ .peer_timeout = 0 }, &w->net, e));
	TRY(net_listen(w->net, word, w->address, e));
	w->env = (struct worker_env){
		.net = w->net, .device = s->place->device[i], .neighbours = neighbours, .ctx = w, .source = &s->source
	};
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	int rc = pthread_create(&w->thread, &attr, run_worker, w);
	pthread_attr_destroy(&attr);
	if (rc)
		return err_sys(e, rc, "starting a worker's thread");
	w->running = true;
	return net_connect(s->net, w->address, NULL, net_in(patience), &w->link, e);
}

static int send_plan(struct session *s, int i, bool trace, struct err *e)
{
	struct worker_plan *p = mem_zalloc(sizeof *p);
	char *config = json_dumps(model_file_config(s->job->file), JSON_COMPACT);
	int rc = 0;
	if (!p || !config) {
		rc = err_nomem(e, sizeof *p, "the plan");
		goto out;
	}
	const struct placement *pl = s->place;
	p->stages = pl->stages;
	p->chunks = pl->chunks;
	p->stage = i;
	memcpy(p->first, pl->first, sizeof p->first);
	snprintf(p->schedule, sizeof p->schedule, "%s", pl->schedule);
	static const enum dtype wire[] = { [WIRE_BFLOAT16] = DT_BF16, [WIRE_FLOAT32] = DT_F32, [WIRE_FLOAT16] = DT_F16 };
	p->wire = wire[s->job->cfg->wire_dtype];
	p->opt = s->job->opt;
	snprintf(p->optimizer, sizeof p->optimizer, "%s", s->job->optimizer->name);
	p->optim = s->job->optim;
	p->trace = trace;
	TRYOUT(plan_write(p, config, &s->out, e));
	TRYOUT(session_send(s, i, FRAME_PLAN, 0, 0, s->out.p, s->out.n, e));
out:
	mem_free(p);
	free(config);
	return rc;
}

int session_open(struct job *job, const struct placement *place, bool trace, struct session **s_p, struct err *e)
{
	struct session *s = mem_zalloc(sizeof *s);
	if (!s)
		return err_nomem(e, sizeof *s, "a session");
	*s = (struct session){
		.job = job, .place = place, .n = place->stages, .id = job->digest | 1, .source = source_from_file(job->file)
	};
	buf_init(&s->out);
	int rc = 0;
	s->seat = mem_array((size_t)s->n, sizeof *s->seat);
	if (!s->seat) {
		s->n = 0;
		rc = err_nomem(e, (size_t)place->stages * sizeof *s->seat, "workers");
		goto out;
	}
	TRYOUT(net_open("loop", &(struct net_options){ .peer_timeout = 0 }, &s->net, e));
	for (int i = 0; i < s->n; i++)
		TRYOUT(start(s, i, e));
	for (int i = 0; i < s->n; i++)
		TRYOUT(send_plan(s, i, trace, e));
	for (int i = 0; i < s->n; i++) {
		struct net_msg msg;
		struct frame f;
		TRYOUT(session_recv(s, i, FRAME_READY, 0, &msg, &f, e));
		net_msg_release(&msg);
	}
	*s_p = s;
	return 0;
out:
	session_close(s, e->msg);
	return rc;
}

void session_close(struct session *s, const char *why)
{
	if (!s)
		return;
	char text[1200];
	struct wire_writer w = wire_write(text, sizeof text);
	wire_put_str(&w, why ? why : "");
	struct err ignored;
	for (int i = 0; i < s->n; i++)
		if (s->seat[i].link)
			session_send(s, i, why ? FRAME_ABORT : FRAME_FINISH, 0, 0, text, w.n, &ignored);
	for (int i = 0; i < s->n; i++)
		if (s->seat[i].running)
			pthread_join(s->seat[i].thread, NULL);
	for (int i = 0; i < s->n; i++) {
		if (s->seat[i].link)
			link_close(s->seat[i].link);
		if (s->seat[i].net)
			net_close(s->seat[i].net, 0);
	}
	if (s->net)
		net_close(s->net, 0);
	buf_release(&s->out);
	mem_free(s->seat);
	mem_free(s);
}

int session_workers(const struct session *s) { return s->n; }

int session_send(struct session *s, int worker, enum frame_kind kind, uint64_t step, uint32_t microbatch, const void *payload,
		 size_t n, struct err *e)
{
	struct frame f = { .kind = kind, .job = s->id, .step = step, .microbatch = microbatch, .size = n, .payload = payload };
	int rc = link_send_frame(s->seat[worker].link, &f, NET_FOREVER, e);
	return rc < 0 ? err_prefix(e, "worker %d", worker) : 0;
}

int session_send_all(struct session *s, enum frame_kind kind, uint64_t step, const void *payload, size_t n, struct err *e)
{
	for (int i = 0; i < s->n; i++)
		TRY(session_send(s, i, kind, step, 0, payload, n, e));
	return 0;
}

int session_send_batch(struct session *s, const struct microbatch *mb, bool train, uint64_t pass, uint64_t step, uint32_t m,
		       uint32_t microbatches, struct err *e)
{
	for (int i = 0; i < s->n; i++) {
		bool ids = i == 0, labels = i == s->n - 1;
		size_t n, cap = batch_size(mb, ids, labels);
		buf_reset(&s->out);
		buf_reserve(&s->out, cap);
		TRY(buf_ok(&s->out, e));
		TRY(batch_write(mb, train, step, microbatches, ids, labels, s->out.p, cap, &n, e));
		TRY(session_send(s, i, FRAME_BATCH, pass, m, s->out.p, n, e));
	}
	return 0;
}

/* When one worker fails the others are told, and fail too: the first that says something of its own is the cause. */
static int worker_failed(struct session *s, int worker, const struct frame *f, struct err *e)
{
	char why[sizeof e->msg];
	struct wire_reader r = wire_read(f->payload, f->size);
	wire_get_str(&r, why, sizeof why);
	return err_set(e, ERR_DEVICE, "worker %d (%s): %s", worker, s->place->device[worker], r.failed ? "stopped" : why);
}

/* While one worker is waited for, another may have failed and keep the first waiting: look at all of them. */
static int look_for_abort(struct session *s, int except, struct err *e)
{
	for (int i = 0; i < s->n; i++) {
		if (i == except || link_state(s->seat[i].link) != LINK_LOST)
			continue;
		struct net_msg msg;
		struct frame f;
		struct err ignored;
		int rc;
		while ((rc = link_recv_frame(s->seat[i].link, NET_NOW, &msg, &f, &ignored)) > 0) {
			if (f.kind == FRAME_ABORT)
				worker_failed(s, i, &f, e);
			net_msg_release(&msg);
			if (e->code)
				return e->code;
		}
		if (rc < 0)
			return err_set(e, ERR_NET, "worker %d (%s): %s", i, s->place->device[i], ignored.msg);
	}
	return 0;
}

int session_recv(struct session *s, int worker, enum frame_kind kind, uint64_t step, struct net_msg *msg_p, struct frame *f_p,
		 struct err *e)
{
	for (;;) {
		struct net_msg msg;
		struct frame f;
		int rc = link_recv_frame(s->seat[worker].link, net_in(1), &msg, &f, e);
		if (rc < 0)
			return err_prefix(e, "worker %d (%s)", worker, s->place->device[worker]);
		if (rc == 0) {
			err_clear(e);
			TRY(look_for_abort(s, worker, e));
			continue;
		}
		if (f.kind == kind && f.step == step && f.job == s->id) {
			*msg_p = msg;
			*f_p = f;
			return 0;
		}
		if (f.kind == FRAME_ABORT)
			rc = worker_failed(s, worker, &f, e);
		else
			rc = err_set(e, ERR_PROTOCOL, "worker %d sent %s of step %llu where %s of step %llu was due", worker,
				     frame_name(f.kind), (unsigned long long)f.step, frame_name(kind), (unsigned long long)step);
		net_msg_release(&msg);
		return rc;
	}
}

/* ---- state ---- */

static float *state_of(struct job *j, struct trained_param *p, const char *what, int *index_p)
{
	*index_p = 0;
	if (!strcmp(what, "value"))
		return p->value;
	for (int k = 0; k < j->optimizer->states; k++)
		if (!strcmp(what, j->optimizer->state_names[k])) {
			*index_p = k + 1;
			return p->state[k];
		}
	return NULL;
}

static int take_state(struct session *s, int worker, const struct frame *f, struct err *e)
{
	struct state_message m;
	TRY(state_read(f->payload, f->size, &m, e));
	struct trained_param *p = job_param(s->job, m.name);
	int index;
	float *dst = p ? state_of(s->job, p, m.what, &index) : NULL;
	uint64_t end;
	if (!dst || !add_ok(m.first, m.count, &end) || end > p->count)
		return err_set(e, ERR_PROTOCOL, "worker %d: STATE: '%s' of '%s' is not part of this job", worker, m.what, m.name);
	memcpy(dst + m.first, m.data, m.count * 4);
	p->got[index] += m.count;
	return 0;
}

int session_gather(struct session *s, uint64_t step, struct err *e)
{
	struct job *j = s->job;
	TRY(job_alloc_state(j, e));
	for (size_t i = 0; i < j->nparam; i++)
		memset(j->param[i].got, 0, sizeof j->param[i].got);
	TRY(session_send_all(s, FRAME_SAVE, step, NULL, 0, e));
	for (int i = 0; i < s->n; i++)
		for (bool more = true; more;) {
			struct net_msg msg;
			struct frame f;
			int rc = link_recv_frame(s->seat[i].link, NET_FOREVER, &msg, &f, e);
			if (rc < 0)
				return err_prefix(e, "worker %d", i);
			if (f.kind == FRAME_STATE)
				rc = take_state(s, i, &f, e);
			else if (f.kind == FRAME_SAVED)
				more = false;
			else if (f.kind == FRAME_ABORT)
				rc = worker_failed(s, i, &f, e);
			else
				rc = err_set(e, ERR_PROTOCOL, "worker %d sent %s while saving", i, frame_name(f.kind));
			net_msg_release(&msg);
			if (rc < 0)
				return rc;
		}
	for (size_t i = 0; i < j->nparam; i++)
		for (int k = 0; k <= j->optimizer->states; k++)
			if (j->param[i].got[k] != j->param[i].count)
				return err_set(e, ERR_PROTOCOL, "no worker sent all of '%s': %llu of %llu numbers",
					       j->param[i].name, (unsigned long long)j->param[i].got[k],
					       (unsigned long long)j->param[i].count);
	return 0;
}

/* Which worker holds a parameter, by its layer. */
static int holder(const struct session *s, const char *name)
{
	const struct placement *p = s->place;
	long long layer = -1;
	if (sscanf(name, "model.layers.%lld.", &layer) != 1)
		return !strncmp(name, "model.embed_tokens.", 19) ? 0 : s->n - 1;
	for (int v = 0; v < p->stages * p->chunks; v++)
		if (layer >= p->first[v] && layer < p->first[v + 1])
			return v % p->stages;
	return s->n - 1;
}

static int scatter_one(struct session *s, const struct trained_param *p, const char *what, const float *v, uint64_t step,
		       struct err *e)
{
	for (uint64_t at = 0; at < p->count; at += STATE_PIECE) {
		struct state_message m = { .first = at,
					   .count = p->count - at < STATE_PIECE ? p->count - at : STATE_PIECE,
					   .data = v + at };
		size_t n, cap = m.count * 4 + 512;
		snprintf(m.name, sizeof m.name, "%s", p->name);
		snprintf(m.what, sizeof m.what, "%s", what);
		buf_reset(&s->out);
		buf_reserve(&s->out, cap);
		TRY(buf_ok(&s->out, e));
		TRY(state_write(&m, s->out.p, cap, &n, e));
		TRY(session_send(s, holder(s, p->name), FRAME_STATE, step, 0, s->out.p, n, e));
	}
	return 0;
}

int session_scatter(struct session *s, uint64_t step, struct err *e)
{
	struct job *j = s->job;
	for (size_t i = 0; i < j->nparam; i++) {
		TRY(scatter_one(s, &j->param[i], "value", j->param[i].value, step, e));
		for (int k = 0; k < j->optimizer->states; k++)
			TRY(scatter_one(s, &j->param[i], j->optimizer->state_names[k], j->param[i].state[k], step, e));
	}
	return 0;
}
