/* SPDX-License-Identifier: Apache-2.0 */
/* mesh_batch.c - see mesh_batch.h. */
#include "mesh/mesh_batch.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdio.h>

int mesh_batch_open(struct mesh_run *r, struct mesh_batch *b_p, struct err *e)
{
	const size_t n = r->m->n + 1;
	struct mesh_batch b = { .r = r };
	b.call = mem_array(n, sizeof *b.call);
	b.text = mem_array(n, sizeof *b.text);
	b.of = mem_array(n, sizeof *b.of);
	if (!b.call || !b.text || !b.of) {
		mesh_batch_close(&b);
		return err_nomem(e, n * sizeof *b.call, "mesh");
	}
	*b_p = b;
	return 0;
}

struct buf *mesh_batch_add(struct mesh_batch *b, size_t i, const char *command, double limit)
{
	size_t k = b->n++;
	b->of[k] = i;
	b->call[k] = (struct ssh_call){ .where = b->r->m->m[i].here ? NULL : b->r->m->m[i].ssh,
					.command = command,
					.limit = limit };
	buf_init(&b->text[k]);
	return &b->text[k];
}

int mesh_batch_run(struct mesh_batch *b, struct err *e)
{
	for (size_t k = 0; k < b->n; k++) {
		TRY(buf_ok(&b->text[k], e));
		b->call[k].input = b->text[k].p;
		b->call[k].ninput = b->text[k].n;
	}
	TRY(ssh_run(b->call, b->n, b->r->stop, e));
	for (size_t k = 0; k < b->n; k++) {
		struct mesh_fact *f = &b->r->fact[b->of[k]];
		if (b->call[k].status) {
			f->failed = true;
			snprintf(f->text, sizeof f->text, "%s", b->call[k].why);
		}
	}
	return 0;
}

void mesh_batch_close(struct mesh_batch *b)
{
	for (size_t k = 0; b->text && k < b->n; k++) {
		buf_release(&b->text[k]);
		ssh_release(&b->call[k]);
	}
	mem_free(b->call);
	mem_free(b->text);
	mem_free(b->of);
	*b = (struct mesh_batch){ 0 };
}
