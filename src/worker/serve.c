/* SPDX-License-Identifier: Apache-2.0 */
/* serve.c - see serve.h. */
#include "worker/serve.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/address.h"
#include "proto/hello.h"
#include "peers/guests.h"
#include "peers/token.h"
#include "engine/orders.h"
#include "worker/admit.h"
#include "worker/dial_peer.h"
#include "worker/link_probe.h"
#include "runtime/runtime.h"
#include "worker/weights_in.h"
#include "worker/worker.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* seconds for the address that was the fastest, before the configured one is tried */
static const double best_address_wait = 10;
/* the same where the coordinator can relay, and after how long a neighbour that did not connect is
 * met there */
static const double direct_wait = 4, relay_after = 5;
/* a neighbour connects when it has loaded its layers: as long as the coordinator waits for that.
 * One that cannot connect says so itself, after join_timeout. */
static const double loading_wait = 1800;
/* for the configured address, when the members have changed: its machine takes part already */
static const double again_wait = 8;

struct serving {
	const struct serve *o;
	struct serve own; /* `o`, with the id that the coordinator uses */
	char id[128];
	struct worker_env env;
	struct admit admit;
	struct guests guests;
	struct peers before, behind, beside;
	int apart; /* the member to which no link could be made; -1: none */
	struct weights_in *weights;
	struct worker_log log;
	char host[128];
	char device[DEV_SPEC]; /* the device that 'auto' chose */
	uint64_t forgets;      /* FORGET has come while something else was waited for: its epoch */
};

static double patience(const struct serving *s)
{
	return s->o->join_timeout > 0 ? s->o->join_timeout : 60;
}

static bool stopped(const struct serving *s) { return s->o->stop && *s->o->stop; }

/* ---- connections ---- */

static void wait_a_moment(struct serving *s, struct link *also)
{
	struct net_poll p[GUESTS_POLLS + 1];
	size_t n = guests_poll(&s->guests, p);
	if (also)
		p[n++] = (struct net_poll){ also, NET_RECV | NET_LOST, 0 };
	net_poll(s->o->net, p, n, net_in(0.3));
}

/* ---- WELCOME ---- */

static int describe(struct serving *s, struct welcome *w, struct err *e)
{
	struct dev *d;
	struct dev_caps caps;
	TRY(runtime_device(s->o->device, &d, e));
	int rc = dev_caps(d, &caps, e);
	dev_spec(d, s->device);
	s->env.device = s->device;
	*w = (struct welcome){ 0 };
	if (rc >= 0) {
		snprintf(w->id, sizeof w->id, "%s", s->o->id);
		snprintf(w->host, sizeof w->host, "%s", s->host);
		snprintf(w->backend, sizeof w->backend, "%s", d->be->name);
		snprintf(w->device, sizeof w->device, "%s", caps.name);
		/* of processors, library and kernels decide; of cards also the card */
		snprintf(w->arithmetic, sizeof w->arithmetic, "%s%s%.96s, %.60s", d->be->name,
			 strcmp(d->be->name, "cpu") ? " " : "",
			 strcmp(d->be->name, "cpu") ? caps.name : "", caps.driver);
		w->memory = caps.mem_total;
		w->bf16 = caps.bf16;
		w->f16 = caps.f16;
		for (enum dtype t = DT_F32; t <= DT_F16; t++)
			w->formats |= (uint8_t)(dev_has(d, K_rmsnorm_fwd, t) << t);
	}
	dev_close(d);
	return rc;
}

/* Lists every address of the machine when the worker listens at all of them, else the one at which
 * it listens. */
static int list_addresses(const struct serving *s, struct welcome *w, struct err *e)
{
	char host[NET_ADDRESS], at[NET_ADDRESS];
	machine_name(w->machine);
	address_parts(s->o->listens ? s->o->listens : "", host, &w->port);
	if (!strcmp(host, "*") || !strcmp(host, "::") || !strcmp(host, "0.0.0.0")) {
		w->naddress = (uint32_t)interfaces_list(w->address, INTERFACES_MOST);
	} else if (address_is_number(host)) {
		w->naddress = 1;
		snprintf(w->address[0].address, sizeof w->address[0].address, "%.63s", host);
	}
	for (uint32_t i = 0; i < w->naddress; i++) {
		address_join(w->address[i].address, w->port, at);
		TRY(net_prove(s->o->net, WELCOME_LISTENS, at, w->proof[i], e));
	}
	return 0;
}

