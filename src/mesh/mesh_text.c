/* SPDX-License-Identifier: Apache-2.0 */
/* mesh_text.c - the files of a mesh (mesh.h): one of wg-quick for each machine, names, a picture.
 *
 * Of wg-quick(8) and wg(8): AllowedIPs says to which peer packets for an address go and from which
 * they are taken, so an address stands once in a file; Address has the length of the whole range,
 * so no route changes when a machine is added. */
#include "mesh/mesh.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/open.h"
#include "file/atomic.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void addresses(const struct mesh *m, size_t i, bool *first, struct buf *out)
{
	for (int v6 = 0; v6 < 2; v6++)
		if (m->m[i].ip[v6][0]) {
			buf_addf(out, "%s%s/%d", *first ? "" : ", ", m->m[i].ip[v6], v6 ? 128 : 32);
			*first = false;
		}
}

static bool is_hub(const struct mesh *m, size_t i)
{
	for (size_t k = 0; k < m->n * m->n; k++)
		if (m->through[k] == (int)i)
			return true;
	return m->way_in == (int)i;
}

static void peer(const struct mesh *m, size_t i, size_t k, struct buf *out)
{
	bool first = true;
	buf_addf(out, "\n[Peer]\n# %s\nPublicKey = %s\nAllowedIPs = ", m->m[k].id, m->m[k].key);
	if (m->m[i].invited && m->way_in == (int)k) {
		for (int v6 = 0; v6 < 2; v6++)
			if (m->range[v6].given) {
				buf_addf(out, "%s%s", first ? "" : ", ", m->range[v6].text);
				first = false;
			}
	} else {
		addresses(m, k, &first, out);
		for (size_t j = 0; j < m->n; j++)
			if (j != i && !m->m[j].awaited && mesh_through(m, i, j) == (int)k)
				addresses(m, j, &first, out);
	}
	buf_addc(out, '\n');
	if (mesh_endpoint(m, i, k)[0])
		buf_addf(out, "Endpoint = %s\n", mesh_endpoint(m, i, k));
	if (!mesh_endpoint(m, k, i)[0]) /* it cannot be reached unless it speaks */
		buf_addf(out, "PersistentKeepalive = %d\n", m->keepalive);
}

/* WireGuard asks for the address of a name only once. So where an endpoint is a name, wg-quick
 * leaves a loop behind that asks again, and tells WireGuard when the answer has changed; it ends
 * when the interface does, or when the file has another one. */
static void ask_again(const struct mesh *m, size_t i, struct buf *out)
{
	const int every = m->keepalive;
	bool named = false;
	for (size_t k = 0; k < m->n; k++) {
		const char *at = k == i || m->m[k].awaited ? "" : mesh_endpoint(m, i, k);
		named |= at[0] != '[' && at[strspn(at, "0123456789.:")];
	}
	if (!named)
		return;
	buf_addf(out,
		 "PostUp = (set +e; trap '' HUP; s=/sys/class/net/%%i/ifindex; n=$(cat $s); "
		 "c=/etc/wireguard/%%i.conf; old=; while sleep %d; [ \"$(cat $s)\" = \"$n\" ] && "
		 "grep -q 'sleep %d;' $c; do new=; ",
		 every, every);
	/* wg-quick takes what follows a number sign away */
	buf_adds(out, "set -- $(awk '/^PublicKey = / { k = $3 } "
		      "/^Endpoint = [^[]*[a-zA-Z]/ { print k, $3 }' $c); "
		      "while [ -n \"${2-}\" ]; do "
		      "a=$(getent ahosts \"${2%:*}\" | cut -d' ' -f1 | sort -u | tr '\\n' ,); "
		      "case $old in *\"$2 $a;\"*) ;; *) [ -z \"$a\" ] || "
		      "wg set %i peer \"$1\" endpoint \"$2\";; esac; new=\"$new$2 $a;\"; "
		      "shift 2; done; old=$new; done) </dev/null >/dev/null 2>&1 &\n");
}

