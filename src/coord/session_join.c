/* SPDX-License-Identifier: Apache-2.0 */
/* session_join.c - see session.h: starting the workers, connecting to them, HELLO, and dismissing
 * those that the plan does not use. */
#include "coord/session_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double tell_every = 10;    /* seconds between lines about who is missing */
static const double again_after = 1;    /* seconds until one that went is dialled again */
static const double clocks_apart = 120; /* seconds; a larger difference gives a warning */

void session_name_seat(struct session *s, int i)
{
	int stage = crew_stage_of(&s->crew, i);
	char part[32] = "";
	struct session_seat *w = &s->seat[i];
	const struct seat_spec *p = w->seat.spec;
	if (stage >= 0)
		snprintf(part, sizeof part, ", stage %d", stage);
	if (p->kind == SEAT_THREAD)
		snprintf(w->name, sizeof w->name, "worker %d (%.200s%s)", i, p->device, part);
	else
		snprintf(w->name, sizeof w->name, "worker '%.120s' (%.120s, %.250s%s)", p->id,
			 p->host, p->kind == SEAT_INVITED ? "invited" : p->address, part);
}

static void list_missing(struct session *s, struct buf *out)
{
	for (int i = 0; i < s->n; i++)
		if (s->seat[i].state < SEAT_JOINED)
			buf_addf(out, "%s%s", out->n ? "; " : "", s->seat[i].name);
}

int session_greet(struct session *s, int member, struct err *e)
{
	struct session_seat *w = &s->seat[member];
	struct hello h = { .protocol = HELLO_PROTOCOL,
			   .role = HELLO_COORDINATOR,
			   .job = s->id,
			   .run = s->run,
			   .epoch = FRAME_EPOCH(s->term, 0) };
	gethostname(h.host, sizeof h.host - 1);
	snprintf(h.to, sizeof h.to, "%s", w->seat.spec->id);
	memcpy(h.model, s->model, sizeof h.model);
	w->state = SEAT_GREETED;
	w->answered = false;
	return hello_send(w->link, &h, net_in(10), e);
}

/* Training does not use the time of day, but a person who compares the machines' logs does. */
static void compare_clocks(const struct session_seat *w, uint64_t theirs)
{
	time_t at[2] = { time(NULL), (time_t)theirs };
	double apart = difftime(at[1], at[0]);
	char text[2][32] = { "?", "?" };
	struct tm tm;
	if (fabs(apart) <= clocks_apart)
		return;
	for (int i = 0; i < 2; i++)
		if (gmtime_r(&at[i], &tm))
			strftime(text[i], sizeof text[i], "%Y-%m-%d %H:%M:%S", &tm);
	log_warn("the clock of %s says %s UTC, this machine's says %s: %.0f s apart. Training does "
		 "not mind, but times in logs "
		 "will differ",
		 w->name, text[1], text[0], fabs(apart));
}

int session_take_welcome(struct session *s, int i, struct err *e)
{
	struct session_seat *w = &s->seat[i];
	struct net_msg msg;
	struct frame f;
	int rc = link_recv_frame(w->link, NET_NOW, &msg, &f, e);
	if (rc <= 0)
		return rc;
	w->answered = true;
	rc = welcome_read(&f, &s->caps[i], e);
	net_msg_release(&msg);
	if (rc < 0)
		return rc;
	w->state = SEAT_JOINED;
	membership_here(&s->members, i);
	/* invited workers have no configuration, and connect to what is signed */
	if (s->reception)
		links_own_address(&s->ends, &s->caps[i],
				  w->seat.spec->kind == SEAT_INVITED ? link_address(w->link)
								     : w->seat.spec->address,
				  s->crew.member[i].address);
	snprintf(s->crew.member[i].device, MEMBER_ID, "%s", s->caps[i].device);
	if (w->seat.spec->kind != SEAT_THREAD)
		snprintf(s->crew.member[i].machine, MEMBER_ID, "%s", s->caps[i].host);
	if (w->seat.spec->kind != SEAT_THREAD)
		compare_clocks(w, s->caps[i].wall);
	return 1;
}

/* A process that was started here has ended before it joined. When its port was taken meanwhile,
 * by a worker that was started by hand, that one is used. */
static int check_ended(struct session_seat *w, struct err *e)
{
	char how[64];
	if (!seat_ended(&w->seat, how, sizeof how) || seat_replaced(&w->seat))
		return 0;
	return err_set(e, ERR_NET, "%s %s before it joined", w->name, how);
}

/* A router, or the machine itself, tells its name only while it is on. */
static int unknown_name(struct session_seat *w, struct err *e)
{
	if (!w->said)
		log_warn("%s: %s. It is asked for again until join_timeout", w->name, e->msg);
	w->said = true;
	err_clear(e);
	w->link = NULL;
	w->again = net_in(2 * again_after);
	return 0;
}

