/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_fetch.c - `heteroshard fetch`: a model or a data set by name into the cache. */
#include "cli/cli.h"

#include "base/mem.h"
#include "hub/hub.h"

int cmd_fetch(int argc, char **argv);

struct args {
	bool dataset;
	const char *endpoint;
};

static const struct opt rows[] = {
	{ .key = "dataset",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, dataset),
	  .help = "the name is that of a data set" },
	{ .key = "endpoint",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, endpoint),
	  .arg = "URL",
	  .help = "address of the hub; not given: HF_ENDPOINT" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard fetch [--dataset] [--endpoint URL] OWNER/NAME[@REVISION][:FILE]",
	.about = "Fetches a model (configuration, tokenizer, safetensors), a data set, or one file "
		 "of them into the\n"
		 "cache that Python's huggingface_hub uses too, and prints where it is. What is "
		 "there already is not\n"
		 "fetched again. train, plan, generate, eval, merge and tokenize do the same for "
		 "names that are no files\n"
		 "here. HF_ENDPOINT names the server; HF_TOKEN, HF_HOME and HF_HUB_OFFLINE mean "
		 "what they mean there.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard fetch HuggingFaceTB/SmolLM2-135M-Instruct\n"
		   "  heteroshard fetch --dataset tatsu-lab/alpaca@main",
};

int cmd_fetch(int argc, char **argv)
{
	struct args o = { 0 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	int npos, status = 0;
	if (cli_args(&usage, argc, argv, &o, 1, 1, &npos, &a, &status)) {
		struct hub_options h = { .dataset = o.dataset, .endpoint = o.endpoint };
		struct hub_name n;
		char path[HUB_PATH];
		int rc = hub_parse(argv[1], &n, &e);
		if (rc >= 0)
			rc = hub_fetch(&n, &h, path, &e);
		if (rc >= 0)
			fprintf(cli_out(), "%s\n", path);
		status = rc < 0 ? cli_fail(&e) : 0;
	}
	arena_release(&a);
	return status;
}
