/* SPDX-License-Identifier: Apache-2.0 */
/* test_worker_ways.c - where a coordinator can make a worker connect: to machines of the worker's
 * configuration, at addresses that it has or that the machine has signed, and nowhere else. */
#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "net/address.h"
#include "net/keys.h"
#include "net/net.h"
#include "proto/hello.h"
#include "proto/link_probe_wire.h"
#include "proto/protocol.h"
#include "support/ok.h"
#include "support/serving.h"
#include "proto/ways.h"

enum who { C, A, B, STRANGER, WHO };
static struct err err;
static struct key_pair key[WHO];
#define SOON net_in(60)

static int keys_make(void **state)
{
	(void)state;
	for (int i = 0; i < WHO; i++)
		OK(key_pair_generate(&key[i], &err));
	return 0;
}

/* "TEXT#SIGNATURE of it by w" */
static const char *with(const char *text, enum who w, const char *subject, const char *of)
{
	static char out[16][NET_ADDRESS];
	static int turn;
	char *t = out[turn++ % 16], proof[KEY_PROOF];
	OK(key_prove(&key[w], subject, of, proof, &err));
	assert_true(snprintf(t, NET_ADDRESS, "%s#%s", text, proof) < NET_ADDRESS);
	return t;
}

static void what_is_dialled(void **state)
{
	(void)state;
	const struct way way[] = { { "127.0.0.1:7000", key[C].pub },
				   { "10.0.0.2:7001", key[A].pub },
				   { "localhost:7002", key[B].pub },
				   { "[fd00::3]:7003", key[B].pub } };
	const struct ways w = { .way = way, .n = 4 };
	const char *there = "192.168.7.9:7002", *listens = WELCOME_LISTENS;
	const struct {
		enum who who;
		const char *text, *dial; /* NULL: refused */
	} row[] = {
		{ A, "10.0.0.2:7001", "10.0.0.2:7001" },
		{ A, "10.0.0.9;10.0.0.2:7001", "10.0.0.9;10.0.0.2:7001" },
		{ B, "localhost:7002", "localhost:7002" },
		{ B, "127.0.0.1;127.0.0.1:7002", "127.0.0.1;127.0.0.1:7002" },
		{ B, "[fd00::3]:7003", "[fd00::3]:7003" },
		{ B, with(there, B, listens, there), there },
		{ B, with("10.0.0.9;192.168.7.9:7002", B, listens, there),
		  "10.0.0.9;192.168.7.9:7002" },
		/* another port, another host, a name, another machine's address */
		{ A, "10.0.0.2:22", NULL },
		{ A, "10.0.0.3:7001", NULL },
		{ A, "metadata.internal:80", NULL },
		{ A, "localhost:7002", NULL },
		{ A, "", NULL },
		{ A, ";", NULL },
		{ A, "#", NULL },
		{ A, "attacker.example;10.0.0.2:7001", NULL },
		/* not signed, not by that machine, not this, not as an address, not a signature */
		{ B, there, NULL },
		{ B, "192.168.7.9:7002#", NULL },
		{ B, with(there, A, listens, there), NULL },
		{ A, with(there, B, listens, there), NULL },
		{ B, with(there, B, listens, "192.168.7.9:7003"), NULL },
		{ B, with(there, B, "something else", there), NULL },
		{ B, "192.168.7.9:7002#zz", NULL },
		/* of a machine that is in no configuration, however much it signs */
		{ STRANGER, "10.0.0.2:7001", NULL },
		{ STRANGER, with(there, STRANGER, listens, there), NULL },
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		char dial[NET_ADDRESS];
		int rc = ways_check(&w, key[row[i].who].pub, row[i].text, dial, &err);
		if (row[i].dial && rc < 0)
			fail_msg("'%s' is not dialled: %s", row[i].text, err.msg);
		if (!row[i].dial && rc != ERR_PROTOCOL)
			fail_msg("'%s' is dialled", row[i].text);
		if (row[i].dial)
			assert_string_equal(dial, row[i].dial);
		/* without keys in the order, where the configuration has some */
		assert_int_equal(ways_check(&w, NULL, row[i].text, dial, &err), ERR_PROTOCOL);
	}
}

static void without_keys(void **state)
{
	(void)state;
	const struct way way[] = { { "127.0.0.1:7000", NULL }, { "127.0.0.2:7001", NULL } };
	const struct ways w = { .way = way, .n = 2 }, any = { 0 };
	char dial[NET_ADDRESS];
	OK(ways_check(&w, NULL, "127.0.0.2:7001", dial, &err));
	OK(ways_check(&w, NULL, "127.0.0.1;127.0.0.2:7001", dial, &err));
	assert_int_equal(ways_check(&w, NULL, "127.0.0.2:22", dial, &err), ERR_PROTOCOL);
	assert_int_equal(ways_check(&w, NULL, "127.0.0.9:7001", dial, &err), ERR_PROTOCOL);
	assert_int_equal(ways_check(&w, key[A].pub, "127.0.0.2:7001", dial, &err), ERR_PROTOCOL);
	OK(ways_check(&any, NULL, "rank:7", dial, &err)); /* threads, ranks */
	assert_string_equal(dial, "rank:7");
}

/* A worker that was invited has no configuration: only what the machine has signed, of a
 * network. */