static int dial(struct session *s, int i, struct err *e)
{
	struct session_seat *w = &s->seat[i];
	const struct seat_spec *p = w->seat.spec;
	w->state = SEAT_DIALLED;
	if (p->kind == SEAT_INVITED) {
		w->link = reception_take(s->reception, p->key);
		return 0;
	}
	int rc = net_dial(s->net, p->address, p->key, net_in(s->o->join_timeout + 5), &w->link, e);
	return rc == ERR_NET ? unknown_name(w, e) : rc;
}

/* It went between HELLO and WELCOME: it is not there yet, as one that nobody has started. */
static void hang_up(struct session_seat *w, struct err *e)
{
	if (!w->said)
		log_info("%s went before it had joined (%s): it is dialled again", w->name, e->msg);
	w->said = true;
	err_clear(e);
	link_close(w->link);
	w->link = NULL;
	w->again = net_in(again_after);
}

/* Advances one worker as far as possible without waiting; its error becomes the session's. */
static int bring_in(struct session *s, int i, struct err *e)
{
	struct session_seat *w = &s->seat[i];
	int rc = 0;
	if (w->state >= SEAT_JOINED)
		return 0;
	if (!w->link && clock_now() >= w->again)
		TRY(dial(s, i, e));
	if (!w->link)
		return check_ended(w, e);
	if (link_state(w->link) == LINK_UP && w->state == SEAT_DIALLED)
		rc = session_greet(s, i, e);
	if (rc >= 0 && w->state == SEAT_GREETED)
		rc = session_take_welcome(s, i, e);
	else if (rc >= 0 && link_state(w->link) == LINK_LOST)
		rc = link_wait_up(w->link, NET_NOW, e);
	if (rc == ERR_NET && w->state == SEAT_GREETED && !w->answered &&
	    w->seat.spec->kind != SEAT_THREAD) {
		hang_up(w, e);
		return 0;
	}
	if (rc < 0 || w->state >= SEAT_JOINED)
		return rc < 0 ? err_prefix(e, "%s", w->name) : 0;
	return check_ended(w, e);
}

static int wait_for_all(struct session *s, struct err *e)
{
	int64_t deadline = net_in(s->o->join_timeout), tell = net_in(tell_every);
	struct net_poll *p = mem_array((size_t)s->n, sizeof *p);
	int rc = p ? 0 : err_nomem(e, (size_t)s->n * sizeof *p, "workers");
	while (rc >= 0) {
		size_t n = 0, absent = 0;
		for (int i = 0; i < s->n && rc >= 0; i++) {
			rc = bring_in(s, i, e);
			const struct session_seat *w = &s->seat[i];
			absent += w->state < SEAT_JOINED && !w->link;
			if (w->state < SEAT_JOINED && w->link)
				p[n++] = (struct net_poll){
					w->link, w->state == SEAT_GREETED ? NET_RECV : NET_UP, 0
				};
		}
		if (rc < 0 || !(n + absent))
			break;
		struct buf missing = BUF_INIT;
		list_missing(s, &missing);
		if (s->o->stop && *s->o->stop)
			rc = err_set(e, ERR_CANCELLED, "interrupted while waiting for %.800s",
				     missing.p);
		else if (clock_now() > deadline)
			rc = err_set(e, ERR_NET,
				     "did not join within %g s (join_timeout): %.700s. Does "
				     "'heteroshard %s' run there%s, and does a firewall let the "
				     "port through?",
				     s->o->join_timeout, missing.p,
				     s->reception ? "worker" : "train",
				     s->reception ? "" : " with this configuration");
		else if (clock_now() > tell) {
			log_info("waiting for %s", missing.p);
			tell = net_in(tell_every);
		}
		buf_release(&missing);
		if (rc >= 0)
			net_poll(s->net, p, n, net_in(0.2));
	}
	mem_free(p);
	return rc < 0 ? rc : 0;
}

static int add_member(struct session *s, int i, struct err *e)
{
	const struct seat_spec *p = &s->o->seat[i];
	struct session_seat *w = &s->seat[i];
	struct member m = { 0 };
	snprintf(m.id, sizeof m.id, "%s", p->id);
	snprintf(m.device, sizeof m.device, "%s", p->device ? p->device : "");
	snprintf(m.machine, sizeof m.machine, "%s", p->host ? p->host : "");
	snprintf(m.address, sizeof m.address, "%s", p->address);
	snprintf(m.key, sizeof m.key, "%s", p->key ? p->key : "");
	if (p->kind == SEAT_THREAD)
		snprintf(m.name, sizeof m.name, "worker %d", i);
	else
		snprintf(m.name, sizeof m.name, "worker '%.60s' (%.100s)", p->id, p->host);
	TRY(crew_add(&s->crew, &m, e));
	w->seat = (struct seat){ .spec = p, .source = &s->source };
	session_name_seat(s, i);
	if (p->late) {
		w->state = SEAT_LOST;
		w->buried = w->told = w->named = true;
		crew_lose(&s->crew, i);
		return 0;
	}
	TRY(seat_start(&w->seat, s->o->program, e));
	return dial(s, i, e);
}

