/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_guests.c - who connects to a coordinator's port or to a worker, over TLS: HELLO, JOIN,
 * relayed frames and anything else, in any order; and a machine that joins, whatever is answered.
 *
 * Byte 0 chooses whose port it is: 0 a coordinator's, 1 a worker's, 2 that of somebody who answers
 * a machine that joins. Then deeds follow, a byte each with what it needs: the low two bits say
 * whose connection (a, b, c are listed, the fourth is not), the others what is done. What a member
 * hears is always a frame, and a relayed one comes from the other member of its pair. */
#include <pthread.h>
#include <sodium.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "fuzz/small.h"
#include "net/address.h"
#include "net/frame.h"
#include "net/wire.h"
#include "peers/guests.h"
#include "peers/join.h"
#include "peers/reception.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define MUST(x)                                                                                    \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

enum { A, B, C, UNKNOWN, DOOR, ALL, JOB = 7, DEEDS = 40 };

static char folder[64];
static struct key_pair key[ALL];
static struct net *nets[ALL];
static char at[NET_ADDRESS];
static struct reception_member member[3];

/* One input. */
struct scene {
	struct feed in;
	struct link *link[4];
	struct link *old[DEEDS]; /* of who connected again, and has not left */
	int nold;
	bool relayed[4]; /* it has asked for a relay: frames of others may come */
	struct reception *r;
	struct guests *g;
};

static void door_open(void)
{
	struct err e;
	const struct net_options o = { .key = &key[DOOR], .before_take = NET_BEFORE_TAKE };
	if (nets[DOOR])
		net_close(nets[DOOR], 0);
	MUST(net_open("tls", &o, &nets[DOOR], &e) >= 0);
	for (int i = A; i <= C; i++)
		MUST(net_allow(nets[DOOR], key[i].pub, &e) >= 0);
	MUST(net_listen(nets[DOOR], "127.0.0.1:0", at, &e) >= 0);
}

/* Three invitations are open, one of them with a place in a mesh; the list of peers is empty. */
static void files_new(void)
{
	char path[PATH_MAX];
	struct err e;
	MUST(peers_path("peers", path, &e) >= 0);
	unlink(path);
	MUST(peers_path("invitations", path, &e) >= 0);
	FILE *f = fopen(path, "w");
	long long until = (long long)time(NULL) + 600; /* one of more than a day does not count */
	MUST(f &&
	     fprintf(f, "%032d %lld - -\n%032d %lld box -\n%032d %lld tent - mesh\n", 0, until, 1,
		     until, 3, until) > 0 &&
	     fclose(f) == 0);
	MUST(peers_path("mesh-tent", path, &e) >= 0);
	f = fopen(path, "w");
	MUST(f && fputs("port 51820\n", f) >= 0 && fclose(f) == 0 && chmod(path, 0600) == 0);
}

/* ---- deeds of those who connect -------------------------------------------------------------- */

static void say(struct link *l, enum frame_kind kind, const void *p, size_t n, uint32_t from,
		uint32_t to)
{
	struct err e;
	struct frame f = { .kind = kind, .size = n, .payload = p, .from = from, .to = to };
	if (kind == FRAME_ACTIVATION) {
		f.ndim = 1;
		f.dim[0] = (int64_t)n;
		f.dtype = DT_U8;
	}
	link_send_frame(l, &f, NET_NOW, &e);
}

static void hello(struct scene *s, int who)
{
	static const char *const to[] = { "a", "b", "c", "nobody" };
	unsigned how = feed_byte(&s->in), more = feed_byte(&s->in);
	struct err e;
	struct hello h = { .protocol = HELLO_PROTOCOL + (more / 64 == 3),
			   .role = (uint8_t)(how % 8),
			   .member = more / 16 % 4 == 3 ? (uint32_t)(how / 32) : (uint32_t)who,
			   .front = how & 16 ? UINT32_MAX : more % 4,
			   .job = how & 8 ? JOB + 1 : JOB };
	snprintf(h.to, sizeof h.to, "%s", to[more / 4 % 4]);
	hello_send(s->link[who], &h, NET_NOW, &e);
	s->relayed[who] |= h.role == HELLO_RELAY;
}

