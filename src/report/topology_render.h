/* SPDX-License-Identifier: Apache-2.0 */
/* topology_render.h - Graphviz text to a picture, in its own file because the Graphviz headers
 * bring names that clash with others. */
#ifndef HS_REPORT_TOPOLOGY_RENDER_H
#define HS_REPORT_TOPOLOGY_RENDER_H

struct buf;
struct err;

/* Appends the picture to `out`. ERR_UNSUPPORTED when Graphviz has no plugin for `format` here. One
 * caller at a time: the library keeps global state, a lock inside sees to it. */
int topology_render(const char *dot, const char *format, struct buf *out, struct err *e);

#endif
