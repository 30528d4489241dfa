/* SPDX-License-Identifier: Apache-2.0 */
/* A chat template from anywhere: it is refused with one line, or renders a conversation to UTF-8
 * whose bytes all have a source. The interpreter's limits are what ends it. */
#include "base/err.h"
#include "data/jinja.h"
#include "data/token.h"
#include "starve.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char talk[] =
	"[{\"role\":\"system\",\"content\":\" be\\n\"},{\"role\":\"user\",\"content\":\"h\\u00e9 "
	"<|im_end|>\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{"
	"\"name\":\"f\",\"arguments\":{\"a\":[1,2.5,null,true]}}}]},{\"role\":\"tool\",\"content\":"
	"\"x\"},{\"role\":\"assistant\",\"content\":\"<think>\\na\\n</think>b\"}]";
static json_t *messages;

static void check(const struct err *e, int rc)
{
	if (rc < 0 && (!e->msg[0] || strchr(e->msg, '\n') || rc == ERR_INTERNAL || rc != e->code))
		abort();
}

/* The first turns, gone on with from the middle and rendered alone, are the same. */
static void beginnings(const struct jinja *j, struct jinja_var *var, size_t nvar)
{
	struct jinja_starts *s = NULL;
	struct err e = { 0 };
	if (jinja_starts_new(j, var, nvar, &s, &e) < 0)
		return;
	json_t *all = messages, *part = json_array();
	for (size_t n = 0; n < json_array_size(all); n++) {
		struct jinja_text tail = { .text = BUF_INIT }, alone = { .text = BUF_INIT };
		struct err a = { 0 }, b = { 0 };
		size_t head = 0;
		const int rc = jinja_starts_text(s, n, &head, &tail, &a);
		var[0].v = part;
		const int want = rc ? jinja_render(j, var, nvar, &alone, &b) : 0;
		const bool limit = a.code == ERR_NOMEM || b.code == ERR_NOMEM ||
				   strstr(a.msg, "more than") || strstr(b.msg, "more than");
		const struct buf *whole = jinja_starts_whole(s);
		if (limit) /* reached a few steps earlier or later */
			;
		else if (rc < 0 ? want != rc || strcmp(a.msg, b.msg) != 0
				: rc > 0 &&
					  (want < 0 || alone.text.n != head + tail.text.n ||
					   (head && memcmp(alone.text.p, whole->p, head) != 0) ||
					   (tail.text.n && memcmp(alone.text.p + head, tail.text.p,
								  tail.text.n) != 0)))
			abort();
		jinja_text_release(&tail);
		jinja_text_release(&alone);
		json_array_append(part, json_array_get(all, n));
	}
	json_decref(part);
	jinja_starts_free(s);
}

static void once(const uint8_t *data, size_t n)
{
	struct jinja *j;
	struct err e = { 0 };
	int rc = jinja_parse((const char *)data, n, &j, &e);
	check(&e, rc);
	if (rc < 0)
		return;
	struct jinja_var var[] = { { "messages", messages, 1, true, "role" },
				   { .name = "tools", .v = messages, .source = 99 },
				   { .name = "add_generation_prompt", .v = json_true() },
				   { .name = "eos_token", .v = json_null() } };
	struct jinja_text out = { .text = BUF_INIT };
	rc = jinja_render(j, var, sizeof var / sizeof var[0], &out, &e);
	check(&e, rc);
	if (rc >= 0 && (utf8_valid(out.text.p, out.text.n) != out.text.n ||
			(out.text.n && (!out.n || out.span[out.n - 1].end != out.text.n))))
		abort();
	jinja_text_release(&out);
	beginnings(j, var, sizeof var / sizeof var[0]);
	jinja_free(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (!messages)
		messages = json_loads(talk, 0, NULL);
	starve(once, data, n);
	return 0;
}
