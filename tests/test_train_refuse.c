/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_refuse.c - who is not let into a job, and how that is said: processes of the program
 * on one side, and on the other whatever the library lets this test say that the program would not:
 * another version, another job, orders from the wrong machine. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/frame.h"
#include "net/net.h"
#include "support/site.h"
#include "proto/hello.h"
#include "proto/protocol.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static struct err err;
#define OK(call)                                                                                   \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s (%d)", #call, err.msg, err.code);                         \
	} while (0)
#define SOON net_in(PATIENCE)

enum who { C, A, B, D, STRANGER, WHO };
static const char *const key_name[WHO] = { "key-c", "key-a", "key-b", "key-d", "key-x" };
static struct key_pair key[WHO];

static void keys_make(const struct site *s)
{
	char path[512];
	for (int i = 0; i < WHO; i++) {
		snprintf(path, sizeof path, "%s/%s", s->t.dir, key_name[i]);
		OK(key_pair_generate(&key[i], &err));
		OK(key_pair_save(&key[i], path, &err));
	}
}

/* NAME.yaml with a coordinator without a device and workers 'a' and 'b', whose keys are those of
 * `c`, `a` and `b`. */
static void three(const struct site *s, const char *name, enum who c, enum who a, enum who b)
{
	struct buf x = BUF_INIT;
	buf_addf(&x,
		 "coordinator: {hostname: c, ip: 127.0.0.1, port: %d, device: none, public_key: "
		 "'%s'}\nworkers:\n",
		 s->port, key[c].pub);
	buf_addf(&x,
		 "- {id: a, hostname: boxa, ip: 127.0.0.2, port: %d, device: cpu, public_key: "
		 "'%s'}\n",
		 s->port + 1, key[a].pub);
	buf_addf(&x,
		 "- {id: b, hostname: boxb, ip: 127.0.0.3, port: %d, device: cpu, public_key: "
		 "'%s'}\n",
		 s->port + 2, key[b].pub);
	buf_adds(&x, "shard_plan: [{id: a, start: 0, end: 3}, {id: b, start: 3, end: 6, is_last: "
		     "true}]\n");
	site_configuration(s, name, 0, x.p);
	buf_release(&x);
}

static char *key_file(const struct site *s, enum who w)
{
	static char text[4][600];
	static int turn;
	char *t = text[turn++ % 4];
	snprintf(t, 600, "key_file=%s/%s", s->t.dir, key_name[w]);
	return t;
}

static void address_of(const struct site *s, enum who w, char out[NET_ADDRESS])
{
	snprintf(out, NET_ADDRESS, "127.0.0.%d:%d", w + 1, s->port + (int)w);
}

/* ---- a peer that this test plays ---- */

static struct net *peer(enum who w)
{
	struct net *n;
	OK(net_open(NET_DEFAULT, &(struct net_options){ .key = &key[w] }, &n, &err));
	for (int i = 0; i < STRANGER; i++)
		OK(net_allow(n, key[i].pub, &err));
	return n;
}

static struct net *peer_listens(const struct site *s, enum who w)
{
	char at[NET_ADDRESS];
	struct net *n = peer(w);
	address_of(s, w, at);
	OK(net_listen(n, at, NULL, &err));
	return n;
}

static struct link *dial(struct net *n, const struct site *s, enum who w)
{
	char at[NET_ADDRESS];
	struct link *l;
	address_of(s, w, at);
	OK(net_connect(n, at, key[w].pub, SOON, &l, &err));
	return l;
}

static void hear(struct link *l, enum frame_kind kind, struct net_msg *m, struct frame *f)
{
	OK(link_recv_frame(l, SOON, m, f, &err));
	if (f->kind != kind) {
		if (f->kind == FRAME_ABORT)
			abort_read(f->payload, f->size, &err);
		fail_msg("%s came, %s was due: %s", frame_name(f->kind), frame_name(kind), err.msg);
	}
}

/* The coordinator's HELLO, answered. */
static struct link *be_a_worker(struct net *n, const char *id, int64_t seconds_off, struct hello *h)
{
	struct link *l;
	struct net_msg m;
	struct frame f;
	assert_int_equal(net_accept(n, SOON, &l, &err), 1);
	hear(l, FRAME_HELLO, &m, &f);
	OK(hello_read(&f, h, &err));
	net_msg_release(&m);
	struct welcome w = { .backend = "cpu",
			     .device = "a test",
			     .bf16 = 1,
			     .formats = 1u << DT_F32 | 1u << DT_BF16 };
	snprintf(w.id, sizeof w.id, "%s", id);
	snprintf(w.host, sizeof w.host, "testhost");
	w.wall = (uint64_t)((int64_t)time(NULL) + seconds_off);
	OK(welcome_send(l, &w, SOON, &err));
	return l;
}

