/* SPDX-License-Identifier: Apache-2.0 */
/* pin.c - see pin.h. */
#include "dev/pin.h"

#include "dev/dev.h"

bool dev_pins(const struct dev *d) { return d->be->pin != NULL; }

bool dev_pin(struct dev *d, void *p, size_t n) { return d->be->pin && d->be->pin(d, p, n); }

void dev_unpin(struct dev *d, void *p)
{
	if (d->be->unpin)
		d->be->unpin(d, p);
}
