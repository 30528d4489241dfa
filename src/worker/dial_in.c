/* SPDX-License-Identifier: Apache-2.0 */
/* dial_in.c - see dial_in.h. */
#include "worker/dial_in.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "net/address.h"
#include "net/interfaces.h"
#include "proto/hello.h"
#include "worker/kept.h"
#include "worker/serve.h"

#include <stdio.h>
#include <string.h>

static const double try_for = 5;        /* seconds for the only address */
static const double try_one_for = 2;    /* for one of several */
static const double again_after = 2;    /* seconds between attempts */
static const double refused_again = 10; /* after a refusal */

struct caller {
	const struct dial_in *o;
	struct served v;
	struct net *net;
	char listens[NET_ADDRESS], at[NET_ADDRESS];
	bool told;      /* that it waits for the coordinator */
	bool joined;    /* a job */
	struct err why; /* of the last attempt */
	bool refused;   /* the last attempt */
	struct kept kept;
};

static bool stopped(const struct caller *c) { return c->o->stop && *c->o->stop; }

static int open_net(struct caller *c, struct err *e)
{
	struct key_pair key;
	char at[NET_ADDRESS];
	TRY(key_own(false, &key, e));
	int rc = net_open(NET_DEFAULT,
			  &(struct net_options){ .key = &key,
						 .near = true,
						 .before_take = NET_BEFORE_TAKE,
						 .mesh = true,
						 .adopt = true },
			  &c->net, e);
	key_pair_wipe(&key);
	if (rc < 0)
		return rc;
	address_join("*", c->o->port ? c->o->port : DIAL_IN_PORT, at);
	rc = net_listen(c->net, at, c->listens, e);
	if (rc < 0 && !c->o->port) {
		err_clear(e);
		rc = net_listen(c->net, "*:0", c->listens, e);
	}
	if (rc < 0) {
		net_close(c->net, 0);
		c->net = NULL;
	}
	return rc;
}

/* Waits without holding up Ctrl-C. */
static void pause_a_while(struct caller *c, double seconds)
{
	for (int64_t end = net_in(seconds); clock_now() < end && !stopped(c);)
		net_poll(c->net, NULL, 0, net_in(0.2));
}

/* NULL: not reached, or refused. */
static struct link *call(struct caller *c)
{
	const bool was = c->refused;
	c->refused = false;
	interfaces_sort(c->v.address[0], TOKEN_ADDRESS, c->v.naddress);
	for (int i = 0; i < c->v.naddress && !stopped(c) && !c->refused; i++) {
		struct link *l;
		address_join(c->v.address[i], c->v.port, c->at);
		err_clear(&c->why);
		if (net_dial(c->net, c->at, c->v.key,
			     net_in(c->v.naddress > 1 ? try_one_for : try_for), &l, &c->why) < 0)
			continue;
		while (link_state(l) == LINK_CONNECTING && !stopped(c))
			net_poll(c->net, &(struct net_poll){ l, NET_UP, 0 }, 1, net_in(0.2));
		if (link_state(l) == LINK_UP) {
			c->told &= !was;
			return l;
		}
		c->refused = link_was_refused(l);
		link_why(l, &c->why);
		link_close(l);
	}
	c->told &= was == c->refused;
	return NULL;
}

/* A refusal need not last: the coordinator's port may be another job's at this time. */
static void say_why_not(struct caller *c)
{
	if (!c->told && c->refused)
		log_warn("worker '%s': the coordinator at %s does not know this machine's key: it "
			 "was removed from the peers there, which a new invitation mends "
			 "('heteroshard invite'), or another job has the port",
			 c->v.name, c->at);
	else if (!c->told)
		log_info("worker '%s' tries on: the coordinator does not answer (%.300s)",
			 c->v.name, c->why.msg);
	c->told = true;
}

/* One job on a link that is up; 0 when it went well, ERR_NET when the coordinator closed it. */
static int serve(struct caller *c, struct link *l, struct err *e)
{
	struct hello h = { .protocol = HELLO_PROTOCOL, .role = HELLO_WORKER };
	struct serve s = { .net = c->net,
			   .listens = c->listens,
			   .id = c->v.name,
			   .device = c->o->device,
			   .coordinator_key = c->v.key,
			   .log_every = -1,
			   .join_timeout = 300,
			   .cache_dir = c->o->cache_dir,
			   .cache_limit = c->o->cache_limit,
			   .called = l,
			   .relay = c->at,
			   .by_plan = true,
			   .joined_p = &c->joined,
			   .kept = &c->kept,
			   .ways = { .signed_only = true },
			   .stop = c->o->stop };
	int rc = hello_send(l, &h, net_in(try_for), e);
	if (rc < 0) {
		link_close(l);
		return rc;
	}
	if (!c->told)
		log_info("worker '%s' is connected to the coordinator at %s and waits for a job",
			 c->v.name, c->at);
	c->told = true;
	return worker_serve(&s, e);
}

/* One attempt, and the job that came of it. *served_p: there was one. */
static int once(struct caller *c, bool *served_p, struct err *e)
{
	*served_p = false;
	TRY(served_read(&c->v, e));
	TRY(open_net(c, e));
	struct link *l = call(c);
	if (l) {
		c->joined = false;
		const bool failed = serve(c, l, &c->why) < 0;
		const bool waiting = failed && c->why.code == ERR_NET && !c->joined;
		*served_p = !waiting;
		if (failed && !waiting && !stopped(c))
			log_warn("the job ended: %s", c->why.msg);
		else if (waiting)
			log_debug("%s", c->why.msg);
		c->told &= waiting;
	} else if (!stopped(c)) {
		say_why_not(c);
	}
	if (!*served_p)
		pause_a_while(c, c->refused ? refused_again : again_after);
	net_close(c->net, 2);
	c->net = NULL;
	return 0;
}

int dial_in_serve(const struct dial_in *o, struct err *e)
{
	struct caller c = { .o = o };
	bool served = false;
	int rc = 0;
	while (!stopped(&c) && !(o->once && served) && rc >= 0)
		rc = once(&c, &served, e);
	kept_release(&c.kept);
	return rc < 0 ? rc : 0;
}