/* On the link that this worker has made: the coordinator says HELLO when a job begins. */
static int await_order(struct serving *s, struct hello *h, struct err *e)
{
	struct net_msg msg;
	struct frame f;
	for (;;) {
		int rc = link_recv_frame(s->o->called, net_in(0.3), &msg, &f, e);
		if (rc < 0)
			return rc;
		if (rc > 0)
			break;
		if (stopped(s))
			return err_set(e, ERR_CANCELLED,
				       "interrupted while waiting for the coordinator");
		guests_let_in(&s->guests);
	}
	struct welcome w;
	int rc = f.kind == FRAME_REFUSE ? welcome_read(&f, &w, e) : hello_read(&f, h, e);
	net_msg_release(&msg);
	if (rc >= 0 && (h->role != HELLO_COORDINATOR || !peer_name_ok(h->to)))
		rc = err_set(e, ERR_PROTOCOL, "HELLO: not from a coordinator to a worker");
	if (rc < 0)
		return rc;
	s->env.coordinator = s->o->called;
	/* the name that this machine has there now */
	snprintf(s->id, sizeof s->id, "%s", h->to);
	return 0;
}

static int await_guest(struct serving *s, struct hello *h_p, struct err *e)
{
	const double limit =
		s->o->coordinator_timeout > 0 ? s->o->coordinator_timeout : patience(s);
	int64_t deadline = net_in(limit);
	struct hello h;
	for (;;) {
		guests_let_in(&s->guests);
		s->env.coordinator = guests_take(&s->guests, HELLO_COORDINATOR, admit_coordinator,
						 &s->admit, NULL, &h);
		if (s->env.coordinator) {
			*h_p = h;
			return 0;
		}
		if (s->guests.called_off || (s->o->called_off && *s->o->called_off))
			return err_set(e, ERR_CANCELLED,
				       "the coordinator gave up before the job began");
		if (stopped(s))
			return err_set(e, ERR_CANCELLED,
				       "interrupted while waiting for the coordinator");
		if (clock_now() > deadline)
			return err_set(e, ERR_NET,
				       "the coordinator did not connect within %g s "
				       "(join_timeout): is it running, and does its "
				       "configuration have this machine's address and key?",
				       limit);
		wait_a_moment(s, NULL);
	}
}

static int meet_coordinator(struct serving *s, struct err *e)
{
	struct hello h;
	struct welcome w;
	TRY(s->o->called ? await_order(s, &h, e) : await_guest(s, &h, e));
	char why[300];
	kept_refuse(s->o->kept, h.run, h.epoch, h.job, why, sizeof why);
	int rc = why[0] ? err_set(e, ERR_NET, "%s", why) : describe(s, &w, e);
	if (rc >= 0)
		rc = list_addresses(s, &w, e);
	if (rc < 0) {
		hello_refuse(s->env.coordinator, e->msg);
		return rc;
	}
	s->env.job = s->admit.job = h.job;
	s->env.epoch = s->admit.epoch = h.epoch;
	kept_obey(s->o->kept, h.run, h.epoch, h.job);
	kept_tell(s->o->kept, h.run, &w);
	w.wall = (uint64_t)time(NULL);
	struct err gone = { 0 };
	if (s->o->joined_p)
		*s->o->joined_p = true;
	rc = welcome_send(s->env.coordinator, &w, net_in(patience(s)), &gone);
	if (rc >= 0)
		worker_log_joined(&s->log, h.host, link_address(s->env.coordinator),
				  link_way(s->env.coordinator), w.backend, w.device, w.memory);
	return rc == ERR_NET ? 0 : rc; /* its link is closed: its last message is read next */
}

/* While a job runs other coordinators are refused, with the name of the job. A later one of the
 * same run takes the place of this one, whose link ends; it connects again. */
static void visitors(void *ctx, bool refuse)
{
	struct serving *s = ctx;
	char why[600];
	guests_let_in(&s->guests);
	if (admit_later(&s->admit, &s->guests)) {
		if (link_state(s->env.coordinator) != LINK_LOST)
			link_fail(s->env.coordinator, ERR_NET,
				  "a later coordinator of this run has connected");
		return;
	}
	if (!refuse)
		return;
	snprintf(why, sizeof why,
		 "worker '%s' on %s already works on job %016llx for the coordinator at %s",
		 s->o->id, s->host, (unsigned long long)s->env.job,
		 link_address(s->env.coordinator));
	guests_refuse(&s->guests, GUESTS_ALL, why);
}

