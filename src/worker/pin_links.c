/* SPDX-License-Identifier: Apache-2.0 */
/* pin_links.c - see pin_links.h. */
#include "worker/pin_links.h"

#include "dev/pin.h"
#include "net/net.h"

static bool pin(void *dev, void *p, size_t n) { return dev_pin(dev, p, n); }
static void unpin(void *dev, void *p) { dev_unpin(dev, p); }

void pin_links(struct net *n, struct dev *d)
{
	const struct net_pinner who = { pin, unpin, d };
	net_pin(n, d && dev_pins(d) ? &who : NULL);
}
