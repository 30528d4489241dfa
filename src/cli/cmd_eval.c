/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_eval.c - `heteroshard eval MODEL --data FILE`: token-mean loss and perplexity. */
#include "cli/cli.h"
#include "cli/hub_names.h"
#include "cli/model_rows.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/batch.h"
#include "report/progress.h"
#include "runtime/evaluate.h"

#include <math.h>
#include <string.h>

int cmd_eval(int argc, char **argv);

struct args {
	const char *data, *type;
	struct runtime_options model;
	int64_t sequence_len, micro_batch_size;
	bool train_on_inputs, skip_bad_records, json;
	const char *rl;
	double rl_beta;
};

#define AT(f) offsetof(struct args, f)
static const struct opt rows[] = {
	{ .key = "data",
	  .kind = OPT_STR,
	  .offset = AT(data),
	  .arg = "FILE",
	  .help = "records as for training (JSON, JSONL, CSV or Parquet)",
	  .section = "Data" },
	{ .key = "type",
	  .kind = OPT_STR,
	  .offset = AT(type),
	  .def = "auto",
	  .arg = "KIND",
	  .help = "alpaca, sharegpt, messages, completion, text, or auto; with --rl "
		  "TEMPLATE.KIND" },
	{ .key = "sequence_len",
	  .kind = OPT_INT,
	  .offset = AT(sequence_len),
	  .def = "2048",
	  .lo = 2,
	  .hi = 1 << 24,
	  .arg = "N",
	  .help = "longer examples are cut" },
	{ .key = "micro_batch_size",
	  .kind = OPT_INT,
	  .offset = AT(micro_batch_size),
	  .def = "4",
	  .lo = 1,
	  .hi = 1 << 20,
	  .arg = "N",
	  .help = "sequences at a time" },
	{ .key = "train_on_inputs",
	  .kind = OPT_BOOL,
	  .offset = AT(train_on_inputs),
	  .help = "count prompts too, not only answers" },
	{ .key = "skip_bad_records",
	  .kind = OPT_BOOL,
	  .offset = AT(skip_bad_records),
	  .help = "skip bad records instead of failing" },
	{ .key = "rl",
	  .kind = OPT_STR,
	  .offset = AT(rl),
	  .def = "none",
	  .arg = "LOSS",
	  .help = "records of preferences (docs/preferences.md) and their loss: dpo, ipo, orpo, "
		  "kto, simpo; the first two and kto compare with the model without its adapter" },
	{ .key = "rl_beta",
	  .kind = OPT_FLOAT,
	  .offset = AT(rl_beta),
	  .def = "0.1",
	  .lo = 1e-9,
	  .hi = 1e6,
	  .arg = "NUMBER",
	  .help = "as in training" },
	MODEL_ROW_CHAT(AT(model)),
	MODEL_ROWS(AT(model)),
	{ .key = "json", .kind = OPT_BOOL, .offset = AT(json), .help = "the result as JSON" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard eval [options] MODEL --data FILE",
	.about = "Measures the mean loss per token and the perplexity of a model (with --adapter: "
		 "of the model with it) on data.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard eval model.gguf --data held-out.jsonl --adapter run",
};

static int show_result(void *ctx, uint64_t done, uint64_t all, const struct eval_result *r)
{
	(void)r;
	progress_part(ctx, "evaluating", (int64_t)done, (int64_t)all);
	return 0;
}

static void print(const struct args *o, const struct eval_result *r)
{
	double rate = (double)r->tokens / (r->seconds > 0 ? r->seconds : 1e-9);
	const bool rl = r->rewarded[0] || r->rewarded[1];
	const double chosen = r->reward[0] / (double)r->rewarded[0],
		     rejected = r->reward[1] / (double)r->rewarded[1],
		     right = (double)r->right / (double)(r->trained ? r->trained : 1);
	if (!o->json && rl) {
		/* of answers with a label all may be wanted, or none */
		const struct {
			const char *name;
			double v;
		} row[] = { { "chosen", chosen },
			    { "rejected", rejected },
			    { "margin", chosen - rejected } };
		fprintf(cli_out(), "loss %.6f", r->loss);
		for (size_t i = 0; i < ARRAY_LEN(row); i++)
			if (!isnan(row[i].v))
				fprintf(cli_out(), "  %s %.6f", row[i].name, row[i].v);
		fprintf(cli_out(), "  right %.2f %%  (%llu records, %.0f tokens/s)\n", 100 * right,
			(unsigned long long)r->trained, rate);
		return;
	}
	if (!o->json) {
		fprintf(cli_out(),
			"loss %.6f  perplexity %.4f  (%llu tokens counted of %llu in %llu "
			"sequences, %.0f tokens/s)\n",
			r->loss, exp(r->loss), (unsigned long long)r->trained,
			(unsigned long long)r->tokens, (unsigned long long)r->sequences, rate);
		return;
	}
	struct buf b = BUF_INIT;
	buf_adds(&b, "{\"loss\": ");
	json_number(&b, r->loss);
	buf_adds(&b, rl ? ", \"rewards/chosen\": " : ", \"perplexity\": ");
	json_number(&b, rl ? chosen : exp(r->loss));
	if (rl) {
		buf_adds(&b, ", \"rewards/rejected\": ");
		json_number(&b, rejected);
		buf_adds(&b, ", \"rewards/accuracies\": ");
		json_number(&b, right);
	}
	buf_addf(&b,
		 ", \"tokens\": %llu, \"trained\": %llu, \"sequences\": %llu, "
		 "\"tokens_per_second\": %.1f}\n",
		 (unsigned long long)r->tokens, (unsigned long long)r->trained,
		 (unsigned long long)r->sequences, rate);
	fwrite(b.p, 1, b.n, cli_out());
	buf_release(&b);
}

static int run(const struct args *o, struct err *e)
{
	struct runtime r;
	struct dataset *d = NULL;
	struct batches *b = NULL;
	struct progress *p = NULL;
	struct eval_result res;
	const struct prefer *rl = prefer_find(o->rl);
	struct runtime_options how = o->model;
	if (!o->data)
		return err_set(e, ERR_USAGE, "eval: --data FILE is missing");
	if (!rl && strcmp(o->rl, "none") != 0)
		return err_set(e, ERR_USAGE,
			       "eval: there is no loss of preferences '%.32s': dpo, ipo, orpo, "
			       "kto, simpo",
			       o->rl);
	if (rl && rl->reference && !o->model.adapter)
		return err_set(e, ERR_USAGE,
			       "eval: '--rl %s' compares with the model without its adapter: give "
			       "--adapter",
			       o->rl);
	if (rl) {
		snprintf(how.prefer.name, sizeof how.prefer.name, "%s", rl->name);
		how.prefer.beta = o->rl_beta;
		how.prefer.gamma = 0.5;
		how.prefer.good = how.prefer.bad = 1;
		how.prefer.likelihood = rl->likelihood && !strcmp(rl->likelihood, "cpo_alpha");
	}
	TRY(runtime_open(&how, &r, e));
	const struct dataset_source src = { .path = o->data, .type = o->type, .held_out = true };
	const struct dataset_options dopt = { .tok = r.tok,
					      .chat = r.chat,
					      .sequence_len = o->sequence_len,
					      .train_on_inputs = o->train_on_inputs,
					      .prefer = rl ? rl->data : PREFER_NONE,
					      .skip_bad_records = o->skip_bad_records };
	const struct batch_options bopt = { .sequence_len = o->sequence_len,
					    .micro_batch_size = o->micro_batch_size,
					    .in_order = true,
					    .prompt_labels = rl && rl->prompts,
					    .accumulation = 1 };
	int rc = 0;
	if (rl && rl->reference && (r.stage.opt.lora.save_embed || r.stage.opt.lora.save_head))
		TRYOUT(err_set(e, ERR_UNSUPPORTED,
			       "eval: this adapter has modules trained whole: the model without "
			       "them is not held beside it, so '--rl %s' cannot be computed",
			       o->rl));
	TRYOUT(dataset_load(&src, 1, &dopt, &d, e));
	TRYOUT(batches_new(d, &bopt, &b, e));
	TRYOUT(progress_new(cli_write_stderr, NULL, cli_look(), &p, e));
	TRYOUT(evaluate_batches(&r, b, show_result, p, &res, e));
	progress_free(p);
	p = NULL;
	print(o, &res);
out:
	progress_free(p);
	batches_free(b);
	dataset_free(d);
	runtime_close(&r);
	return rc;
}

int cmd_eval(int argc, char **argv)
{
	struct args o = { 0 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	int npos, status = 0;
	if (cli_args(&usage, argc, argv, &o, 1, 1, &npos, &a, &status)) {
		o.model.model = argv[1];
		o.model.need_tokenizer = true;
		int rc = cli_fetch_model(&o.model.model, &a, &e);
		if (rc >= 0 && o.data)
			rc = cli_fetch_data(&o.data, &a, &e);
		status = rc < 0 || run(&o, &e) < 0 ? cli_fail(&e) : 0;
	}
	arena_release(&a);
	return status;
}