/* ---- the neighbours ---- */

/* Whether the coordinator has sent a message meanwhile: then it no longer needs the result. */
static bool coordinator_called(void *ctx)
{
	const struct serving *s = ctx;
	return net_poll(s->o->net, &(struct net_poll){ s->env.coordinator, NET_RECV, 0 }, 1,
			NET_NOW) > 0;
}

/* The coordinator's link is checked too: when it is lost the neighbours are not needed, and when
 * it says something, another worker is lost. */
static int coordinator_left(struct serving *s, struct err *e)
{
	struct net_msg msg;
	struct frame f;
	visitors(s, false);
	if (link_state(s->env.coordinator) != LINK_LOST) {
		if (!coordinator_called(s))
			return 0;
		int rc = link_recv_frame(s->env.coordinator, NET_NOW, &msg, &f, e);
		if (rc <= 0)
			return rc;
		rc = f.kind == FRAME_FORGET && f.job == s->env.job && f.epoch > s->admit.epoch
			     ? orders_forget(&s->forgets, &f, e)
		     : f.kind == FRAME_ABORT ? orders_aborted(&f, e)
					     : err_set(e, ERR_CANCELLED,
						       "%s from the coordinator while the "
						       "stages connected",
						       frame_name(f.kind));
		net_msg_release(&msg);
		return rc;
	}
	return err_set(e, ERR_NET, "the coordinator (%s) ended while the stages connected",
		       link_address(s->env.coordinator));
}

static int relay_known(const struct serving *s, struct err *e)
{
	if (s->o->relay && s->o->coordinator_key)
		return 0;
	return err_set(e, ERR_PROTOCOL, "to be relayed: this worker does not know where");
}

/* A link to the coordinator beside the one of orders. */
static int relay_dial(struct serving *s, double seconds, struct link **l_p, struct err *e)
{
	struct link *l;
	TRY(relay_known(s, e));
	TRY(net_connect(s->o->net, s->o->relay, s->o->coordinator_key, net_in(seconds), &l, e));
	*l_p = l;
	return 0;
}

static int left_by_coordinator(void *ctx, struct err *e) { return coordinator_left(ctx, e); }

/* An established link to a member of the next stage. */
static int connect_to(struct serving *s, const struct member *m, const char *address,
		      double seconds, struct link **l_p, struct err *e)
{
	const struct dial_peer d = { .net = s->o->net,
				     .ways = &s->o->ways,
				     .key = m->key[0] ? m->key : NULL,
				     .seconds = seconds,
				     .patient = s->o->relay != NULL,
				     .left = left_by_coordinator,
				     .ctx = s };
	return dial_peer(&d, address, l_p, e);
}

static int greet(struct serving *s, const struct plan_message *p, struct peer *to,
		 enum hello_role role, uint32_t front, struct err *e)
{
	struct hello h = { .protocol = HELLO_PROTOCOL,
			   .role = role,
			   .member = (uint32_t)p->self,
			   .front = front,
			   .job = s->env.job,
			   .epoch = s->admit.epoch };
	memcpy(h.model, p->model, sizeof h.model);
	memcpy(h.to, p->crew.member[to->member].id, sizeof h.to);
	memcpy(h.host, s->host, sizeof h.host);
	link_set_user(to->link, s); /* its WELCOME is due */
	return hello_send(to->link, &h, net_in(patience(s)), e);
}

/* Through the coordinator, which passes on what the two say. `front`: this worker is the one before
 * the other. */
static int open_relay(struct serving *s, const struct plan_message *p, struct peer *to, bool front,
		      struct err *e)
{
	const struct member *m = &p->crew.member[to->member];
	TRY(relay_dial(s, patience(s), &to->link, e));
	int rc = greet(s, p, to, HELLO_RELAY, (uint32_t)(front ? p->self : to->member), e);
	if (rc >= 0 && s->o->log_every)
		log_info("worker '%s' reaches %s through the coordinator", s->o->id, m->name);
	return rc;
}

static double configured_wait(const struct serving *s)
{
	const bool changed = (uint32_t)s->admit.epoch;
	const double most = s->o->relay ? direct_wait : changed ? again_wait : patience(s);
	return fmin(patience(s), most);
}

