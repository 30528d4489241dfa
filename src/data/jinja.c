/* SPDX-License-Identifier: Apache-2.0 */
/* jinja.c - from the text of a template to its tree. */
#include "base/mem.h"
#include "data/jinja_tree.h"
#include "data/token.h"

int jinja_parse(const char *text, size_t n, struct jinja **j_p, struct err *e)
{
	struct jtoken *tokens = NULL;
	size_t ntokens;
	if (n > JINJA_TEXT)
		return err_set(e, ERR_INPUT, "chat template: has more than %u bytes", JINJA_TEXT);
	if (utf8_valid(text, n) != n)
		return err_set(e, ERR_INPUT, "chat template: is not UTF-8 at byte %zu",
			       utf8_valid(text, n) + 1);
	struct jinja *j = mem_zalloc(sizeof *j);
	if (!j)
		return err_nomem(e, sizeof *j, "a chat template");
	int rc = jinja_lex(text, n, &j->mem, &tokens, &ntokens, e);
	if (rc >= 0)
		rc = jinja_tree(j, tokens, e);
	mem_free(tokens);
	if (rc < 0)
		jinja_free(j);
	else
		*j_p = j;
	return rc;
}

void jinja_free(struct jinja *j)
{
	if (!j)
		return;
	arena_release(&j->mem);
	mem_free(j);
}
