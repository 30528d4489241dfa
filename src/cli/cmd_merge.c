/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_merge.c - `heteroshard merge MODEL ADAPTER OUT`: full weights from a model and an adapter. */
#include "cli/cli.h"

#include "base/mem.h"
#include "report/progress.h"
#include "runtime/merge.h"

#include <string.h>

int cmd_merge(int argc, char **argv);

enum { BASE_ORIGINAL, BASE_DEQUANTIZED };
enum { TYPE_BF16, TYPE_F16, TYPE_F32, TYPE_Q8_0 };

struct args {
	int base, type;
	bool double_quant;
};

#define AT(f) offsetof(struct args, f)
static const struct opt rows[] = {
	{ .key = "base",
	  .kind = OPT_ENUM,
	  .offset = AT(base),
	  .def = "original",
	  .choices = "original|dequantized",
	  .arg = "WHICH",
	  .help = "add to the weights as they are in MODEL, or to those that QLoRA trained on "
		  "(through "
		  "NF4 and back)" },
	{ .key = "type",
	  .kind = OPT_ENUM,
	  .offset = AT(type),
	  .choices = "bf16|f16|f32|q8_0",
	  .arg = "TYPE",
	  .help = "of the written matrices; default bf16, f16 for GGUF; q8_0 for GGUF only" },
	{ .key = "double_quant",
	  .kind = OPT_BOOL,
	  .offset = AT(double_quant),
	  .help = "with --base dequantized: the adapter was trained with double quantisation" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard merge [options] MODEL ADAPTER OUT",
	.about = "Adds a LoRA adapter to its model's weights and writes them: a GGUF file when OUT "
		 "ends in .gguf, otherwise a "
		 "Hugging Face folder.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard merge model.gguf run merged.gguf --type q8_0\n"
		   "  heteroshard merge model-folder run merged-folder",
};

static void show_part(void *ctx, uint64_t done, uint64_t all)
{
	progress_part(ctx, "merging", (int64_t)done, (int64_t)all);
}

static bool is_gguf(const char *path)
{
	size_t n = strlen(path);
	return n > 5 && !strcmp(path + n - 5, ".gguf");
}

static int run(const struct args *o, bool typed, char **pos, struct err *e)
{
	static const enum dtype dtype[] = { [TYPE_BF16] = DT_BF16,
					    [TYPE_F16] = DT_F16,
					    [TYPE_F32] = DT_F32,
					    [TYPE_Q8_0] = DT_F32 };
	bool gguf = is_gguf(pos[2]);
	if (typed && gguf && o->type != TYPE_F16 && o->type != TYPE_Q8_0)
		return err_set(e, ERR_USAGE, "merge: a GGUF is written as f16 or q8_0");
	if (typed && !gguf && o->type == TYPE_Q8_0)
		return err_set(e, ERR_USAGE, "merge: q8_0 needs an OUT that ends in .gguf");
	struct progress *p;
	TRY(progress_new(cli_write_stderr, NULL, cli_look(), &p, e));
	const struct merge_options m = { .model = pos[0],
					 .adapter = pos[1],
					 .out = pos[2],
					 .dequantized = o->base == BASE_DEQUANTIZED,
					 .double_quant = o->double_quant,
					 .dtype = typed ? dtype[o->type] : DT_BF16,
					 .q8_0 = typed && o->type == TYPE_Q8_0,
					 .part = show_part,
					 .ctx = p };
	int rc = merge(&m, e);
	progress_free(p);
	return rc;
}

int cmd_merge(int argc, char **argv)
{
	struct args o = { .type = -1 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	int npos, status = 0;
	if (cli_args(&usage, argc, argv, &o, 3, 3, &npos, &a, &status)) {
		status = run(&o, o.type >= 0, argv + 1, &e) < 0 ? cli_fail(&e) : 0;
		if (!status)
			printf("%s\n", argv[3]);
	}
	arena_release(&a);
	return status;
}
