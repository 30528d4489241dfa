/* SPDX-License-Identifier: Apache-2.0 */
/* jinja.h - the part of Jinja that chat templates are written in, as transformers sets it up:
 * trim_blocks, lstrip_blocks, break and continue, `raise_exception`, `strftime_now`, `tojson` as
 * json.dumps(ensure_ascii=False) writes it, `{% generation %}` without a meaning of its own,
 * nothing that changes a value of the caller.
 *
 * Not there: import, include, extends, block, recursive loops, and filters that no chat
 * template needs; a template that uses them is refused when it is parsed or when it comes to them.
 * strftime_now() always gives the time of JINJA_DATE: the same data gives the same text on every
 * day. Limits: JINJA_STEPS, JINJA_MEMORY, JINJA_DEPTH; a template that does not end is an error.
 *
 * Every byte of the output has a source: 0 is the template's own text, any other number is that of
 * the value it was taken from (struct jinja_var), through whatever slicing, replacing and joining.
 *
 * Compared with jinja2 3.1 by scripts/golden/jinja.py. */
#ifndef HS_DATA_JINJA_H
#define HS_DATA_JINJA_H

#include "base/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct jinja;

#define JINJA_TEXT (1u << 20)     /* bytes of a template, at most */
#define JINJA_STEPS 20000000u     /* evaluated expressions and statements */
#define JINJA_MEMORY (256u << 20) /* bytes that values may take */
#define JINJA_DEPTH 1000          /* expressions in expressions and calls in calls, when it runs */
#define JINJA_NEST 200            /* brackets and blocks inside each other, in the text */
#define JINJA_DATE "2024-07-26"

/* Messages begin with "chat template: line N". */
int jinja_parse(const char *text, size_t n, struct jinja **j_p, struct err *e);
void jinja_free(struct jinja *j); /* NULL is allowed */

struct jinja_var {
	const char *name;
	const json_t *v; /* NULL: not defined */
	uint16_t source;
	bool each;         /* v is a list: its item i has the source `source` + i */
	const char *plain; /* MAY: a key of these items whose text has the source 0 */
};

struct jinja_span {
	size_t end; /* the span begins where the one before ends */
	uint16_t source;
};

struct jinja_text {
	struct buf text;
	struct jinja_span *span;
	size_t n, cap;
	uint64_t steps; /* that it took, also where it failed */
};

/* Appends to `out`, which is `{ .text = BUF_INIT }` at first. What the template itself refuses (by
 * raise_exception) is ERR_INPUT. */
int jinja_render(const struct jinja *j, const struct jinja_var *var, size_t nvar,
		 struct jinja_text *out, struct err *e);
void jinja_text_release(struct jinja_text *t);

/* The texts of the first 0, 1, 2, ... items of the variable with `each`, without beginning each of
 * them anew where that is the same text for certain (jinja_run.h). The template and the variables
 * are borrowed. */
struct jinja_starts;
int jinja_starts_new(const struct jinja *j, const struct jinja_var *var, size_t nvar,
		     struct jinja_starts **s_p, struct err *e);
/* 1: it is the first *head bytes of the text of all items and then `tail` (appended to). 0: not
 * known, render it. An error: rendering it is that error. */
int jinja_starts_text(struct jinja_starts *s, size_t n, size_t *head, struct jinja_text *tail,
		      struct err *e);
/* The text of all items; where the template refuses that, as far as it got. */
const struct buf *jinja_starts_whole(const struct jinja_starts *s);
void jinja_starts_free(struct jinja_starts *s); /* NULL is allowed */

#endif