/* Says HELLO on a link of its own and must be refused in these words. */
static void refused(struct net *n, const struct site *s, enum who to, const struct hello *h,
		    const char *const *words)
{
	struct link *l = dial(n, s, to);
	struct net_msg m;
	struct frame f;
	struct welcome w;
	OK(hello_send(l, h, SOON, &err));
	hear(l, FRAME_REFUSE, &m, &f);
	assert_true(welcome_read(&f, &w, &err) < 0);
	printf("  %s\n", err.msg);
	for (int i = 0; words[i]; i++)
		if (!strstr(err.msg, words[i]))
			fail_msg("'%s' is not in '%s'", words[i], err.msg);
	net_msg_release(&m);
	link_close(l);
}
#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void interrupt(struct process *p, const char *what)
{
	kill(p->pid, SIGINT);
	must_fail(p, 1, what);
}

/* ---- versions ---- */

static void versions_differ(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	keys_make(&s);
	three(&s, "job", C, A, B);

	/* at the worker: it says so and goes on waiting */
	struct process w =
		site_start(&s, "worker", "--worker", "a", "job.yaml", key_file(&s, A), NULL);
	until(&w, "listens");
	struct net *n = peer(C);
	struct hello h = {
		.protocol = HELLO_PROTOCOL + 5, .role = HELLO_COORDINATOR, .to = "a", .host = "c"
	};
	char theirs[32], ours[32];
	snprintf(theirs, sizeof theirs, "process speaks protocol %d", HELLO_PROTOCOL + 5);
	snprintf(ours, sizeof ours, "this one protocol %d", HELLO_PROTOCOL);
	refused(n, &s, A, &h, WORDS(theirs, ours, "same version"));
	until(&w, theirs);

	/* frames of another version: the link is cut, and the worker says why */
	struct link *l = dial(n, &s, A);
	unsigned char bytes[FRAME_HEADER] = { 'H', 'S', 'F', '1', 77 };
	OK(link_send_copy(l, bytes, sizeof bytes, SOON, &err));
	struct net_msg m;
	assert_true(link_recv(l, SOON, &m, &err) < 0);
	until(&w, "version 77");
	link_close(l);
	net_close(n, 1);
	interrupt(&w, "interrupted");

	/* at the coordinator: over at once */
	n = peer_listens(&s, A);
	struct process b = site_start(&s, "worker", "--worker", "b", "job.yaml", key_file(&s, B),
				      NULL),
		       p;
	until(&b, "listens");
	p = site_start(&s, "train", "job.yaml", key_file(&s, C), NULL);
	assert_int_equal(net_accept(n, SOON, &l, &err), 1);
	struct frame f;
	hear(l, FRAME_HELLO, &m, &f);
	assert_int_equal(((const unsigned char *)f.payload)[0], HELLO_PROTOCOL);
	net_msg_release(&m);
	hello_refuse(
		l,
		"the connecting process speaks protocol 2, this one protocol 9: install the same "
		"version on all machines");
	must_fail(&p, 1, "this one protocol 9");
	kill(b.pid, SIGINT); /* it may have been told, or the coordinator had not reached it yet */
	must_fail(&b, 1, "coordinator");
	assert_true(says(&p, "worker 'a' (boxa, 127.0.0.2:"));
	link_close(l);
	net_close(n, 1);
	tiny_remove(&s.t);
}

/* ---- keys ---- */