static int reach(struct serving *s, const struct plan_message *p, struct peer *to, bool front,
		 struct err *e)
{
	const struct member *m = &p->crew.member[to->member];
	int rc = ERR_NET;
	if (!strcmp(m->best, MEMBER_RELAY))
		return open_relay(s, p, to, front, e);
	if (m->best[0])
		rc = connect_to(s, m, m->best,
				fmin(patience(s), s->o->relay ? direct_wait : best_address_wait),
				&to->link, e);
	if (rc == ERR_PROTOCOL)
		return err_prefix(e, "stage %d", plan_stage(p));
	if (rc < 0 && m->best[0] && m->address[0] && link_state(s->env.coordinator) != LINK_LOST)
		log_warn("%s does not answer where it was fastest when links were measured (%s); "
			 "%.*s is tried",
			 m->name, e->msg, (int)strcspn(m->address, "#"), m->address);
	if (rc < 0 && m->address[0])
		rc = connect_to(s, m, m->address, configured_wait(s), &to->link, e);
	if (rc < 0 && rc != ERR_PROTOCOL && s->o->relay &&
	    link_state(s->env.coordinator) != LINK_LOST)
		return open_relay(s, p, to, front, e);
	if (rc >= 0)
		rc = greet(s, p, to, front ? HELLO_STAGE : HELLO_BEHIND, (uint32_t)p->self, e);
	if (rc < 0) {
		s->apart = to->member;
		return err_prefix(e, "stage %d cannot reach %s", plan_stage(p), m->name);
	}
	if (s->o->log_every)
		log_info("worker '%s' sends to %s: %s", s->o->id, m->name, link_way(to->link));
	return 0;
}

/* The neighbours are three lists; this visits them in one order. */
static struct peer *nth_peer(struct serving *s, const struct plan_message *p, int k, bool *front_p)
{
	struct peers *list[] = { &s->behind, &s->beside, &s->before };
	for (size_t i = 0; i < ARRAY_LEN(list); i++) {
		if (k < list[i]->n) {
			struct peer *v = &list[i]->peer[k];
			*front_p = i == 0 ||
				   (i == 1 && p->crew.member[v->member].place > plan_place(p));
			return v;
		}
		k -= list[i]->n;
	}
	return NULL;
}

/* The first neighbour that is not there: without a link, or without its WELCOME. */
static struct peer *missing_peer(struct serving *s, const struct plan_message *p)
{
	bool front;
	struct peer *v;
	for (int k = 0; (v = nth_peer(s, p, k, &front)); k++)
		if (v->member != p->self && (!v->link || link_user(v->link)))
			return v;
	return NULL;
}

/* The place for the link of a member that has connected; NULL: it has one already. A relayed link
 * that has not come up gives way. */
static struct peer *place_for(struct serving *s, const struct plan_message *p,
			      const struct hello *h)
{
	bool front;
	struct peer *v;
	for (int k = 0; (v = nth_peer(s, p, k, &front)); k++) {
		if (v->member != (int)h->member || front != (h->role == HELLO_BEHIND))
			continue;
		if (v->link && link_user(v->link)) {
			link_close(v->link);
			v->link = NULL;
		}
		if (!v->link)
			return v;
	}
	return NULL;
}

/* Takes the WELCOMEs that have come. */
static int hear_welcomes(struct serving *s, const struct plan_message *p, struct err *e)
{
	bool front;
	struct peer *v;
	for (int k = 0; (v = nth_peer(s, p, k, &front)); k++) {
		struct net_msg msg;
		struct frame f;
		struct welcome w;
		if (!v->link || !link_user(v->link))
			continue;
		int rc = link_recv_frame(v->link, NET_NOW, &msg, &f, e);
		if (rc > 0) {
			rc = welcome_read(&f, &w, e);
			net_msg_release(&msg);
			link_set_user(v->link, NULL);
		}
		if (rc < 0)
			return err_prefix(e, "%s", p->crew.member[v->member].name);
	}
	return 0;
}

/* A neighbour that should connect and does not: perhaps it cannot. Both then meet at the
 * coordinator. */
static int relay_the_late(struct serving *s, const struct plan_message *p, struct err *e)
{
	bool front;
	struct peer *v;
	for (int k = 0; s->o->relay && (v = nth_peer(s, p, k, &front)); k++)
		if (v->member != p->self && !v->link)
			TRY(open_relay(s, p, v, front, e));
	return 0;
}

