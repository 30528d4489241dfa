/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_plan.c - `heteroshard plan`: chooses the layers of each device, predicts the speed, and shows
 * what each device is worth. It needs only a profile; neither a model nor a device has to be
 * present. src/plan plans and words the explanation; here are options, tables and files. */
#include "cli/cli.h"
#include "cli/plan_alone.h"
#include "cli/plan_draw.h"
#include "cli/plan_worth.h"
#include "cli/run.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "file/output.h"
#include "config/names.h"
#include "job/run_folder.h"
#include "job/network.h"
#include "plan/cards.h"
#include "plan/describe.h"
#include "plan/explain.h"
#include "plan/plan.h"
#include "report/dashboard.h"
#include "report/plan_trace.h"
#include "report/topology.h"
#include "sched/chunks.h"
#include "survey/job_plan.h"
#include "survey/profiler.h"

#include <limits.h>
#include <math.h>
#include <string.h>

int cmd_plan(int argc, char **argv);

struct args {
	const char *profile, *cluster, *planner, *plan, *schedule, *add, *out, *price, *with;
	struct opt_list without;
	int64_t microbatch, effort;
	double reserve;
	bool json, compare, groups, brief, refresh;
	struct cli_role role;
};

static const struct opt rows[] = {
	{ .key = "profile",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, profile),
	  .arg = "FILE",
	  .help = "profile.json to plan from" },
	{ .key = "cluster",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, cluster),
	  .arg = "FILE",
	  .help = "a description to plan from (examples/homelab-plan.yaml): cards by name, links "
		  "by "
		  "speed; nothing is measured, everything is estimated" },
	{ .key = "planner",
	  .kind = OPT_NAME,
	  .offset = offsetof(struct args, planner),
	  .names = &names_planner,
	  .arg = "NAME",
	  .help = "instead of what CONFIG says, else best" },
	{ .key = "plan",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, plan),
	  .arg = "FILE",
	  .help = "plan.json to judge (planner manual)" },
	{ .key = "schedule",
	  .kind = OPT_NAME,
	  .offset = offsetof(struct args, schedule),
	  .names = &names_schedule,
	  .arg = "NAME",
	  .help = "only this schedule" },
	{ .key = "microbatch",
	  .kind = OPT_INT,
	  .offset = offsetof(struct args, microbatch),
	  .def = "-1",
	  .lo = -1,
	  .hi = PROFILE_MAX_BATCH,
	  .arg = "N",
	  .help = "only this many sequences a microbatch; 0: the planner chooses; -1: as CONFIG "
		  "says, else 0" },
	{ .key = "reserve",
	  .kind = OPT_FLOAT,
	  .offset = offsetof(struct args, reserve),
	  .def = "-1",
	  .lo = -1,
	  .hi = 1e6,
	  .arg = "GIB",
	  .help = "memory that stays free on every device; -1: as CONFIG or the profile says, else "
		  "5 %" },
	{ .key = "groups",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, groups),
	  .def = "true",
	  .help = "also stages that several devices share" },
	{ .key = "effort",
	  .kind = OPT_INT,
	  .offset = offsetof(struct args, effort),
	  .def = "0",
	  .lo = 0,
	  .hi = 1e12,
	  .arg = "N",
	  .help = "instructions to simulate in the search; 0: 20 million" },
	{ .key = "without",
	  .kind = OPT_LIST,
	  .offset = offsetof(struct args, without),
	  .arg = "ID,..",
	  .help = "as if these devices were not there" },
	{ .key = "add",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, add),
	  .arg = "KEY=VALUE,..",
	  .help = "as if this device were there: 3090, or kind=p40,host=box2,bandwidth=0.117 "
		  "(GB/s); also latency (ms), memory, id, count; several with ';'" },
	{ .key = "compare",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, compare),
	  .help = "run all planners and print one table; below it each device alone, and what "
		  "together is of their sum" },
	{ .key = "price",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, price),
	  .arg = "LIST|FILE",
	  .help = "what the devices cost, by id or kind: '3090=700,V100=250'; or a file with a "
		  "line "
		  "'3090 = 700' for each: tokens/s for 1,000 euro" },
	{ .key = "compare-with",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, with),
	  .arg = "KEY=VALUE,..",
	  .help = "print one table of this cluster and one of equal cards: kind=3090,count=2; also "
		  "hosts, bandwidth, latency, memory. With --price and without count: as many as "
		  "this cluster's price buys" },
	{ .key = "brief",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, brief),
	  .help = "no explanation (it plans again without each device)" },
	{ .key = "out",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, out),
	  .arg = "DIR",
	  .help = "write plan.json, architecture.png, trace.json (simulated), profile.png and "
		  "profile.html there" },
	{ .key = "refresh",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, refresh),
	  .help = "measure again what was measured before" },
	CLI_ROLE_ROWS(offsetof(struct args, role)),
	{ .key = "json",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, json),
	  .help = "print JSON" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard plan [--profile FILE] [--planner NAME] [--compare] [--json] [...] "
		    "[CONFIG [key=value ...]]",
	.about = "Chooses which layers each device holds, the schedule and the microbatch size, "
		 "and says what to expect: step "
		 "time, what each "
		 "device does for how much of the time, how full its memory will be, and what the "
		 "job would do without it.\n"
		 "With CONFIG its devices and links are measured first (or taken from the cache), "
		 "and plan.json and "
		 "architecture.png go into its output_dir, unless a run is there; with workers on "
		 "other machines it is run there too. A shard_plan of CONFIG is drawn before "
		 "anything is measured, with "
		 "profile=none also instead. With --profile "
		 "alone neither model nor devices have to be present.",
	.config = true,
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard plan examples/smollm2.yaml\n"
		   "  heteroshard plan --profile profile.json\n"
		   "  heteroshard plan --cluster examples/homelab-plan.yaml --out picture\n"
		   "  heteroshard plan hetero_config.json profile=none --out picture\n"
		   "  heteroshard plan --profile profile.json --compare\n"
		   "  heteroshard plan --profile profile.json --add "
		   "kind=t4,host=newbox,bandwidth=0.117 --without old1",
};