static void keys_differ(void **state)
{
	(void)state;
	struct site s;
	struct process w, b, p;
	site_make(&s);
	keys_make(&s);
	three(&s, "job", C, A, B);
	three(&s, "other", C, STRANGER, B);    /* knows another key of a */
	three(&s, "stranger", STRANGER, A, B); /* knows another key of the coordinator */

	w = site_start(&s, "worker", "--worker", "a", "job.yaml", key_file(&s, A), NULL);
	until(&w, "listens");
	b = site_start(&s, "worker", "--worker", "b", "job.yaml", key_file(&s, B), NULL);
	until(&b, "listens");
	p = site_start(&s, "train", "other.yaml", key_file(&s, C), "join_timeout=20", NULL);
	must_fail(&p, 1, "its key is not the expected one");
	assert_true(says(&p, "worker 'a' (boxa, 127.0.0.2:"));
	kill(b.pid, SIGINT);
	must_fail(&b, 1, "coordinator");
	b = site_start(&s, "worker", "--worker", "b", "job.yaml", key_file(&s, B), NULL);
	until(&b, "listens");
	p = site_start(&s, "train", "stranger.yaml", key_file(&s, STRANGER), "join_timeout=20",
		       NULL);
	must_fail(&p, 1, "is not on its list");
	assert_true(says(&p, key[STRANGER].pub));
	assert_true(says(&w, key[STRANGER].pub) || says(&b, key[STRANGER].pub));
	interrupt(&w, "interrupted");
	interrupt(&b, "interrupted");

	/* a key that others can read is no key */
	char path[512];
	snprintf(path, sizeof path, "%s/key-a", s.t.dir);
	assert_int_equal(chmod(path, 0644), 0);
	w = site_start(&s, "worker", "--worker", "a", "job.yaml", key_file(&s, A), NULL);
	must_fail(&w, 2, "mode 0644");
	assert_true(says(&w, "key-a"));
	tiny_remove(&s.t);
}

/* What a client that has no key gets to read before it is cut off. */
static ssize_t plain_text(const struct site *s, const void *bytes, size_t n)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)(s->port + 1)) };
	inet_pton(AF_INET, "127.0.0.2", &a.sin_addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval patience = { .tv_sec = 20 };
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
	shutdown(fd, SHUT_WR);
	unsigned char in[4096];
	ssize_t all = 0, got;
	while ((got = recv(fd, in, sizeof in, 0)) > 0)
		all += got;
	close(fd);
	return all;
}

static void orders_of_others(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	keys_make(&s);
	three(&s, "job", C, A, B);
	struct process w =
		site_start(&s, "worker", "--worker", "a", "job.yaml", key_file(&s, A), NULL);
	until(&w, "listens");

	/* nobody's key: not one frame gets through */
	struct net *n = peer(STRANGER);
	struct link *l;
	char at[NET_ADDRESS];
	address_of(&s, A, at);
	assert_true(net_connect(n, at, key[A].pub, SOON, &l, &err) < 0);
	printf("  %s\n", err.msg);
	assert_non_null(strstr(err.msg, "is not on its list"));
	net_close(n, 0);
	/* no key at all: nothing, or that a key is needed */
	unsigned char other[128] = { 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'N', 'U', 'L', 'L' };
	assert_true(plain_text(&s, other, sizeof other) <= 64);
	memcpy(other, "HSL2", 4);
	assert_true(plain_text(&s, other, sizeof other) <= 64);
	assert_true(plain_text(&s, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27) <= 64);

	/* a machine of the job that is not the coordinator */
	n = peer(B);
	struct hello h = {
		.protocol = HELLO_PROTOCOL, .role = HELLO_COORDINATOR, .to = "a", .host = "boxb"
	};
	refused(n, &s, A, &h, WORDS(key[B].pub, key[C].pub, "not that of the coordinator"));
	static const enum frame_kind order[] = { FRAME_PLAN, FRAME_BATCH, FRAME_SAVE,
						 FRAME_FINISH };
	for (size_t i = 0; i < ARRAY_LEN(order); i++) {
		struct net_msg m;
		struct frame f;
		struct welcome none;
		l = dial(n, &s, A);
		OK(link_send_frame(
			l,
			&(struct frame){
				.kind = order[i], .job = 1, .size = 4, .payload = "\0\0\0" },
			SOON, &err));
		hear(l, FRAME_REFUSE, &m, &f);
		assert_true(welcome_read(&f, &none, &err) < 0);
		assert_non_null(strstr(err.msg, "where HELLO was due"));
		net_msg_release(&m);
		link_close(l);
	}
	net_close(n, 1);

	/* its ABORT does not end the job either: only the coordinator's does */
	n = peer(B);
	l = dial(n, &s, A);
	OK(link_send_frame(l,
			   &(struct frame){ .kind = FRAME_ABORT, .size = 4, .payload = "\0\0\0" },
			   SOON, &err));
	struct net_msg m;
	while (link_recv(l, SOON, &m, &err) > 0)
		net_msg_release(&m);
	link_close(l);
	net_close(n, 1);
	interrupt(&w, "interrupted");
	tiny_remove(&s.t);
}

