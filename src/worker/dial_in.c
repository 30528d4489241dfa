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

static const double try_for = 5;     /* seconds for the only address */
static const double try_one_for = 2; /* for one of several */
static const double again_after = 2; /* seconds between attempts */

struct caller {
	const struct dial_in *o;
	struct served v;
	struct net *net;
	char listens[NET_ADDRESS], at[NET_ADDRESS];
	bool told;   /* that it waits for the coordinator */
	bool joined; /* a job */
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

/* *l_p NULL: not reached. An error when the coordinator has answered and does not know this
 * machine. */
static int call(struct caller *c, struct link **l_p, struct err *e)
{
	*l_p = NULL;
	interfaces_sort(c->v.address[0], TOKEN_ADDRESS, c->v.naddress);
	for (int i = 0; i < c->v.naddress && !stopped(c); i++) {
		struct link *l;
		struct err why = { 0 };
		address_join(c->v.address[i], c->v.port, c->at);
		if (net_dial(c->net, c->at, c->v.key,
			     net_in(c->v.naddress > 1 ? try_one_for : try_for), &l, &why) < 0)
			continue;
		while (link_state(l) == LINK_CONNECTING && !stopped(c))
			net_poll(c->net, &(struct net_poll){ l, NET_UP, 0 }, 1, net_in(0.2));
		if (link_state(l) == LINK_UP) {
			*l_p = l;
			return 0;
		}
		bool refused = link_was_refused(l);
		link_close(l);
		if (refused)
			return err_set(e, ERR_NET,
				       "the coordinator at %s does not know this machine's key: it "
				       "was removed from the peers there; ask for a new invitation "
				       "('heteroshard invite' there, then 'heteroshard worker "
				       "--join TOKEN' here)",
				       c->at);
	}
	return 0;
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
			   .log_every = 1,
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
	struct link *l;
	struct err why = { 0 };
	*served_p = false;
	TRY(served_read(&c->v, e));
	TRY(open_net(c, e));
	int rc = call(c, &l, e);
	if (rc >= 0 && l) {
		c->joined = false;
		const bool failed = serve(c, l, &why) < 0;
		const bool waiting = failed && why.code == ERR_NET && !c->joined;
		*served_p = !waiting;
		if (failed && !waiting && !stopped(c))
			log_warn("the job ended: %s", why.msg);
		else if (waiting)
			log_debug("%s", why.msg);
		if (*served_p)
			c->told = false;
	} else if (rc >= 0 && !c->told && !stopped(c)) {
		log_info("worker '%s': the coordinator at %s does not answer; it is tried until "
			 "it is there",
			 c->v.name, c->at);
		c->told = true;
	}
	if (rc >= 0 && !*served_p)
		pause_a_while(c, again_after);
	net_close(c->net, 2);
	c->net = NULL;
	return rc;
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