/* ---- what to plan ---- */

static int add_devices(struct profile *p, const char *text, struct err *e)
{
	struct buf notes = BUF_INIT;
	int rc = 0;
	while (*text && rc >= 0) {
		size_t n = strcspn(text, ";");
		char *one = n ? mem_strndup(text, n) : NULL;
		rc = one ? profile_add_card(p, one, &notes, e) : 0;
		mem_free(one);
		text += n + (text[n] == ';');
	}
	if (rc >= 0 && !notes.failed && !cli_quiet())
		cli_line(cli_err(), "%s", notes.p);
	buf_release(&notes);
	return rc;
}

struct question {
	struct job_plan p;
	struct prices prices;
	double euro;                 /* of all devices; NaN: no prices */
	const struct config *config; /* NULL: none */
};

/* Options of the command line override those of the configuration. */
static void job_options(const struct args *a, struct question *j, bool ranks)
{
	struct plan_options *o = &j->p.options;
	job_plan_options(&j->p, j->config, ranks);
	if (a->microbatch >= 0)
		o->microbatch = (int)a->microbatch;
	if (a->reserve >= 0)
		o->reserve_gib = a->reserve;
	o->groups = a->groups;
	o->share_auto |= !j->config;
	o->effort = a->effort;
	if (a->schedule)
		o->sched = sched_find(a->schedule);
}

static int describe(const struct args *a, struct question *j, struct err *e)
{
	struct buf notes = BUF_INIT;
	if (a->profile || j->config)
		return err_set(e, ERR_USAGE,
			       "--cluster %s says what there is and what is trained: leave %s out",
			       a->cluster, a->profile ? "--profile" : "the configuration");
	int rc = profile_describe(a->cluster, a->without.item, a->without.n, &j->p.profile, &notes,
				  e);
	if (rc >= 0 && !notes.failed && !cli_quiet())
		cli_line(cli_err(), "%s", notes.p);
	buf_release(&notes);
	return rc;
}