/* ---- stages that do not belong together ---- */

/* Tells the coordinator the time, as often as it asks before the first microbatch. */
static void answer_clocks(struct link *coordinator, uint64_t job)
{
	for (;;) {
		struct net_msg m;
		struct frame f;
		unsigned char out[64];
		size_t n;
		assert_int_equal(link_recv_frame(coordinator, SOON, &m, &f, &err), 1);
		/* this peer is the first stage */
		assert_true(f.from == FRAME_COORDINATOR && f.to == FRAME_MEMBER(0));
		const struct clock_message c = { m.arrived, clock_now() };
		struct frame back = { .kind = FRAME_CLOCK,
				      .job = job,
				      .epoch = f.epoch,
				      .step = f.step,
				      .payload = out };
		enum frame_kind kind = f.kind;
		net_msg_release(&m);
		if (kind == FRAME_BATCH)
			return;
		if (kind != FRAME_CLOCK)
			continue;
		OK(clock_write(&c, out, sizeof out, &n, &err));
		back.size = n;
		OK(link_send_frame(coordinator, &back, SOON, &err));
	}
}

static bool holds(const struct frame *f, const char *text)
{
	return memmem(f->payload, f->size, text, strlen(text)) != NULL;
}

/* What a member learns from PLAN: who the others are and where; nothing of the coordinator's files,
 * and of no machine that takes no part. */
static void what_a_plan_tells(const struct site *s, const struct frame *f)
{
	assert_true(holds(f, "boxb") && holds(f, "127.0.0.3") && holds(f, key[B].pub));
	assert_false(holds(f, s->t.dir) || holds(f, "job.yaml") || holds(f, "boxd") ||
		     holds(f, key[D].pub));
}

static void the_wrong_neighbour(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	keys_make(&s);
	three(&s, "job", C, A, B);
	struct net *n = peer_listens(&s, A);
	struct process b =
		site_start(&s, "worker", "--worker", "b", "job.yaml", key_file(&s, B), NULL);
	until(&b, "listens");
	struct process p = site_start(&s, "train", "job.yaml", key_file(&s, C), NULL);
	struct hello c;
	struct link *coordinator = be_a_worker(n, "a", -3600, &c);
	struct net_msg m;
	struct frame f;
	hear(coordinator, FRAME_PLAN, &m, &f);
	what_a_plan_tells(&s, &f);
	uint64_t job = f.job;
	assert_true(job == c.job);
	net_msg_release(&m);

	/* the clock of this one is an hour late: said once, and it does no harm */
	until(&p, "the clock of worker 'a' (boxa, 127.0.0.2:");
	assert_true(says(&p, "360") && says(&p, " s apart") &&
		    !says(&p, "the clock of worker 'b'"));

	struct hello h = { .protocol = HELLO_PROTOCOL,
			   .role = HELLO_STAGE,
			   .member = 0,
			   .job = job,
			   .epoch = c.epoch,
			   .to = "b",
			   .host = "boxa" };
	memcpy(h.model, c.model, sizeof h.model);
	char mine[32], theirs[32];
	h.job ^= 1;
	snprintf(mine, sizeof mine, "%016llx", (unsigned long long)h.job);
	snprintf(theirs, sizeof theirs, "%016llx", (unsigned long long)job);
	refused(n, &s, B, &h, WORDS(mine, theirs));
	h.job = job;
	h.model[0] = h.model[0] == '0' ? '1' : '0';
	snprintf(mine, sizeof mine, "%.16s", h.model);
	snprintf(theirs, sizeof theirs, "%.16s", c.model);
	refused(n, &s, B, &h, WORDS(mine, theirs));
	h.model[0] = c.model[0];
	h.member = 1;
	refused(n, &s, B, &h, WORDS("stage 1", "stage 0"));
	h.member = 0;
	memcpy(h.to, "z", 2);
	refused(n, &s, B, &h, WORDS("'z'", "'b'"));
	memcpy(h.to, "b", 2);
	struct net *other = peer(C);
	refused(other, &s, B, &h, WORDS(key[C].pub, key[A].pub));
	net_close(other, 1);

	/* the right one is let in; then it gives an order, which is not its to give */
	struct link *next = dial(n, &s, B);
	struct welcome w;
	OK(hello_send(next, &h, SOON, &err));
	hear(next, FRAME_WELCOME, &m, &f);
	OK(welcome_read(&f, &w, &err));
	net_msg_release(&m);
	OK(link_send_frame(coordinator,
			   &(struct frame){ .kind = FRAME_READY, .job = job, .epoch = c.epoch },
			   SOON, &err));
	answer_clocks(coordinator, job);
	OK(link_send_frame(next,
			   &(struct frame){ .kind = FRAME_SAVE, .job = job, .epoch = c.epoch },
			   SOON, &err));
	must_fail(&p, 1, "worker 'b' (boxb, 127.0.0.3:");
	assert_true(says(&p, "SAVE of job") && says(&p, "only ACTIVATION"));
	must_fail(&b, 1, "SAVE of job");
	link_close(next);
	link_close(coordinator);
	net_close(n, 1);
	tiny_remove(&s.t);
}

