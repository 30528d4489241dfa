/* SPDX-License-Identifier: Apache-2.0 */
/* train_stages.c - see train_stages.h. */
#include "cli/train_stages.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "report/live.h"
#include "report/topology.h"
#include "sched/chunks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct shown {
	const char *worker, *host, *address, *backend, *device, *layers;
	int stage;
	char label[16];      /* "0"; in a group "0.1" */
	double share;        /* of its group's microbatches; NaN: it is alone */
	const char *machine; /* equal texts: processes of one machine (net/interfaces.h) */
	bool encrypted;
	uint64_t memory, memory_total;
	double rate, latency; /* to the next stage */
	uint64_t plan_memory; /* by the plan; 0: there is none */
	double plan_busy, plan_rate;
	struct train_stage last, sum;
};

struct train_stages {
	const struct config *c;
	struct arena arena;
	struct shown *stage; /* [n] of each member, by stage and then by place */
	int n, stages;
	bool here; /* all in this process */
	char coordinator[256], facts[256];
	double last_s, sum_s, tokens;
	double plan_s, plan_rate; /* of a step, tokens per second; 0: no plan */
	uint64_t steps, summed;
};

static const char *layers_text(const struct placement *p, int stage, struct arena *a)
{
	char text[512];
	chunk_layers_text(p->stages, p->chunks, p->first, stage, text, sizeof text);
	return arena_strdup(a, text);
}

static int fill(struct train_stages *t, const struct train_info *i, int k, struct err *e)
{
	const struct placement *p = i->place;
	const struct welcome *w = &i->caps[k];
	const struct seat_spec *seat = i->seat ? &i->seat[k] : NULL;
	struct shown *s = &t->stage[k];
	const char *given = seat ? seat->device : p->device[k];
	char address[NET_ADDRESS];
	/* without its port, which does not belong to the machine */
	snprintf(address, sizeof address, "%s", seat ? seat->address : "");
	char *port = strrchr(address, ':');
	if (port)
		*port = 0;
	s->worker = arena_strdup(&t->arena, seat ? seat->id : "");
	s->host = arena_strdup(&t->arena, seat ? seat->host : t->coordinator);
	s->address = arena_strdup(&t->arena, address);
	s->backend = arena_strdup(&t->arena, given && strcmp(given, "auto") ? given : w->backend);
	s->device = arena_strdup(&t->arena, w->device);
	const int stage = placement_stage_of(p, k), row = placement_row(p, stage),
		  members = placement_row(p, stage + 1) - row;
	int64_t shares = 0;
	for (int j = 0; j < members; j++)
		shares += p->share ? p->share[row + j] : 1;
	s->stage = stage;
	s->share =
		members > 1 && shares ? (double)(p->share ? p->share[k] : 1) / (double)shares : NAN;
	if (members > 1)
		snprintf(s->label, sizeof s->label, "%d.%d", stage, k - row);
	else
		snprintf(s->label, sizeof s->label, "%d", stage);
	s->layers = layers_text(p, stage, &t->arena);
	s->machine = arena_strdup(&t->arena, w->machine);
	if (!s->worker || !s->host || !s->address || !s->backend || !s->device || !s->layers ||
	    !s->machine)
		return err_nomem(e, 256, "what is shown");
	s->encrypted = seat && seat->key;
	s->memory_total = w->memory;
	s->rate = s->latency = s->plan_busy = s->plan_rate = NAN;
	return 0;
}

/* The predicted figures, for the picture before the first step. */
static void set_predicted(struct train_stages *t, const struct job_plan *job_plan)
{
	const struct plan *plan = &job_plan->plan;
	for (int k = 0, row = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members && row < t->n; i++, row++) {
			const struct plan_member *m = &plan->stage[k].member[i];
			struct shown *s = &t->stage[row];
			s->plan_memory = (uint64_t)(m->memory_gib * (1 << 30));
			s->plan_busy = m->busy;
			if (k + 1 == plan->stages || t->here)
				continue;
			int next = plan->stage[k + 1].member[0].device;
			s->plan_rate = profile_bandwidth(&job_plan->profile, m->device, next) * 1e9;
			s->latency = profile_latency_ms(&job_plan->profile, m->device, next) / 1e3;
		}
	t->plan_s = plan->simulated_ms / 1e3;
	t->plan_rate = plan->tokens_per_s;
}