/* The profile: a file, or measured for the configuration. */
static int get_profile(const struct args *a, struct question *j, char *const *program,
		       const struct ranks *ranks, struct err *e)
{
	const char *file = a->profile;
	if (a->cluster)
		return describe(a, j, e);
	if (!file && !j->config)
		return err_set(e, ERR_USAGE,
			       "a profile is needed: heteroshard plan --profile FILE, a "
			       "configuration to measure for, or a description (--cluster FILE)");
	if (!file && j->config->profile && strcmp(j->config->profile, "auto") &&
	    strcmp(j->config->profile, "none"))
		file = j->config->profile;
	if (file)
		return profile_read_file(&j->p.profile, file, e);
	const struct join_options g = { .program = program, .stop = cli_stop(), .ranks = ranks };
	const struct profiler_options o = { .refresh = a->refresh, .links = true };
	return profiler_config(j->config, &g, &o, &j->p.profile, e);
}

static int prepare(const struct args *a, char *const *program, const struct ranks *ranks,
		   struct question *j, struct err *e)
{
	TRY(get_profile(a, j, program, ranks, e));
	job_options(a, j, ranks);
	for (size_t i = 0; i < a->without.n && !a->cluster; i++)
		TRY(profile_remove(&j->p.profile, a->without.item[i], e));
	if (a->add)
		TRY(add_devices(&j->p.profile, a->add, e));
	TRY(job_plan_given(&j->p, j->config, a->plan, e));
	if (a->planner)
		j->p.planner = planner_find(a->planner);
	j->euro = NAN;
	if (!a->price)
		return 0;
	TRY(prices_read(&j->prices, a->price, e));
	if (a->with) /* the prices are for both clusters */
		return 0;
	TRY(prices_sum(&j->prices, &j->p.profile, &j->euro, e));
	return prices_all_used(&j->prices, &j->p.profile, e);
}

/* ---- one plan ---- */

static void layers_text(const struct plan *plan, int stage, char *s, size_t cap)
{
	const size_t all = (size_t)plan->stages * (size_t)plan->chunks + 1;
	int64_t *first = mem_array(all, sizeof *first);

	s[0] = 0;
	for (size_t v = 0; first && v < all; v++)
		first[v] = plan->first[v];
	if (first)
		chunk_layers_text(plan->stages, plan->chunks, first, stage, s, cap);
	mem_free(first);
}

static void print_devices(const struct profile *p, const struct plan *plan)
{
	static const char *const heading[] = { "stage", "layers",       "device", "kind",
					       "host",  "microbatches", "busy",   "copy",
					       "wait",  "idle",         "memory", "allowed" };
	struct cli_table *t = cli_table_new(heading, ARRAY_LEN(heading));

	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++) {
			const struct plan_member *m = &plan->stage[k].member[i];
			const struct profile_device *d = &p->device[m->device];
			char text[9][64];
			const char *cells[] = {
				text[0], text[1], d->id,   d->kind, p->host[d->host].name,
				text[2], text[3], text[4], text[5], text[6],
				text[7], text[8]
			};
			snprintf(text[0], sizeof text[0], "%d", k);
			layers_text(plan, k, text[1], sizeof text[1]);
			snprintf(text[2], sizeof text[2], plan->pass ? "%d: %d" : "%d x %d",
				 m->microbatches, plan->pass ? m->samples : m->microbatch);
			snprintf(text[3], sizeof text[3], "%.0f %%", 100 * m->busy);
			snprintf(text[4], sizeof text[4], "%.0f %%", 100 * m->copy);
			snprintf(text[5], sizeof text[5], "%.0f %%", 100 * m->wait);
			snprintf(text[6], sizeof text[6], "%.0f %%", 100 * m->bubble);
			snprintf(text[7], sizeof text[7], "%.2f GiB%s", m->memory_gib,
				 m->memory_gib > m->limit_gib ? " !" : "");
			snprintf(text[8], sizeof text[8], "%.2f GiB", m->limit_gib);
			cli_table_add(t, cells);
		}
	cli_table_print(t, cli_out());
}

