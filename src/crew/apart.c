/* SPDX-License-Identifier: Apache-2.0 */
/* apart.c - see apart.h. */
#include "crew/apart.h"

#include "base/err.h"
#include "base/mem.h"

#include <math.h>
#include <stddef.h>

static const double first_wait = 60, longest_wait = 3600; /* seconds */

int apart_init(struct apart *p, int n, struct err *e)
{
	*p = (struct apart){ .n = n };
	p->pair = mem_array((size_t)n * (size_t)n + 1, sizeof *p->pair);
	return p->pair ? 0 : err_nomem(e, (size_t)n * (size_t)n * sizeof *p->pair, "workers");
}

void apart_release(struct apart *p)
{
	mem_free(p->pair);
	*p = (struct apart){ 0 };
}

static struct apart_pair *find(const struct apart *p, int a, int b)
{
	const size_t low = (size_t)(a < b ? a : b), high = (size_t)(a < b ? b : a);
	return &p->pair[low * (size_t)p->n + high];
}

bool apart_broke(struct apart *p, int a, int b, bool made, int64_t now)
{
	struct apart_pair *v = find(p, a, b);
	v->breaks = (uint8_t)(v->breaks < 2 ? v->breaks + 1 : 2);
	if (made && v->breaks < 2)
		return false;
	v->wait = v->wait > 0 ? fmin(2 * v->wait, longest_wait) : first_wait;
	v->until = now + (int64_t)(v->wait * 1e9);
	v->breaks = 0;
	return true;
}

bool apart_is(const struct apart *p, int a, int b) { return a != b && find(p, a, b)->until != 0; }

void apart_worked(struct apart *p, int member)
{
	for (int i = 0; i < p->n; i++)
		find(p, member, i)->breaks = 0;
}

bool apart_again(struct apart *p, int64_t now, int *a_p, int *b_p)
{
	for (int i = 0; i < p->n * p->n; i++)
		if (p->pair[i].until && now >= p->pair[i].until) {
			p->pair[i].until = 0;
			*a_p = i / p->n;
			*b_p = i % p->n;
			return true;
		}
	return false;
}
