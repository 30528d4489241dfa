/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.c - a list of token ids that grows. */
#include "data/tokenizer.h"

#include "base/err.h"
#include "base/mem.h"

void tokens_release(struct tokens *t)
{
	mem_free(t->id);
	*t = (struct tokens){ 0 };
}

int tokens_add(struct tokens *t, int32_t id, struct err *e)
{
	if (t->n == t->cap && !mem_grow(&t->id, &t->cap, t->n + 1, sizeof *t->id))
		return err_nomem(e, (t->n + 1) * sizeof *t->id, "token ids");
	t->id[t->n++] = id;
	return 0;
}