static void print_plan(const struct profile *p, const struct plan *plan, double euro)
{
	cli_heading("%s on %d of %d devices, planner %s%s", p->model, p->devices - plan->left_outs,
		    p->devices, plan->planner, profile_estimated(p) ? " (estimated)" : "");
	cli_fact("step", "%.1f ms for %d sequences of %d tokens", plan->simulated_ms,
		 p->global_batch, p->sequence_len);
	if (fabs(plan->predicted_ms - plan->simulated_ms) > 1e-9 * plan->simulated_ms)
		cli_fact("its own figure", "%.1f ms (by the planner's own formula)",
			 plan->predicted_ms);
	cli_fact("tokens/s", "%.0f", plan->tokens_per_s);
	plan_worth_print(p, plan, euro);
	if (plan->chunks > 1)
		cli_fact("schedule", "%s, %d chunks a device", plan->sched->name, plan->chunks);
	else
		cli_fact("schedule", "%s", plan->sched->name);
	if (plan->pass)
		cli_fact("microbatches", "%d of sizes of their own", plan->microbatches);
	else if (plan->stage[0].members == 1 || plan_plays_members(plan, 0))
		cli_fact("microbatches", "%d of %d", plan->microbatches, plan->microbatch);
	cli_fact("memory", plan->fits ? "fits" : "does NOT fit: %.2f GiB too little on %s%s",
		 plan->over_gib, plan->over_host ? "the host of " : "",
		 plan->over_device >= 0 ? p->device[plan->over_device].id : "");
	cli_fact("search", "%.0f ms, %lld plans", plan->search_ms, (long long)plan->examined);
	fputc('\n', cli_out());
	print_devices(p, plan);
}

static int print_explanation(const struct question *j, const struct plan *plan, struct err *e)
{
	struct plan_whatif *w = mem_array((size_t)j->p.profile.devices, sizeof *w);
	struct plan_rival second = { 0 };
	struct buf b = BUF_INIT;
	bool ours = j->p.planner == planner_default();
	int rc = 0;

	if (!w)
		return err_set(e, ERR_NOMEM, "out of memory for an explanation");
	/* only the best plan is compared with plans without a device; with many devices that takes
	 * too long */
	if (ours && j->p.profile.devices <= 32)
		rc = plan_whatifs(&j->p.profile, &j->p.options, plan, w, e);
	if (rc == 0 && ours)
		rc = plan_second_best(&j->p.profile, &j->p.options, plan, &second, e);
	if (rc == 0) {
		plan_explain(&j->p.profile, &j->p.options, plan,
			     ours && j->p.profile.devices <= 32 ? w : NULL, ours ? &second : NULL,
			     &b);
		cli_line(cli_out(), "\n%s", b.p);
	}
	buf_release(&b);
	mem_free(w);
	return rc;
}

/* ---- files ---- */

static int draw(const struct profile *p, const struct plan *plan, const char *dir, struct err *e)
{
	struct topology_machine *machine = mem_array((size_t)p->hosts, sizeof *machine);
	struct topology_device *d = mem_array((size_t)p->devices, sizeof *d);
	struct topology_link *l = mem_array((size_t)p->devices, sizeof *l);
	char(*layers)[64] = mem_array((size_t)plan->stages, sizeof *layers);
	struct topology t = { .machine = machine,
			      .nmachine = (size_t)p->hosts,
			      .device = d,
			      .ndevice = (size_t)p->devices,
			      .link = l };
	char title[300], subtitle[300];
	int rc = 0;

	if (!machine || !d || !l || !layers) {
		rc = err_set(e, ERR_NOMEM, "out of memory for a picture");
		goto out;
	}
	snprintf(title, sizeof title, "%.200s on %d of %d devices%s", p->model,
		 p->devices - plan->left_outs, p->devices,
		 profile_estimated(p) ? " (estimated)" : "");
	snprintf(subtitle, sizeof subtitle,
		 "%d layers, %s, %d microbatch%s of %d: %.1f ms a step, %.0f tokens/s", p->layers,
		 plan->sched->name, plan->microbatches, plan->microbatches == 1 ? "" : "es",
		 plan->microbatch, plan->simulated_ms, plan->tokens_per_s);
	t.title = title;
	t.subtitle = subtitle;
	for (int i = 0; i < p->hosts; i++)
		machine[i].name = p->host[i].name;
	for (int i = 0; i < p->devices; i++)
		d[i] = (struct topology_device){ .id = p->device[i].id,
						 .machine = (size_t)p->device[i].host,
						 .backend = p->device[i].kind,
						 .stage = -1,
						 .share = NAN,
						 .busy = NAN,
						 .mem_total = (uint64_t)(p->device[i].memory_gib *
									 1073741824.0) };
	for (int k = 0; k < plan->stages; k++) {
		const struct plan_stage *s = &plan->stage[k];
		if (plan->chunks > 1)
			layers_text(plan, k, layers[k], sizeof layers[k]);
		for (int i = 0; i < s->members; i++) {
			const struct plan_member *m = &s->member[i];
			struct topology_device *x = &d[m->device];
			x->stage = k;
			x->first = plan->first[k];
			x->last = plan->first[k + 1];
			x->layers = plan->chunks > 1 ? layers[k] : NULL;
			x->front = k == 0;
			x->end = k == plan->stages - 1;
			x->share = s->members > 1 ? (double)m->samples / p->global_batch : NAN;
			x->mem_need = (uint64_t)(m->memory_gib * 1073741824.0);
			x->busy = m->busy;
		}
		if (k > 0) {
			int from = plan->stage[k - 1].member[0].device, to = s->member[0].device;
			l[t.nlink++] = (struct topology_link){
				.from = (size_t)from,
				.to = (size_t)to,
				.bandwidth = profile_bandwidth(p, from, to) * 1e9,
				.latency = profile_latency_ms(p, from, to) / 1e3
			};
		}
	}
	rc = topology_write(&t, dir, NULL, e);
out:
	mem_free(machine);
	mem_free(d);
	mem_free(l);
	mem_free(layers);
	return rc;
}

