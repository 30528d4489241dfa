/* SPDX-License-Identifier: Apache-2.0 */
/* Invitations below the command line: tokens and proofs, the files, what an unproven connection may
 * do. Relayed links: test_peers_relay.c. */
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
#include "support/door.h"
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

static struct err e;

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
	struct key_pair k = door_key();
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

/* Any byte in the place of any character; a part of it, whatever is missing at its ends. The token
 * is always the same one: 3 bytes of check would let a random one pass now and then. */
static void damaged_tokens(void **state)
{
	(void)state;
	static const uint8_t raw[KEY_BYTES] = { 1, 2, 3 };
	struct key_pair k = door_key();
	struct invite_token t = make_token(&k), back;
	char text[TOKEN_TEXT], bad[TOKEN_TEXT];
	key_public_text(raw, t.key);
	memset(t.secret, 5, sizeof t.secret);
	OK(invite_write(&t, text, &e));
	const size_t n = strlen(text);
	for (size_t i = 0; i < n; i++)
		for (int c = 1; c < 256; c++) {
			memcpy(bad, text, n + 1);
			bad[i] = (char)c;
			const bool same = tolower(c) == text[i];
			assert_int_equal(invite_read(bad, &back, &e), same ? 0 : ERR_USAGE);
			assert_null(strchr(e.msg, '\n'));
		}
	for (size_t from = 0; from < n; from++)
		for (size_t to = from; to <= n; to++) {
			snprintf(bad, sizeof bad, "%.*s", (int)(to - from), text + from);
			const bool whole = to - from == n;
			assert_int_equal(invite_read(bad, &back, &e), whole ? 0 : ERR_USAGE);
		}
}

static void proofs(void **state)
{
	(void)state;
	struct key_pair c = door_key(), w = door_key(), x = door_key();
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
	struct key_pair c = door_key();
	bool mesh = true;
	OK(invite_prove(v->secret, binding, w->pub, c.pub, name, proof, &e));
	return invitation_use(binding, w->pub, c.pub, name, "", 0, proof, given, &mesh, &e);
}

static void once_and_in_time(void **state)
{
	(void)state;
	struct key_pair a = door_key(), b = door_key();
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

/* The numbers in the files are anybody's who edits them. One that would be open for longer than the
 * longest invitation was made while the clock was ahead. */
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
		assert_false(invitations_until());
		unlink(path);
	}
	const int64_t day = INVITATION_MINUTES * 60;
	struct key_pair a = door_key();
	char given[PEER_NAME];
	struct invitation ahead = open_invitation(day + 60), longest = open_invitation(day);
	assert_int_equal(use(&ahead, &a, "ahead", given), 0);
	assert_int_equal(use(&longest, &a, "box", given), 1);
	OK(peer_list_remove("box", &e));
}

static void files_of_others_are_refused(void **state)
{
	(void)state;
	char path[PATH_MAX];
	struct peer_list l;
	struct key_pair a = door_key();
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
	struct key_pair k = door_key();
	struct net *n = door_client(&k);
	struct link *l;
	static char big[NET_UNPROVEN + 1];
	door_open(&d, NULL, 0);
	assert_int_equal(net_connect(n, d.at, d.key.pub, net_in(5), &l, &e), ERR_NET);
	assert_non_null(strstr(e.msg, "is not on its list"));
	struct invitation v = open_invitation(60);
	/* says nothing: gone after the time of a stranger */
	l = knock(n, &d);
	assert_false(link_is_unproven(l)); /* that is the other end */
	assert_true(door_ends(l, 6));
	link_close(l);
	/* one byte too many */
	l = knock(n, &d);
	OK(link_send_copy(l, big, sizeof big, net_in(1), &e));
	assert_true(door_ends(l, 1.5));
	link_close(l);
	/* what is no JOIN, and a HELLO as a worker */
	l = knock(n, &d);
	struct hello h = { .protocol = HELLO_PROTOCOL, .role = HELLO_WORKER };
	OK(hello_send(l, &h, net_in(1), &e));
	assert_true(door_ends(l, 1.5));
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
	struct net *n = door_client(k);
	link_close(knock(n, d));
	net_close(n, 0);
	return t;
}

static void wrong_secrets(void **state)
{
	(void)state;
	struct door d;
	struct key_pair k = door_key();
	door_open(&d, NULL, 0);
	struct invitation v;
	struct invite_token t = open_to(&d, &k, &v);
	struct served s;
	/* another key answers than the token's: nothing is said to it */
	struct key_pair alien = door_key();
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
	struct key_pair k = door_key();
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
	struct key_pair k = door_key();
	door_open(&d, NULL, 0);
	struct invitation v;
	struct invite_token t = open_to(&d, &k, &v);
	struct served s;
	struct net *n = door_client(&k);
	for (int i = 0; i < WRONG_MOST + 1; i++) {
		struct hello h = { .protocol = HELLO_PROTOCOL, .role = HELLO_WORKER };
		struct link *l = knock(n, &d);
		OK(hello_send(l, &h, net_in(1), &e));
		assert_true(door_ends(l, 5));
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
	struct key_pair k = door_key();
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
	struct key_pair own, alien = door_key();
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
	struct key_pair k = door_key();
	struct net *n[2];
	struct link *l[4];
	struct invitation v = open_invitation(60);
	char given[PEER_NAME];
	assert_int_equal(use(&v, &k, "twin", given), 1);
	said[0] = 0;
	log_set_sink(hear_log, NULL, LOG_INFO);
	door_open(&d, &k, 1);
	for (int i = 0; i < 2; i++)
		n[i] = door_client(&k);
	for (int i = 0; i < 4; i++) {
		struct hello h = { .protocol = HELLO_PROTOCOL, .role = HELLO_WORKER };
		OK(net_connect(n[i % 2], d.at, d.key.pub, net_in(5), &l[i], &e));
		OK(hello_send(l[i], &h, net_in(5), &e));
		if (i)
			assert_true(door_ends(l[i - 1], 20));
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tokens),
		cmocka_unit_test(damaged_tokens),
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
	};
	return cmocka_run_group_tests(tests, door_setup, door_teardown);
}
