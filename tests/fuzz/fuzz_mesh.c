/* SPDX-License-Identifier: Apache-2.0 */
/* A place in a mesh from anywhere, as an invited machine reads it: it is read and settled, or
 * refused with one line; the files that follow from it hold no command but our own. */
#include "base/buf.h"
#include "base/err.h"
#include "fuzz/starve.h"
#include "mesh/mesh_part.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char own[] = "QNcyBYVaBxtzvDhKXTAUBFUdIQTyR1ULxrfaNPbRvk8=";

#define MUST(x)                                                                                    \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

/* Each line of a file of wg-quick begins with one of these. */
static void check_conf(const char *text)
{
	static const char *const begin[] = { "# ",
					     "[Interface]\n",
					     "[Peer]\n",
					     "\n",
					     "Address = ",
					     "ListenPort = ",
					     "MTU = ",
					     "PostUp = wg set %i private-key /etc/wireguard/hetero",
					     "PostUp = sysctl -q -w net.ipv",
					     "PostUp = (set +e; trap '' HUP; s=/sys/class/net/%i/",
					     "PublicKey = ",
					     "AllowedIPs = ",
					     "Endpoint = ",
					     "PersistentKeepalive = " };
	for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
		size_t k = 0;
		while (k < sizeof begin / sizeof *begin &&
		       strncmp(line, begin[k], strlen(begin[k])) != 0)
			k++;
		MUST(k < sizeof begin / sizeof *begin && strchr(line, '\n'));
	}
}

static void check_files(const struct mesh *m)
{
	struct buf b = BUF_INIT;
	for (size_t i = 0; i < m->n; i++) {
		buf_reset(&b);
		mesh_conf(m, i, &b);
		if (b.n && !b.failed)
			check_conf(b.p);
		mesh_inside(m, i, &b);
	}
	mesh_hosts(m, &b);
	buf_release(&b);
}

static void once(const uint8_t *data, size_t n)
{
	struct err e = { 0 };
	struct mesh_part p;
	char *text = malloc(n + 1);
	MUST(text);
	memcpy(text, data, n);
	text[n] = 0;
	int rc = mesh_part_read(text, "laptop", own, &p, &e);
	free(text);
	if (rc >= 0) {
		rc = mesh_settle(&p.m, &e);
		if (rc >= 0)
			check_files(&p.m);
		mesh_part_close(&p);
	}
	MUST(rc >= 0 || (rc == e.code && e.msg[0] && !strchr(e.msg, '\n')));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	starve(once, data, n);
	return 0;
}