static int write_files(const struct question *j, struct plan *plan, const char *dir, struct err *e)
{
	struct buf b = BUF_INIT;
	char path[PATH_MAX];
	int rc = 0;

	if (snprintf(path, sizeof path, "%s/trace.json", dir) >= (int)sizeof path)
		return err_set(e, ERR_USAGE, "%s: the path is too long", dir);
	TRY(dir_make_result(dir, e));
	plan_to_json(&j->p.profile, plan, &b);
	rc = buf_ok(&b, e);
	if (rc == 0)
		rc = atomic_write_in(dir, "plan.json", b.p, b.n, e);
	buf_release(&b);
	if (rc < 0)
		return rc;
	TRY(dashboard_write(&j->p.profile, dir, e));
	TRY(plan_trace_write(&j->p.profile, &j->p.options, plan, path, e));
	rc = draw(&j->p.profile, plan, dir, e);
	if (rc == ERR_UNSUPPORTED) {
		fprintf(cli_err(), "note: %s\n", e->msg);
		err_clear(e);
		rc = 0;
	}
	return rc;
}

/* Where the files go; NULL: nowhere. */
static const char *folder_of(const struct args *a, const struct question *j)
{
	return a->out                                                ? a->out
	       : j->config && !a->profile && !a->compare && !a->with ? j->config->output_dir
								     : NULL;
}

static int run_plan(const struct args *a, const struct question *j, struct err *e)
{
	struct plan plan;
	int rc;

	rc = planner_run(j->p.planner, &j->p.profile, &j->p.options, &plan, e);
	if (rc < 0)
		return a->cluster ? err_prefix(e, "%s", a->cluster) : rc;
	if (a->json) {
		struct buf b = BUF_INIT;
		plan_to_json(&j->p.profile, &plan, &b);
		rc = buf_ok(&b, e);
		if (rc == 0)
			fputs(b.p, cli_out());
		buf_release(&b);
	} else {
		print_plan(&j->p.profile, &plan, j->euro);
		rc = a->brief ? 0 : print_explanation(j, &plan, e);
		/* cards that --add brought are not in the description, which is read again */
		if (rc == 0 && a->cluster && !a->brief && !a->add)
			rc = plan_worth_dtype(&j->p, &plan, a->cluster, &a->without, e);
	}
	const char *dir = folder_of(a, j);
	if (rc == 0 && dir && !a->out && run_folder_is_run(dir)) {
		cli_line(cli_err(),
			 "%s holds a run: its plan.json, trace.json and architecture.png stay as "
			 "they are; --out DIR writes those of this plan\n",
			 dir);
		dir = NULL;
	}
	if (rc == 0 && dir)
		rc = write_files(j, &plan, dir, e);
	plan_release(&plan);
	return rc;
}