/* NAME.yaml with workers 'a' and 'b' as one group, and 'd' behind them. */
static void group(const struct site *s, const char *name)
{
	static const char id[] = "cabd";
	struct buf x = BUF_INIT;
	buf_addf(&x,
		 "coordinator: {hostname: c, ip: 127.0.0.1, port: %d, device: none, public_key: "
		 "'%s'}\nworkers:\n",
		 s->port, key[C].pub);
	for (int w = A; w <= D; w++)
		buf_addf(&x,
			 "- {id: %c, hostname: box%c, ip: 127.0.0.%d, port: %d, device: cpu, "
			 "public_key: '%s'}\n",
			 id[w], id[w], w + 1, s->port + w, key[w].pub);
	buf_adds(&x, "shard_plan: [{id: [a, b], share: [2, 1], start: 0, end: 3}, "
		     "{id: d, start: 3, end: 6, is_last: true}]\n");
	site_configuration(s, name, 0, x.p);
	buf_release(&x);
}

/* 'b' waits for 'a', which is before it in their group, and for nobody else; this test plays 'a',
 * 'd' and the others. */
static void who_is_not_of_the_group(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	keys_make(&s);
	group(&s, "job");
	struct net *a = peer_listens(&s, A), *d = peer_listens(&s, D);
	struct process b =
		site_start(&s, "worker", "--worker", "b", "job.yaml", key_file(&s, B), NULL);
	until(&b, "listens");
	struct process p = site_start(&s, "train", "job.yaml", key_file(&s, C), NULL);
	struct hello c, of_d;
	struct link *coordinator = be_a_worker(a, "a", 0, &c),
		    *second = be_a_worker(d, "d", 0, &of_d);
	struct net_msg m;
	struct frame f;
	hear(coordinator, FRAME_PLAN, &m, &f);
	struct hello h = { .protocol = HELLO_PROTOCOL,
			   .role = HELLO_STAGE,
			   .member = 0,
			   .job = f.job,
			   .epoch = c.epoch,
			   .to = "b",
			   .host = "boxa" };
	net_msg_release(&m);
	memcpy(h.model, c.model, sizeof h.model);

	/* a key that nobody listed */
	struct net *n = peer(STRANGER);
	struct link *l;
	char at[NET_ADDRESS];
	address_of(&s, B, at);
	assert_int_equal(net_connect(n, at, key[B].pub, SOON, &l, &err), ERR_NET);
	printf("  %s\n", err.msg);
	net_close(n, 1);
	/* keys that are listed: in the name of 'a', and in that of a member of another group */
	n = peer(D);
	refused(n, &s, B, &h, WORDS(key[D].pub, key[A].pub, "worker 'a'"));
	h.member = 2;
	refused(n, &s, B, &h,
		WORDS("member 2, stage 1", "worker 'b' is stage 0, place 1, and has stage -1"));
	net_close(n, 1);
	/* nobody has this number, or it is the number of 'b' itself */
	h.member = 9;
	refused(a, &s, B, &h, WORDS("member 9, stage -1"));
	h.member = 1;
	refused(a, &s, B, &h, WORDS("member 1, stage 0"));
	h.member = 0;
	/* the right one, with another version, job, or configuration (adapter, dtype, layers) */
	h.protocol++;
	refused(a, &s, B, &h, WORDS("this one protocol", "same version"));
	h.protocol--;
	h.job ^= 1;
	refused(a, &s, B, &h, WORDS("in job"));
	h.job ^= 1;
	h.model[0] = h.model[0] == '0' ? '1' : '0';
	refused(a, &s, B, &h, WORDS("worker 'a' (boxa", " has model ", "worker 'b' model "));
	h.model[0] = c.model[0];

	/* let in, and once only */
	struct link *beside = dial(a, &s, B);
	OK(hello_send(beside, &h, SOON, &err));
	hear(beside, FRAME_WELCOME, &m, &f);
	net_msg_release(&m);
	refused(a, &s, B, &h, WORDS("this member is connected already"));
	/* 'd' and 'a' are lost before the first step: 'b' does all of it */
	link_close(second);
	until(&p, "worker 'd' (boxd");
	link_close(beside);
	link_close(coordinator);
	must_succeed(&p);
	must_succeed(&b);
	assert_true(says(&p, "'d' is gone") && says(&p, "'a' is gone"));
	net_close(a, 1);
	net_close(d, 1);
	tiny_remove(&s.t);
}