/* Who may speak to whom through this machine. */
static int allow_relays(struct session *s, struct err *e)
{
	if (!s->reception)
		return 0;
	s->relay_members = mem_array((size_t)s->n, sizeof *s->relay_members);
	if (!s->relay_members)
		return err_nomem(e, (size_t)s->n * sizeof *s->relay_members, "workers");
	for (int i = 0; i < s->n; i++)
		s->relay_members[i] = (struct reception_member){ s->seat[i].seat.spec->id,
								 s->seat[i].seat.spec->key };
	reception_job(s->reception, s->id, s->relay_members, s->n);
	return 0;
}

static bool is_there(const void *session, int i) { return session_has(session, i); }

int session_join(struct job *job, const struct session_options *o, struct session **s_p,
		 struct err *e)
{
	struct session *s = mem_zalloc(sizeof *s);
	if (!s) {
		reception_close(o->reception);
		if (o->net)
			net_close(o->net, 0);
		return err_nomem(e, sizeof *s, "a session");
	}
	*s = (struct session){ .job = job,
			       .o = o,
			       .n = o->n,
			       .net = o->net,
			       .reception = o->reception,
			       .program = o->program,
			       .run = o->run,
			       .term = o->term,
			       .epoch = FRAME_EPOCH(o->term, 0),
			       .source = source_from_file(job->file),
			       .patience = patience_of(0, 0, true) };
	buf_init(&s->out);
	randombytes_buf(&s->id, sizeof s->id);
	weights_model_digest(job->file, s->model);
	int rc = 0;
	s->seat = mem_array((size_t)s->n, sizeof *s->seat);
	s->caps = mem_array((size_t)s->n, sizeof *s->caps);
	s->state = mem_array((size_t)s->n, sizeof *s->state);
	if (!s->seat || !s->caps || !s->state) {
		rc = err_nomem(e, (size_t)s->n * sizeof *s->seat, "workers");
		s->n = 0;
		goto out;
	}
	TRYOUT(apart_init(&s->apart, s->n, e));
	membership_init(&s->members, s->state, s->n);
	s->ends = (struct link_ends){ .spec = o->seat,
				      .caps = s->caps,
				      .n = s->n,
				      .there = is_there,
				      .ctx = s,
				      .relays = s->reception,
				      .cache_dir = job->cfg->cache_dir };
	for (size_t i = 0; job->cfg->mesh.given && i < job->cfg->mesh.range.n; i++)
		if (s->ends.nmesh < ARRAY_LEN(s->ends.mesh))
			s->ends.nmesh += net_range_read(job->cfg->mesh.range.item[i],
							&s->ends.mesh[s->ends.nmesh]);
	if (!s->net)
		TRYOUT(net_open("loop", &(struct net_options){ .peer_timeout = 0 }, &s->net, e));
	for (int i = 0; i < s->n; i++)
		TRYOUT(add_member(s, i, e));
	TRYOUT(allow_relays(s, e));
	TRYOUT(wait_for_all(s, e));
	s->o = NULL;
	*s_p = s;
	return 0;
out:
	session_close(s, e);
	return rc;
}

/* Ends a worker that the plan does not use, with success. */
static void dismiss(struct session *s, int i)
{
	struct session_seat *w = &s->seat[i];
	struct err ignored = { 0 };
	session_order(s, i, FRAME_FINISH, 2, &ignored);
	link_close(w->link);
	w->link = NULL;
	w->state = SEAT_DISMISSED;
	membership_gone(&s->members, i);
	seat_stop(&w->seat, 10, true);
	if (s->leaving == w->name)
		s->leaving = NULL;
	crew_lose(&s->crew, i);
}

int session_assign(struct session *s, const struct placement *p, const int *member, struct err *e)
{
	crew_shape(&s->crew, p->stages, p->chunks, s->job->model.tied && s->job->opt.train_all);
	for (int k = 0; k < placement_rows(p); k++) {
		TRY(crew_move(&s->crew, member[k], placement_stage_of(p, k),
			      p->share ? p->share[k] : 1, e));
		s->crew.member[member[k]].state_share = p->state_share ? p->state_share[k] : 0;
		s->crew.member[member[k]].only_experts = placement_has_only_experts(p, k);
	}
	for (int i = 0; i < s->n; i++)
		if (!s->began && crew_stage_of(&s->crew, i) < 0 && session_is_live(s, i) &&
		    !s->seat[i].seat.spec->spare)
			dismiss(s, i);
	for (int i = 0; i < s->n; i++)
		session_name_seat(s, i);
	return crew_check(&s->crew, e);
}
