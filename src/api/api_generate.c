/* SPDX-License-Identifier: Apache-2.0 */
/* api_generate.c - hs_generate(): text from a language model. */
#include "api/api.h"

#include "base/mem.h"
#include "data/tokenizer.h"
#include "runtime/generate.h"
#include "runtime/prompt.h"

#include <math.h>
#include <string.h>

static int stop_text(void *ctx, const char *text, size_t n)
{
	const hs_generation *g = ctx;
	return g->text ? g->text(g->ctx, text, n) : 0;
}

static int run(hs_generation *g, uint64_t *tokens_p, struct err *e)
{
	const struct runtime_options o = { .model = g->model,
					   .adapter = g->adapter,
					   .device = g->device,
					   .chat_template = g->chat_template,
					   .need_tokenizer = true };
	const struct sampling s = { .temperature = g->temperature,
				    .top_p = g->top_p > 0 ? g->top_p : 1,
				    .top_k = g->top_k,
				    .seed = g->seed };
	const struct prompt p = {
		.system = g->system, .text = g->prompt, .n = strlen(g->prompt), .raw = g->raw != 0
	};
	struct runtime r;
	struct tokens ids = { 0 };
	struct generate_stats st;
	TRY(runtime_open(&o, &r, e));
	int rc = prompt_encode(&p, r.chat, r.tok, &ids, e);
	if (rc >= 0)
		rc = generate(&r, ids.id, ids.n, g->most ? g->most : 256, &s, stop_text, g, &st, e);
	if (rc >= 0 && tokens_p)
		*tokens_p = (uint64_t)st.generated;
	tokens_release(&ids);
	runtime_close(&r);
	return rc;
}

int hs_generate(const hs_generation *generation, uint64_t *tokens_p, hs_error *out)
{
	struct err e = { 0 };
	hs_generation g;
	if (!api_take(&g, sizeof g, generation, sizeof g) || !g.model || !g.prompt)
		return api_refuse(out, ERR_USAGE,
				  "hs_generate: model and prompt are needed, and `size`: use "
				  "hs_generation_init()");
	if (!(g.temperature >= 0) || !(g.top_p >= 0 && g.top_p <= 1) || g.top_k < 0 || g.most < 0)
		return api_refuse(out, ERR_USAGE,
				  "hs_generate: temperature, top_k and most must not be negative, "
				  "top_p is from 0 to 1");
	return run(&g, tokens_p, &e) < 0 ? api_error(&e, out) : 0;
}