/* A worker that cannot compute in the dtype of the job. */
static void members_disagree_on_the_dtype(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	keys_make(&s);
	group(&s, "job");
	struct net *n[3] = { peer_listens(&s, A), peer_listens(&s, B), peer_listens(&s, D) };
	static const char *const id[] = { "a", "b", "d" };
	struct process p =
		site_start(&s, "train", "job.yaml", key_file(&s, C), "compute_dtype=float16", NULL);
	struct link *l[3];
	struct hello h;
	for (int i = 0; i < 3; i++)
		l[i] = be_a_worker(n[i], id[i], 0, &h);
	must_fail(&p, 1, "compute_dtype float16 is not available on worker 'a' (a test)");
	for (int i = 0; i < 3; i++) {
		link_close(l[i]);
		net_close(n[i], 1);
	}
	tiny_remove(&s.t);
}

/* The coordinator's configuration has another address of 'b' than that of 'a': 'a' does not connect
 * to what it does not know. */
static void an_address_of_nobody(void **state)
{
	(void)state;
	struct site s;
	char text[700], no[100];
	site_make(&s);
	keys_make(&s);
	three(&s, "job", C, A, B);
	snprintf(text, sizeof text,
		 "workers=[{id: a, ip: 127.0.0.2, port: %d, public_key: '%s'}, {id: b, ip: "
		 "127.0.0.3, port: %d, public_key: '%s'}]",
		 s.port + 1, key[A].pub, s.port + 7, key[B].pub);
	struct process a = site_start(&s, "worker", "--worker", "a", "job.yaml", key_file(&s, A),
				      NULL),
		       b = site_start(&s, "worker", "--worker", "b", "job.yaml", text,
				      key_file(&s, B), NULL),
		       p;
	until(&a, "listens");
	until(&b, "listens");
	p = site_start(&s, "train", "job.yaml", text, key_file(&s, C), NULL);
	snprintf(no, sizeof no, "to connect to 127.0.0.3:%d, which is not an address", s.port + 7);
	must_fail(&p, 1, no);
	must_fail(&a, 1, "");
	must_fail(&b, 1, "");
	tiny_remove(&s.t);
}

/* The members of a group add up over links of their own: without one nothing begins. */
static void a_group_without_a_link(void **state)
{
	(void)state;
	struct site s;
	char text[900], no[100];
	site_make(&s);
	keys_make(&s);
	group(&s, "job");
	snprintf(text, sizeof text,
		 "workers=[{id: a, ip: 127.0.0.2, port: %d, public_key: '%s'}, {id: b, ip: "
		 "127.0.0.3, port: %d, public_key: '%s'}]",
		 s.port + 1, key[A].pub, s.port + 7, key[B].pub);
	static char plan[] = "shard_plan=[{id: [a, b], start: 0, end: 6}]";
	struct process a = site_start(&s, "worker", "--worker", "a", "job.yaml", key_file(&s, A),
				      NULL),
		       b = site_start(&s, "worker", "--worker", "b", "job.yaml", text, plan,
				      key_file(&s, B), NULL),
		       p;
	until(&a, "listens");
	until(&b, "listens");
	p = site_start(&s, "train", "job.yaml", text, plan, key_file(&s, C), NULL);
	snprintf(no, sizeof no, "to connect to 127.0.0.3:%d, which is not an address", s.port + 7);
	must_fail(&p, 1, no);
	must_fail(&a, 1, "");
	must_fail(&b, 1, "");
	tiny_remove(&s.t);
}

