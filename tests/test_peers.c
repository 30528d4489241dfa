/* SPDX-License-Identifier: Apache-2.0 */
/* Invitations below the command line: tokens and proofs, the files, what an unproven connection may
 * do, relayed links. */
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/frame.h"
#include "pass/worker_log.h"
#include "peers/invited.h"
#include "peers/inviter.h"
#include "peers/join.h"
#include "peers/reception.h"
#include "proto/hello.h"
#include "support/child.h"
#include "worker/dial_in.h"

#include <ctype.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define OK(x)                                                                                      \
	do {                                                                                       \
		if ((x) < 0)                                                                       \
			fail_msg("%s: %s", #x, e.msg);                                             \
	} while (0)

static char dir[128];
static struct err e;

static int setup(void **state)
{
	(void)state;
	char cmd[200];
	snprintf(dir, sizeof dir, "%s/hs-peers-XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(dir))
		return -1;
	snprintf(cmd, sizeof cmd, "%s/config", dir);
	mkdir(cmd, 0700);
	setenv("XDG_CONFIG_HOME", cmd, 1);
	setenv("XDG_RUNTIME_DIR", dir, 1);
	return sodium_init() < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	char cmd[300];
	snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
	return system(cmd) ? -1 : 0;
}

static struct key_pair make_key(void)
{
	struct key_pair k;
	OK(key_pair_generate(&k, &e));
	return k;
}

static struct invite_token make_token(const struct key_pair *k)
{
	struct invite_token t = { .port = 9998, .naddress = 2 };
	memcpy(t.key, k->pub, sizeof t.key);
	randombytes_buf(t.secret, sizeof t.secret);
	snprintf(t.address[0], TOKEN_ADDRESS, "%s", "127.0.0.1");
	snprintf(t.address[1], TOKEN_ADDRESS, "%s", "fd00::1");
	return t;
}

static void tokens(void **state)
{
	(void)state;
	struct key_pair k = make_key();
	struct invite_token t = make_token(&k), back;
	char text[TOKEN_TEXT], bad[TOKEN_TEXT + 40];
	OK(invite_write(&t, text, &e));
	OK(invite_read(text, &back, &e));
	assert_memory_equal(t.secret, back.secret, TOKEN_SECRET);
	assert_string_equal(t.key, back.key);
	assert_int_equal(back.naddress, 2);
	assert_string_equal(back.address[1], "fd00::1");
	/* a line that a mail program has broken */
	snprintf(bad, sizeof bad, "%.20s\n %s", text, text + 20);
	OK(invite_read(bad, &back, &e));
	/* in capitals, as some programs make of it */
	snprintf(bad, sizeof bad, "%s", text);
	for (char *p = bad; *p; p++)
		*p = (char)toupper((unsigned char)*p);
	OK(invite_read(bad, &back, &e));
	assert_memory_equal(t.secret, back.secret, TOKEN_SECRET);
	/* every character counts; every cut too */
	size_t n = strlen(text);
	for (size_t i = 0; i < n; i++) {
		memcpy(bad, text, n + 1);
		bad[i] = text[i] == 'b' ? 'c' : 'b';
		assert_int_equal(invite_read(bad, &back, &e), ERR_USAGE);
		assert_null(strstr(e.msg, text + 5));
		snprintf(bad, i + 1, "%s", text);
		assert_int_equal(invite_read(bad, &back, &e), ERR_USAGE);
	}
	memset(bad, 'a', sizeof bad - 1);
	bad[sizeof bad - 1] = 0;
	memcpy(bad, "hsi1-", 5);
	assert_int_equal(invite_read(bad, &back, &e), ERR_USAGE);
}

static void proofs(void **state)
{
	(void)state;
	struct key_pair c = make_key(), w = make_key(), x = make_key();
	uint8_t secret[TOKEN_SECRET] = { 1 }, other[TOKEN_SECRET] = { 2 }, proof[TOKEN_PROOF];
	uint8_t binding[LINK_BINDING] = { 3 }, else_where[LINK_BINDING] = { 4 };
	OK(invite_prove(secret, binding, w.pub, c.pub, "box", proof, &e));
	assert_true(invite_proves(secret, binding, w.pub, c.pub, "box", proof));
	assert_false(invite_proves(other, binding, w.pub, c.pub, "box", proof));
	assert_false(invite_proves(secret, else_where, w.pub, c.pub, "box", proof));
	assert_false(invite_proves(secret, binding, x.pub, c.pub, "box", proof));
	assert_false(invite_proves(secret, binding, w.pub, x.pub, "box", proof));
	assert_false(invite_proves(secret, binding, c.pub, w.pub, "box", proof));
	assert_false(invite_proves(secret, binding, w.pub, c.pub, "bo", proof));
	for (int i = 0; i < TOKEN_PROOF; i++) {
		proof[i] ^= 1;
		assert_false(invite_proves(secret, binding, w.pub, c.pub, "box", proof));
		proof[i] ^= 1;
	}
}

static struct invitation open_invitation(int64_t seconds)
{
	struct invitation v = { .until = (int64_t)time(NULL) + seconds };
	randombytes_buf(v.secret, sizeof v.secret);
	OK(invitation_open(&v, &e));
	return v;
}

static int use(const struct invitation *v, const struct key_pair *w, const char *name,
	       char given[PEER_NAME])
{
	uint8_t binding[LINK_BINDING] = { 9 }, proof[TOKEN_PROOF];
	struct key_pair c = make_key();
	bool mesh = true;
	OK(invite_prove(v->secret, binding, w->pub, c.pub, name, proof, &e));
	return invitation_use(binding, w->pub, c.pub, name, "", 0, proof, given, &mesh, &e);
}

static void once_and_in_time(void **state)
{
	(void)state;
	struct key_pair a = make_key(), b = make_key();
	struct invitation v = open_invitation(60), late = open_invitation(-1), now;
	struct peer_list l;
	char given[PEER_NAME];
	assert_true(invitations_until());
	assert_int_equal(use(&late, &a, "late", given), 0);
	assert_int_equal(use(&v, &a, "../x", given), ERR_USAGE);
	assert_int_equal(use(&v, &a, "local", given), ERR_USAGE);
	assert_int_equal(use(&v, &a, "one", given), 1);
	assert_string_equal(given, "one");
	assert_int_equal(use(&v, &b, "two", given), 0);
	assert_int_equal(use(&v, &a, "one", given), 0);
	assert_int_equal(invitation_find(v.secret, &now, &e), 1);
	assert_string_equal(now.used, "one");
	assert_false(invitations_until());
	struct invitation w = open_invitation(60);
	assert_int_equal(use(&w, &b, "one", given), ERR_USAGE); /* taken, and still open */
	OK(invitation_close(w.secret, &e));
	assert_int_equal(use(&w, &b, "two", given), 0);
	OK(peer_list_read(&l, &e));
	assert_int_equal(l.n, 1);
	assert_non_null(peer_list_by_key(&l, a.pub));
	peer_list_release(&l);
	assert_int_equal(peer_list_rename("one", "all", &e), ERR_USAGE);
	assert_int_equal(peer_list_rename("none", "x", &e), ERR_USAGE);
	OK(peer_list_rename("one", "uno", &e));
	OK(peer_list_remove("uno", &e));
	assert_int_equal(peer_list_remove("uno", &e), ERR_USAGE);
}

/* The numbers in the files are anybody's who edits them. */
static void ends_of_time(void **state)
{
	(void)state;
	static const char *const until[] = { "9223372036854775807", "-9223372036854775808",
					     "99999999999999999999", "" };
	for (size_t i = 0; i < ARRAY_LEN(until); i++) {
		char path[PATH_MAX];
		OK(peers_path("invitations", path, &e));
		FILE *f = fopen(path, "w");
		fprintf(f, "000102030405060708090a0b0c0d0e0f %s - -\n", until[i]);
		fclose(f);
		assert_true(!invitations_until() == (i == 1 || i == 3));
		unlink(path);
	}
}

static void files_of_others_are_refused(void **state)
{
	(void)state;
	char path[PATH_MAX];
	struct peer_list l;
	struct key_pair a = make_key();
	struct invitation v = open_invitation(60);
	char given[PEER_NAME];
	assert_int_equal(use(&v, &a, "mine", given), 1);
	OK(peers_path("peers", path, &e));
	chmod(path, 0666);
	assert_int_equal(peer_list_read(&l, &e), ERR_USAGE);
	chmod(path, 0600);
	FILE *f = fopen(path, "a");
	fputs("x hs1-nonsense 3\n", f);
	fclose(f);
	assert_int_equal(peer_list_read(&l, &e), ERR_INPUT);
	f = fopen(path, "w");
	for (int i = 0; i < 1 << 20; i++)
		fputc('\n', f);
	fclose(f);
	OK(peer_list_read(&l, &e));
	assert_int_equal(l.n, 0);
	peer_list_release(&l);
	unlink(path);
}

/* ---- over links ------------------------------------------------------------------------------ */

struct door {
	struct key_pair key;
	struct net *net;
	struct reception *r;
	char at[NET_ADDRESS];
};

static void door_open(struct door *d, const struct key_pair *known, int n)
{
	*d = (struct door){ .key = make_key() };
	OK(net_open("tls", &(struct net_options){ .key = &d->key }, &d->net, &e));
	for (int i = 0; i < n; i++)
		OK(net_allow(d->net, known[i].pub, &e));
	OK(net_listen(d->net, "127.0.0.1:0", d->at, &e));
	OK(reception_open(d->net, d->key.pub, &d->r, &e));
}

static void door_close(struct door *d)
{
	reception_close(d->r);
	net_close(d->net, 0);
}

static struct net *client(const struct key_pair *k)
{
	struct net *n;
	OK(net_open("tls", &(struct net_options){ .key = k }, &n, &e));
	return n;
}

/* What happens to a link: true when it is lost within so many seconds. */
static bool ends(struct link *l, double seconds)
{
	for (int64_t until = net_in(seconds); clock_now() < until; usleep(10000))
		if (link_state(l) == LINK_LOST)
			return true;
	return false;
}

/* Connects with an unknown key, and tries again while the door is not open to such. */
static struct link *knock(struct net *n, const struct door *d)
{
	struct link *l = NULL;
	for (int i = 0; i < 40; i++, usleep(100000))
		if (net_connect(n, d->at, d->key.pub, net_in(5), &l, &e) >= 0)
			return l;
	fail_msg("%s", e.msg);
	return NULL;
}

static void strangers_and_the_open_invitation(void **state)
{
	(void)state;
	struct door d;
	struct key_pair k = make_key();
	struct net *n = client(&k);
	struct link *l;
	static char big[NET_UNPROVEN + 1];
	door_open(&d, NULL, 0);
	assert_int_equal(net_connect(n, d.at, d.key.pub, net_in(5), &l, &e), ERR_NET);
	assert_non_null(strstr(e.msg, "is not on its list"));
	struct invitation v = open_invitation(60);
	/* says nothing: gone after the time of a stranger */
	l = knock(n, &d);
	assert_false(link_is_unproven(l)); /* that is the other end */
	assert_true(ends(l, 6));
	link_close(l);
	/* one byte too many */
	l = knock(n, &d);
	OK(link_send_copy(l, big, sizeof big, net_in(1), &e));
	assert_true(ends(l, 1.5));
	link_close(l);
	/* what is no JOIN, and a HELLO as a worker */
	l = knock(n, &d);
	struct hello h = { .protocol = HELLO_PROTOCOL, .role = HELLO_WORKER };
	OK(hello_send(l, &h, net_in(1), &e));
	assert_true(ends(l, 1.5));
	link_close(l);
	assert_false(reception_has(d.r, k.pub));
	OK(invitation_close(v.secret, &e));
	net_close(n, 0);
	door_close(&d);
}

/* Opens an invitation and waits until the door is open to unknown keys. The token has no secret. */
static struct invite_token open_to(const struct door *d, const struct key_pair *k,
				   struct invitation *v_p)
{
	struct invite_token t = { .naddress = 1 };
	*v_p = open_invitation(60);
	memcpy(t.key, d->key.pub, sizeof t.key);
	snprintf(t.address[0], TOKEN_ADDRESS, "%s", "127.0.0.1");
	t.port = (unsigned)strtoul(strrchr(d->at, ':') + 1, NULL, 10);
	struct net *n = client(k);
	link_close(knock(n, d));
	net_close(n, 0);
	return t;
}

static void wrong_secrets(void **state)
{
	(void)state;
	struct door d;
	struct key_pair k = make_key();
	door_open(&d, NULL, 0);
	struct invitation v;
	struct invite_token t = open_to(&d, &k, &v);
	struct served s;
	/* another key answers than the token's: nothing is said to it */
	struct key_pair alien = make_key();
	memcpy(t.secret, v.secret, sizeof t.secret);
	memcpy(t.key, alien.pub, sizeof t.key);
	assert_int_equal(invitation_accept(&t, &k, "box", NULL, NULL, &s, &e), ERR_NET);
	memcpy(t.key, d.key.pub, sizeof t.key);
	t.secret[0] ^= 1;
	for (int i = 0; i < 3; i++)
		assert_int_equal(invitation_accept(&t, &k, "box", NULL, NULL, &s, &e), ERR_NET);
	assert_non_null(strstr(e.msg, "does not accept this invitation"));
	/* they did not close the invitation */
	t.secret[0] ^= 1;
	OK(invitation_accept(&t, &k, "box", NULL, NULL, &s, &e));
	assert_string_equal(s.name, "box");
	OK(served_write(&s, &e));
	struct served back;
	OK(served_read(&back, &e));
	assert_string_equal(back.key, d.key.pub);
	door_close(&d);
	OK(peer_list_remove("box", &e));
}

static void too_many_wrong(void **state)
{
	(void)state;
	struct door d;
	struct key_pair k = make_key();
	door_open(&d, NULL, 0);
	struct invitation v;
	struct invite_token t = open_to(&d, &k, &v);
	struct served s;
	for (int i = 0; i < WRONG_MOST + 1; i++)
		assert_int_equal(invitation_accept(&t, &k, "box", NULL, NULL, &s, &e), ERR_NET);
	/* this address is heard no more, whatever it knows */
	memcpy(t.secret, v.secret, sizeof t.secret);
	assert_int_equal(invitation_accept(&t, &k, "box", NULL, NULL, &s, &e), ERR_NET);
	/* until somebody is invited anew */
	struct invitation fresh = open_invitation(90);
	memcpy(t.secret, fresh.secret, sizeof t.secret);
	int rc = ERR_NET;
	for (int i = 0; i < 50 && rc < 0; i++, usleep(100000))
		rc = invitation_accept(&t, &k, "box", NULL, NULL, &s, &e);
	OK(rc);
	OK(invitation_close(v.secret, &e));
	door_close(&d);
	OK(peer_list_remove("box", &e));
}

/* A worker whose key was removed, and whose service is started again and again: it says HELLO. Its
 * machine can be invited anew. */
static void a_removed_worker_goes_on_calling(void **state)
{
	(void)state;
	struct door d;
	struct key_pair k = make_key();
	door_open(&d, NULL, 0);
	struct invitation v;
	struct invite_token t = open_to(&d, &k, &v);
	struct served s;
	struct net *n = client(&k);
	for (int i = 0; i < WRONG_MOST + 1; i++) {
		struct hello h = { .protocol = HELLO_PROTOCOL, .role = HELLO_WORKER };
		struct link *l = knock(n, &d);
		OK(hello_send(l, &h, net_in(1), &e));
		assert_true(ends(l, 5));
		link_close(l);
	}
	net_close(n, 0);
	memcpy(t.secret, v.secret, sizeof t.secret);
	OK(invitation_accept(&t, &k, "box", NULL, NULL, &s, &e));
	door_close(&d);
	OK(peer_list_remove("box", &e));
}

/* A job had the port when the invitation was written, and has ended since. */
static void the_job_ends_before_it_is_used(void **state)
{
	(void)state;
	struct door d;
	struct key_pair k = make_key();
	struct inviter *i;
	struct invitation v;
	struct invite_token t;
	struct served s;
	const char *here[] = { "127.0.0.1" };
	char text[TOKEN_TEXT], busy[256];
	door_open(&d, NULL, 0);
	OK(inviter_open((unsigned)strtoul(strrchr(d.at, ':') + 1, NULL, 10), here, 1, &i, &e));
	OK(inviter_token(i, "", false, 1, &v, text, &e));
	OK(inviter_listen(i, busy, &e));
	assert_true(busy[0]);
	OK(inviter_again(i, &e));
	door_close(&d);
	OK(inviter_again(i, &e));
	OK(invite_read(text, &t, &e));
	int rc = ERR_NET;
	for (int n = 0; n < 50 && rc < 0; n++, usleep(100000))
		rc = invitation_accept(&t, &k, "box", NULL, NULL, &s, &e);
	OK(rc);
	inviter_close(i);
	OK(peer_list_remove("box", &e));
}

/* ---- a worker that was invited --------------------------------------------------------------- */

static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static char said[16384];

static void hear_log(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	pthread_mutex_lock(&said_lock);
	size_t n = strlen(said);
	snprintf(said + n, sizeof said - n, "%s\n", line);
	pthread_mutex_unlock(&said_lock);
}

static bool was_said(const char *text)
{
	bool was = false;
	for (int i = 0; i < 300 && !was; i++, usleep(100000)) {
		pthread_mutex_lock(&said_lock);
		was = strstr(said, text) != NULL;
		pthread_mutex_unlock(&said_lock);
	}
	return was;
}

static volatile sig_atomic_t worker_stop;

static void stop_worker(int sig)
{
	(void)sig;
	worker_stop = 1;
}

static void *invited_worker(void *rc)
{
	struct err why = { 0 };
	*(int *)rc =
		dial_in_serve(&(struct dial_in){ .device = "cpu", .stop = &worker_stop }, &why);
	return NULL;
}

/* A job that has its workers in the configuration has the same key, and may have the same port. */
static void refused_and_let_in(void **state)
{
	(void)state;
	struct door d;
	struct key_pair own, alien = make_key();
	struct served s = { .name = "box", .naddress = 1 };
	pthread_t t;
	int rc = 1;
	said[0] = 0;
	log_set_sink(hear_log, NULL, LOG_INFO);
	OK(key_own(true, &own, &e));
	door_open(&d, NULL, 0);
	snprintf(s.address[0], TOKEN_ADDRESS, "%s", "127.0.0.1");
	s.port = (unsigned)strtoul(strrchr(d.at, ':') + 1, NULL, 10);
	memcpy(s.key, alien.pub, sizeof s.key);
	OK(served_write(&s, &e));
	signal(SIGUSR1, stop_worker);
	assert_int_equal(pthread_create(&t, NULL, invited_worker, &rc), 0);
	assert_true(was_said("its key is not the expected one"));
	memcpy(s.key, d.key.pub, sizeof s.key);
	OK(served_write(&s, &e));
	assert_true(was_said("does not know this machine's key"));
	OK(net_allow(d.net, own.pub, &e));
	assert_true(was_said("is connected to the coordinator"));
	pthread_kill(t, SIGUSR1); /* as Ctrl-C does, in the thread that reads it */
	pthread_join(t, NULL);
	assert_int_equal(rc, 0);
	door_close(&d);
	log_set_sink(NULL, NULL, LOG_INFO);
}

/* The key came with a copy of the disk. */
static void one_key_on_two_machines(void **state)
{
	(void)state;
	struct door d;
	struct key_pair k = make_key();
	struct net *n[2];
	struct link *l[4];
	struct invitation v = open_invitation(60);
	char given[PEER_NAME];
	assert_int_equal(use(&v, &k, "twin", given), 1);
	said[0] = 0;
	log_set_sink(hear_log, NULL, LOG_INFO);
	door_open(&d, &k, 1);
	for (int i = 0; i < 2; i++)
		n[i] = client(&k);
	for (int i = 0; i < 4; i++) {
		struct hello h = { .protocol = HELLO_PROTOCOL, .role = HELLO_WORKER };
		OK(net_connect(n[i % 2], d.at, d.key.pub, net_in(5), &l[i], &e));
		OK(hello_send(l[i], &h, net_in(5), &e));
		if (i)
			assert_true(ends(l[i - 1], 20));
		while (!reception_has(d.r, k.pub))
			usleep(10000);
	}
	assert_true(was_said("two workers have the key of 'twin'"));
	for (int i = 0; i < 2; i++)
		net_close(n[i], 0);
	door_close(&d);
	OK(peer_list_remove("twin", &e));
	log_set_sink(NULL, NULL, LOG_INFO);
}

/* Its log grows for as long as the machine is up, and nobody has told it a number of steps. */
static void a_log_of_many_steps(void **state)
{
	(void)state;
	static struct stepped_message m;
	struct worker_log l = { .id = "box", .every = -1 };
	const int64_t ms = 1000000, began = clock_now();
	int lines = 0;
	said[0] = 0;
	log_set_sink(hear_log, NULL, LOG_INFO);
	for (int i = 0; i < 1000; i++)
		worker_log_step(&l, &(struct worker_step){ .step = (uint64_t)i + 1,
							   .begin = began + i * 100 * ms,
							   .end = began + (i + 1) * 100 * ms,
							   .times = &m });
	log_set_sink(NULL, NULL, LOG_INFO);
	for (const char *p = said; (p = strchr(p, '\n')); p++)
		lines++;
	assert_int_equal(lines, 4); /* in 100 s */
}

/* ---- relayed links --------------------------------------------------------------------------- */

static struct link *relay_front(struct net *n, const struct door *d, uint32_t self, const char *to,
				uint32_t front)
{
	struct link *l;
	struct hello h = { .protocol = HELLO_PROTOCOL,
			   .role = HELLO_RELAY,
			   .member = self,
			   .front = front,
			   .job = 7 };
	snprintf(h.to, sizeof h.to, "%s", to);
	OK(net_connect(n, d->at, d->key.pub, net_in(5), &l, &e));
	OK(hello_send(l, &h, net_in(5), &e));
	return l;
}

static struct link *relay_to(struct net *n, const struct door *d, uint32_t self, const char *to)
{
	return relay_front(n, d, self, to, 0);
}

static int welcomed(struct link *l)
{
	struct net_msg m;
	struct frame f;
	struct welcome w;
	int rc = link_recv_frame(l, net_in(5), &m, &f, &e);
	if (rc <= 0)
		return rc ? rc : ERR_NET;
	rc = welcome_read(&f, &w, &e);
	net_msg_release(&m);
	return rc;
}

/* A coordinator's port and three members of its job, a, b and c. */
struct three {
	struct door door;
	struct key_pair key[3];
	struct reception_member member[3];
	struct net *net[3];
};

static void three_open(struct three *t)
{
	static const char *const id[] = { "a", "b", "c" };
	for (int i = 0; i < 3; i++) {
		t->key[i] = make_key();
		t->member[i] = (struct reception_member){ id[i], t->key[i].pub };
		t->net[i] = client(&t->key[i]);
	}
	door_open(&t->door, t->key, 3);
}

static void three_close(struct three *t)
{
	for (int i = 0; i < 3; i++)
		net_close(t->net[i], 0);
	door_close(&t->door);
}

/* A frame from member `from` to member `to`. */
static struct frame frame_of(uint32_t from, uint32_t to, void *bytes, size_t n)
{
	return (struct frame){ .kind = FRAME_ACTIVATION,
			       .dtype = DT_F32,
			       .ndim = 1,
			       .dim = { (int64_t)(n / 4) },
			       .from = FRAME_MEMBER(from),
			       .to = FRAME_MEMBER(to),
			       .size = n,
			       .payload = bytes };
}

static void relayed(void **state)
{
	(void)state;
	struct three t;
	three_open(&t);
	struct door *d = &t.door;
	struct net **n = t.net;
	/* before there is a job, and in another one's number */
	struct link *l = relay_to(n[0], d, 0, "b");
	assert_int_equal(welcomed(l), ERR_NET);
	link_close(l);
	reception_job(d->r, 7, t.member, 3);
	l = relay_to(n[2], d, 0, "b");
	assert_int_equal(welcomed(l), ERR_NET);
	assert_non_null(strstr(e.msg, "not that of member 0"));
	link_close(l);
	l = relay_to(n[0], d, 0, "nobody");
	assert_int_equal(welcomed(l), ERR_NET);
	link_close(l);

	struct link *a = relay_to(n[0], d, 0, "b"), *b = relay_to(n[1], d, 1, "a");
	OK(welcomed(a));
	OK(welcomed(b));
	/* both ways, many and large */
	static unsigned char bytes[1 << 20];
	randombytes_buf(bytes, sizeof bytes);
	struct frame f = frame_of(0, 1, bytes, sizeof bytes);
	for (uint32_t i = 0; i < 20; i++) {
		struct net_msg m;
		struct frame g;
		f.microbatch = i;
		OK(link_send_frame(i % 2 ? b : a, &f, net_in(5), &e));
		assert_int_equal(link_recv_frame(i % 2 ? a : b, net_in(10), &m, &g, &e), 1);
		assert_int_equal(g.microbatch, i);
		assert_memory_equal(g.payload, bytes, sizeof bytes);
		net_msg_release(&m);
		f.from = FRAME_MEMBER(i % 2 ? 0 : 1);
		f.to = FRAME_MEMBER(i % 2 ? 1 : 0);
	}
	assert_int_equal(reception_pairs(d->r), 1);
	/* in another member's name */
	f.from = FRAME_MEMBER(2);
	OK(link_send_frame(a, &f, net_in(5), &e));
	assert_true(ends(a, 5));
	assert_true(ends(b, 5));
	assert_int_equal(reception_pairs(d->r), 0);
	link_close(a);
	link_close(b);
	three_close(&t);
}

/* A side that takes nothing holds up its own pair only. */
static void a_full_pair(void **state)
{
	(void)state;
	struct three t;
	three_open(&t);
	struct door *d = &t.door;
	struct net **n = t.net;
	reception_job(d->r, 7, t.member, 3);
	struct link *ab = relay_to(n[0], d, 0, "b"), *ba = relay_to(n[1], d, 1, "a");
	struct link *ac = relay_to(n[0], d, 0, "c"), *ca = relay_to(n[2], d, 2, "a");
	OK(welcomed(ab));
	OK(welcomed(ba));
	OK(welcomed(ac));
	OK(welcomed(ca));
	static unsigned char bytes[4 << 20];
	struct frame f = frame_of(0, 1, bytes, sizeof bytes);
	int sent = 0;
	while (sent < 100 && link_send_frame(ab, &f, net_in(0.5), &e) >= 0)
		sent++;
	assert_true(sent >= 16 && sent < 100); /* the windows of two hops, then no more */
	struct net_msg m;
	struct frame g;
	f.to = FRAME_MEMBER(2);
	OK(link_send_frame(ac, &f, net_in(5), &e));
	assert_int_equal(link_recv_frame(ca, net_in(10), &m, &g, &e), 1);
	net_msg_release(&m);
	for (int i = 0; i < sent; i++) {
		assert_int_equal(link_recv_frame(ba, net_in(10), &m, &g, &e), 1);
		net_msg_release(&m);
	}
	link_close(ab);
	link_close(ba);
	link_close(ac);
	link_close(ca);
	three_close(&t);
}

/* A member whose link broke connects again while the pair is whole: what was on its way to it, or
 * from it, is of the old link. Both sides begin anew. */
static void a_side_that_comes_again(void **state)
{
	(void)state;
	struct three t;
	three_open(&t);
	reception_job(t.door.r, 7, t.member, 3);
	static unsigned char bytes[4 << 20];
	struct frame f = frame_of(0, 1, bytes, sizeof bytes), g;
	struct net_msg m;
	for (uint32_t turn = 0; turn < 2; turn++) {
		struct link *a = relay_to(t.net[0], &t.door, 0, "b"),
			    *b = relay_to(t.net[1], &t.door, 1, "a");
		OK(welcomed(a));
		OK(welcomed(b));
		/* a message of a's waits in the coordinator for room at b's */
		f.microbatch = 0;
		while (link_send_frame(a, &f, net_in(0.5), &e) >= 0)
			;
		struct link *again = turn ? relay_to(t.net[1], &t.door, 1, "a")
					  : relay_to(t.net[0], &t.door, 0, "b");
		assert_true(ends(a, 5));
		while (link_recv_frame(b, net_in(5), &m, &g, &e) == 1) {
			assert_int_equal(g.kind, FRAME_ACTIVATION);
			net_msg_release(&m);
		}
		assert_int_equal(link_state(b), LINK_LOST);
		link_close(a);
		link_close(b);
		assert_int_equal(reception_pairs(t.door.r), 1);
		a = turn ? relay_to(t.net[0], &t.door, 0, "b") : again;
		b = turn ? again : relay_to(t.net[1], &t.door, 1, "a");
		OK(welcomed(a));
		OK(welcomed(b));
		f.microbatch = 9;
		OK(link_send_frame(a, &f, net_in(5), &e));
		assert_int_equal(link_recv_frame(b, net_in(10), &m, &g, &e), 1);
		assert_int_equal(g.microbatch, 9);
		net_msg_release(&m);
		link_close(a);
		link_close(b);
		for (int i = 0; i < 500 && reception_pairs(t.door.r); i++)
			usleep(10000);
		assert_int_equal(reception_pairs(t.door.r), 0);
	}
	three_close(&t);
}

/* Two members have at most three links through the coordinator: each in front of the other, and the
 * one that is measured. */
static void pairs_are_few(void **state)
{
	(void)state;
	static const uint32_t front[] = { 0, 2, UINT32_MAX };
	struct three t;
	struct link *l[ARRAY_LEN(front)];
	three_open(&t);
	reception_job(t.door.r, 7, t.member, 3);
	for (size_t i = 0; i < ARRAY_LEN(front); i++)
		l[i] = relay_front(t.net[0], &t.door, 0, "c", front[i]);
	for (uint32_t i = 0; i < 5; i++) {
		struct link *more = relay_front(t.net[0], &t.door, 0, "c", i ? i + 2 : 1);
		assert_int_equal(welcomed(more), ERR_NET);
		assert_non_null(strstr(e.msg, "neither of the two"));
		link_close(more);
	}
	assert_int_equal(reception_pairs(t.door.r), ARRAY_LEN(front));
	for (size_t i = 0; i < ARRAY_LEN(front); i++)
		link_close(l[i]);
	three_close(&t);
}

/* A worker that leaves the job and comes again, and again, takes no place from the others. */
static void one_that_comes_and_goes(void **state)
{
	(void)state;
	struct door d;
	const struct key_pair k[2] = { make_key(), make_key() };
	struct net *n[2] = { client(&k[0]), client(&k[1]) };
	const struct hello h = { .protocol = HELLO_PROTOCOL, .role = HELLO_WORKER };
	char path[PATH_MAX];
	OK(peers_path("peers", path, &e));
	unlink(path);
	FILE *f = fopen(path, "w");
	fprintf(f, "a %s 1\nb %s 1\n", k[0].pub, k[1].pub);
	fclose(f);
	chmod(path, 0600);
	door_open(&d, k, 2);
	for (int i = 0; i < RECEPTION_WORKERS + 2; i++) {
		const int who = i > RECEPTION_WORKERS; /* the last one is another */
		struct link *l, *there = NULL;
		OK(net_connect(n[who], d.at, d.key.pub, net_in(5), &l, &e));
		OK(hello_send(l, &h, net_in(5), &e));
		for (int j = 0; j < 5000 && !there; j++, usleep(1000)) {
			there = reception_take(d.r, k[who].pub);
			assert_true(there || link_state(l) == LINK_UP);
		}
		assert_non_null(there);
		assert_true(reception_has(d.r, k[who].pub));
		link_close(there);
		link_close(l);
	}
	door_close(&d);
	net_close(n[0], 0);
	net_close(n[1], 0);
	unlink(path);
}

/* ---- what waits ------------------------------------------------------------------------------ */

enum { WINDOW = 4 << 20 };
static struct key_pair waits[3], keeper; /* a, b and c; the coordinator */

static void keeps_a_port(const char *told)
{
	struct door d = { .key = keeper };
	struct reception_member v[] = { { "a", waits[0].pub },
					{ "b", waits[1].pub },
					{ "c", waits[2].pub } };
	const struct net_options o = { .key = &d.key,
				       .window = WINDOW,
				       .before_take = NET_BEFORE_TAKE };
	struct link *l = NULL;
	struct net_msg m;
	OK(net_open("tls", &o, &d.net, &e));
	for (int i = 0; i < 3; i++)
		OK(net_allow(d.net, waits[i].pub, &e));
	OK(net_listen(d.net, "127.0.0.1:0", d.at, &e));
	OK(reception_open(d.net, d.key.pub, &d.r, &e));
	reception_job(d.r, 7, v, 3);
	if (write(atoi(told), d.at, sizeof d.at) < 0)
		_exit(1);
	/* takes b when it has come, and reads what it says */
	for (;; usleep(1000)) {
		if (!l)
			l = reception_take(d.r, waits[1].pub);
		else if (link_recv(l, NET_NOW, &m, &e) == 1)
			net_msg_release(&m);
	}
}

static void what_waits_takes_little(void **state)
{
	(void)state;
	static char piece[1 << 20];
	static const uint32_t front[] = { 0, 1, 2, UINT32_MAX };
	struct door d = { 0 };
	struct link *l[8];
	int told[2], n = 0;
	char text[16];
	long most = 0;
	keeper = make_key();
	d.key = keeper;
	for (int i = 0; i < 3; i++)
		waits[i] = make_key();
	assert_int_equal(pipe(told), 0);
	struct child k = child_new(keeps_a_port, 0);
	snprintf(text, sizeof text, "%d", told[1]);
	child_tell(&k, text);
	assert_int_equal(read(told[0], d.at, sizeof d.at), sizeof d.at);
	/* The highest mark of a child begins with the memory of its parent, of which it has given
	 * back what lay free. */
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/clear_refs", (int)k.pid);
	FILE *mark = fopen(path, "w");
	assert_true(mark && fputs("5", mark) >= 0 && fclose(mark) == 0);
	long before = memory_kib(k.pid, "VmRSS");
	struct net *a = client(&waits[0]), *b = client(&waits[1]);
	struct hello h = { .protocol = HELLO_PROTOCOL, .role = HELLO_WORKER };
	/* a waits as a worker and for six other sides, and sends what the windows hold */
	OK(net_connect(a, d.at, d.key.pub, net_in(5), &l[n], &e));
	OK(hello_send(l[n++], &h, net_in(5), &e));
	for (int i = 0; i < 2; i++) {
		const char *to = i ? "c" : "b";
		for (size_t f = 0; f < ARRAY_LEN(front); f++)
			if (front[f] != (i ? 1u : 2u))
				l[n++] = relay_front(a, &d, 0, to, front[f]);
	}
	for (int i = 0; i < n; i++)
		while (link_send(l[i], piece, sizeof piece, NULL, NULL, &e) == 0)
			;
	/* b's link, which is used, goes at full size */
	OK(net_connect(b, d.at, d.key.pub, net_in(5), &l[n], &e));
	OK(hello_send(l[n], &h, net_in(5), &e));
	for (int i = 0; i < 16; i++)
		OK(link_send_wait(l[n], piece, sizeof piece, NULL, NULL, net_in(20), &e));
	for (int i = 0; i < 5; i++, usleep(100000))
		most = memory_kib(k.pid, "VmHWM") - before;
	printf("  %d links that wait, each with %d KiB to say, and one that is used: %ld KiB\n", n,
	       WINDOW >> 10, most);
	if (memory_counts())
		assert_true(most < n * 256 + 2 * (WINDOW >> 10));
	while (n >= 0)
		link_close(l[n--]);
	kill(k.pid, SIGKILL);
	child_end(&k);
	net_close(a, 0);
	net_close(b, 0);
	for (int i = 0; i < 2; i++)
		close(told[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tokens),
		cmocka_unit_test(proofs),
		cmocka_unit_test(once_and_in_time),
		cmocka_unit_test(ends_of_time),
		cmocka_unit_test(files_of_others_are_refused),
		cmocka_unit_test(strangers_and_the_open_invitation),
		cmocka_unit_test(wrong_secrets),
		cmocka_unit_test(too_many_wrong),
		cmocka_unit_test(a_removed_worker_goes_on_calling),
		cmocka_unit_test(the_job_ends_before_it_is_used),
		cmocka_unit_test(refused_and_let_in),
		cmocka_unit_test(a_log_of_many_steps),
		cmocka_unit_test(one_key_on_two_machines),
		cmocka_unit_test(relayed),
		cmocka_unit_test(a_full_pair),
		cmocka_unit_test(a_side_that_comes_again),
		cmocka_unit_test(pairs_are_few),
		cmocka_unit_test(one_that_comes_and_goes),
		cmocka_unit_test(what_waits_takes_little),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