static void only_what_is_signed(void **state)
{
	(void)state;
	const struct ways w = { .signed_only = true };
	const char *there = "192.168.7.9:7002", *here = "127.0.0.1:22", *v6 = "[::1]:22";
	char dial[NET_ADDRESS];
	OK(ways_check(&w, key[A].pub, with(there, A, WELCOME_LISTENS, there), dial, &err));
	OK(ways_check(&w, key[A].pub, with("10.0.0.9;192.168.7.9:7002", A, WELCOME_LISTENS, there),
		      dial, &err));
	assert_string_equal(dial, "10.0.0.9;192.168.7.9:7002");
	const char *bad[] = {
		there,
		"",
		"rank:7",
		with(there, B, WELCOME_LISTENS, there),
		with(here, A, WELCOME_LISTENS, here),
		with(v6, A, WELCOME_LISTENS, v6),
		with("attacker.example;192.168.7.9:7002", A, WELCOME_LISTENS, there),
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(ways_check(&w, key[A].pub, bad[i], dial, &err), ERR_PROTOCOL);
	assert_int_equal(ways_check(&w, NULL, with(there, A, WELCOME_LISTENS, there), dial, &err),
			 ERR_PROTOCOL);
}

/* Every changed digit of a signature is noticed. */
static void signatures(void **state)
{
	(void)state;
	char proof[KEY_PROOF];
	OK(key_prove(&key[A], "s", "t", proof, &err));
	assert_true(key_proves(key[A].pub, "s", "t", proof));
	assert_false(key_proves(key[B].pub, "s", "t", proof));
	assert_false(key_proves(key[A].pub, "s", "t2", proof));
	assert_false(key_proves(key[A].pub, "no key", "t", proof));
	assert_false(key_proves("no key", "s", "t", proof));
	for (int i = 0; i < KEY_PROOF - 1; i++) {
		char was = proof[i];
		proof[i] = was == '0' ? '1' : '0';
		assert_false(key_proves(key[A].pub, "s", "t", proof));
		proof[i] = was;
	}
	proof[5] = 0;
	assert_false(key_proves(key[A].pub, "s", "t", proof));
}

/* ---- a coordinator that gives such an order ---- */

static void hear(struct link *l, enum frame_kind kind, struct net_msg *m, struct frame *f)
{
	OK(link_recv_frame(l, SOON, m, f, &err));
	if (f->kind != kind)
		fail_msg("%s came, %s was due", frame_name(f->kind), frame_name(kind));
}

static void a_probe_of_somebody_else(void **state)
{
	(void)state;
	struct net *net = serving_net(&key[A]), *n = serving_net(&key[C]);
	char at[NET_ADDRESS];
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof a;
	int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(other, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(other, 4), 0);
	getsockname(other, (struct sockaddr *)&a, &len);

	OK(net_allow(net, key[C].pub, &err));
	OK(net_listen(net, "127.0.0.2:0", at, &err));
	struct way way[2] = { { .key = key[A].pub }, { "127.0.0.3:9", key[B].pub } };
	snprintf(way[0].address, NET_ADDRESS, "%s", at);
	struct serving w = { .o = { .net = net,
				    .listens = at,
				    .coordinator_key = key[C].pub,
				    .ways = { way, 2 } } };
	serving_start(&w);

	struct net_msg m;
	struct frame f;
	struct welcome hello;
	struct link *l = serving_knock(n, at, key[A].pub);
	serving_hello(l, HELLO_COORDINATOR, 5);
	serving_welcome(l, &hello);
	/* what it says of itself is signed */
	char listens[NET_ADDRESS];
	assert_int_equal(hello.naddress, 1);
	address_join(hello.address[0].address, hello.port, listens);
	assert_string_equal(listens, at);
	assert_true(key_proves(key[A].pub, WELCOME_LISTENS, listens, hello.proof[0]));

	struct probe_order *o = calloc(1, sizeof *o);
	struct buf b = BUF_INIT;
	*o = (struct probe_order){ .mode = PROBE_MEASURE, .id = "b", .seconds = 0.01, .n = 1 };
	snprintf(o->key, sizeof o->key, "%s", key[B].pub);
	snprintf(o->address[0], NET_ADDRESS, "127.0.0.1:%d", ntohs(a.sin_port));
	OK(probe_order_write(o, &b, &err));
	f = (struct frame){ .kind = FRAME_PROBE,
			    .job = 5,
			    .from = FRAME_COORDINATOR,
			    .size = b.n,
			    .payload = b.p };
	OK(link_send_frame(l, &f, SOON, &err));
	hear(l, FRAME_ABORT, &m, &f);
	abort_read(f.payload, f.size, &err);
	printf("  %s\n", err.msg);
	assert_non_null(strstr(err.msg, o->address[0]));
	net_msg_release(&m);
	assert_int_equal(serving_end(&w), ERR_CANCELLED);
	struct pollfd knock = { .fd = other, .events = POLLIN };
	assert_int_equal(poll(&knock, 1, 0), 0); /* nobody came */
	close(other);
	link_close(l);
	net_close(n, 1);
	net_close(net, 1);
	buf_release(&b);
	free(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_dialled),          cmocka_unit_test(without_keys),
		cmocka_unit_test(only_what_is_signed),      cmocka_unit_test(signatures),
		cmocka_unit_test(a_probe_of_somebody_else),
	};
	return cmocka_run_group_tests_name("worker_ways", tests, keys_make, NULL);
}