/* ---- two that want the same ---- */

static void a_second_coordinator(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	keys_make(&s);
	three(&s, "job", C, A, B);
	struct process w[2], p, q;
	for (int i = 0; i < 2; i++) {
		w[i] = site_start(&s, "worker", "--worker", i ? "b" : "a", "job.yaml",
				  key_file(&s, i ? B : A), NULL);
		until(&w[i], "listens");
	}
	p = site_start(&s, "train", "job.yaml", key_file(&s, C), "max_steps=100000", "save_steps=0",
		       NULL);
	until(&p, " 2/100000 ");
	char dir[600];
	snprintf(dir, sizeof dir, "output_dir=%s/second", s.t.dir);
	q = site_start(&s, "train", "job.yaml", key_file(&s, C), dir, NULL);
	must_fail(&q, 1, "already works on job");
	assert_true(says(&q, "worker 'a' (boxa, 127.0.0.2:") ||
		    says(&q, "worker 'b' (boxb, 127.0.0.3:"));
	kill(p.pid, SIGINT); /* the first one has not noticed */
	must_fail(&p, 1, "interrupted after step");
	must_succeed(&w[0]);
	must_succeed(&w[1]);
	three(&s, "twice", C, A, B);
	char text[400];
	snprintf(text, sizeof text,
		 "workers=[{id: a, ip: 127.0.0.2, port: %d, public_key: '%s'}, {id: a, ip: "
		 "127.0.0.3, port: %d, public_key: '%s'}]",
		 s.port + 1, key[A].pub, s.port + 2, key[B].pub);
	p = site_start(&s, "train", "twice.yaml", text, NULL);
	must_fail(&p, 2, "two workers have the id 'a'");
	tiny_remove(&s.t);
}

/* A worker of a running job is lost, and who is there at its address then cannot take its place. */
static void who_comes_back(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	keys_make(&s);
	three(&s, "job", C, A, B);
	struct process a, b, p;
	a = site_start(&s, "worker", "--worker", "a", "job.yaml", key_file(&s, A), NULL);
	b = site_start(&s, "worker", "--worker", "b", "job.yaml", key_file(&s, B), NULL);
	until(&a, "listens");
	until(&b, "listens");
	p = site_start(&s, "train", "job.yaml", key_file(&s, C), "max_steps=100000", "save_steps=0",
		       NULL);
	until(&p, " 2/100000 ");
	kill(b.pid, SIGKILL);
	finished(&b, PATIENCE);
	until(&p, "'b' is gone");
	/* of another version */
	struct net *n = peer_listens(&s, B);
	for (int i = 0; i < 2; i++) {
		struct link *l;
		struct net_msg m;
		struct frame f;
		assert_int_equal(net_accept(n, SOON, &l, &err), 1);
		hear(l, FRAME_HELLO, &m, &f);
		net_msg_release(&m);
		hello_refuse(l, "the connecting process speaks protocol 2, this one protocol 9: "
				"install the same version on all machines");
		link_close(l);
	}
	until(&p, "does not come back: it refused: the connecting process speaks "
		  "protocol 2, this one protocol 9");
	net_close(n, 1);
	/* with another key */
	char at[NET_ADDRESS];
	n = peer(STRANGER);
	address_of(&s, B, at);
	OK(net_listen(n, at, NULL, &err));
	until(&p, "its key is not the expected one");
	net_close(n, 1);
	kill(p.pid, SIGINT); /* the job has gone on */
	must_fail(&p, 1, "interrupted after step");
	must_succeed(&a);
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	site_program(argv[0]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(versions_differ),
		cmocka_unit_test(keys_differ),
		cmocka_unit_test(orders_of_others),
		cmocka_unit_test(the_wrong_neighbour),
		cmocka_unit_test(an_address_of_nobody),
		cmocka_unit_test(a_second_coordinator),
		cmocka_unit_test(who_comes_back),
		cmocka_unit_test(who_is_not_of_the_group),
		cmocka_unit_test(members_disagree_on_the_dtype),
		cmocka_unit_test(a_group_without_a_link),
	};
	const char *only = getenv("HS_ONLY"); /* one test, by name */
	if (only)
		cmocka_set_test_filter(only);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