/* One connection that has come from a neighbour; false: none. */
static int take_neighbour(struct serving *s, const struct plan_message *p, bool *took_p,
			  struct err *e)
{
	struct hello h;
	struct welcome w = { 0 };
	struct link *l = guests_take(&s->guests, HELLO_STAGE, admit_neighbour, &s->admit, p, &h);
	if (!l)
		l = guests_take(&s->guests, HELLO_BEHIND, admit_neighbour, &s->admit, p, &h);
	struct peer *to = l ? place_for(s, p, &h) : NULL;
	*took_p = l != NULL;
	if (to) {
		to->link = l;
		snprintf(w.id, sizeof w.id, "%s", s->o->id);
		return welcome_send(l, &w, net_in(patience(s)), e);
	}
	if (l) {
		hello_refuse(l, "this member is connected already");
		link_close(l);
	}
	return 0;
}

/* Waits until every neighbour is connected and has been welcomed. */
static int meet_peers(struct serving *s, const struct plan_message *p, struct err *e)
{
	struct peer *due;
	const double limit = fmax(patience(s), loading_wait);
	int64_t deadline = net_in(limit), late = net_in(relay_after);
	for (;;) {
		bool took;
		guests_let_in(&s->guests);
		TRY(take_neighbour(s, p, &took, e));
		TRY(hear_welcomes(s, p, e));
		due = missing_peer(s, p);
		if (!due)
			return 0;
		if (took)
			continue;
		TRY(coordinator_left(s, e));
		if (clock_now() > late) {
			TRY(relay_the_late(s, p, e));
			late = NET_FOREVER;
		}
		if (clock_now() > deadline) {
			s->apart = due->member;
			return err_set(e, ERR_NET,
				       "stage %d: %s did not %s within %g s: a firewall "
				       "between the two machines?",
				       plan_stage(p), p->crew.member[due->member].name,
				       due->link ? "answer" : "connect", limit);
		}
		wait_a_moment(s, s->env.coordinator);
	}
}

static int lost(void *ctx)
{
	const struct serving *s = ctx;
	const struct peers *list[] = { &s->behind, &s->beside, &s->before };
	for (size_t i = 0; i < ARRAY_LEN(list) && s->apart < 0; i++)
		for (int k = 0; k < list[i]->n; k++)
			if (list[i]->peer[k].link && link_state(list[i]->peer[k].link) == LINK_LOST)
				return list[i]->peer[k].member;
	return s->apart;
}

static int peers_make(struct peers *v, const struct crew *c, int stage, struct err *e)
{
	int n = crew_group_size(c, stage);
	if (!n || v->peer)
		return 0;
	v->peer = mem_array((size_t)n, sizeof *v->peer);
	if (!v->peer)
		return err_nomem(e, (size_t)n * sizeof *v->peer, "neighbours");
	for (v->n = 0; v->n < n; v->n++)
		v->peer[v->n] = (struct peer){ .member = crew_at(c, stage, v->n) };
	return 0;
}

static void peers_release(struct peers *v)
{
	for (int i = 0; i < v->n; i++)
		if (v->peer[i].link)
			link_close(v->peer[i].link);
	mem_free(v->peer);
	*v = (struct peers){ 0 };
}

/* Those of PLAN, who may connect from now on: one may have its layers long before this one. */
static int list_peers(struct serving *s, const struct plan_message *p, struct err *e)
{
	const struct crew *c = &p->crew;
	const int stage = plan_stage(p);
	bool front;
	struct peer *v;
	TRY(peers_make(&s->before, c, crew_stage_before(c, stage), e));
	TRY(peers_make(&s->behind, c, crew_stage_behind(c, stage), e));
	TRY(peers_make(&s->beside, c, stage, e));
	for (int k = 0; s->o->by_plan && (v = nth_peer(s, p, k, &front)); k++)
		if (v->member != p->self && c->member[v->member].key[0])
			TRY(net_allow(s->o->net, c->member[v->member].key, e));
	return 0;
}

/* Every worker connects to the next stage and to those behind it in its group, and accepts the
 * others, unless PLAN says otherwise of a pair that does not reach each other so. */
