/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_devices.c - `heteroshard devices`: the devices of this machine, with probed capabilities. A
 * backend that fails has a line of its own and never hides the others. */
#include "cli/cli.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "dev/dev_probe.h"

#include <string.h>

int cmd_devices(int argc, char **argv);

struct args {
	bool json, all, probe;
};

static const struct opt rows[] = {
	{ .key = "json",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, json),
	  .help = "print JSON" },
	{ .key = "probe",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, probe),
	  .help = "measure each device: matrix rates, copy and transfer bandwidth, memory that "
		  "others hold" },
	{ .key = "all",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, all),
	  .help = "list the null device too, which computes nothing" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard devices [--json] [--probe] [--all]",
	.about = "Lists the devices of this machine. 'native' are the number formats whose matrix "
		 "products ran on the\n"
		 "device itself when tried; a device can be named in a configuration as 'device: "
		 "NAME'.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
};

struct listing {
	struct cli_table *table;
	bool probe;
	struct buf json, trouble;
	size_t found;
};

static void json_text(struct buf *b, const char *key, const char *s)
{
	buf_addf(b, ", \"%s\": ", key);
	json_quote(b, s, strlen(s));
}

static void list_one(struct listing *l, const char *id, const char *backend,
		     const struct dev_caps *c)
{
	char total[32], used[32], units[16], native[48];
	snprintf(units, sizeof units, "%d", c->units);
	snprintf(native, sizeof native, "float32%s%s", c->bf16 ? " bfloat16" : "",
		 c->f16 ? " float16" : "");
	const char *cells[] = { id,
				c->name,
				cli_bytes(c->mem_total, total, sizeof total),
				cli_bytes(c->mem_free, used, sizeof used),
				units,
				native,
				c->driver };
	if (!l->probe)
		cli_table_add(l->table, cells);
	buf_addf(&l->json, "%s\n  {\"device\": \"%s\", \"backend\": \"%s\"", l->found++ ? "," : "",
		 id, backend);
	json_text(&l->json, "name", c->name);
	json_text(&l->json, "vendor", c->vendor);
	json_text(&l->json, "driver", c->driver);
	buf_addf(&l->json,
		 ", \"memory_total\": %llu, \"memory_free\": %llu, \"units\": %d, \"float32\": "
		 "true, \"bfloat16\": %s, "
		 "\"float16\": %s, "
		 "\"shared_with_host\": %s",
		 (unsigned long long)c->mem_total, (unsigned long long)c->mem_free, c->units,
		 c->bf16 ? "true" : "false", c->f16 ? "true" : "false",
		 c->unified ? "true" : "false");
}

static void list_probe(struct listing *l, const char *id, const struct dev_caps *c,
		       const struct dev_probe *p)
{
	char total[32], others[32] = "unknown", rate[DT_F16 + 1][48], move[3][32];
	const double moved[] = { p->copy, p->upload, p->download };
	for (enum dtype t = DT_F32; t <= DT_F16; t++)
		snprintf(rate[t], sizeof rate[t], p->type[t].rate > 0 ? "%.4g GFLOP/s%s" : "-",
			 p->type[t].rate * 1e-9, p->type[t].native ? "" : " (emulated)");
	for (size_t i = 0; i < ARRAY_LEN(moved); i++)
		snprintf(move[i], sizeof move[i], "%.3g GB/s", moved[i] * 1e-9);
	if (p->others_known)
		cli_bytes(p->others, others, sizeof others);
	const char *cells[] = {
		id,           c->name,      cli_bytes(c->mem_total, total, sizeof total),
		others,       rate[DT_F32], rate[DT_BF16],
		rate[DT_F16], move[0],      move[1],
		move[2]
	};
	cli_table_add(l->table, cells);
	buf_adds(&l->json, ", \"probe\": {\"memory_others\": ");
	if (p->others_known)
		buf_addf(&l->json, "%llu", (unsigned long long)p->others);
	else
		buf_adds(&l->json, "null");
	for (enum dtype t = DT_F32; t <= DT_F16; t++)
		buf_addf(&l->json, ", \"%s\": {\"native\": %s, \"flops\": %.4g}", dtype_name(t),
			 p->type[t].native ? "true" : "false", p->type[t].rate);
	buf_addf(&l->json,
		 ", \"copy_bytes_per_second\": %.4g, \"upload_bytes_per_second\": %.4g, "
		 "\"download_bytes_per_second\": %.4g}",
		 p->copy, p->upload, p->download);
}

/* Most messages begin with the device already. */
static void warn_about(struct listing *l, const char *id, const struct err *e)
{
	const bool named = !strncmp(e->msg, id, strlen(id));
	buf_addf(&l->trouble, "%s%s%s\n", named ? "" : id, named ? "" : ": ", e->msg);
}

static void list_device(struct listing *l, const char *id, struct dev *d,
			const struct dev_caps *caps)
{
	struct dev_probe p;
	struct err e = { 0 };
	list_one(l, id, d->be->name, caps);
	if (l->probe && dev_probe(d, &p, &e) >= 0)
		list_probe(l, id, caps, &p);
	else if (l->probe)
		warn_about(l, id, &e);
	buf_adds(&l->json, "}");
}

static void list_backend(struct listing *l, const struct backend *be)
{
	struct err e = { 0 };
	int n = be->count(&e);
	if (n < 0)
		buf_addf(&l->trouble, "%s: %s\n", be->name, e.msg);
	for (int i = 0; i < n; i++) {
		char id[64];
		struct dev_caps caps = { 0 };
		struct dev *d;
		snprintf(id, sizeof id, "%s:%d", be->name, i);
		if (dev_open(id, &d, &e) < 0) {
			buf_addf(&l->trouble, "%s\n", e.msg);
			continue;
		}
		if (dev_caps(d, &caps, &e) < 0)
			warn_about(l, id, &e);
		else
			list_device(l, id, d, &caps);
		dev_close(d);
	}
}

int cmd_devices(int argc, char **argv)
{
	static const char *const heading[] = { "device", "name",   "memory", "free",
					       "cores",  "native", "driver" };
	static const char *const probed[] = {
		"device",   "name",    "memory", "others", "float32",
		"bfloat16", "float16", "copy",   "upload", "download"
	};
	struct args args = { 0 };
	struct arena a = ARENA_INIT;
	int npos, status;
	bool go = cli_args(&usage, argc, argv, &args, 0, 0, &npos, &a, &status);
	arena_release(&a);
	if (!go)
		return status;
	struct listing l = { .probe = args.probe };
	l.table = args.probe ? cli_table_new(probed, ARRAY_LEN(probed))
			     : cli_table_new(heading, ARRAY_LEN(heading));
	buf_init(&l.json);
	buf_init(&l.trouble);
	for (size_t i = 0; backends[i]; i++)
		if (args.all || strcmp(backends[i]->name, "null"))
			list_backend(&l, backends[i]);
	if (args.json)
		fprintf(cli_out(), "[%s\n]\n", l.json.p);
	cli_table_print(l.table, args.json ? NULL : cli_out());
	cli_line(cli_err(), "%s", l.trouble.p ? l.trouble.p : "");
	buf_release(&l.json);
	buf_release(&l.trouble);
	return l.found ? 0 : 1;
}
