/* SPDX-License-Identifier: Apache-2.0 */
/* generate.c - see generate.h. */
#include "runtime/generate.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os_calls.h"
#include "base/rng.h"
#include "model/decoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PREFILL = 512 };

static int by_logit(const void *a, const void *b, void *ctx)
{
	const float *l = ctx;
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
	if (l[x] != l[y])
		return l[x] < l[y] ? 1 : -1;
	return x - y;
}

int32_t sample_token(float *logits, int64_t v, const struct sampling *s, uint64_t at,
		     int32_t *order)
{
	int32_t best = 0;
	for (int64_t i = 0; i < v; i++) {
		if (isnan(logits[i]))
			return -1;
		if (logits[i] > logits[best])
			best = (int32_t)i;
	}
	if (!isfinite(logits[best]))
		return -1;
	if (!(s->temperature > 0))
		return best;
	/* probabilities relative to the likeliest; those below exp(-20) of it are left out, so that
	 * only few are sorted */
	float top = logits[best], inv = (float)(1 / s->temperature);
	int64_t n = 0;
	for (int64_t i = 0; i < v; i++)
		if ((logits[i] - top) * inv > -20)
			order[n++] = (int32_t)i;
	os_sort(order, (size_t)n, sizeof *order, by_logit, logits);
	if (s->top_k > 0 && n > s->top_k)
		n = s->top_k;
	double sum = 0, kept = 0;
	for (int64_t i = 0; i < n; i++)
		sum += exp((logits[order[i]] - top) * inv);
	int64_t keep = 0;
	while (keep < n && (keep == 0 || kept < s->top_p * sum))
		kept += exp((logits[order[keep++]] - top) * inv);
	double u = (double)rng_uniform(rng_key(rng_fold(s->seed, 0x73616d70)), at, 0, 1) * kept;
	for (int64_t i = 0; i < keep; i++) {
		u -= exp((logits[order[i]] - top) * inv);
		if (u < 0)
			return order[i];
	}
	return order[keep - 1];
}

/* Bytes of s that form complete UTF-8 characters: all but an unfinished last one. */
static size_t complete_bytes(const char *s, size_t n)
{
	size_t back = 0;
	while (back < n && back < 3 && ((unsigned char)s[n - 1 - back] & 0xc0) == 0x80)
		back++;
	if (back == n)
		return n;
	unsigned char lead = (unsigned char)s[n - 1 - back];
	size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
	return want > back + 1 ? n - 1 - back : n;
}

/* A number or a list of them. */
static size_t add_ids(const json_t *v, const struct tokenizer *tok, int32_t *id, size_t n)
{
	const size_t many = json_is_array(v) ? json_array_size(v) : 1;
	for (size_t i = 0; i < many && n < STOPS_MOST; i++) {
		const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
		const json_int_t x = json_is_integer(one) ? json_integer_value(one) : -1;
		if (x >= 0 && x < (json_int_t)tokenizer_vocab_size(tok))
			id[n++] = (int32_t)x;
	}
	return n;
}

size_t generate_stops(const struct model_file *f, const struct tokenizer *tok,
		      const struct chat_template *chat, int32_t id[STOPS_MOST])
{
	static const char key[] = "eos_token_id";
	char path[4096];
	struct stat st;
	struct err ignored;
	json_t *beside = NULL;
	size_t n = 1;
	id[0] = tokenizer_eos(tok);
	if (chat)
		n += chat_stops(chat, tok, id + 1, TURN_ENDS);
	snprintf(path, sizeof path, "%s/generation_config.json", model_file_path(f));
	if (stat(path, &st) == 0 && json_parse_file(path, 1 << 20, &beside, &ignored) < 0)
		log_warn("%s: is not read: %s", path, ignored.msg);
	const json_t *v = json_object_get(beside, key);
	v = v && !json_is_null(v) ? v : json_object_get(model_file_config(f), key);
	n = add_ids(v, tok, id, n);
	json_decref(beside);
	return n;
}