static int neighbours(void *ctx, const struct plan_message *p, struct peers *before_p,
		      struct peers *behind_p, struct peers *beside_p, struct err *e)
{
	struct serving *s = ctx;
	bool front;
	struct peer *v;
	TRY(list_peers(s, p, e));
	for (int k = 0; (v = nth_peer(s, p, k, &front)); k++) {
		const struct member *m = &p->crew.member[v->member];
		if (v->member == p->self)
			continue;
		if ((front || m->best[0]) && strcmp(m->best, MEMBER_WAIT))
			TRY(reach(s, p, v, front, e));
	}
	TRY(meet_peers(s, p, e));
	*before_p = s->before;
	*behind_p = s->behind;
	*beside_p = s->beside;
	return 0;
}

/* ---- measuring links ---- */

static int acknowledge(const struct serving *s, const struct buf *b, struct err *e)
{
	struct frame f = { .kind = FRAME_PROBED,
			   .job = s->env.job,
			   .epoch = s->admit.epoch,
			   .size = b ? b->n : 0,
			   .payload = b ? b->p : NULL };
	return link_send_frame(s->env.coordinator, &f, net_in(patience(s)), e);
}

/* To the coordinator: the link to the other worker of a PROBE. */
static void relay_hello(const struct serving *s, const struct probe_order *o, struct hello *h)
{
	*h = (struct hello){ .protocol = HELLO_PROTOCOL,
			     .role = HELLO_RELAY,
			     .member = o->member,
			     .front = UINT32_MAX,
			     .job = s->env.job };
	memcpy(h->to, o->id, sizeof h->to);
	memcpy(h->host, s->host, sizeof h->host);
}

static int measure_links(struct serving *s, struct probe_order *o, struct err *e)
{
	struct hello h = { .protocol = HELLO_PROTOCOL, .role = HELLO_PROBE, .job = s->env.job };
	memcpy(h.to, o->id, sizeof h.to);
	memcpy(h.host, s->host, sizeof h.host);
	if (o->relayed) {
		relay_hello(s, o, &h);
		TRY(relay_known(s, e));
		o->n = 1;
		snprintf(o->address[0], NET_ADDRESS, "%s", s->o->relay);
		snprintf(o->key, sizeof o->key, "%s", s->o->coordinator_key);
	}
	for (uint32_t i = 0; i < o->n && !o->relayed; i++) {
		char to[NET_ADDRESS];
		TRY(ways_check(&s->o->ways, o->key[0] ? o->key : NULL, o->address[i], to, e));
		memcpy(o->address[i], to, sizeof to);
	}
	struct probe_way *v = mem_array(o->n + 1, sizeof *v);
	struct buf b = BUF_INIT;
	int rc = v ? probe_measure(s->o->net, o, &h, coordinator_called, s, v, e)
		   : err_nomem(e, o->n * sizeof *v, "measuring links");
	if (rc >= 0)
		rc = probe_ways_write(v, o->n, &b, e);
	if (rc >= 0)
		rc = acknowledge(s, &b, e);
	else if (rc == ERR_CANCELLED)
		rc = 0; /* the coordinator's next message gives the reason */
	buf_release(&b);
	mem_free(v);
	return rc;
}

/* Answers until the coordinator sends STOP. */
static int answer_probes(struct serving *s, const struct probe_order *o, struct err *e)
{
	struct link *l = NULL;
	uint32_t left = 0;
	struct hello to;
	int rc = 0;
	if (o->relayed) {
		relay_hello(s, o, &to);
		rc = relay_dial(s, patience(s), &l, e);
		if (rc >= 0) {
			link_set_user(l, s); /* its WELCOME is due */
			rc = hello_send(l, &to, net_in(patience(s)), e);
		}
	}
	if (rc >= 0)
		rc = acknowledge(s, NULL, e);
	while (rc >= 0 && !coordinator_called(s)) {
		guests_let_in(&s->guests);
		struct hello h;
		if (!l && (l = guests_take(&s->guests, HELLO_PROBE, admit_probe, &s->admit, o->key,
					   &h))) {
			struct welcome w = { 0 };
			struct err ignored = { 0 };
			left = 0;
			snprintf(w.id, sizeof w.id, "%s", s->o->id);
			/* a lost link is noticed below */
			welcome_send(l, &w, net_in(patience(s)), &ignored);
		}
		if (l && !probe_answer_all(l, &left)) {
			link_close(l);
			l = NULL;
			continue;
		}
		struct net_poll p[GUESTS_POLLS + 2];
		size_t n = guests_poll(&s->guests, p);
		p[n++] = (struct net_poll){ s->env.coordinator, NET_RECV, 0 };
		if (l)
			p[n++] = (struct net_poll){ l, NET_RECV, 0 };
		net_poll(s->o->net, p, n, net_in(0.3));
	}
	if (l)
		link_close(l);
	guests_refuse(&s->guests, HELLO_PROBE, NULL);
	return rc;
}