/* ---- all planners ---- */

static int compare_json(const struct question *j, struct err *bad)
{
	bool first = true;

	fputs("{\"plans\": [", cli_out());
	for (size_t i = 0; planner_at(i); i++) {
		struct plan plan;
		struct err e = { 0 };
		struct buf b = BUF_INIT;
		if (planner_at(i)->needs_plan && !j->p.options.manual)
			continue;
		if (planner_run(planner_at(i), &j->p.profile, &j->p.options, &plan, &e) < 0) {
			buf_addf(&b, "{\"planner\": \"%s\", \"error\": ", planner_at(i)->name);
			json_quote(&b, e.msg, strlen(e.msg));
			buf_addc(&b, '}');
		} else {
			plan_to_json(&j->p.profile, &plan, &b);
			plan_release(&plan);
		}
		fprintf(cli_out(), "%s%s", first ? "" : ",\n", b.p);
		first = false;
		buf_release(&b);
	}
	return plan_alone_json(&j->p, bad);
}

static int compare(const struct args *a, const struct question *j, struct err *e)
{
	static const char *const heading[] = { "planner",   "step ms",        "tokens/s",
					       "stages",    "devices",        "microbatch",
					       "schedule",  "fits",           "today",
					       "search ms", "per 1,000 euro", "euro per token/s" };
	struct cli_table *t;
	struct buf notes = BUF_INIT;
	struct plan ours = { 0 };
	int rc = 0;

	if (a->json)
		return compare_json(j, e);
	t = cli_table_new(heading, ARRAY_LEN(heading) - (isnan(j->euro) ? 2 : 0));
	for (size_t i = 0; planner_at(i); i++) {
		const struct planner *row = planner_at(i);
		struct plan plan;
		struct err why = { 0 };
		char text[9][64];
		const char *cells[] = { row->name, text[0], text[1], text[2], text[3], text[4],
					"-",       "-",     "-",     text[6], text[7], text[8] };
		if (row->needs_plan && !j->p.options.manual)
			continue;
		for (size_t x = 0; x < ARRAY_LEN(text); x++)
			snprintf(text[x], sizeof text[x], "-");
		if (planner_run(row, &j->p.profile, &j->p.options, &plan, &why) < 0) {
			buf_addf(&notes, "%s: %s\n", row->name, why.msg);
			cli_table_add(t, cells);
			continue;
		}
		snprintf(text[0], sizeof text[0], "%.1f", plan.simulated_ms);
		snprintf(text[1], sizeof text[1], "%.0f", plan.tokens_per_s);
		snprintf(text[2], sizeof text[2], "%d", plan.stages);
		snprintf(text[3], sizeof text[3], "%d", j->p.profile.devices - plan.left_outs);
		if (plan.stage[0].members == 1 || plan_plays_members(&plan, 0))
			snprintf(text[4], sizeof text[4], "%d", plan.microbatch);
		snprintf(text[5], sizeof text[5], plan.chunks > 1 ? "%s, %d chunks" : "%s",
			 plan.sched->name, plan.chunks);
		snprintf(text[6], sizeof text[6], "%.1f", plan.search_ms);
		if (j->euro > 0) {
			char rate[24], price[24];
			plan_worth_text(j->euro, plan.tokens_per_s, rate, price);
			snprintf(text[7], sizeof text[7], "%s", rate);
			snprintf(text[8], sizeof text[8], "%s", price);
		}
		cells[6] = text[5];
		cells[7] = plan.fits ? "yes" : "no";
		cells[8] = plan.executable ? "yes" : "no";
		if (!plan.fits)
			buf_addf(&notes, "%s: %.2f GiB too little on %s%s\n", row->name,
				 plan.over_gib, plan.over_host ? "the host of " : "",
				 j->p.profile.device[plan.over_device].id);
		cli_table_add(t, cells);
		if (row == planner_default())
			ours = plan;
		else
			plan_release(&plan);
	}
	cli_table_print(t, cli_out());
	if (profile_estimated(&j->p.profile))
		fprintf(cli_out(), "\nEstimated: not all of these devices were measured "
				   "(docs/planning.md).\n");
	if (notes.n)
		cli_line(cli_out(), "\n%s", notes.p);
	buf_release(&notes);
	if (ours.stages)
		rc = plan_alone_print(&j->p, &ours, e);
	plan_release(&ours);
	return rc;
}

