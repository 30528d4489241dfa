/* SPDX-License-Identifier: Apache-2.0 */
/* pin.h - memory of the host that a device knows: transfers to and from it, from whole pages on,
 * need no copy on the way (cuMemHostRegister, hipHostRegister). */
#ifndef HS_DEV_PIN_H
#define HS_DEV_PIN_H

#include <stdbool.h>
#include <stddef.h>

struct dev;

/* All from any thread. [p, p + n), whole pages, is known until dev_unpin(), which comes before it
 * is unmapped; dev_close() forgets the rest. False: it is not, so transfers are as ever. */
bool dev_pin(struct dev *d, void *p, size_t n);
/* An address that is not known is ignored. */
void dev_unpin(struct dev *d, void *p);
bool dev_pins(const struct dev *d); /* whether this device does that at all */

#endif
