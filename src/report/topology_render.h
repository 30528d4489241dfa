/* SPDX-License-Identifier: Apache-2.0 */
/* topology_render.h - Graphviz text to a picture; a file of its own because names of the Graphviz
 * headers clash with others. */
#ifndef HS_REPORT_TOPOLOGY_RENDER_H
#define HS_REPORT_TOPOLOGY_RENDER_H

struct buf;
struct err;

/* Appends the picture to `out`. ERR_UNSUPPORTED when Graphviz has no plugin for `format` here. The
 * library keeps global state, so a lock inside allows one caller at a time. */
int topology_render(const char *dot, const char *format, struct buf *out, struct err *e);

#endif