bool generate_is_stop(int32_t id, const int32_t *stop, size_t nstop)
{
	for (size_t i = 0; i < nstop; i++)
		if (id == stop[i])
			return true;
	return false;
}

/* The whole answer is decoded again each time: a token's text can depend on the ones before it. */
static int show_new_text(struct runtime *r, const struct tokens *out, struct buf *text,
			 size_t *shown, bool last, generate_text_fn fn, void *ctx, struct err *e)
{
	buf_reset(text);
	TRY(tokenizer_decode(r->tok, out->id, out->n, true, text, e));
	TRY(buf_ok(text, e));
	size_t n = last ? text->n : complete_bytes(text->p, text->n);
	if (n <= *shown)
		return 0;
	int stop = fn(ctx, text->p + *shown, n - *shown);
	*shown = n;
	return stop ? 1 : 0;
}

int generate(struct runtime *r, const int32_t *prompt, size_t n, int64_t max_new,
	     const struct sampling *s, generate_text_fn text, void *ctx,
	     struct generate_stats *st_p, struct err *e)
{
	struct generate_stats st = { .prompt = (int64_t)n };
	struct kv_cache kv = { 0 };
	struct tokens out = { 0 };
	struct buf shown_text = BUF_INIT;
	size_t shown = 0;
	int32_t stop[STOPS_MOST];
	size_t nstop = generate_stops(r->file, r->tok, r->chat, stop);
	int32_t *order = mem_array((size_t)r->cfg.vocab, sizeof *order);
	int rc = 0;
	if (!order) {
		rc = err_nomem(e, (unsigned long long)r->cfg.vocab * 4, "sampling");
		goto out;
	}
	if (!n) {
		rc = err_set(e, ERR_USAGE, "the prompt is empty");
		goto out;
	}
	int64_t most = (int64_t)n + max_new;
	if (r->cfg.max_positions && most > r->cfg.max_positions)
		most = r->cfg.max_positions;
	if ((int64_t)n >= most && max_new > 0) {
		rc = err_set(e, ERR_INPUT,
			     "the prompt has %zu tokens; the model has %lld positions", n,
			     (long long)r->cfg.max_positions);
		goto out;
	}
	TRYOUT(kv_init(&kv, &r->stage, most, e));
	int64_t began = clock_now();
	for (size_t i = 0; i < n; i += PREFILL)
		TRYOUT(kv_step(&kv, prompt + i, DEV_NONE,
			       (int64_t)(n - i < PREFILL ? n - i : PREFILL), e));
	int64_t ready = clock_now();
	st.prompt_seconds = clock_seconds(ready - began);
	while (st.generated < most - (int64_t)n) {
		int32_t id = sample_token(kv.logits, r->cfg.vocab, s, (uint64_t)kv.len, order);
		if (id < 0) {
			rc = err_set(e, ERR_INPUT,
				     "the model's scores of token %lld are not finite: its weights "
				     "are not, or they are too large for compute_dtype",
				     (long long)kv.len + 1);
			goto out;
		}
		if (generate_is_stop(id, stop, nstop)) {
			st.stopped = true;
			break;
		}
		TRYOUT(tokens_add(&out, id, e));
		st.generated++;
		TRYOUT(show_new_text(r, &out, &shown_text, &shown, false, text, ctx, e));
		if (rc > 0)
			break;
		if (st.generated < most - (int64_t)n)
			TRYOUT(kv_step(&kv, &id, DEV_NONE, 1, e));
	}
	TRYOUT(show_new_text(r, &out, &shown_text, &shown, true, text, ctx, e));
	st.seconds = clock_seconds(clock_now() - ready);
	*st_p = st;
	rc = 0;
out:
	mem_free(order);
	kv_release(&kv);
	tokens_release(&out);
	buf_release(&shown_text);
	return rc;
}
