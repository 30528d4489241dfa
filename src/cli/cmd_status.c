/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_status.c - `heteroshard status`: jobs that run on this machine, and the workers of a
 * configuration. */
#include "cli/cli.h"
#include "cli/fleet_cli.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "ops/control.h"

#include <stdlib.h>
#include <string.h>

int cmd_status(int argc, char **argv);

struct args {
	bool json;
};

static const struct opt rows[] = {
	{ .key = "json",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, json),
	  .help = "print JSON" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard status [--json] [CONFIG] [ID]",
	.about = "Shows the jobs that run on this machine, and the workers of CONFIG, or of the "
		 "last 'up': which of them\n"
		 "answer, their version, device and memory, and what each does. Exit status 1 "
		 "when one does not answer.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard status\n"
		   "  heteroshard status cluster.yaml",
};

/* ---- jobs ----------------------------------------------------------------------------------- */

static void keep(void *ctx, const json_t *answer)
{
	json_array_append(ctx, (json_t *)(uintptr_t)answer);
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s ? s : "";
}

static int64_t number_of(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static void print_jobs(const json_t *jobs)
{
	static const char *const heading[] = { "job", "step", "loss", "left", "process" };
	struct cli_table *t;
	if (!json_array_size(jobs)) {
		fprintf(cli_out(), "%s\n", "no job runs on this machine");
		return;
	}
	t = cli_table_new(heading, ARRAY_LEN(heading));
	for (size_t i = 0; t && i < json_array_size(jobs); i++) {
		const json_t *j = json_array_get(jobs, i);
		char step[48] = "begins", loss[32] = "", left[32] = "", pid[24];
		if (json_object_get(j, "step")) {
			const double said = json_number_value(json_object_get(j, "eta"));
			const int64_t eta = said > 0 && said < 1e15 ? (int64_t)said : 0;
			snprintf(step, sizeof step, "%lld of %lld", (long long)number_of(j, "step"),
				 (long long)number_of(j, "steps"));
			snprintf(loss, sizeof loss, "%.4f",
				 json_number_value(json_object_get(j, "loss")));
			snprintf(left, sizeof left, "%lld:%02lld:%02lld", (long long)(eta / 3600),
				 (long long)(eta / 60 % 60), (long long)(eta % 60));
		}
		snprintf(pid, sizeof pid, "%lld", (long long)number_of(j, "pid"));
		cli_table_add(t,
			      (const char *[]){ text_of(j, "output_dir"), step, loss, left, pid });
	}
	cli_table_print(t, cli_out());
}

/* The job in which a worker takes part, and its entry there; NULL: none. */
static const json_t *job_of(const json_t *jobs, const char *id, const json_t **entry_p)
{
	for (size_t i = 0; i < json_array_size(jobs); i++) {
		const json_t *j = json_array_get(jobs, i), *w = json_object_get(j, "workers");
		for (size_t k = 0; k < json_array_size(w); k++)
			if (!strcmp(text_of(json_array_get(w, k), "id"), id)) {
				*entry_p = json_array_get(w, k);
				return j;
			}
	}
	return NULL;
}

/* ---- workers -------------------------------------------------------------------------------- */

/* Of what `devices --json` lists, the one that a worker with this `device` takes. */
static const json_t *pick_device(const json_t *list, const char *device)
{
	static const char *const by_rank[] = { "cuda", "hip", "opencl", "cpu" };
	const bool any = !strncmp(device, "auto", 4);
	for (size_t r = 0; r < ARRAY_LEN(by_rank); r++)
		for (size_t i = 0; i < json_array_size(list); i++) {
			const json_t *d = json_array_get(list, i);
			const char *name = text_of(d, "device");
			const size_t n = strlen(device);
			if (any ? !strcmp(text_of(d, "backend"), by_rank[r])
				: !strncmp(name, device, n) && (!name[n] || name[n] == ':'))
				return d;
		}
	return NULL;
}

struct row {
	char device[160], memory[80], job[300], does[200];
};

static void describe(const struct fleet_member *m, const json_t *jobs, struct row *r)
{
	const json_t *entry = NULL, *job = job_of(jobs, m->w->id, &entry), *d = NULL;
	json_t *list = NULL;
	struct err ignored = { 0 };
	char total[32], used[32];
	*r = (struct row){ 0 };
	if (m->devices &&
	    json_parse_text(m->devices, strlen(m->devices), "devices", &list, &ignored) >= 0)
		d = pick_device(list, m->w->device);
	if (d) {
		const int64_t all = number_of(d, "memory_total"),
			      left = number_of(d, "memory_free");
		snprintf(r->device, sizeof r->device, "%s", text_of(d, "name"));
		snprintf(r->memory, sizeof r->memory, "%s of %s free",
			 cli_bytes((uint64_t)left, used, sizeof used),
			 cli_bytes((uint64_t)all, total, sizeof total));
	}
	if (job) {
		snprintf(r->job, sizeof r->job, "%.200s, layers %.60s", text_of(job, "output_dir"),
			 text_of(entry, "layers"));
		snprintf(r->does, sizeof r->does, "step %lld of %lld",
			 (long long)number_of(job, "step"), (long long)number_of(job, "steps"));
	} else if (m->pid) {
		snprintf(r->job, sizeof r->job, "none");
		snprintf(r->does, sizeof r->does, "waits");
	} else {
		snprintf(r->does, sizeof r->does, "does not run%s%.150s", m->last[0] ? ": " : "",
			 m->last);
	}
	json_decref(list);
}

static int workers(const struct fleet *f, const json_t *jobs, bool print, struct buf *json)
{
	static const char *const heading[] = { "worker", "reachable", "version",  "device",
					       "memory", "job",       "last step" };
	struct cli_table *t = cli_table_new(heading, ARRAY_LEN(heading));
	int failed = 0;
	for (size_t i = 0; t && i < f->n; i++) {
		const struct fleet_member *m = &f->member[i];
		struct row r;
		describe(m, jobs, &r);
		failed |= m->failed;
		const char *version = m->version[0] ? m->version : m->other[0] ? m->other : "none";
		const char *cells[] = { m->w->id,
					m->failed ? "no" : "yes",
					m->failed ? "" : version,
					r.device,
					r.memory,
					r.job,
					m->failed ? m->text : r.does };
		static const char *const key[] = { "id",     "reachable", "version", "device",
						   "memory", "job",       "last" };
		cli_table_add(t, cells);
		for (size_t k = 0; k < ARRAY_LEN(cells); k++) {
			buf_addf(json, "%s\"%s\": ", k ? ", " : i ? ",\n  {" : "\n  {", key[k]);
			json_quote(json, cells[k], strlen(cells[k]));
		}
		buf_addc(json, '}');
	}
	cli_table_print(t, print ? cli_out() : NULL);
	return failed;
}

/* 0; 1: a worker does not answer. `named`: by a word of the command. */
static int machines(bool named, bool print, int npos, char **pos, const json_t *jobs,
		    struct buf *json, struct err *e)
{
	struct config *c;
	struct fleet f;
	struct err none = { 0 };
	char path[PATH_MAX];
	if (!named && fleet_remembered(path, &none) < 0)
		return 0;
	int rc = fleet_cli_open("status", npos, pos, &c, &f, e);
	if (rc < 0)
		return rc;
	rc = fleet_look(&f, true, e);
	if (rc >= 0 && print)
		fputc('\n', cli_out());
	if (rc >= 0)
		rc = workers(&f, jobs, print, json);
	fleet_close(&f);
	config_free(c);
	return rc;
}

static int status_of(const struct args *o, int npos, char **pos, int *status_p, struct err *e)
{
	json_t *jobs = json_array();
	struct buf json = BUF_INIT;
	int rc = jobs ? control_ask("status", keep, jobs, e) : err_nomem(e, 64, "status");
	if (rc >= 0 && !o->json)
		print_jobs(jobs);
	if (rc >= 0)
		rc = machines(npos > 0, !o->json, npos, pos, jobs, &json, e);
	if (rc >= 0 && o->json) {
		char *text = json_dumps(jobs, JSON_INDENT(2) | JSON_ENSURE_ASCII);
		fputs("{\"jobs\": ", cli_out());
		cli_json(cli_out(), text ? text : "[]", text ? strlen(text) : 2);
		fprintf(cli_out(), ",\n \"workers\": [%s]}\n", json.p);
		free(text);
	}
	buf_release(&json);
	json_decref(jobs);
	*status_p = rc;
	return rc;
}

int cmd_status(int argc, char **argv)
{
	struct args o = { 0 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	int npos, status;
	if (cli_args(&usage, argc, argv, &o, 0, 2, &npos, &a, &status)) {
		status = 0;
		if (status_of(&o, npos, argv + 1, &status, &e) < 0)
			status = cli_fail(&e);
	}
	arena_release(&a);
	return status;
}
