/* SPDX-License-Identifier: Apache-2.0 */
/* dashboard_priv.h - what dashboard.c and its cards share. */
#ifndef HS_REPORT_DASHBOARD_PRIV_H
#define HS_REPORT_DASHBOARD_PRIV_H

#include "report/canvas.h"

struct profile;
struct profile_device;

enum { DASHBOARD_DEVICES = 16, DASHBOARD_HOSTS = 10, DASHBOARD_SIZES = 8 }; /* shown at most */

/* A card's inside from (0, 0) in `width` units; returns its height. */
double dashboard_speed(struct canvas *c, const struct profile *p, double width);
double dashboard_times(struct canvas *c, const struct profile *p, double width);
double dashboard_memory(struct canvas *c, const struct profile *p, double width);
double dashboard_links(struct canvas *c, const struct profile *p, double width);

/* The microbatch sizes worth showing, ascending; returns how many. */
int dashboard_sizes(const struct profile *p, int size[DASHBOARD_SIZES]);
double dashboard_layer_ms(const struct profile_device *d, int m); /* forward and backward */
double dashboard_reserve(const struct profile_device *d);         /* GiB */

#endif
