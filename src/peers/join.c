/* SPDX-License-Identifier: Apache-2.0 */
/* join.c - see join.h. JOIN: u8 1, str name, bytes proof; or u8 2, the same, str key of WireGuard
 * and u8 family. JOINED: u8 1 and the name; u8 2, the name and bytes place in the mesh; or u8 0 and
 * why the name will not do (only who has the secret is told). */
#include "peers/join.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/address.h"
#include "net/interfaces.h"
#include "net/frame.h"
#include "net/wire.h"

#include <stdio.h>
#include <string.h>

static const double ask_for = 6;       /* seconds for one address */
static const double answer_read = 1.5; /* seconds in which the answer is read */

/* ---- the new machine's side ------------------------------------------------------------------ */

static int say(struct link *l, const struct invite_token *t, const struct key_pair *key,
	       const char *name, const struct join_mesh *mesh, struct err *e)
{
	uint8_t binding[LINK_BINDING], proof[TOKEN_PROOF];
	unsigned char out[NET_UNPROVEN];
	size_t n;
	link_binding(l, binding);
	TRY(invite_prove(t->secret, binding, key->pub, t->key, name, proof, e));
	struct wire_writer w = wire_write(out, sizeof out);
	wire_put_u8(&w, mesh ? 2 : 1);
	wire_put_str(&w, name);
	wire_put_bytes(&w, proof, sizeof proof);
	if (mesh)
		wire_put_str(&w, mesh->wg);
	if (mesh)
		wire_put_u8(&w, (uint8_t)mesh->family);
	TRY(wire_write_end(&w, &n, e));
	return link_send_frame(l, &(struct frame){ .kind = FRAME_JOIN, .size = n, .payload = out },
			       net_in(ask_for), e);
}

/* ERR_USAGE: the coordinator has said no, and why. */
static int hear_answer(struct link *l, struct join_mesh *mesh, char name_p[PEER_NAME],
		       struct err *e)
{
	struct net_msg m;
	struct frame f;
	char text[512] = "";
	int rc = link_recv_frame(l, net_in(ask_for), &m, &f, e);
	if (rc == 0)
		return err_set(e, ERR_NET, "%s: no answer in time", link_address(l));
	if (rc < 0)
		return rc;
	struct wire_reader r = wire_read(f.payload, f.size);
	uint8_t said = f.kind == FRAME_JOINED ? wire_get_u8(&r) : 0;
	bool yes = said == 1 || (said == 2 && mesh);
	size_t n = 0;
	wire_get_str(&r, text, sizeof text);
	const void *part = said == 2 ? wire_get_bytes(&r, &n) : NULL;
	rc = f.kind == FRAME_JOINED
		     ? wire_read_end(&r, "JOINED", e)
		     : err_set(e, ERR_PROTOCOL, "%s where JOINED was due", frame_name(f.kind));
	if (rc >= 0 && yes && part && n <= JOIN_PART) {
		buf_reset(&mesh->part);
		buf_add(&mesh->part, part, n);
		rc = buf_ok(&mesh->part, e);
	}
	net_msg_release(&m);
	if (rc < 0)
		return rc;
	if (!yes)
		return err_set(e, ERR_USAGE, "%s", text);
	if (!peer_name_ok(text))
		return err_set(e, ERR_PROTOCOL, "JOINED: '%.40s' is no name", text);
	snprintf(name_p, PEER_NAME, "%s", text);
	return 0;
}

/* ERR_CANCELLED: reached, and refused. */
static int ask_at(struct net *n, const char *at, const struct invite_token *t,
		  const struct key_pair *key, const char *name, struct join_mesh *mesh,
		  char name_p[PEER_NAME], struct err *e)
{
	struct link *l;
	TRY(net_dial(n, at, t->key, net_in(ask_for), &l, e));
	int rc = link_wait_up(l, NET_FOREVER, e);
	bool answers = rc >= 0 || link_was_refused(l);
	if (rc >= 0)
		rc = say(l, t, key, name, mesh, e);
	if (rc >= 0)
		rc = hear_answer(l, mesh, name_p, e);
	link_close(l);
	return rc == ERR_NET && answers ? ERR_CANCELLED : rc;
}

