/* SPDX-License-Identifier: Apache-2.0 */
/* pins.h - tells a device of memory that is shared with another process (net_pin() of net.h): when
 * it is mapped, and before it is unmapped. A net has one, and each link's memory refers to it. */
#ifndef HS_NET_PINS_H
#define HS_NET_PINS_H

#include "net/net.h"

struct pins;

struct pins *pins_new(void); /* one reference; NULL: memory is out */
struct pins *pins_ref(struct pins *p);
void pins_unref(struct pins *p); /* NULL is allowed */
/* NULL: nobody. When it returns the one before is not called any more. */
void pins_set(struct pins *p, const struct net_pinner *who);
/* True: pins_out() is due. `p` MAY be NULL. */
bool pins_in(struct pins *p, void *at, size_t n);
void pins_out(struct pins *p, void *at);

#endif
