/* SPDX-License-Identifier: Apache-2.0 */
/* peer_list.c - see peer_list.h. Rows: `peers` NAME KEY SINCE, with a place in a mesh also WGKEY
 * and 4, 6 or 46;
 * `invitations` SECRET UNTIL NAME USED ("-" for none), with one also "mesh"; `coordinator` NAME KEY
 * PORT ADDRESS ... */
#include "peers/peer_list.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/open.h"
#include "file/atomic.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_MOST = 1 << 20, WORDS = 4 + TOKEN_ADDRESSES };

int peers_path(const char *name, char path_p[PATH_MAX], struct err *e)
{
	char key[PATH_MAX];
	TRY(key_default_path(key, sizeof key, true, e));
	char *slash = strrchr(key, '/');
	int n = snprintf(path_p, PATH_MAX, "%.*s/%s", slash ? (int)(slash - key) : 1,
			 slash ? key : ".", name);
	return n < PATH_MAX ? 0 : err_set(e, ERR_USAGE, "%s: the path is too long", key);
}

/* ---- files of rows -------------------------------------------------------------------------- */

static int read_text(const char *name, struct buf *b, char path[PATH_MAX], struct err *e)
{
	const char *why;
	TRY(peers_path(name, path, e));
	if (access(path, F_OK) < 0 && errno == ENOENT)
		return 0;
	if (!open_only_mine(path, &why))
		return err_set(e, ERR_USAGE, "%s: not used, because %s", path, why);
	return buf_read_file(b, path, FILE_MOST, e);
}