int invitation_accept(const struct invite_token *t, const struct key_pair *key, const char *name,
		      struct join_mesh *mesh, const volatile sig_atomic_t *stop, struct served *v_p,
		      struct err *e)
{
	struct net *n;
	struct served v = { .port = t->port, .naddress = t->naddress };
	struct err last = { 0 };
	int rc = ERR_NET;
	memcpy(v.key, t->key, sizeof v.key);
	memcpy(v.address, t->address, sizeof v.address);
	interfaces_sort(v.address[0], TOKEN_ADDRESS, v.naddress);
	TRY(net_open(NET_DEFAULT, &(struct net_options){ .key = key }, &n, e));
	for (int i = 0; i < t->naddress && rc == ERR_NET; i++) {
		char at[NET_ADDRESS];
		if (stop && *stop)
			break;
		address_join(v.address[i], t->port, at);
		err_clear(&last);
		rc = ask_at(n, at, t, key, name, mesh, v.name, &last);
		if (rc >= 0 && i) { /* the address that answers is the first to be tried */
			char first[TOKEN_ADDRESS];
			memcpy(first, v.address[i], TOKEN_ADDRESS);
			memcpy(v.address[i], v.address[0], TOKEN_ADDRESS);
			memcpy(v.address[0], first, TOKEN_ADDRESS);
		}
	}
	net_close(n, 1);
	if (stop && *stop)
		return err_set(e, ERR_CANCELLED, "interrupted");
	if (rc == ERR_CANCELLED)
		return err_set(e, ERR_NET,
			       "the coordinator does not accept this invitation: it was used, is "
			       "older than its time, or was taken back; ask for a new one "
			       "('heteroshard invite' there)");
	if (rc == ERR_USAGE)
		return err_set(e, ERR_USAGE, "the coordinator says: %s", last.msg);
	if (rc < 0)
		return err_set(e, ERR_NET, "the coordinator was not reached: %.600s", last.msg);
	*v_p = v;
	return 0;
}

/* ---- the coordinator's side ------------------------------------------------------------------ */

static int *wrong_of(struct askers *a, const char *from)
{
	char host[NET_ADDRESS];
	unsigned port;
	address_parts(from, host, &port);
	for (int i = 0; i < a->nwrong; i++)
		if (!strcmp(a->wrong[i].from, host))
			return &a->wrong[i].times;
	/* a full table forgets the first one */
	if (a->nwrong == WRONG_ADDRESSES)
		memmove(&a->wrong[0], &a->wrong[1], (size_t)--a->nwrong * sizeof a->wrong[0]);
	snprintf(a->wrong[a->nwrong].from, NET_ADDRESS, "%s", host);
	a->wrong[a->nwrong].times = 0;
	return &a->wrong[a->nwrong++].times;
}

static void take_out(struct askers *a, int k)
{
	link_close(a->list[k].link);
	a->list[k] = a->list[--a->n];
}

void askers_add(struct askers *a, struct link *l)
{
	if (*wrong_of(a, link_address(l)) >= WRONG_MOST) {
		link_close(l);
		return;
	}
	if (a->n == ASKERS_MOST)
		take_out(a, 0);
	a->list[a->n++] = (struct asker){ .link = l, .until = net_in(3) };
}

/* `part`: its place in the mesh; NULL: none. */
static int answer(struct link *l, bool yes, const char *text, const struct buf *part, struct err *e)
{
	enum { MOST = JOIN_PART + 1024 };
	unsigned char *out = mem_alloc(MOST);
	size_t n = 0;
	if (!out)
		return err_nomem(e, MOST, "JOINED");
	struct wire_writer w = wire_write(out, MOST);
	wire_put_u8(&w, part ? 2 : yes);
	wire_put_str(&w, text);
	if (part)
		wire_put_bytes(&w, part->p, part->n);
	int rc = wire_write_end(&w, &n, e);
	if (rc >= 0)
		rc = link_send_frame(
			l, &(struct frame){ .kind = FRAME_JOINED, .size = n, .payload = out },
			NET_NOW, e);
	mem_free(out);
	return rc;
}

