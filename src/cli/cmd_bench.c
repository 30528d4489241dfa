/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_bench.c - `heteroshard bench`: products, kernels and whole steps as shares of ceilings
 * measured in the same run. */
#include "cli/bench_links.h"
#include "cli/bench_together.h"
#include "cli/cli.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "dev/dev_bench.h"
#include "net/net.h"
#include "runtime/runtime.h"
#include "runtime/step_bench.h"

#include <string.h>

int cmd_bench(int argc, char **argv);

enum { WEIGHTS_BOTH, WEIGHTS_PLAIN, WEIGHTS_NF4 };

struct args {
	const char *device, *shape, *product;
	int64_t layers, rows, length, lora_r, repeat;
	int weights;
	bool ops, products, steps, recompute, links, json, together;
	struct bench_links net;
	struct bench_together of;
};

#define AT(f) offsetof(struct args, f)
static const struct opt rows[] = {
	{ .key = "shape",
	  .kind = OPT_STR,
	  .offset = AT(shape),
	  .def = "smollm2-135m",
	  .arg = "NAME",
	  .help = "model to take the sizes from: smollm2-135m, llama3.2-1b, llama3-8b" },
	{ .key = "layers",
	  .kind = OPT_INT,
	  .offset = AT(layers),
	  .def = "0",
	  .lo = 0,
	  .hi = 1024,
	  .arg = "N",
	  .help = "only that many of its layers; 0: all" },
	{ .key = "rows",
	  .kind = OPT_INT,
	  .offset = AT(rows),
	  .def = "4",
	  .lo = 1,
	  .hi = 4096,
	  .arg = "N",
	  .help = "sequences of a microbatch" },
	{ .key = "length",
	  .kind = OPT_INT,
	  .offset = AT(length),
	  .def = "512",
	  .lo = 2,
	  .hi = 1 << 20,
	  .arg = "N",
	  .help = "tokens of each" },
	{ .key = "lora_r",
	  .kind = OPT_INT,
	  .offset = AT(lora_r),
	  .def = "16",
	  .lo = 1,
	  .hi = 4096,
	  .arg = "N",
	  .help = "rank of the adapters on q, k, v, o" },
	{ .key = "recompute",
	  .kind = OPT_BOOL,
	  .offset = AT(recompute),
	  .help = "with gradient checkpointing" },
	{ .key = "weights",
	  .kind = OPT_ENUM,
	  .offset = AT(weights),
	  .choices = "both|plain|nf4",
	  .def = "both",
	  .help = "of the steps: in the dtype that is computed in, in NF4, or one after the "
		  "other" },
	{ .key = "repeat",
	  .kind = OPT_INT,
	  .offset = AT(repeat),
	  .def = "3",
	  .lo = 1,
	  .hi = 64,
	  .arg = "N",
	  .help = "timed microbatches; the median counts" },
	{ .key = "ops",
	  .kind = OPT_BOOL,
	  .offset = AT(ops),
	  .def = "true",
	  .help = "products and kernels one by one" },
	{ .key = "products",
	  .kind = OPT_BOOL,
	  .offset = AT(products),
	  .help = "of these only the products, in float32" },
	{ .key = "product",
	  .kind = OPT_STR,
	  .offset = AT(product),
	  .arg = "NAME",
	  .help = "with products: that of this name alone, as in the table ('lora B')" },
	{ .key = "steps",
	  .kind = OPT_BOOL,
	  .offset = AT(steps),
	  .def = "true",
	  .help = "whole training steps" },
	{ .key = "device",
	  .kind = OPT_STR,
	  .offset = AT(device),
	  .def = "auto",
	  .arg = "NAME",
	  .help = "backend or backend:index" },
	{ .key = "links",
	  .kind = OPT_BOOL,
	  .offset = AT(links),
	  .def = "true",
	  .help = "links between processes of this machine" },
	{ .key = "serve",
	  .kind = OPT_STR,
	  .offset = AT(net.serve),
	  .arg = "HOST:PORT",
	  .help = "only this: answer one 'bench --to' of another machine, at this address; four "
		  "ports in a row are used" },
	{ .key = "to",
	  .kind = OPT_STR,
	  .offset = AT(net.to),
	  .arg = "HOST:PORT",
	  .help = "only this: measure the links to the machine that serves there, raw TCP among "
		  "them" },
	{ .key = "peer",
	  .kind = OPT_STR,
	  .offset = AT(net.peer),
	  .arg = "KEY",
	  .help = "with serve and to: the other machine's public key; without it only raw TCP is "
		  "measured" },
	{ .key = "key_file",
	  .kind = OPT_STR,
	  .offset = AT(net.key_file),
	  .arg = "FILE",
	  .help = "with peer: this machine's private key; not given: where 'heteroshard keygen' "
		  "puts it" },
	{ .key = "plain",
	  .kind = OPT_BOOL,
	  .offset = AT(net.plain),
	  .help = "with serve and to, on both sides: links without encryption too" },
	{ .key = "links_per_peer",
	  .kind = OPT_INT,
	  .offset = AT(net.connections),
	  .def = "2",
	  .lo = 2,
	  .hi = NET_CONNECTIONS,
	  .arg = "N",
	  .help = "with to: connections of the link in the row 'tls xN'" },
	{ .key = "together",
	  .kind = OPT_BOOL,
	  .offset = AT(together),
	  .help = "only this, with CONFIG, on every machine of the job: a few steps of the job on "
		  "each device alone and on the planned whole, with equal rows and steps; the sum "
		  "of tokens/s and the share of it that was reached" },
	{ .key = "run-steps",
	  .kind = OPT_INT,
	  .offset = AT(of.steps),
	  .def = "6",
	  .lo = 3,
	  .hi = 1000,
	  .arg = "N",
	  .help = "with --together: steps of each run; the first is not counted" },
	CLI_ROLE_ROWS(AT(of.role)),
	{ .key = "json", .kind = OPT_BOOL, .offset = AT(json), .help = "one JSON object a row" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard bench [options] [--together CONFIG [key=value ...]]",
	.about = "Measures this machine's matrix-product ceiling and copy bandwidth, then every "
		 "product and kernel and the whole "
		 "LoRA step at a model's sizes as a share of them. A step counts 4N FLOP per "
		 "token; attention and adapters come on "
		 "top. "
		 "Links are compared with raw TCP on the same path.",
	.config = true,
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard bench\n  heteroshard bench --together cluster.yaml\n"
		   "  heteroshard bench --shape llama3-8b --layers 2 --rows 1 --no-ops\n"
		   "  heteroshard bench --serve 10.0.0.2:9990 --peer KEY1      then on the other "
		   "machine:\n"
		   "  heteroshard bench --to 10.0.0.2:9990 --peer KEY2",
};

struct view {
	const struct args *o;
	struct dev *dev;
	double ceiling[DT_COUNT]; /* FLOP/s, the best seen in this run */
	struct cli_table *table;
};

static void on_row(void *ctx, const struct dev_bench_row *r)
{
	struct view *v = ctx;
	char rate[32], share[32], time[32];
	if (r->kind == BENCH_CEILING && r->rate * 1e9 > v->ceiling[r->dtype])
		v->ceiling[r->dtype] = r->rate * 1e9;
	if (v->o->json) {
		fprintf(cli_out(),
			"{\"row\": \"%s\", \"shape\": \"%s\", \"dtype\": \"%s\", \"seconds\": "
			"%.6g, "
			"\"%s\": %.4g, \"share\": "
			"%.4f}\n",
			r->name, r->shape, dtype_name(r->dtype), r->seconds,
			r->flops ? "gflop_per_s" : "gbyte_per_s", r->rate, r->share);
		fflush(cli_out()); /* a slow device takes long for the next one */
		return;
	}
	snprintf(time, sizeof time, "%.3f", r->seconds * 1e3);
	snprintf(rate, sizeof rate, "%.1f %s", r->rate, r->flops ? "GFLOP/s" : "GB/s");
	snprintf(share, sizeof share, "%.0f %%", 100 * r->share);
	cli_table_add(v->table, (const char *const[]){ r->name, r->shape, dtype_name(r->dtype),
						       time, rate, share });
}

static int bench_step(struct view *v, const struct model_config *c, enum dtype act, bool nf4,
		      double *rate_p, struct err *e)
{
	const struct args *o = v->o;
	const struct step_bench_options so = { .act = act,
					       .nf4 = nf4,
					       .double_quant = nf4, /* as in a configuration */
					       .recompute = o->recompute,
					       .rows = o->rows,
					       .length = o->length,
					       .lora_r = o->lora_r,
					       .repeat = (int)o->repeat,
					       .all_trained = true };
	struct step_bench_result r;
	char peak[32];
	const char *what = nf4 ? "NF4" : dtype_name(act);
	*rate_p = 0;
	int rc = step_bench(v->dev, c, &so, &r, e);
	if (rc == ERR_NOMEM && o->json)
		fprintf(cli_out(),
			"{\"row\": \"step\", \"shape\": \"%s\", \"length\": %lld, \"rows\": %lld, "
			"\"recompute\": %s, \"weights\": "
			"\"%s\", \"fits\": "
			"false}\n",
			o->shape, (long long)o->length, (long long)o->rows,
			o->recompute ? "true" : "false", what);
	else if (rc == ERR_NOMEM)
		fprintf(cli_out(), "  %-9s weights do not fit: %s\n", what, e->msg);
	if (rc == ERR_NOMEM) {
		err_clear(e);
		return 0;
	}
	TRY(rc);
	double share = v->ceiling[act] > 0 ? r.flops / v->ceiling[act] : 0;
	double with =
		v->ceiling[act] > 0
			? share * (1 + r.attention_flops / (r.flops * (r.forward + r.backward)))
			: 0;
	if (o->json)
		fprintf(cli_out(),
			"{\"row\": \"step\", \"shape\": \"%s\", \"layers\": %lld, \"length\": "
			"%lld, "
			"\"rows\": %lld, \"recompute\": "
			"%s, \"fits\": true, "
			"\"weights\": \"%s\", \"dtype\": \"%s\", \"forward\": %.4f, \"backward\": "
			"%.4f, "
			"\"update\": %.4f, "
			"\"tokens_per_second\": %.1f, \"gflop_per_s\": %.1f, \"share\": %.4f, "
			"\"share_with_attention\": %.4f, "
			"\"memory\": %llu, \"warm_allocations\": %llu}\n",
			o->shape, (long long)c->layers, (long long)o->length, (long long)o->rows,
			o->recompute ? "true" : "false", what, dtype_name(act), r.forward,
			r.backward, r.update, r.tokens_per_second, r.flops * 1e-9, share, with,
			(unsigned long long)r.mem_peak, (unsigned long long)r.warm_allocs);
	else
		fprintf(cli_out(),
			"  %-9s weights, computing in %s: %.1f tokens/s, %.1f GFLOP/s = %.0f %% of "
			"the ceiling (%.0f %% with "
			"attention); forward %.2f s, backward %.2f s, "
			"memory %s, %llu allocations when warm\n",
			what, dtype_name(act), r.tokens_per_second, r.flops * 1e-9, 100 * share,
			100 * with, r.forward, r.backward, cli_bytes(r.mem_peak, peak, sizeof peak),
			(unsigned long long)r.warm_allocs);
	if (r.given && o->json)
		fprintf(cli_out(),
			"{\"row\": \"work\", \"shape\": \"%s\", \"layers\": %lld, \"weights\": "
			"\"%s\", \"given\": %llu, \"product_bytes\": %llu, \"copy_bytes\": %llu}\n",
			o->shape, (long long)c->layers, what, (unsigned long long)r.given,
			(unsigned long long)r.product_bytes, (unsigned long long)r.copy_bytes);
	else if (r.given)
		fprintf(cli_out(),
			"            a GPU would be given %llu kernels, products and copies; "
			"products "
			"move %.1f MiB, copies %.1f\n",
			(unsigned long long)r.given, (double)r.product_bytes / 0x1p20,
			(double)r.copy_bytes / 0x1p20);
	fflush(cli_out());
	*rate_p = r.tokens_per_second;
	return 0;
}

static int bench_steps(struct view *v, const struct model_config *c, struct err *e)
{
	struct dev_caps caps;
	const struct args *o = v->o;
	double plain = 0, nf4 = 0;
	TRY(dev_caps(v->dev, &caps, e));
	enum dtype act = caps.bf16 ? DT_BF16 : caps.f16 ? DT_F16 : DT_F32;
	if (!o->json)
		cli_heading(
			"LoRA step: %s, %lld layers, %lld x %lld tokens, r %lld on q, k, v, o%s",
			o->shape, (long long)c->layers, (long long)o->rows, (long long)o->length,
			(long long)o->lora_r, o->recompute ? ", gradient checkpointing" : "");
	if (o->weights != WEIGHTS_NF4)
		TRY(bench_step(v, c, act, false, &plain, e));
	if (o->weights != WEIGHTS_PLAIN)
		TRY(bench_step(v, c, act, true, &nf4, e));
	if (!o->json && plain > 0 && nf4 > 0)
		fprintf(cli_out(), "  NF4 runs at %.0f %% of the speed of %s weights\n",
			100 * nf4 / plain, dtype_name(act));
	return 0;
}

static int run(struct view *v, struct err *e)
{
	static const char *const heading[] = { "what", "shape", "dtype", "ms", "rate", "share" };
	const struct args *o = v->o;
	struct model_config c;
	TRY(step_bench_shape(o->shape, o->layers, &c, e));
	TRY(runtime_device(o->device, &v->dev, e));
	struct dev_bench_shape s = { .c = c.hidden,
				     .f = c.intermediate,
				     .h = c.heads,
				     .g = c.kv_heads,
				     .d = c.head_dim,
				     .v = c.vocab,
				     .n = o->rows * o->length,
				     .t = o->length,
				     .r = o->lora_r,
				     .products = o->products,
				     .only = o->product };
	if (!o->ops)
		s.n = 0;
	if (!o->json && !(v->table = cli_table_new(heading, ARRAY_LEN(heading))))
		return err_nomem(e, sizeof s, "a table");
	int rc = dev_bench(v->dev, &s, on_row, v, e);
	if (v->table)
		cli_table_print(v->table, cli_out());
	fflush(cli_out());
	if (rc >= 0 && o->steps)
		rc = bench_steps(v, &c, e);
	if (rc >= 0 && o->links)
		rc = bench_links_here(o->json, e);
	return rc;
}

int cmd_bench(int argc, char **argv)
{
	struct args o = { 0 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	int npos, status = 0;
	o.of.role.command = "bench --together";
	if (cli_args(&usage, argc, argv, &o, 0, -1, &npos, &a, &status)) {
		if (o.together && npos) {
			o.of.json = o.json;
			status = bench_together(&o.of, npos, argv + 1);
			arena_release(&a);
			return status;
		}
		if (o.together || npos) {
			arena_release(&a);
			return o.together ? cli_usage_error("--together needs the configuration of "
							    "a job with several devices")
					  : cli_usage_error("'%s': a configuration is for "
							    "'bench --together' only",
							    argv[1]);
		}
		struct view v = { .o = &o };
		int rc = o.net.serve || o.net.to ? bench_links_between(&o.net, o.json, &e)
						 : run(&v, &e);
		status = rc < 0 ? cli_fail(&e) : 0;
		dev_close(v.dev);
	}
	arena_release(&a);
	return status;
}