int train_stages_new(const struct config *c, const struct train_info *i, struct train_stages **t_p,
		     struct err *e)
{
	struct train_stages *t = mem_zalloc(sizeof *t);
	char passes[100];
	int rc = 0;
	if (!t)
		return err_nomem(e, sizeof *t, "what is shown");
	t->c = c;
	t->n = placement_rows(i->place);
	t->stages = i->place->stages;
	t->here = !i->seat;
	if (i->seat && c->coordinator.hostname && c->coordinator.hostname[0])
		snprintf(t->coordinator, sizeof t->coordinator, "%s", c->coordinator.hostname);
	else if (i->seat && c->coordinator.ip && c->coordinator.ip[0])
		/* the name that its own worker's machine has too */
		snprintf(t->coordinator, sizeof t->coordinator, "%s", c->coordinator.ip);
	else if (gethostname(t->coordinator, sizeof t->coordinator - 1) < 0 || !t->coordinator[0])
		snprintf(t->coordinator, sizeof t->coordinator, "this machine");
	job_passes_text(i->job, passes, sizeof passes);
	snprintf(t->facts, sizeof t->facts, "%lld layers, %s, %s%s",
		 (long long)i->job->model.layers, i->place->schedule,
		 i->job->pass ? "microbatches of " : "", passes);
	t->stage = arena_alloc(&t->arena, (size_t)t->n * sizeof *t->stage);
	if (!t->stage)
		rc = err_nomem(e, (size_t)t->n * sizeof *t->stage, "what is shown");
	for (int k = 0; k < t->n && rc >= 0; k++)
		rc = fill(t, i, k, e);
	if (rc >= 0 && i->job_plan)
		set_predicted(t, i->job_plan);
	if (rc < 0)
		train_stages_free(t);
	else
		*t_p = t;
	return rc;
}

void train_stages_free(struct train_stages *t)
{
	if (!t)
		return;
	arena_release(&t->arena);
	mem_free(t);
}

int train_stages_count(const struct train_stages *t) { return t->n; }

void train_stages_name(const struct train_stages *t, int stage, char *s, size_t cap)
{
	const struct shown *v = &t->stage[stage];
	if (t->here)
		snprintf(s, cap, "stage %s: %s", v->label, v->backend);
	else
		snprintf(s, cap, "stage %s: %.20s on %.20s, %.12s", v->label, v->worker, v->host,
			 v->backend);
}

void train_stages_step(struct train_stages *t, const struct train_step *s)
{
	if (t->steps++ == 1) /* the first step warms up: it is used only while there is no other */
		t->summed = 0;
	bool first = !t->summed++;
	t->last_s = s->seconds;
	t->sum_s = (first ? 0 : t->sum_s) + s->seconds;
	t->tokens = (first ? 0 : t->tokens) + (double)s->tokens;
	for (int k = 0; k < t->n && k < s->stages; k++) {
		struct shown *v = &t->stage[k];
		v->last = s->stage[k];
		v->sum.busy = (first ? 0 : v->sum.busy) + v->last.busy;
		v->sum.wait = (first ? 0 : v->sum.wait) + v->last.wait;
		v->sum.expert_hits = (first ? 0 : v->sum.expert_hits) + v->last.expert_hits;
		v->sum.expert_misses = (first ? 0 : v->sum.expert_misses) + v->last.expert_misses;
		v->memory = v->last.mem_peak;
		v->rate = v->last.rate;
	}
}

static void fill_shares(const struct train_stages *t, bool mean, struct live_stage *out)
{
	for (int k = 0; k < t->n; k++) {
		const struct shown *v = &t->stage[k];
		const struct train_stage *x = mean ? &v->sum : &v->last;
		double s = mean ? t->sum_s : t->last_s;
		out[k] = (struct live_stage){ .stage = v->label,
					      .worker = v->worker,
					      .host = v->host,
					      .device = v->device[0] ? v->device : v->backend,
					      .layers = v->layers,
					      .busy = s > 0 ? x->busy / s : NAN,
					      .wait = s > 0 ? x->wait / s : NAN,
					      .memory = v->memory,
					      .memory_total = v->memory_total,
					      .rate = v->rate };
		const double experts = train_expert_hits(x, 1);
		out[k].experts = isnan(experts) ? 0 : experts;
	}
}

void train_stages_table(const struct train_stages *t, const struct live_look *look, struct buf *out)
{
	struct live_stage *v = mem_array((size_t)t->n, sizeof *v);
	if (v) { /* without memory for it there is no table */
		fill_shares(t, false, v);
		live_table(v, t->n, look, out);
	}
	mem_free(v);
}

void train_stages_json(const struct train_stages *t, struct buf *out)
{
	for (int k = 0; k < t->n; k++) {
		const struct shown *s = &t->stage[k];
		const double of = t->last_s > 0 ? t->last_s : 1;
		buf_adds(out, k ? ", {\"id\": " : "{\"id\": ");
		json_quote(out, s->worker, strlen(s->worker));
		buf_adds(out, ", \"host\": ");
		json_quote(out, s->host, strlen(s->host));
		buf_adds(out, ", \"device\": ");
		json_quote(out, s->device, strlen(s->device));
		buf_adds(out, ", \"layers\": ");
		json_quote(out, s->layers, strlen(s->layers));
		buf_addf(out, ", \"memory\": %llu, \"memory_total\": %llu, \"busy\": ",
			 (unsigned long long)s->last.mem_peak, (unsigned long long)s->memory_total);
		json_number(out, s->last.busy / of);
		buf_addc(out, '}');
	}
}