static int probe(void *ctx, const struct frame *f, struct err *e)
{
	struct serving *s = ctx;
	struct probe_order *o = mem_zalloc(sizeof *o);
	int rc = o ? probe_order_read(f, o, e) : err_nomem(e, sizeof *o, "measuring links");
	if (rc >= 0)
		rc = s->o->by_plan && o->key[0] ? net_allow(s->o->net, o->key, e) : 0;
	if (rc >= 0)
		rc = o->mode == PROBE_MEASURE  ? measure_links(s, o, e)
		     : o->mode == PROBE_ANSWER ? answer_probes(s, o, e)
					       : acknowledge(s, NULL, e);
	mem_free(o);
	return rc;
}

/* ---- parameters ---- */

static int weights(void *ctx, const struct plan_message *p, struct weight_source *src_p,
		   struct err *e)
{
	struct serving *s = ctx;
	if (!p->offered)
		return err_set(e, ERR_PROTOCOL,
			       "PLAN: no parameters are offered, and worker '%s' has none",
			       s->o->id);
	TRY(list_peers(s, p, e));
	const struct weights_in_options o = { .coordinator = s->env.coordinator,
					      .plan = p,
					      .model = s->o->model,
					      .cache_dir = s->o->cache_dir,
					      .cache_limit = (uint64_t)(s->o->cache_limit * 0x1p30),
					      .job = s->env.job,
					      .epoch = s->admit.epoch,
					      .forget = &s->forgets };
	TRY(weights_in_open(&o, &s->weights, e));
	*src_p = weights_in_source(s->weights);
	return 0;
}

static void ready(void *ctx, const struct plan_message *p)
{
	struct serving *s = ctx;
	worker_log_ready(&s->log, p, s->weights ? weights_in_bytes(s->weights) : 0,
			 s->weights ? weights_in_fetched(s->weights) : 0);
}

static void forget(void *ctx, uint64_t epoch)
{
	struct serving *s = ctx;
	weights_in_close(s->weights);
	s->weights = NULL;
	peers_release(&s->before);
	peers_release(&s->behind);
	peers_release(&s->beside);
	s->apart = -1;
	s->admit.epoch = epoch;
}

static void stepped(void *ctx, const struct worker_step *step)
{
	worker_log_step(&((struct serving *)ctx)->log, step);
}

int worker_serve(const struct serve *o, struct err *e)
{
	struct serving *s = mem_zalloc(sizeof *s);
	if (!s)
		return err_nomem(e, sizeof *s, "a worker");
	s->own = *o;
	s->o = &s->own;
	s->apart = -1;
	snprintf(s->id, sizeof s->id, "%s", o->id);
	s->own.id = s->id;
	s->guests = (struct guests){ .net = o->net, .coordinator_key = o->coordinator_key };
	gethostname(s->host, sizeof s->host - 1);
	s->admit = (struct admit){
		.id = s->id, .coordinator_key = o->coordinator_key, .host = s->host, .kept = o->kept
	};
	s->env = (struct worker_env){ .net = o->net,
				      .device = o->device,
				      .cache_dir = o->cache_dir,
				      .neighbours = neighbours,
				      .visitors = visitors,
				      .ctx = s,
				      .source = o->source,
				      .weights = weights,
				      .forget = forget,
				      .lost = lost,
				      .forgets = &s->forgets,
				      .kept = o->kept,
				      .probe = probe,
				      .ready = ready,
				      .stepped = stepped,
				      .stop = o->stop };
	s->log = (struct worker_log){ .id = o->log_every ? o->id : NULL, .every = o->log_every };
	int rc = meet_coordinator(s, e);
	if (rc >= 0)
		rc = worker_run(&s->env, e);
	if (rc >= 0)
		worker_log_finished(&s->log);
	weights_in_close(s->weights);
	guests_close(&s->guests);
	peers_release(&s->before);
	peers_release(&s->behind);
	peers_release(&s->beside);
	if (s->env.coordinator)
		link_close(s->env.coordinator);
	mem_free(s);
	return rc;
}
