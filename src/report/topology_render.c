/* SPDX-License-Identifier: Apache-2.0 */
/* topology_render.c - see topology_render.h. PNGs are drawn at twice the usual resolution, for
 * high-resolution screens. */
#include "report/topology_render.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/os.h"

#include <graphviz/gvc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A program that was unpacked from a tarball has Graphviz's plugins beside it. */
static void find_plugins(void)
{
	const char *self = os_self_exe(), *slash = self ? strrchr(self, '/') : NULL;
	char path[4200];
	if (!slash || getenv("GVBINDIR") ||
	    snprintf(path, sizeof path, "%.*s/../lib/heteroshard/graphviz", (int)(slash - self),
		     self) >= (int)sizeof path)
		return;
	if (access(path, R_OK) == 0)
		setenv("GVBINDIR", path, 0);
}

static int render(GVC_t *gvc, const char *dot, const char *format, struct buf *out, struct err *e)
{
	/* PNG through cairo: the text is then as smooth as in the SVG. */
	const char *driver = strcmp(format, "png") ? format : "png:cairo";
	graph_t *g = agmemread(dot);
	char *data = NULL;
	unsigned n = 0;
	if (!g)
		return err_set(e, ERR_INTERNAL,
			       "Graphviz does not accept the text of the topology");
	if (!strcmp(format, "png"))
		agattr(g, AGRAPH, (char *)"dpi", "144");
	int rc = 0;
	if (gvLayout(gvc, g, "dot") != 0)
		rc = err_set(e, ERR_UNSUPPORTED,
			     "Graphviz cannot lay out the topology; is the package 'graphviz' "
			     "installed?");
	else if (gvRenderData(gvc, g, driver, &data, &n) != 0 || !data || !n)
		rc = err_set(e, ERR_UNSUPPORTED,
			     "Graphviz cannot draw %s here; is the package 'graphviz' installed?",
			     format);
	else
		buf_add(out, data, n);
	if (data)
		gvFreeRenderData(data);
	/* No gvFreeLayout(): after labelled edges between nodes of one rank Graphviz 2.42 and 2.43
	 * free such a rank's array twice (make_vn_slot() moves `v`, and `av` stays). What a layout
	 * has taken, some 100 KiB, stays until the process ends. */
	agclose(g);
	return rc < 0 ? rc : buf_ok(out, e);
}

int topology_render(const char *dot, const char *format, struct buf *out, struct err *e)
{
	/* One context for the life of the process: Graphviz's pango plugin keeps a pointer to the
	 * last font's name, which belongs to the context, so a second context would make it read
	 * freed memory. */
	static GVC_t *gvc;
	pthread_mutex_lock(&lock);
	if (!gvc) {
		find_plugins();
		gvc = gvContext();
	}
	agseterr(AGMAX); /* libraries do not print */
	int rc = gvc ? render(gvc, dot, format, out, e)
		     : err_set(e, ERR_UNSUPPORTED,
			       "Graphviz does not start; is the package 'graphviz' installed?");
	pthread_mutex_unlock(&lock);
	return rc;
}