void train_stages_line(const struct train_stages *t, struct buf *out)
{
	struct live_stage *v = mem_array((size_t)t->n, sizeof *v);
	if (v) {
		fill_shares(t, true, v);
		live_line(v, t->n, out);
	}
	mem_free(v);
}

/* ---- architecture.* ---- */

static size_t machine_of(struct topology_machine *m, size_t *n, const char *host,
			 const char *address)
{
	size_t k = 0;
	while (k < *n && strcmp(m[k].name, host))
		k++;
	if (k == *n)
		m[(*n)++] = (struct topology_machine){
			.name = host,
			.address = address && address[0] && strcmp(address, host) ? address : NULL
		};
	return k;
}

/* Between two workers: processes of one machine share memory unless the user chose another
 * transport. */
static bool through_memory(const struct train_stages *t, int from, int to)
{
	const char *a = t->stage[from].machine, *b = t->stage[to].machine;
	return !t->here && a[0] && !strcmp(a, b) &&
	       (!strcmp(t->c->transport, "auto") || !strcmp(t->c->transport, "shm"));
}

static const char *way_between(const struct train_stages *t, int from, int to)
{
	return t->here                            ? "in memory"
	       : through_memory(t, from, to)      ? "shared memory"
	       : !strcmp(t->c->transport, "auto") ? NET_DEFAULT
						  : t->c->transport;
}

static struct topology_device device_of(const struct train_stages *t, int k, size_t machine)
{
	const struct shown *s = &t->stage[k];
	bool measured = t->sum_s > 0;
	return (struct topology_device){ .id = s->worker,
					 .machine = machine,
					 .backend = s->backend,
					 .name = s->device,
					 .stage = s->stage,
					 .layers = s->layers,
					 .front = s->stage == 0,
					 .end = s->stage == t->stages - 1,
					 .share = s->share,
					 .mem_need = s->memory ? s->memory : s->plan_memory,
					 .mem_total = s->memory_total,
					 .busy = measured ? s->sum.busy / t->sum_s : s->plan_busy };
}

static struct topology_link link_of(const struct train_stages *t, int from, int to)
{
	const struct shown *s = &t->stage[from];
	return (struct topology_link){ .from = (size_t)from,
				       .to = (size_t)to,
				       .bandwidth = isfinite(s->plan_rate) ? s->plan_rate
									   : s->last.best_rate,
				       .latency = s->latency,
				       .transport = way_between(t, from, to),
				       .encrypted = s->encrypted && !through_memory(t, from, to) };
}

/* At most: between the groups of neighbouring stages. */
static size_t count_links(const struct train_stages *t)
{
	size_t n = 1;
	for (int k = 0; k < t->n; k++)
		for (int j = k + 1; j < t->n; j++)
			n += t->stage[j].stage == t->stage[k].stage + 1;
	return n;
}

int train_stages_draw(const struct train_stages *t, const char *title, struct err *e)
{
	struct topology_machine *m = mem_array((size_t)t->n + 1, sizeof *m);
	struct topology_device *d = mem_array((size_t)t->n, sizeof *d);
	struct topology_link *l = mem_array(count_links(t), sizeof *l);
	struct topology p = {
		.title = title, .machine = m, .device = d, .ndevice = (size_t)t->n, .link = l
	};
	char line[600];
	int rc = 0;
	if (!m || !d || !l) {
		rc = err_nomem(e, (size_t)t->n * sizeof *d, "a picture");
		goto out;
	}
	m[machine_of(m, &p.nmachine, t->coordinator, t->here ? NULL : t->c->coordinator.ip)]
		.coordinator = true;
	for (int k = 0; k < t->n; k++)
		d[k] = device_of(t, k,
				 machine_of(m, &p.nmachine, t->stage[k].host, t->stage[k].address));
	for (int k = 0; k < t->n; k++)
		for (int j = k + 1; j < t->n; j++)
			if (t->stage[j].stage == t->stage[k].stage + 1)
				l[p.nlink++] = link_of(t, k, j);
	int n = snprintf(line, sizeof line, "%s", t->facts);
	if (t->sum_s > 0)
		snprintf(line + n, sizeof line - (size_t)n, ": %.0f ms a step, %.0f tokens/s",
			 t->sum_s / (double)t->summed * 1e3, t->tokens / t->sum_s);
	else if (t->plan_s > 0)
		snprintf(line + n, sizeof line - (size_t)n,
			 ": %.0f ms a step, %.0f tokens/s predicted", t->plan_s * 1e3,
			 t->plan_rate);
	p.subtitle = line;
	rc = topology_write(&p, t->c->output_dir, t->c->visualization_format, e);
out:
	mem_free(m);
	mem_free(d);
	mem_free(l);
	return rc;
}
