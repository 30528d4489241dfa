/* SPDX-License-Identifier: Apache-2.0 */
/* loss_scale.c - see loss_scale.h. */
#include "optim/loss_scale.h"

enum { GROW_AFTER = 2000 };

void loss_scale_begin(struct loss_scale *s, uint64_t tokens)
{
	*s = (struct loss_scale){ .scale = 65536 };
	for (uint64_t n = 1; n < tokens && s->scale > 1; n *= 2)
		s->scale /= 2;
}

bool loss_scale_update(struct loss_scale *s, bool finite)
{
	if (finite) {
		if (++s->good >= GROW_AFTER && s->scale < LOSS_SCALE_MOST) {
			s->scale *= 2;
			s->good = 0;
		}
		return false;
	}
	s->good = 0;
	if (s->scale <= 1)
		return false;
	s->scale = s->scale / 2 > 1 ? s->scale / 2 : 1;
	return true;
}
