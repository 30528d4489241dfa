/* SPDX-License-Identifier: Apache-2.0 */
/* samples.c - see samples.h. */
#include "train/samples.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/open.h"
#include "file/lines.h"
#include "proto/protocol.h"
#include "runtime/generate.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int encode(const struct job *j, const char *text, struct tokens *ids, struct err *e)
{
	if (!j->chat)
		return tokenizer_encode(j->tok, text, strlen(text), true, true, ids, e);
	const struct chat_message m = { .role = CHAT_USER, .text = text, .n = strlen(text) };
	return chat_encode(j->chat, j->tok, &m, 1, true, ids, NULL, e);
}

static int add_line(const struct samples *s, const char *prompt, const struct buf *text,
		    int64_t tokens, bool stopped, struct err *e)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/samples.jsonl", s->job->cfg->output_dir);
	struct buf b = BUF_INIT;
	buf_addf(&b, "{\"step\":%llu,\"prompt\":", (unsigned long long)s->step);
	json_quote(&b, prompt, strlen(prompt));
	buf_adds(&b, ",\"text\":");
	json_quote(&b, text->p, text->n);
	buf_addf(&b, ",\"tokens\":%lld,\"stopped\":%s}\n", (long long)tokens,
		 stopped ? "true" : "false");
	int rc = buf_ok(&b, e);
	int fd = -1;
	if (rc >= 0)
		rc = open_write_err(path, OPEN_APPEND, 0666, &fd, e);
	ssize_t n = rc >= 0 ? write(fd, b.p, b.n) : 0;
	if (rc >= 0 && n != (ssize_t)b.n)
		rc = err_sys(e, n < 0 ? errno : ENOSPC, "%s: writing", path);
	if (fd >= 0)
		close(fd);
	buf_release(&b);
	return rc;
}

static int is_earlier(void *ctx, const char *line, size_t n, struct err *e)
{
	json_t *o = NULL;
	(void)e;
	json_parse_text_in(line, n, "samples.jsonl", JSON_MEMORY_LINE, &o, &(struct err){ 0 });
	const json_t *v = json_object_get(o, "step");
	const bool stays = json_is_integer(v) && json_integer_value(v) <= *(const json_int_t *)ctx;
	json_decref(o);
	return stays;
}

void samples_go_back(const char *output_dir, uint64_t step)
{
	char path[4096];
	struct err e = { 0 };
	json_int_t last = (json_int_t)step;
	snprintf(path, sizeof path, "%s/samples.jsonl", output_dir);
	if (lines_keep(path, is_earlier, &last, &e) < 0)
		log_warn("%s; samples of steps that are computed again stay there", e.msg);
}

static int answer(const struct samples *s, const char *prompt, struct tokens *ids, struct buf *text,
		  struct err *e)
{
	const struct job *j = s->job;
	ids->n = 0;
	TRY(encode(j, prompt, ids, e));
	size_t begin = ids->n, most = begin + (size_t)j->cfg->sample_max_tokens;
	int32_t stop[STOPS_MOST];
	const size_t stops = generate_stops(j->file, j->tok, j->chat, stop);
	bool stopped = false;
	if (j->model.max_positions && most > (size_t)j->model.max_positions)
		most = (size_t)j->model.max_positions;
	if (!begin || begin >= most) { /* not an error, because the training has succeeded */
		log_warn("sample_prompts: '%.60s' has %zu tokens, the model %lld positions: it is "
			 "left out",
			 prompt, begin, (long long)j->model.max_positions);
		return 0;
	}
	while (ids->n < most && !stopped && !(s->stop && *s->stop)) {
		int32_t id;
		TRY(s->next(s->ctx, ids->id, ids->n, &id, e));
		if (id == TOKEN_NONE) { /* no error either: the loss says what becomes of the run */
			log_warn("sample_prompts: after '%.60s' the model's scores are not finite: "
				 "it is left out",
				 prompt);
			return 0;
		}
		stopped = generate_is_stop(id, stop, stops);
		if (!stopped)
			TRY(tokens_add(ids, id, e));
	}
	buf_reset(text);
	TRY(tokenizer_decode(j->tok, ids->id + begin, ids->n - begin, true, text, e));
	buf_addc(text, 0);
	TRY(buf_ok(text, e));
	text->n--;
	if (add_line(s, prompt, text, (int64_t)(ids->n - begin), stopped, e) < 0) {
		log_warn("%s", e->msg); /* a full disk is no reason to end the run */
		err_clear(e);
	}
	return s->told ? s->told(s->sink, s->step, prompt, text->p, e) : 0;
}

int samples_make(const struct samples *s, struct err *e)
{
	const struct opt_list *l = &s->job->cfg->sample_prompts;
	struct tokens ids = { 0 };
	struct buf text = BUF_INIT;
	int rc = 0;
	for (size_t i = 0; i < l->n && rc >= 0 && !(s->stop && *s->stop); i++)
		rc = answer(s, l->item[i], &ids, &text, e);
	tokens_release(&ids);
	buf_release(&text);
	return rc;
}
