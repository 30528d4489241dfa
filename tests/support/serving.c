/* SPDX-License-Identifier: Apache-2.0 */
/* serving.c - see serving.h. */
#include "support/serving.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/frame.h"
#include "net/net.h"
#include "support/ok.h"

#define SOON net_in(60)

static void *serve(void *ctx)
{
	struct serving *s = ctx;
	s->rc = worker_serve(&s->o, &s->e);
	return NULL;
}

void serving_start(struct serving *s)
{
	s->o.id = "a";
	s->o.device = "cpu";
	assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

int serving_end(struct serving *s)
{
	pthread_join(s->thread, NULL);
	return s->rc;
}

struct net *serving_net(const struct key_pair *key)
{
	struct err err;
	struct net *n;
	OK(net_open("tls", &(struct net_options){ .key = key }, &n, &err));
	return n;
}

struct link *serving_knock(struct net *n, const char *at, const char *pub)
{
	struct err err;
	struct link *l;
	OK(net_connect(n, at, pub, SOON, &l, &err));
	return l;
}

void serving_hello(struct link *l, enum hello_role role, uint64_t job)
{
	struct err err;
	const struct hello h = { .protocol = HELLO_PROTOCOL,
				 .role = (uint8_t)role,
				 .job = job,
				 .to = "a",
				 .host = "test" };
	OK(hello_send(l, &h, SOON, &err));
}

void serving_welcome(struct link *l, struct welcome *w)
{
	struct err err;
	struct net_msg m;
	struct frame f;
	OK(link_recv_frame(l, SOON, &m, &f, &err));
	OK(welcome_read(&f, w, &err));
	net_msg_release(&m);
}