static const char wg[] = "QNcyBYVaBxtzvDhKXTAUBFUdIQTyR1ULxrfaNPbRvk8=";

static void join_with(struct scene *s, int who)
{
	static const char *const name[] = { "box", "x", "local", "x y" };
	unsigned how = feed_byte(&s->in);
	uint8_t secret[TOKEN_SECRET] = { 0 }, binding[LINK_BINDING] = { 0 }, proof[TOKEN_PROOF];
	unsigned char out[256];
	struct err e;
	size_t n;
	secret[TOKEN_SECRET - 1] = how % 4;
	/* what the proof binds to is there when the link is */
	for (int i = 0; i < 40 && link_state(s->link[who]) == LINK_CONNECTING; i++)
		usleep(500);
	link_binding(s->link[who], binding);
	const char *asks = name[how / 4 % 4];
	MUST(invite_prove(secret, binding, key[who].pub, key[DOOR].pub, asks, proof, &e) >= 0);
	struct wire_writer w = wire_write(out, sizeof out);
	wire_put_u8(&w, how / 16 % 4 == 0 ? 3 : how / 16 % 4 == 1 ? 1 : 2);
	wire_put_str(&w, asks);
	wire_put_bytes(&w, proof, how & 64 ? 31 : sizeof proof);
	if (how / 16 % 4 > 1) {
		wire_put_str(&w, how & 16 ? "x" : wg);
		wire_put_u8(&w, 3);
	}
	MUST(wire_write_end(&w, &n, &e) >= 0);
	say(s->link[who], FRAME_JOIN, out, how & 128 ? n - 1 : n, 0, 0);
}

static void hear(struct scene *s, int who)
{
	struct net_msg m;
	struct frame f;
	struct err e = { 0 };
	if (link_recv(s->link[who], net_in(0.003), &m, &e) <= 0)
		return;
	MUST(frame_parse(m.data, m.size, &f, &e) >= 0);
	if (f.kind != FRAME_WELCOME && f.kind != FRAME_REFUSE && f.kind != FRAME_JOINED) {
		MUST(s->relayed[who] && f.from != FRAME_MEMBER((uint32_t)who));
		MUST(f.to == FRAME_NOBODY || f.to == FRAME_MEMBER((uint32_t)who));
	}
	net_msg_release(&m);
}

static void take(struct scene *s, int who)
{
	struct net_msg m;
	struct err e;
	struct link *l;
	bool here = reception_has(s->r, key[who].pub);
	l = reception_take(s->r, key[who].pub);
	MUST(reception_pairs(s->r) <= 3 * 3);
	MUST(!l || (here && key_equal(link_peer_key(l), key[who].pub)));
	if (l && link_recv(l, net_in(0.002), &m, &e) > 0)
		net_msg_release(&m);
	if (l)
		link_close(l);
}

static void check_guest(const void *who, const struct guest *g, const void *ctx, char *why,
			size_t cap)
{
	const unsigned *how = ctx;
	(void)who;
	MUST(g->known);
	if (*how & 1)
		snprintf(why, cap, "not now");
}

static void take_guest(struct scene *s, int who)
{
	unsigned how = feed_byte(&s->in);
	struct hello h;
	enum hello_role role = (enum hello_role)(how / 2 % 8);
	if (how & 128) {
		guests_refuse(s->g, how & 64 ? GUESTS_ALL : (int)role, how & 1 ? NULL : "no");
		return;
	}
	struct link *l = guests_take(s->g, role, check_guest, NULL, &how, &h);
	MUST(!l || (h.role == role && link_peer_key(l)[0]));
	MUST(!l || !guest_has_key(l, key[UNKNOWN].pub));
	(void)who;
	if (l)
		link_close(l);
}

