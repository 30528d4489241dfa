/* SPDX-License-Identifier: Apache-2.0 */
/* pin_links.h - the memory of a worker's links as its device knows it: tensors in memory that is
 * shared with a neighbour go to and from the device as they lie there. */
#ifndef HS_WORKER_PIN_LINKS_H
#define HS_WORKER_PIN_LINKS_H

struct dev;
struct net;

/* For links made from now on. NULL: no more, before the device is closed. */
void pin_links(struct net *n, struct dev *d);

#endif
