/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_profile.c - `heteroshard profile CONFIG`: measures the speed of every device and every link
 * of a job. The measurements are described in survey/profiler.h, runtime/measure.h and
 * survey/links_measure.h; here are options, tables and files. */
#include "cli/cli.h"
#include "cli/run.h"

#include "base/buf.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "file/output.h"
#include "report/dashboard.h"
#include "survey/profiler.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

int cmd_profile(int argc, char **argv);

struct args {
	struct cli_role role;
	char *out;
	bool refresh, links, json;
};

static const struct opt rows[] = {
	{ .key = "refresh",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, refresh),
	  .help = "measure again what was measured before" },
	{ .key = "links",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, links),
	  .def = "true",
	  .help = "measure the links too; else 1 Gbit/s is assumed" },
	{ .key = "out",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, out),
	  .arg = "DIR",
	  .help = "folder for profile.json, profile.png and profile.html (default: output_dir)" },
	{ .key = "json",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, json),
	  .help = "print the profile itself" },
	CLI_ROLE_ROWS(offsetof(struct args, role)),
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard profile [--refresh] [--out DIR] [--json] CONFIG [key=value ...]",
	.config = true,
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.about = "Measures on every device of CONFIG what a layer, the embedding, the head and the "
		 "optimizer cost\n"
		 "for this job, and on every link latency and bandwidth; writes profile.json, from "
		 "which\n"
		 "'heteroshard plan' chooses. With workers on other machines it is run there too, "
		 "as 'train' is.\n"
		 "What was measured before with the same program, device and job is taken from the "
		 "cache.",
	.example = "  heteroshard profile examples/smollm2.yaml\n"
		   "  heteroshard profile cluster.yaml --refresh --out measured",
};

/* ---- tables ---- */

static const struct profile_sample *sample_at(const struct profile_device *d, int m)
{
	const struct profile_measured *v = &d->measured;
	for (int i = 0; i < v->samples; i++)
		if (v->sample[i].m == m)
			return &v->sample[i];
	return v->samples ? &v->sample[0] : NULL;
}

/* Tokens per second if this device trained the whole model alone. */
static double tokens_per_s_alone(const struct profile *p, const struct profile_device *d, int m)
{
	double ms = p->layers * (curve_at(&d->forward_ms, m) + curve_at(&d->backward_ms, m));
	ms += curve_at(&d->embedding_forward_ms, m) + curve_at(&d->embedding_backward_ms, m);
	ms += curve_at(&d->head_forward_ms, m) + curve_at(&d->head_backward_ms, m);
	double step = p->layers * d->optimizer_ms + d->embedding_optimizer_ms +
		      d->head_optimizer_ms + p->step_ms;
	return 1e3 * p->global_batch * p->sequence_len / (ms * p->global_batch / m + step);
}

static void print_devices(const struct profile *p, int m)
{
	static const char *const heading[] = { "device", "what",     "host",    "threads",
					       "memory", "free",     "forward", "backward",
					       "head",   "tokens/s", "spread" };
	struct cli_table *t = cli_table_new(heading, ARRAY_LEN(heading));
	for (int i = 0; i < p->devices; i++) {
		const struct profile_device *d = &p->device[i];
		const struct profile_sample *s = sample_at(d, m);
		char text[8][64];
		const char *cells[] = { d->id,   d->kind, p->host[d->host].name,
					text[0], text[1], text[2],
					text[3], text[4], text[5],
					text[6], text[7] };
		snprintf(text[0], sizeof text[0], "%d", d->measured.threads);
		snprintf(text[1], sizeof text[1], "%.2f GiB", d->memory_gib);
		snprintf(text[2], sizeof text[2], "%.2f GiB",
			 d->memory_gib - d->used_gib - d->fixed_gib);
		snprintf(text[3], sizeof text[3], "%.3f ms", curve_at(&d->forward_ms, m));
		snprintf(text[4], sizeof text[4], "%.3f ms", curve_at(&d->backward_ms, m));
		snprintf(text[5], sizeof text[5], "%.3f ms",
			 curve_at(&d->head_forward_ms, m) + curve_at(&d->head_backward_ms, m));
		snprintf(text[6], sizeof text[6], "%.0f", tokens_per_s_alone(p, d, m));
		snprintf(text[7], sizeof text[7], "%.1f %%", s ? 100 * s->spread : 0);
		cli_table_add(t, cells);
	}
	cli_table_print(t, cli_out());
}