/* The port's own turn, where it has no thread. */
static void turn(struct scene *s)
{
	struct net_poll p[GUESTS_POLLS];
	if (!s->g) {
		usleep(500);
		return;
	}
	net_poll(nets[DOOR], p, guests_poll(s->g, p), net_in(0.003));
	guests_let_in(s->g);
	MUST(s->g->n >= 0 && s->g->n <= GUESTS_MOST);
}

static void deed(struct scene *s)
{
	unsigned what = feed_byte(&s->in);
	int who = (int)(what % 4);
	struct err e;
	struct link *l = s->link[who];
	const uint8_t *p;
	size_t n;
	switch (what / 4 % 11) {
	case 0:
		if (l)
			s->old[s->nold++] = l;
		s->relayed[who] = false;
		s->link[who] = NULL;
		net_connect(nets[who], at, key[DOOR].pub, net_in(2), &s->link[who], &e);
		break;
	case 1:
		if (l)
			hello(s, who);
		break;
	case 2: {
		unsigned kind = feed_byte(&s->in);
		n = feed_bytes(&s->in, feed_byte(&s->in), &p);
		if (l)
			say(l, (enum frame_kind)(kind % 40), p, n, 0, 0);
		break;
	}
	case 3:
		n = feed_bytes(&s->in, feed_byte(&s->in), &p);
		if (l)
			link_send_copy(l, p, n, NET_NOW, &e);
		break;
	case 4:
		if (l)
			join_with(s, who);
		break;
	case 5:
		if (l)
			hear(s, who);
		break;
	case 6:
		if (l)
			link_close(l);
		s->link[who] = NULL;
		break;
	case 7:
		if (s->r)
			take(s, who);
		else
			take_guest(s, who);
		break;
	case 8:
		if (s->r)
			reception_job(s->r, JOB, member, feed_byte(&s->in) % 4);
		break;
	case 9: {
		static const unsigned char zeros[4096];
		unsigned how = feed_byte(&s->in);
		if (l)
			say(l, FRAME_ACTIVATION, zeros, 16u * (how / 64) + 1,
			    how & 8 ? 0 : FRAME_MEMBER(how % 4),
			    how & 32 ? 0 : FRAME_MEMBER(how / 16 % 4));
		break;
	}
	default:
		usleep(1000);
	}
	turn(s);
}

static void finish(struct scene *s)
{
	struct link *l;
	struct err e;
	for (int i = 0; i < 3; i++)
		turn(s);
	for (int i = 0; i < 4; i++)
		if (s->link[i])
			link_close(s->link[i]);
	while (s->nold)
		link_close(s->old[--s->nold]);
	turn(s);
	turn(s);
	reception_close(s->r);
	if (s->g)
		guests_close(s->g);
	while (net_accept(nets[DOOR], NET_NOW, &l, &e) > 0)
		link_close(l);
	net_admit(nets[DOOR], false);
}

static void coordinator(struct scene *s)
{
	struct err e;
	MUST(reception_open(nets[DOOR], key[DOOR].pub, &s->r, &e) >= 0);
	net_admit(nets[DOOR], true); /* as it is as soon as the thread looks */
	for (int i = 0; i < DEEDS && s->in.n; i++)
		deed(s);
	finish(s);
}

static void worker(struct scene *s)
{
	struct guests g = { .net = nets[DOOR], .coordinator_key = key[A].pub };
	s->g = &g;
	if (feed_byte(&s->in) & 1)
		net_admit(nets[DOOR], true);
	for (int i = 0; i < DEEDS && s->in.n; i++)
		deed(s);
	finish(s);
}

/* ---- a machine that joins -------------------------------------------------------------------- */