/* The words of the next line; 0: no more lines; -1: too many words. */
static int next_row(char **text, char *word[WORDS])
{
	int n = 0;
	while (!n && *text && **text) {
		char *line = *text, *end = strchr(line, '\n'), *save = NULL;
		*text = end ? end + 1 : NULL;
		if (end)
			*end = 0;
		for (char *w = strtok_r(line, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
			if (n == WORDS)
				return -1;
			word[n++] = w;
		}
	}
	return n;
}

static int broken(const char *path, struct err *e)
{
	return err_set(e, ERR_INPUT,
		       "%s: a line of it cannot be read; move the file away and invite again",
		       path);
}

static bool put_word(char *out, size_t cap, const char *word)
{
	return snprintf(out, cap, "%s", word) < (int)cap;
}

struct change {
	int lock;
};

static int change_begin(struct change *c, struct err *e)
{
	char path[PATH_MAX];
	TRY(peers_path("peers.lock", path, e));
	TRY(open_write_err(path, OPEN_LOCK, 0600, &c->lock, e));
	if (flock(c->lock, LOCK_EX) == 0)
		return 0;
	int rc = err_sys(e, errno, "%s", path);
	close(c->lock);
	return rc;
}

static void change_end(struct change *c) { close(c->lock); }

static int write_text(const char *name, struct buf *b, struct err *e)
{
	char path[PATH_MAX];
	struct atomic_file f;
	TRY(peers_path(name, path, e));
	TRY(buf_ok(b, e));
	TRY(atomic_begin(path, &f, e));
	if (fchmod(f.fd, 0600) < 0) {
		int rc = err_sys(e, errno, "%s", path);
		atomic_abort(&f);
		return rc;
	}
	int rc = atomic_write(&f, b->p, b->n, e);
	if (rc < 0) {
		atomic_abort(&f);
		return rc;
	}
	return atomic_commit(&f, e);
}

/* ---- peers ---------------------------------------------------------------------------------- */

void peer_list_release(struct peer_list *l)
{
	mem_free(l->peer);
	*l = (struct peer_list){ 0 };
}

static const char *const family[] = { "", " 4", " 6", " 46" };

static unsigned family_of(const char *word)
{
	unsigned k = 3;
	while (k && strcmp(family[k] + 1, word))
		k--;
	return k;
}

int peer_list_read(struct peer_list *l_p, struct err *e)
{
	struct peer_list l = { .peer = mem_array(PEERS_MOST, sizeof *l.peer) };
	struct buf b = BUF_INIT;
	char path[PATH_MAX], *word[WORDS], *text;
	int n, rc = l.peer ? read_text("peers", &b, path, e)
			   : err_nomem(e, PEERS_MOST * sizeof *l.peer, "the list of peers");
	for (text = b.p; rc >= 0 && (n = next_row(&text, word)) != 0;) {
		struct peer *p = l.n < PEERS_MOST ? &l.peer[l.n++] : NULL;
		uint8_t raw[KEY_BYTES];
		if ((n != 3 && n != 5) || !p || !peer_name_ok(word[0]) ||
		    !put_word(p->name, PEER_NAME, word[0]) ||
		    !put_word(p->key, KEY_TEXT, word[1]) || !key_public_bytes(p->key, raw) ||
		    (n == 5 && (!wg_key_ok(word[3]) || !put_word(p->wg, WG_KEY, word[3]) ||
				!(p->family = family_of(word[4])))))
			rc = broken(path, e);
		else
			p->since = strtoll(word[2], NULL, 10);
	}
	buf_release(&b);
	if (rc < 0)
		peer_list_release(&l);
	else
		*l_p = l;
	return rc < 0 ? rc : 0;
}

const struct peer *peer_list_find(const struct peer_list *l, const char *name)
{
	for (size_t i = 0; i < l->n; i++)
		if (!strcmp(l->peer[i].name, name))
			return &l->peer[i];
	return NULL;
}

const struct peer *peer_list_by_key(const struct peer_list *l, const char *key)
{
	for (size_t i = 0; i < l->n; i++)
		if (key_equal(l->peer[i].key, key))
			return &l->peer[i];
	return NULL;
}

static int peer_list_write(const struct peer_list *l, struct err *e)
{
	struct buf b = BUF_INIT;
	for (size_t i = 0; i < l->n; i++)
		buf_addf(&b, "%s %s %lld%s%s%s\n", l->peer[i].name, l->peer[i].key,
			 (long long)l->peer[i].since, l->peer[i].wg[0] ? " " : "", l->peer[i].wg,
			 l->peer[i].wg[0] ? family[l->peer[i].family & 3] : "");
	int rc = write_text("peers", &b, e);
	buf_release(&b);
	return rc;
}

static int unknown_peer(const struct peer_list *l, const char *name, struct err *e)
{
	struct buf b = BUF_INIT;
	for (size_t i = 0; i < l->n; i++)
		buf_addf(&b, "%s%s", i ? ", " : "", l->peer[i].name);
	int rc = err_set(e, ERR_USAGE, "there is no peer '%.60s' (%.300s)", name,
			 b.n ? b.p : "none was invited: 'heteroshard invite'");
	buf_release(&b);
	return rc;
}

static int name_taken(const char *name, struct err *e)
{
	return err_set(
		e, ERR_USAGE,
		"the name '%.60s' is taken: choose another one, or rename or remove that peer "
		"('heteroshard peers')",
		name);
}

static int name_bad(const char *name, struct err *e)
{
	return err_set(e, ERR_USAGE,
		       "'%.60s' is no name for a peer: up to %d letters, digits, '.', '-' and '_', "
		       "not 'local' or 'all'",
		       name, PEER_NAME - 1);
}

static int renamed(struct peer_list *l, const char *from, const char *to, struct err *e)
{
	struct peer *p = (struct peer *)(uintptr_t)peer_list_find(l, from);
	if (!p)
		return unknown_peer(l, from, e);
	if (!peer_name_ok(to))
		return name_bad(to, e);
	if (peer_list_find(l, to))
		return name_taken(to, e);
	snprintf(p->name, sizeof p->name, "%s", to);
	return peer_list_write(l, e);
}

static int removed(struct peer_list *l, const char *name, struct err *e)
{
	const struct peer *p = peer_list_find(l, name);
	if (!p)
		return unknown_peer(l, name, e);
	size_t at = (size_t)(p - l->peer);
	memmove(&l->peer[at], &l->peer[at + 1], (--l->n - at) * sizeof *l->peer);
	return peer_list_write(l, e);
}

/* `to` NULL: removes. */
static int change_peer(const char *name, const char *to, struct err *e)
{
	struct change c;
	struct peer_list l = { 0 };
	TRY(change_begin(&c, e));
	int rc = peer_list_read(&l, e);
	if (rc >= 0)
		rc = to ? renamed(&l, name, to, e) : removed(&l, name, e);
	peer_list_release(&l);
	change_end(&c);
	return rc;
}

int peer_list_rename(const char *from, const char *to, struct err *e)
{
	return change_peer(from, to, e);
}

int peer_list_remove(const char *name, struct err *e) { return change_peer(name, NULL, e); }

/* ---- invitations ---------------------------------------------------------------------------- */

struct invitations {
	struct invitation v[INVITATIONS_MOST];
	size_t n;
};

static int64_t now(void) { return (int64_t)time(NULL); }
static bool is_open(const struct invitation *v) { return !v->used[0] && v->until > now(); }

/* `invite` looks at used ones for a while. */
static bool is_of_now(const struct invitation *v)
{
	return v->until > now() - 3600 && v->until <= now() + INVITATION_MINUTES * 60;
}

static int read_invitations(struct invitations *l, struct err *e)
{
	struct buf b = BUF_INIT;
	char path[PATH_MAX], *word[WORDS], *text;
	int n, rc = read_text("invitations", &b, path, e);
	l->n = 0;
	for (text = b.p; rc >= 0 && (n = next_row(&text, word)) != 0;) {
		struct invitation v = { 0 };
		size_t len;
		if (n < 4 || n > 5 || (n == 5 && strcmp(word[4], "mesh")) ||
		    sodium_hex2bin(v.secret, TOKEN_SECRET, word[0], strlen(word[0]), NULL, &len,
				   NULL) ||
		    len != TOKEN_SECRET ||
		    !put_word(v.name, PEER_NAME, strcmp(word[2], "-") ? word[2] : "") ||
		    !put_word(v.used, PEER_NAME, strcmp(word[3], "-") ? word[3] : "")) {
			rc = broken(path, e);
			break;
		}
		v.until = strtoll(word[1], NULL, 10);
		v.mesh = n == 5;
		if (is_of_now(&v) && l->n < INVITATIONS_MOST)
			l->v[l->n++] = v;
	}
	if (b.p)
		sodium_memzero(b.p, b.n);
	buf_release(&b);
	return rc < 0 ? rc : 0;
}

static int write_invitations(const struct invitations *l, struct err *e)
{
	struct buf b = BUF_INIT;
	char hex[2 * TOKEN_SECRET + 1];
	for (size_t i = 0; i < l->n; i++) {
		const struct invitation *v = &l->v[i];
		buf_addf(&b, "%s %lld %s %s%s\n",
			 sodium_bin2hex(hex, sizeof hex, v->secret, TOKEN_SECRET),
			 (long long)v->until, v->name[0] ? v->name : "-",
			 v->used[0] ? v->used : "-", v->mesh ? " mesh" : "");
	}
	int rc = write_text("invitations", &b, e);
	buf_release(&b);
	return rc;
}

static struct invitation *find_secret(struct invitations *l, const uint8_t *secret)
{
	for (size_t i = 0; i < l->n; i++)
		if (!sodium_memcmp(l->v[i].secret, secret, TOKEN_SECRET))
			return &l->v[i];
	return NULL;
}

int invitation_open(const struct invitation *v, struct err *e)
{
	struct change c;
	struct invitations l;
	struct peer_list peers = { 0 };
	if (v->name[0] && !peer_name_ok(v->name))
		return name_bad(v->name, e);
	TRY(change_begin(&c, e));
	int rc = peer_list_read(&peers, e);
	if (rc >= 0 && v->name[0] && peer_list_find(&peers, v->name))
		rc = name_taken(v->name, e);
	peer_list_release(&peers);
	if (rc >= 0)
		rc = read_invitations(&l, e);
	if (rc >= 0 && l.n == INVITATIONS_MOST)
		rc = err_set(e, ERR_USAGE, "%d invitations are open or were in the last hour: wait",
			     INVITATIONS_MOST);
	if (rc >= 0) {
		l.v[l.n++] = *v;
		rc = write_invitations(&l, e);
	}
	change_end(&c);
	return rc;
}

int invitation_close(const uint8_t secret[TOKEN_SECRET], struct err *e)
{
	struct change c;
	struct invitations l;
	TRY(change_begin(&c, e));
	int rc = read_invitations(&l, e);
	struct invitation *v = rc >= 0 ? find_secret(&l, secret) : NULL;
	if (v && !v->used[0]) {
		*v = l.v[--l.n];
		rc = write_invitations(&l, e);
	}
	change_end(&c);
	return rc;
}

int invitation_find(const uint8_t secret[TOKEN_SECRET], struct invitation *v_p, struct err *e)
{
	struct invitations l;
	TRY(read_invitations(&l, e));
	const struct invitation *v = find_secret(&l, secret);
	if (v)
		*v_p = *v;
	return v != NULL;
}

int64_t invitations_until(void)
{
	struct invitations l;
	struct err ignored = { 0 };
	int64_t until = 0;
	if (read_invitations(&l, &ignored) < 0)
		return 0;
	for (size_t i = 0; i < l.n; i++)
		if (is_open(&l.v[i]) && l.v[i].until > until)
			until = l.v[i].until;
	return until;
}

bool invitations_mesh(const char *name)
{
	struct invitations l;
	struct err ignored = { 0 };
	bool any = false;
	if (read_invitations(&l, &ignored) < 0)
		return false;
	for (size_t i = 0; i < l.n; i++)
		any |= is_open(&l.v[i]) && l.v[i].mesh && !strcmp(l.v[i].name, name);
	return any;
}

static int part_name(const char *name, char out[PEER_NAME + 8], struct err *e)
{
	if (!peer_name_ok(name))
		return name_bad(name, e);
	snprintf(out, PEER_NAME + 8, "mesh-%s", name);
	return 0;
}

int invitation_part_write(const char *name, struct buf *text, struct err *e)
{
	char file[PEER_NAME + 8], path[PATH_MAX];
	TRY(part_name(name, file, e));
	if (text->n)
		return write_text(file, text, e);
	TRY(peers_path(file, path, e));
	return unlink(path) < 0 && errno != ENOENT ? err_sys(e, errno, "%s", path) : 0;
}

int invitation_part_read(const char *name, struct buf *text, struct err *e)
{
	char file[PEER_NAME + 8], path[PATH_MAX];
	TRY(part_name(name, file, e));
	TRY(read_text(file, text, path, e));
	return text->n ? 0 : err_set(e, ERR_USAGE, "%s: it is not there", path);
}

/* Writes the peer before the invitation: after a crash between the two the machine is in, and its
 * invitation fits nobody but it. */
static int admit(struct peer_list *peers, struct invitations *l, struct invitation *v,
		 const char *key, const char *asked, const char *wg, unsigned of,
		 char name_p[PEER_NAME], struct err *e)
{
	const char *name = v->name[0] ? v->name : asked;
	struct peer *p = (struct peer *)(uintptr_t)peer_list_by_key(peers, key);
	const struct peer *other = peer_list_find(peers, name);
	if (!peer_name_ok(name))
		return name_bad(name, e);
	if (other && other != p)
		return name_taken(name, e);
	if (v->mesh && (!wg_key_ok(wg) || !of || of > 3))
		return err_set(
			e, ERR_USAGE,
			"this invitation carries a place in a mesh, and the machine showed no "
			"key for it");
	if (!p && peers->n == PEERS_MOST)
		return err_set(e, ERR_USAGE, "there are %d peers already", PEERS_MOST);
	if (!p)
		p = &peers->peer[peers->n++];
	*p = (struct peer){ .since = now() };
	snprintf(p->name, sizeof p->name, "%s", name);
	snprintf(p->key, sizeof p->key, "%s", key);
	snprintf(p->wg, sizeof p->wg, "%s", v->mesh ? wg : "");
	p->family = v->mesh ? of : 0;
	snprintf(v->used, sizeof v->used, "%s", name);
	TRY(peer_list_write(peers, e));
	TRY(write_invitations(l, e));
	snprintf(name_p, PEER_NAME, "%s", v->used);
	return 1;
}

int invitation_use(const uint8_t binding[LINK_BINDING], const char *key, const char *coordinator,
		   const char *name, const char *wg, unsigned of, const uint8_t proof[TOKEN_PROOF],
		   char name_p[PEER_NAME], bool *mesh_p, struct err *e)
{
	struct change c;
	struct invitations l;
	struct peer_list peers = { 0 };
	struct invitation *fits = NULL;
	TRY(change_begin(&c, e));
	int rc = read_invitations(&l, e);
	for (size_t i = 0; rc >= 0 && i < l.n; i++)
		if (is_open(&l.v[i]) &&
		    invite_proves(l.v[i].secret, binding, key, coordinator, name, proof))
			fits = &l.v[i];
	if (rc >= 0 && fits)
		rc = peer_list_read(&peers, e);
	if (rc >= 0 && fits)
		rc = admit(&peers, &l, fits, key, name, wg, of, name_p, e);
	if (rc > 0)
		*mesh_p = fits->mesh;
	peer_list_release(&peers);
	change_end(&c);
	sodium_memzero(&l, sizeof l);
	return rc;
}

/* ---- the coordinator that is served ---------------------------------------------------------- */

int served_write(const struct served *v, struct err *e)
{
	struct buf b = BUF_INIT;
	buf_addf(&b, "%s %s %u", v->name, v->key, v->port);
	for (int i = 0; i < v->naddress; i++)
		buf_addf(&b, " %s", v->address[i]);
	buf_addc(&b, '\n');
	int rc = write_text("coordinator", &b, e);
	buf_release(&b);
	return rc;
}

int served_read(struct served *v_p, struct err *e)
{
	struct served v = { 0 };
	struct buf b = BUF_INIT;
	char path[PATH_MAX], *word[WORDS], *text;
	int rc = read_text("coordinator", &b, path, e);
	text = b.p;
	int n = rc >= 0 ? next_row(&text, word) : 0;
	uint8_t raw[KEY_BYTES];
	if (rc >= 0 && !n)
		rc = err_set(e, ERR_USAGE,
			     "%s: this machine was not invited: run 'heteroshard invite' on the "
			     "coordinator and 'heteroshard worker --join TOKEN' here, or name a "
			     "configuration",
			     path);
	else if (rc >= 0 &&
		 (n < 4 || !put_word(v.name, PEER_NAME, word[0]) || !peer_name_ok(v.name) ||
		  !put_word(v.key, KEY_TEXT, word[1]) || !key_public_bytes(v.key, raw)))
		rc = broken(path, e);
	for (int i = 3; rc >= 0 && i < n && v.naddress < TOKEN_ADDRESSES; i++)
		if (!put_word(v.address[v.naddress++], TOKEN_ADDRESS, word[i]))
			rc = broken(path, e);
	unsigned long port = rc >= 0 ? strtoul(word[2], NULL, 10) : 0;
	if (rc >= 0 && (!port || port > 65535))
		rc = broken(path, e);
	v.port = (unsigned)port;
	buf_release(&b);
	if (rc >= 0)
		*v_p = v;
	return rc < 0 ? rc : 0;
}