static void print_links(const struct profile *p)
{
	static const char *const heading[] = { "link", "there", "back", "latency" };
	if (!p->links)
		return;
	struct cli_table *t = cli_table_new(heading, ARRAY_LEN(heading));
	for (int i = 0; i < p->links; i++) {
		const struct profile_link *l = &p->link[i];
		if (l->from < 0)
			continue;
		char text[4][200];
		const char *cells[] = { text[0], text[1], text[2], text[3] };
		snprintf(text[0], sizeof text[0], "%.90s - %.90s", p->host[l->from].name,
			 p->host[l->to].name);
		snprintf(text[1], sizeof text[1], "%.1f MB/s", 1e3 * l->bandwidth);
		snprintf(text[2], sizeof text[2], "%.1f MB/s", 1e3 * l->reverse_bandwidth);
		snprintf(text[3], sizeof text[3], "%.3f ms", l->latency_ms);
		cli_table_add(t, cells);
		for (int k = 0; k < l->ways && l->ways > 1; k++) {
			const struct profile_way *w = &l->way[k];
			/* with the largest messages that were fast enough to be measured */
			double there = 0, back = 0;
			for (int m = 0; m < w->samples; m++) {
				there = w->sample[m].rate > 0 ? w->sample[m].rate : there;
				back = w->sample[m].reverse_rate > 0 ? w->sample[m].reverse_rate
								     : back;
			}
			snprintf(text[0], sizeof text[0], "  %.60s - %.60s%s", w->from, w->to,
				 w->used ? ", used" : "");
			snprintf(text[1], sizeof text[1], "%.1f MB/s", 1e3 * there);
			snprintf(text[2], sizeof text[2], "%.1f MB/s", 1e3 * back);
			snprintf(text[3], sizeof text[3],
				 w->unreachable ? "not reached" : "%.3f ms", w->latency_ms);
			cli_table_add(t, cells);
		}
	}
	fputc('\n', cli_out());
	cli_table_print(t, cli_out());
}

static void print_profile(const struct profile *p, int m)
{
	cli_heading("%s: %d layers of width %d, %s, rows of %d tokens, %d in a microbatch",
		    p->model, p->layers, p->hidden, p->dtype, p->sequence_len, m);
	print_devices(p, m);
	print_links(p);
	fprintf(cli_out(),
		"\nforward and backward: of one layer; head: norm, head and loss; tokens/s: the "
		"whole model on this device alone\n");
}

/* ---- files ---- */

static int write_files(const struct profile *p, const char *dir, const struct buf *text,
		       struct err *e)
{
	TRY(dir_make_result(dir, e));
	TRY(atomic_write_in(dir, "profile.json", text->p, text->n, e));
	return dashboard_write(p, dir, e);
}

static void show_part(void *ctx, const char *what, uint64_t done, uint64_t all)
{
	(void)ctx;
	if (cli_columns(cli_err()) && done < all)
		cli_line(cli_err(), "%s: %llu of %llu\n", what, (unsigned long long)done + 1,
			 (unsigned long long)all);
}

static int run_as_coordinator(void *ctx, const struct config *c, char *const *program,
			      const struct ranks *ranks, struct err *e)
{
	const struct args *a = ctx;
	const struct join_options g = { .program = program, .stop = cli_stop(), .ranks = ranks };
	const struct profiler_options o = { .refresh = a->refresh,
					    .links = a->links,
					    .part = show_part };
	struct profile p;
	struct buf text = BUF_INIT;
	const char *const input[] = { c->path };
	const char *dir = a->out ? a->out : c->output_dir;
	if (dir) /* before anything is measured */
		TRY(output_check_report(dir, false, input, ARRAY_LEN(input), e));
	TRY(profiler_config(c, &g, &o, &p, e));
	profile_write(&p, &text);
	int rc = buf_ok(&text, e);
	if (rc >= 0)
		rc = write_files(&p, dir, &text, e);
	if (rc >= 0 && a->json)
		fputs(text.p, cli_out());
	else if (rc >= 0)
		print_profile(&p, (int)c->micro_batch_size);
	buf_release(&text);
	profile_release(&p);
	return rc;
}

int cmd_profile(int argc, char **argv)
{
	struct arena a = ARENA_INIT;
	struct args o = { 0 };
	int npos, status;
	o.role.command = argv[0];
	if (cli_args(&usage, argc, argv, &o, 1, -1, &npos, &a, &status))
		status = cli_everywhere(&o.role, CONFIG_TRAIN, npos, argv + 1, run_as_coordinator,
					&o);
	arena_release(&a);
	return status;
}