static void *answer(void *ctx)
{
	struct feed *in = ctx;
	struct link *l;
	struct net_msg m;
	struct frame f;
	struct err e = { 0 };
	unsigned char out[600];
	const uint8_t *p;
	unsigned how = feed_byte(in);
	size_t n, k = feed_bytes(in, 500, &p);
	if (net_accept(nets[DOOR], net_in(2), &l, &e) <= 0)
		return NULL;
	if (how & 128) {
		link_close(l);
		return NULL;
	}
	if (link_recv_frame(l, net_in(2), &m, &f, &e) > 0) {
		MUST(f.kind == FRAME_JOIN && f.size <= NET_UNPROVEN);
		net_msg_release(&m);
	}
	struct wire_writer w = wire_write(out, sizeof out);
	wire_put_u8(&w, how / 4 % 4);
	wire_put_u32(&w, (uint32_t)k);
	MUST(wire_write_end(&w, &n, &e) >= 0);
	if (k)
		memcpy(out + n, p, k);
	if (how % 4 == 1)
		say(l, (enum frame_kind)(how / 4 % 32 + 1), p, k, 0, 0);
	else if (how % 4 == 2)
		link_send_copy(l, p, k, NET_NOW, &e);
	else
		say(l, FRAME_JOINED, out, n + k, 0, 0);
	for (int i = 0; i < 20 && link_state(l) != LINK_LOST; i++)
		usleep(500); /* until the machine has heard it */
	link_close(l);
	return NULL;
}

static void joins(struct feed *in)
{
	static const volatile sig_atomic_t interrupted = 1;
	pthread_t thread;
	struct err e = { 0 };
	struct served v;
	struct invite_token t = { .naddress = 1 };
	struct join_mesh mesh = { .wg = wg, .family = 1, .part = BUF_INIT };
	unsigned port, how = feed_byte(in);
	char host[NET_ADDRESS];
	address_parts(at, host, &port);
	t.port = port;
	memcpy(t.key, key[how & 1 ? A : DOOR].pub, sizeof t.key);
	snprintf(t.address[0], TOKEN_ADDRESS, "%s", host);
	net_admit(nets[DOOR], true);
	MUST(pthread_create(&thread, NULL, answer, in) == 0);
	int rc = invitation_accept(&t, &key[UNKNOWN], "box", how & 4 ? &mesh : NULL,
				   how & 2 ? &interrupted : NULL, &v, &e);
	MUST(rc >= 0 ? peer_name_ok(v.name) && key_equal(v.key, key[DOOR].pub)
		     : e.code == rc && e.msg[0] && !strchr(e.msg, '\n'));
	if (rc < 0 && (how & 3)) { /* the thread waits for somebody */
		struct link *l;
		if (net_connect(nets[A], at, key[DOOR].pub, net_in(1), &l, &e) >= 0)
			link_close(l);
	}
	pthread_join(thread, NULL);
	net_admit(nets[DOOR], false);
}

/* ---- all ------------------------------------------------------------------------------------- */

static void tidy(void)
{
	char cmd[100];
	for (int i = 0; i < ALL; i++)
		net_close(nets[i], 0);
	snprintf(cmd, sizeof cmd, "rm -rf '%s'", folder);
	if (system(cmd))
		abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct err e;
	static const char *const id[] = { "a", "b", "c" };
	(void)argc;
	(void)argv;
	log_set_sink(NULL, NULL, LOG_ERROR);
	snprintf(folder, sizeof folder, "%s/hs-fuzz-XXXXXX",
		 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	MUST(mkdtemp(folder) && sodium_init() >= 0);
	setenv("XDG_CONFIG_HOME", folder, 1);
	umask(077);
	for (int i = 0; i < ALL; i++)
		MUST(key_pair_generate(&key[i], &e) >= 0);
	for (int i = 0; i <= C; i++)
		member[i] = (struct reception_member){ id[i], key[i].pub };
	for (int i = 0; i < DOOR; i++)
		MUST(net_open("tls", &(struct net_options){ .key = &key[i] }, &nets[i], &e) >= 0);
	door_open();
	atexit(tidy);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct scene s = { .in = { data, size } };
	struct peer_list l;
	struct err e;
	if (!size)
		return 0;
	files_new();
	switch (feed_byte(&s.in) % 3) {
	case 0:
		coordinator(&s);
		break;
	case 1:
		worker(&s);
		break;
	default:
		joins(&s.in);
	}
	/* who has joined is known to this door */
	MUST(peer_list_read(&l, &e) >= 0);
	if (l.n)
		door_open();
	peer_list_release(&l);
	return 0;
}
