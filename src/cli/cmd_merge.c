/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_merge.c - `heteroshard merge MODEL ADAPTER OUT`: full weights from a model and an adapter. */
#include "cli/cli.h"
#include "cli/hub_names.h"
#include "cli/run.h"

#include "base/mem.h"
#include "report/progress.h"
#include "runtime/merge.h"

#include <string.h>

int cmd_merge(int argc, char **argv);

enum { BASE_ORIGINAL, BASE_DEQUANTIZED };
/* What --type says, for a folder and for a GGUF; -1: not there. */
static const struct {
	const char *name;
	int dtype, gguf;
} types[] = { { "bf16", DT_BF16, GGUF_OUT_BF16 }, { "f16", DT_F16, GGUF_OUT_F16 },
	      { "f32", DT_F32, GGUF_OUT_F32 },    { "q8_0", -1, GGUF_OUT_Q8_0 },
	      { "q4_0", -1, GGUF_OUT_Q4_0 },      { "q4_1", -1, GGUF_OUT_Q4_1 },
	      { "q5_0", -1, GGUF_OUT_Q5_0 },      { "q5_1", -1, GGUF_OUT_Q5_1 },
	      { "q4_k_m", -1, GGUF_OUT_Q4_K_M },  { "q5_k_m", -1, GGUF_OUT_Q5_K_M },
	      { "q6_k", -1, GGUF_OUT_Q6_K },      { "as-base", DT_F32, GGUF_OUT_AS_BASE } };

struct args {
	int base, type;
	bool double_quant, adapter_only, force;
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
	  .choices = "bf16|f16|f32|q8_0|q4_0|q4_1|q5_0|q5_1|q4_k_m|q5_k_m|q6_k|as-base",
	  .arg = "TYPE",
	  .help = "of the written matrices, as llama-quantize names them; default bf16, f16 for "
		  "GGUF; q... for GGUF only; as-base: each as in MODEL" },
	{ .key = "double_quant",
	  .kind = OPT_BOOL,
	  .offset = AT(double_quant),
	  .help = "with --base dequantized: the adapter was trained with double quantisation" },
	{ .key = "adapter_only",
	  .kind = OPT_BOOL,
	  .offset = AT(adapter_only),
	  .help = "write the adapter itself: as a GGUF, for llama-server --lora; of a mixture of "
		  "experts also as a folder with PEFT's target_parameters" },
	{ .key = "force",
	  .kind = OPT_BOOL,
	  .offset = AT(force),
	  .help = "replace OUT when merge wrote it" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard merge [options] MODEL ADAPTER OUT",
	.about = "Adds a LoRA adapter to its model's weights and writes them: a GGUF file when OUT "
		 "ends in .gguf, otherwise a "
		 "Hugging Face folder.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard merge model.gguf run merged.gguf --type q4_k_m\n"
		   "  heteroshard merge model.gguf run adapter.gguf --adapter-only\n"
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

static int run(const struct args *o, bool typed, const char *const pos[3], struct err *e)
{
	const bool gguf = is_gguf(pos[2]);
	const int type = typed ? o->type : gguf ? 1 : 0;
	if (!gguf && types[type].dtype < 0)
		return err_set(e, ERR_USAGE, "merge: %s needs an OUT that ends in .gguf",
			       types[type].name);
	if (typed && o->adapter_only)
		return err_set(e, ERR_USAGE,
			       "merge: --type is of no use with --adapter-only: an adapter is "
			       "written as it is");
	struct progress *p;
	TRY(progress_new(cli_write_stderr, NULL, cli_look(), &p, e));
	const struct merge_options m = { .model = pos[0],
					 .adapter = pos[1],
					 .out = pos[2],
					 .dequantized = o->base == BASE_DEQUANTIZED,
					 .double_quant = o->double_quant,
					 .dtype = gguf ? DT_F32 : (enum dtype)types[type].dtype,
					 .as_base = !strcmp(types[type].name, "as-base"),
					 .gguf = (enum gguf_out)types[type].gguf,
					 .adapter_only = o->adapter_only,
					 .force = o->force,
					 .part = show_part,
					 .ctx = p,
					 .stop = cli_stop() };
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
		const char *path[] = { argv[1], argv[2], argv[3] };
		int rc = cli_fetch_model(&path[0], &a, &e);
		status = rc < 0 || run(&o, o.type >= 0, path, &e) < 0 ? cli_fail(&e) : 0;
		if (!status)
			fprintf(cli_out(), "%s\n", argv[3]);
	}
	arena_release(&a);
	return status;
}