void mesh_conf(const struct mesh *m, size_t i, struct buf *out)
{
	const struct config_mesh *c = &m->c->mesh;
	buf_addf(out,
		 "# '%s' in the mesh, written by heteroshard mesh\n"
		 "[Interface]\n",
		 m->m[i].id);
	for (int v6 = 0; v6 < 2; v6++)
		if (m->m[i].ip[v6][0])
			buf_addf(out, "Address = %s/%d\n", m->m[i].ip[v6], m->range[v6].r.bits);
	buf_addf(out,
		 "ListenPort = %lld\nMTU = %lld\n"
		 "PostUp = wg set %%i private-key %s\n",
		 (long long)c->port, (long long)c->mtu, c->key_file);
	if (is_hub(m, i)) {
		/* between peers only: packets leave by the interface by which they came */
		if (m->range[0].given)
			buf_adds(out, "PostUp = sysctl -q -w net.ipv4.conf.%i.forwarding=1\n");
		if (m->range[1].given)
			buf_adds(out, "PostUp = sysctl -q -w net.ipv6.conf.all.forwarding=1\n");
	}
	ask_again(m, i, out);
	for (size_t k = 0; k < m->n; k++)
		if (k != i && !m->m[k].awaited && mesh_direct(m, i, k))
			peer(m, i, k, out);
}

void mesh_inside(const struct mesh *m, size_t i, struct buf *out)
{
	if (m->c->encrypt != ENCRYPT_MESH)
		return;
	buf_addf(out, "# '%s' in the mesh, written by heteroshard mesh\ninterface %s\n", m->m[i].id,
		 m->c->mesh.interface);
	for (size_t k = 0; k < m->n; k++)
		for (int v6 = 0; v6 < 2; v6++)
			if (k != i && !m->m[k].awaited && mesh_direct(m, i, k) && m->m[k].ip[v6][0])
				buf_addf(out, "peer %s\n", m->m[k].ip[v6]);
}

void mesh_hosts(const struct mesh *m, struct buf *out)
{
	for (int v6 = 0; v6 < 2; v6++)
		for (size_t i = 0; i < m->n; i++)
			if (m->m[i].ip[v6][0]) {
				/* of an invited one the endpoint stands nowhere else */
				const bool at = m->m[i].invited && m->m[i].c->endpoint.n;
				buf_addf(out, "%s\t%s.mesh%s%s\n", m->m[i].ip[v6], m->m[i].id,
					 at ? "\t# endpoint " : "",
					 at ? m->m[i].c->endpoint.item[0] : "");
			}
}

static void keys(const struct mesh *m, struct buf *out)
{
	for (size_t i = 0; i < m->n; i++)
		if (!m->m[i].awaited)
			buf_addf(out, "%s %s%s\n", m->m[i].key, m->m[i].id,
				 m->m[i].c->family != FAMILY_ANY ? ""
				 : m->m[i].family == MESH_IPV4   ? " ipv4"
				 : m->m[i].family == MESH_IPV6   ? " ipv6"
								 : "");
}

void mesh_dot(const struct mesh *m, const char *const *label, struct buf *out)
{
	buf_adds(out, "graph mesh {\n  node [shape=box, fontname=\"sans-serif\"];\n"
		      "  edge [fontname=\"sans-serif\", fontsize=10];\n");
	for (size_t i = 0; i < m->n; i++)
		buf_addf(out, "  n%zu [label=\"%s\\n%s\"%s];\n", i, m->m[i].id,
			 m->m[i].ip[0][0] ? m->m[i].ip[0] : m->m[i].ip[1],
			 m->m[i].c->endpoint.n ? ", style=bold" : "");
	for (size_t i = 0; i < m->n; i++)
		for (size_t k = i + 1; k < m->n; k++)
			buf_addf(out, "  n%zu -- n%zu [style=%s, label=\"%s\"];\n", i, k,
				 mesh_direct(m, i, k) ? "solid" : "dashed",
				 label && label[i * m->n + k] ? label[i * m->n + k] : "");
	buf_adds(out, "}\n");
}