/* Without the place, which the machine then misses. */
static void answer_mesh(struct link *l, const char *given)
{
	struct buf part = BUF_INIT;
	struct err e = { 0 };
	bool has = invitation_part_read(given, &part, &e) >= 0 && part.n <= JOIN_PART;
	if (!has)
		log_warn("'%s' has joined, and its place in the mesh is not there: %.200s", given,
			 e.msg);
	answer(l, true, given, has ? &part : NULL, &e);
	buf_release(&part);
}

/* One JOIN. false: the link is closed at once, without a word. */
static bool judge(struct askers *a, struct link *l, const struct frame *f)
{
	struct wire_reader r = wire_read(f->payload, f->size);
	struct err e = { 0 };
	uint8_t binding[LINK_BINDING];
	char name[PEER_NAME], given[PEER_NAME], wg[WG_KEY] = "";
	bool mesh = false;
	size_t n;
	uint8_t version = wire_get_u8(&r);
	wire_get_str(&r, name, sizeof name);
	const void *proof = wire_get_bytes(&r, &n);
	if (version == 2)
		wire_get_str(&r, wg, sizeof wg);
	uint8_t family = version == 2 ? wire_get_u8(&r) : 0;
	if (f->kind != FRAME_JOIN || wire_read_end(&r, "JOIN", &e) < 0 ||
	    (version != 1 && version != 2) || n != TOKEN_PROOF)
		return false;
	link_binding(l, binding);
	int rc = invitation_use(binding, link_peer_key(l), a->coordinator, name, wg, family, proof,
				given, &mesh, &e);
	if (rc == 0)
		return false;
	if (rc < 0 && rc != ERR_USAGE) {
		log_warn("an invitation could not be used: %s", e.msg);
		return false;
	}
	if (rc > 0)
		memcpy(a->joined, given, sizeof given);
	struct err ignored = { 0 };
	if (mesh)
		answer_mesh(l, given);
	else
		answer(l, rc > 0, rc > 0 ? given : e.msg, NULL, &ignored);
	return true;
}

/* false: it is to be closed now. */
static bool hear(struct askers *a, struct asker *v)
{
	struct net_msg m;
	struct frame f;
	struct err e = { 0 };
	if (clock_now() > v->until)
		return false;
	if (v->answered)
		return link_state(v->link) != LINK_LOST;
	int rc = link_recv_frame(v->link, NET_NOW, &m, &f, &e);
	if (rc == 0)
		return true;
	/* A worker that was removed says HELLO again and again, and guesses nothing: its address
	 * can still use an invitation. */
	const bool guess = rc > 0 && f.kind == FRAME_JOIN;
	bool good = rc > 0 && judge(a, v->link, &f);
	if (rc > 0)
		net_msg_release(&m);
	if (!good) {
		*wrong_of(a, link_address(v->link)) += guess;
		if (log_limit_allows(&a->log, clock_now()))
			log_warn("a connection from %s showed no valid invitation",
				 link_address(v->link));
	}
	v->answered = good;
	v->until = net_in(answer_read);
	return good;
}

void askers_hear(struct askers *a)
{
	for (int k = 0; k < a->n;)
		if (hear(a, &a->list[k]))
			k++;
		else
			take_out(a, k);
}

size_t askers_poll(const struct askers *a, struct net_poll *p)
{
	size_t n = 0;
	for (int k = 0; k < a->n; k++)
		if (!a->list[k].answered)
			p[n++] = (struct net_poll){ a->list[k].link, NET_RECV, 0 };
	return n;
}

void askers_close(struct askers *a)
{
	while (a->n)
		take_out(a, a->n - 1);
}