static int check_folder(const struct args *a, const struct question *j, struct err *e)
{
	const struct config *c = j->config;
	const char *const input[] = { a->plan,
				      a->profile,
				      a->cluster,
				      c ? c->plan : NULL,
				      c ? c->profile : NULL,
				      c ? c->path : NULL };
	const char *dir = folder_of(a, j);
	return dir ? output_check_report(dir, true, input, ARRAY_LEN(input), e) : 0;
}

static int answer_question(const struct args *a, struct question *j, char *const *program,
			   const struct ranks *ranks, struct err *e)
{
	int rc = check_folder(a, j, e); /* before anything is measured */
	if (rc >= 0)
		rc = prepare(a, program, ranks, j, e);
	if (rc >= 0)
		rc = a->with      ? plan_worth_compare(&j->p, a->with, a->price ? &j->prices : NULL,
						       a->cluster, a->json, e)
		     : a->compare ? compare(a, j, e)
				  : run_plan(a, j, e);
	job_plan_release(&j->p);
	prices_release(&j->prices);
	return rc;
}

/* The picture of a shard_plan that is written down does not wait for anybody. */
static int draw_shards(const struct args *a, const struct config *c, struct err *e)
{
	const char *dir = a->out ? a->out : c->output_dir;
	if (!dir)
		return err_set(
			e, ERR_USAGE,
			"%s: where should the picture of 'shard_plan' go? Give 'output_dir', "
			"or --out DIR",
			c->path);
	if (!a->out && run_folder_is_run(dir)) {
		cli_line(cli_err(),
			 "%s holds a run: its architecture.png stays as it is; --out DIR draws the "
			 "shard_plan\n",
			 dir);
		return 0;
	}
	TRY(output_check_report(dir, true, NULL, 0, e));
	int rc = plan_draw_shards(c, dir, e);
	if (rc == ERR_UNSUPPORTED) {
		fprintf(cli_err(), "note: %s\n", e->msg);
		err_clear(e);
		return 0;
	}
	if (rc >= 0)
		cli_line(cli_err(), "%s/architecture.png shows the shard_plan\n", dir);
	return rc;
}

static int run_as_coordinator(void *ctx, const struct config *c, char *const *program,
			      const struct ranks *ranks, struct err *e)
{
	struct question j = { .config = c };
	const struct args *a = ctx;
	if (c->nshards && !a->plan) {
		TRY(draw_shards(a, c, e));
		if (c->profile && !strcmp(c->profile, "none"))
			return 0; /* nothing is to be measured, so nothing is predicted */
	}
	TRY(config_complete(c, CONFIG_TRAIN, e));
	TRY(ranks ? 0 : network_check(c, e));
	return answer_question(ctx, &j, program, ranks, e);
}

/* From a profile alone, or with the planner options of a configuration; nothing is measured. */
static int from_profile(const struct args *a, int npos, char **pos)
{
	struct config *c = NULL;
	struct err e = { 0 };
	int rc = npos ? cli_config("plan", CONFIG_MODEL, npos, pos, &c, &e) : 0;
	struct question j = { .config = c };
	if (rc >= 0)
		rc = answer_question(a, &j, NULL, NULL, &e);
	config_free(c);
	return rc < 0 ? cli_fail(&e) : rc;
}

int cmd_plan(int argc, char **argv)
{
	struct args a = { 0 };
	struct arena arena = ARENA_INIT;
	int npos, status;

	if (cli_args(&usage, argc, argv, &a, 0, -1, &npos, &arena, &status)) {
		a.role.command = argv[0];
		if (npos && !a.profile && !a.cluster)
			status = cli_everywhere(&a.role, CONFIG_PART, npos, argv + 1,
						run_as_coordinator, &a);
		else
			status = from_profile(&a, npos, argv + 1);
	}
	arena_release(&arena);
	return status;
}