/* ---- the folder ----------------------------------------------------------------------------- */

/* 1: written, 0: it was there already. */
static int write_one(const char *dir, const char *name, struct buf *text, struct err *e)
{
	char path[PATH_MAX];
	struct buf old = BUF_INIT;
	struct err ignored = { 0 };
	TRY(buf_ok(text, e));
	snprintf(path, sizeof path, "%.3900s/%.100s", dir, name);
	bool equal = access(path, F_OK) == 0 && buf_read_file(&old, path, 1 << 20, &ignored) >= 0 &&
		     old.n == text->n && !memcmp(old.p, text->p, text->n);
	buf_release(&old);
	if (equal)
		return 0;
	TRY(atomic_write_file(path, text->p, text->n, e));
	return 1;
}

/* Files that an earlier run wrote for machines that are gone. */
static size_t remove_old(const struct mesh *m, const char *dir)
{
	size_t removed = 0;
	DIR *d = opendir(dir);
	for (struct dirent *f; d && (f = readdir(d));) {
		char path[PATH_MAX], head[64] = "";
		struct err none = { 0 };
		int fd = -1;
		const char *dot = strrchr(f->d_name, '.');
		size_t n = dot ? (size_t)(dot - f->d_name) : 0;
		bool conf = dot && !strcmp(dot, ".conf"), inside = dot && !strcmp(dot, ".inside"),
		     ours = n && (conf || inside);
		for (size_t i = 0; i < m->n && ours; i++)
			ours = strlen(m->m[i].id) != n || strncmp(m->m[i].id, f->d_name, n) != 0 ||
			       (inside && m->c->encrypt != ENCRYPT_MESH);
		snprintf(path, sizeof path, "%.3900s/%.180s", dir, f->d_name);
		ours = ours && open_read(path, &fd, NULL, &none) >= 0 &&
		       read(fd, head, sizeof head - 1) > 0;
		head[strcspn(head, "\n")] = 0;
		ours = ours && strstr(head, "' in the mesh, written");
		if (fd >= 0)
			close(fd);
		removed += ours && unlink(path) == 0 && conf;
	}
	if (d)
		closedir(d);
	return removed;
}

int mesh_write(const struct mesh *m, bool *changed_p, size_t *removed_p, struct err *e)
{
	const char *dir = m->c->mesh.dir;
	struct buf b = BUF_INIT;
	int rc = dir_make(dir, e);
	for (size_t i = 0; i < m->n && rc >= 0; i++) {
		char name[64];
		if (m->m[i].awaited)
			continue;
		buf_reset(&b);
		mesh_conf(m, i, &b);
		snprintf(name, sizeof name, "%s.conf", m->m[i].id);
		rc = write_one(dir, name, &b, e);
		changed_p[i] = rc > 0;
		buf_reset(&b);
		mesh_inside(m, i, &b);
		snprintf(name, sizeof name, "%s.inside", m->m[i].id);
		if (rc >= 0 && b.n)
			rc = write_one(dir, name, &b, e);
	}
	void (*const text[])(const struct mesh *, struct buf *) = { mesh_hosts, keys };
	for (size_t k = 0; k < 2 && rc >= 0; k++) {
		buf_reset(&b);
		text[k](m, &b);
		rc = write_one(dir, k ? "keys" : "hosts", &b, e);
	}
	if (rc >= 0) {
		buf_reset(&b);
		mesh_dot(m, NULL, &b);
		rc = write_one(dir, "mesh.dot", &b, e);
	}
	*removed_p = rc >= 0 ? remove_old(m, dir) : 0;
	buf_release(&b);
	return rc < 0 ? rc : 0;
}
