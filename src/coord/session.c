/* SPDX-License-Identifier: Apache-2.0 */
/* session.c - see session.h: messages to and from the workers, and the errors that follow from
 * their silence or loss. Joining is in session_join.c, plans and layers in session_begin.c, state
 * in session_state.c. */
#include "coord/session_priv.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* seconds to wait for the cause of a lost neighbour */
static const double blame_wait = 3;
/* seconds between two checks of `stop` and of the workers' progress */
static const double look_every = 0.25;
/* messages of one worker that are passed over before `stop` and the others have their turn */
enum { AT_ONCE = 1000 };

/* ---- errors ---- */

bool session_is_live(const struct session *s, int member)
{
	return s->seat[member].link && s->seat[member].state == SEAT_JOINED;
}

void session_mark_lost(struct session *s, int member, const struct err *why)
{
	s->seat[member].state = SEAT_LOST;
	s->seat[member].why = *why;
	membership_gone(&s->members, member);
}

static void mark_aborted(struct session *s, int member, const struct frame *f)
{
	s->seat[member].state = SEAT_ABORTED;
	abort_read(f->payload, f->size, &s->seat[member].why);
	membership_gone(&s->members, member);
}

static void mark_broken(struct session *s, int member, const struct frame *f)
{
	struct session_seat *w = &s->seat[member];
	w->broken = true;
	w->made = s->state[member].state != MEMBER_PLANNED;
	broken_read(f->payload, f->size, &w->why, &w->lost);
	w->lost++;
}

/* Reads all messages that have arrived, without waiting, to find ABORTs and lost links. */
static void look_at_all(struct session *s)
{
	for (int i = 0; i < s->n; i++) {
		struct session_seat *w = &s->seat[i];
		struct net_msg msg;
		struct frame f;
		struct err why = { 0 };
		int rc = 0;
		for (int k = 0; k < AT_ONCE && session_is_live(s, i); k++) {
			rc = link_recv_frame(w->link, NET_NOW, &msg, &f, &why);
			if (rc <= 0)
				break;
			if (f.kind == FRAME_ABORT)
				mark_aborted(s, i, &f);
			else if (f.kind == FRAME_BROKEN && f.epoch == s->epoch)
				mark_broken(s, i, &f);
			net_msg_release(&msg);
		}
		if (session_is_live(s, i) && rc < 0)
			session_mark_lost(s, i, &why);
	}
}

/* The failure that explains most: a worker that gave a reason of its own, else a worker whose link
 * was lost, else one that lost its neighbour. */
static struct session_seat *find_culprit(struct session *s, bool *sure_p)
{
	struct session_seat *vanished = NULL, *other = NULL;
	*sure_p = true;
	for (int i = 0; i < s->n; i++) {
		struct session_seat *w = &s->seat[i];
		if (w->buried)
			continue;
		if (w->state == SEAT_ABORTED && w->why.code != ERR_NET)
			return w;
		if (w->state == SEAT_LOST && !vanished)
			vanished = w;
		if ((w->state == SEAT_ABORTED || w->broken) && !other)
			other = w;
	}
	*sure_p = vanished != NULL;
	return vanished ? vanished : other;
}

int session_blame(struct session *s, const struct err *cause, struct err *e)
{
	struct session_seat *w;
	bool sure;
	for (int64_t end = net_in(blame_wait);;) {
		look_at_all(s);
		w = find_culprit(s, &sure);
		if ((w && sure) || clock_now() > end)
			break;
		usleep(20000);
	}
	if (!w) {
		*e = cause && cause->code ? *cause : (struct err){ .code = ERR_NET };
		return cause && cause->code ? e->code : err_set(e, ERR_NET, "a worker was lost");
	}
	char how[64] = "";
	if (w->state == SEAT_LOST) {
		for (int64_t end = net_in(0.5); w->seat.pid > 0 && !how[0] && clock_now() < end;
		     usleep(10000))
			seat_ended(&w->seat, how, sizeof how);
	}
	char in_step[48] = "";
	if (s->step)
		snprintf(in_step, sizeof in_step, " in step %llu", (unsigned long long)s->step);
	/* That a process ended says more than that its connection broke. */
	if (how[0])
		err_set(&w->why, w->why.code, "its process %s", how);
	return err_set(e, w->why.code, "%s%s: %.800s", w->name, in_step, w->why.msg);
}

/* ---- events ---- */

/* What an earlier epoch's step has left on the way. */
static bool is_old(const struct session *s, const struct frame *f)
{
	return f->epoch != s->epoch && f->kind != FRAME_ABORT && f->kind != FRAME_FINISH;
}

/* Takes one message of a member. Messages for the session itself (ABORT, BROKEN, a request to
 * leave, PROGRESS) are not returned; `ev` then has the event that follows from them. What an
 * earlier epoch has left is no sign that a worker advances. */
static void take_one(struct session *s, int i, struct session_event *ev)
{
	struct session_seat *w = &s->seat[i];
	*ev = (struct session_event){ .member = i };
	for (int k = 0; k < AT_ONCE && session_is_live(s, i); k++) {
		struct net_msg msg;
		struct frame f;
		struct err why = { 0 };
		int rc = link_recv_frame(w->link, NET_NOW, &msg, &f, &why);
		if (rc == 0)
			return;
		if (rc < 0) {
			session_mark_lost(s, i, &why);
			break;
		}
		if (f.kind != FRAME_PROGRESS)
			w->heard = clock_now();
		if (f.epoch > s->epoch) {
			err_set(&why, ERR_PROTOCOL, "%s of epoch %llu in epoch %llu",
				frame_name(f.kind), (unsigned long long)f.epoch,
				(unsigned long long)s->epoch);
			link_fail(w->link, why.code, why.msg);
			session_mark_lost(s, i, &why);
		} else if (is_old(s, &f)) {
			/* dropped */
		} else if (f.kind != FRAME_PROGRESS) {
			w->advanced = clock_now();
			if (f.kind == FRAME_ABORT) {
				mark_aborted(s, i, &f);
			} else if (f.kind == FRAME_BROKEN) {
				mark_broken(s, i, &f);
				ev->kind = SESSION_BROKEN;
			} else if (f.kind == FRAME_FINISH) {
				ev->kind = SESSION_LEAVING;
				s->leaving = w->name;
				w->out = true;
			} else {
				ev->kind = SESSION_MESSAGE;
				ev->msg = msg;
				ev->f = f;
				return;
			}
		} else {
			struct progress p;
			if (progress_read(f.payload, f.size, &p, &why) < 0)
				session_mark_lost(s, i, &why);
			else if (memcmp(&p, &w->progress, sizeof p))
				w->advanced = clock_now();
			w->progress = p;
		}
		net_msg_release(&msg);
		if (ev->kind != SESSION_NOTHING)
			return;
	}
	if ((w->state == SEAT_LOST || w->state == SEAT_ABORTED) && !w->told) {
		w->told = true;
		ev->kind = SESSION_LOST;
		ev->why = w->why;
	}
}

void session_next(struct session *s, int64_t deadline, struct session_event *ev)
{
	for (;;) {
		struct net_poll p[CREW_MOST > 64 ? 64 : CREW_MOST];
		size_t n = 0;
		for (int k = 0; k < s->n; k++) {
			int i = (s->turn + k) % s->n;
			take_one(s, i, ev);
			if (ev->kind != SESSION_NOTHING) {
				s->turn = i; /* the next message is read from the same worker */
				return;
			}
			if (session_is_live(s, i) && n < ARRAY_LEN(p))
				p[n++] = (struct net_poll){ s->seat[i].link, NET_RECV, 0 };
		}
		s->turn = s->n ? (s->turn + 1) % s->n : 0;
		*ev = (struct session_event){ .kind = SESSION_NOTHING, .member = -1 };
		/* When there are more links than fit, the others are checked every time this
		 * wait ends. */
		int64_t most = s->n > (int)ARRAY_LEN(p) ? net_in(0.01) : deadline;
		if (clock_now() >= deadline)
			return;
		net_poll(s->net, p, n, most < deadline ? most : deadline);
	}
}

/* ---- waiting ---- */

int session_interrupted(const struct session *s, struct err *e)
{
	if (s->tick)
		s->tick(s->tick_ctx);
	if (!s->stop || !*s->stop)
		return 0;
	return err_set(e, ERR_CANCELLED, "interrupted while %s", s->doing);
}

/* The same where messages come and come: not for each of them. */
static int interrupted_now_and_then(struct session *s, struct err *e)
{
	if (clock_now() < s->look_at)
		return 0;
	s->look_at = net_in(look_every);
	return session_interrupted(s, e);
}

/* The worker that has its inputs and does not advance; else the one that has been silent
 * for longest. */
static int find_stuck(const struct session *s)
{
	int worst = -1;
	for (int i = 0; i < s->n; i++) {
		if (!session_is_live(s, i))
			continue;
		bool working = s->seat[i].progress.state == PROGRESS_WORKING;
		bool worst_works = worst >= 0 && s->seat[worst].progress.state == PROGRESS_WORKING;
		if (worst < 0 || (working && !worst_works) ||
		    (working == worst_works && s->seat[i].advanced < s->seat[worst].advanced))
			worst = i;
	}
	return worst;
}

/* An error when no worker has advanced for too long since `began`; or, `awaited` >= 0, when that
 * one has not, whoever else is idle. */
static int check_patience(struct session *s, int awaited, int64_t began, struct err *e)
{
	double limit = s->step ? s->patience.stall : s->patience.silent;
	int64_t latest = began, now = clock_now();
	for (int i = 0; i < s->n; i++)
		if ((awaited < 0 || i == awaited) && session_is_live(s, i) &&
		    s->seat[i].advanced > latest)
			latest = s->seat[i].advanced;
	if (limit <= 0 || clock_seconds(now - latest) < limit)
		return 0;
	int i = awaited < 0 ? find_stuck(s) : awaited;
	if (i < 0)
		return err_set(e, ERR_NET, "no worker is left");
	const struct progress *p = &s->seat[i].progress;
	struct err why = { 0 };
	if (p->state == PROGRESS_WORKING)
		err_set(&why, ERR_NET,
			"is connected but has not advanced for %.3g s (stall_timeout), at "
			"instruction %u of its schedule",
			limit, p->instruction);
	else
		err_set(&why, ERR_NET,
			"is connected but has said nothing new for %.3g s (stall_timeout)", limit);
	session_mark_lost(s, i, &why);
	return session_blame(s, NULL, e);
}

void session_until(struct session *s, const volatile sig_atomic_t *stop, const char *doing)
{
	s->stop = stop;
	s->doing = doing;
}

void session_set_tick(struct session *s, void (*tick)(void *ctx), void *ctx)
{
	s->tick = tick;
	s->tick_ctx = ctx;
}

void session_set_patience(struct session *s, const struct patience *p) { s->patience = *p; }

int session_hear(struct session *s, struct session_event *ev, struct err *e)
{
	for (int64_t began = clock_now();;) {
		TRY(interrupted_now_and_then(s, e));
		session_next(s, net_in(look_every), ev);
		if (ev->kind == SESSION_MESSAGE)
			return 0;
		bool idle = s->began && crew_stage_of(&s->crew, ev->member) < 0;
		if ((ev->kind == SESSION_LOST && !idle) || ev->kind == SESSION_BROKEN)
			return session_blame(s, NULL, e);
		TRY(session_interrupted(s, e));
		TRY(check_patience(s, -1, began, e));
	}
}

/* The next message of one member; those of others stay in their links. */
static int next_of_member(struct session *s, int member, struct session_event *ev, struct err *e)
{
	for (int64_t began = clock_now();;) {
		TRY(interrupted_now_and_then(s, e));
		take_one(s, member, ev);
		if (ev->kind == SESSION_MESSAGE)
			return 0;
		if (!session_is_live(s, member) || s->seat[member].broken)
			return session_blame(s, NULL, e);
		for (int i = 0; i < s->n;
		     i++) /* this member may be waiting for one that was lost */
			if (session_is_live(s, i) && link_state(s->seat[i].link) == LINK_LOST &&
			    (!s->began || crew_stage_of(&s->crew, i) >= 0))
				return session_blame(s, NULL, e);
		TRY(session_interrupted(s, e));
		TRY(check_patience(s, member, began, e));
		if (ev->kind == SESSION_NOTHING)
			net_poll(s->net, &(struct net_poll){ s->seat[member].link, NET_RECV, 0 }, 1,
				 net_in(look_every));
	}
}

int session_recv(struct session *s, int member, enum frame_kind kind, uint64_t step,
		 struct net_msg *msg_p, struct frame *f_p, struct err *e)
{
	struct session_event ev;
	TRY(next_of_member(s, member, &ev, e));
	if (ev.f.kind == kind && ev.f.step == step && ev.f.job == s->id) {
		*msg_p = ev.msg;
		*f_p = ev.f;
		return 0;
	}
	int rc = err_set(e, ERR_PROTOCOL,
			 "%s sent %s of step %llu where %s of step %llu was expected",
			 s->seat[member].name, frame_name(ev.f.kind), (unsigned long long)ev.f.step,
			 frame_name(kind), (unsigned long long)step);
	net_msg_release(&ev.msg);
	return rc;
}

/* ---- sending ---- */

/* Until there is room in its window. One that takes nothing is lost, as one that says nothing. */
static int send_in_time(struct session *s, int member, void *p, size_t n, struct err *why,
			struct err *e)
{
	struct link *l = s->seat[member].link;
	const double limit = s->step ? s->patience.stall : s->patience.silent;
	const int64_t until = net_in(limit);
	int rc;
	while ((rc = link_send(l, p, n, net_buffer_release, s->net, why)) == LINK_FULL) {
		TRY(session_interrupted(s, e));
		if (clock_now() > until) {
			err_set(why, ERR_NET,
				"is connected but has taken nothing of what was sent to it for "
				"%.3g s (stall_timeout)",
				limit);
			session_mark_lost(s, member, why);
			return session_blame(s, NULL, e);
		}
		net_poll(s->net, &(struct net_poll){ l, NET_SEND, 0 }, 1, net_in(look_every));
	}
	if (rc >= 0)
		return 0;
	if (link_state(l) == LINK_LOST)
		return session_blame(s, why, e);
	/* The link is not lost: this process failed to send, and has the reason. */
	*e = *why;
	return err_prefix(e, "%s", s->seat[member].name);
}

int session_send_frame(struct session *s, int member, const struct frame *f, struct err *e)
{
	struct frame own = *f;
	struct err why = { 0 };
	size_t n = FRAME_HEADER + f->size;
	if (!session_is_live(s, member))
		return session_blame(s, NULL, e);
	void *p = link_buffer(s->seat[member].link, n);
	if (!p)
		return err_nomem(e, n, "a frame");
	own.job = s->id;
	own.epoch = s->epoch;
	own.from = FRAME_COORDINATOR;
	own.to = FRAME_MEMBER(member);
	int rc = frame_encode(&own, p, n, &n, e);
	if (rc < 0)
		err_prefix(e, "%s", s->seat[member].name);
	else
		rc = send_in_time(s, member, p, n, &why, e);
	if (rc < 0)
		net_buffer_release(s->net, p);
	return rc;
}

int session_send(struct session *s, int member, enum frame_kind kind, uint64_t step,
		 uint32_t microbatch, const void *payload, size_t n, struct err *e)
{
	const struct frame f = {
		.kind = kind, .step = step, .microbatch = microbatch, .size = n, .payload = payload
	};
	s->seat[member].asked = clock_now();
	return session_send_frame(s, member, &f, e);
}

int session_send_all(struct session *s, enum frame_kind kind, uint64_t step, const void *payload,
		     size_t n, struct err *e)
{
	for (int i = 0; i < s->n; i++)
		if (s->crew.stages ? crew_stage_of(&s->crew, i) >= 0 : !s->seat[i].buried)
			TRY(session_send(s, i, kind, step, 0, payload, n, e));
	return 0;
}

int session_send_batch(struct session *s, const struct microbatch *mb, enum round kind,
		       uint64_t round, uint64_t step, uint32_t m, uint32_t microbatches,
		       float scale, const struct draw *draw, struct err *e)
{
	if (kind == ROUND_TRAIN)
		s->step = step;
	for (int i = 0; i < s->n; i++) {
		if (crew_stage_of(&s->crew, i) < 0)
			continue;
		bool ids = crew_is_front(&s->crew, i), labels = crew_is_end(&s->crew, i);
		size_t n, cap = batch_size(mb, ids, labels);
		buf_reset(&s->out);
		buf_reserve(&s->out, cap);
		TRY(buf_ok(&s->out, e));
		TRY(batch_write(mb, kind, step, microbatches, scale, draw, ids, labels, s->out.p,
				cap, &n, e));
		TRY(session_send(s, i, FRAME_BATCH, round, m, s->out.p, n, e));
	}
	return 0;
}

/* ---- ending ---- */

static bool reached(const struct session *s, int i) { return s->seat[i].state >= SEAT_GREETED; }

void session_close(struct session *s, const struct err *why)
{
	if (!s)
		return;
	char text[1200];
	size_t n = 0;
	struct err ignored;
	if (why)
		abort_write(why, text, sizeof text, &n);
	for (int i = 0; i < s->n; i++) {
		struct session_seat *w = &s->seat[i];
		struct frame f = { .kind = why ? FRAME_ABORT : FRAME_FINISH,
				   .job = s->id,
				   .from = FRAME_COORDINATOR,
				   .to = FRAME_MEMBER(i),
				   .size = n,
				   .payload = text };
		const struct seat_spec *spec = s->seat[i].seat.spec;
		if (w->link && link_state(w->link) == LINK_UP)
			link_send_frame(w->link, &f, net_in(2), &ignored);
		if (w->link && (link_state(w->link) == LINK_CONNECTING ||
				(why && spec && spec->kind == SEAT_THREAD))) {
			/* a thread that waits for its coordinator, or measures, notices it */
			link_close(w->link);
			w->link = NULL;
		}
	}
	for (int i = 0; i < s->n; i++)
		if (s->seat[i].seat.spec && s->seat[i].seat.spec->kind == SEAT_THREAD)
			seat_stop(&s->seat[i].seat, 0, reached(s, i));
	for (int i = 0; i < s->n; i++) {
		if (s->seat[i].link)
			link_close(s->seat[i].link);
		weights_out_close(s->seat[i].weights);
	}
	reception_close(s->reception);
	if (s->net)
		net_close(s->net, 3);
	mem_free(s->relay_members);
	for (int i = 0; i < s->n; i++)
		if (s->seat[i].seat.spec && s->seat[i].seat.spec->kind != SEAT_THREAD)
			seat_stop(&s->seat[i].seat, why ? 3 : 10, reached(s, i));
	buf_release(&s->out);
	links_free(s->links);
	crew_release(&s->crew);
	apart_release(&s->apart);
	mem_free(s->seat);
	mem_free(s->state);
	mem_free(s->caps);
	mem_free(s);
}

/* ---- members ---- */

int session_members(const struct session *s) { return s->n; }
const struct crew *session_crew(const struct session *s) { return &s->crew; }
const struct job *session_job(const struct session *s) { return s->job; }
const struct welcome *session_caps(const struct session *s) { return s->caps; }
const struct seat_spec *session_spec(const struct session *s, int i) { return &s->ends.spec[i]; }
const char *session_name(const struct session *s, int i) { return s->seat[i].name; }
const char *session_model(const struct session *s) { return s->model; }
const struct link_ends *session_ends(const struct session *s) { return &s->ends; }
const char *session_leaving(const struct session *s) { return s->leaving; }

void session_set_links(struct session *s, struct link_table *t)
{
	links_free(s->links);
	s->links = t;
}

/* ---- clocks ---- */

int64_t session_clock(const struct session *s, int member) { return s->seat[member].clock.offset; }

int64_t session_clock_error(const struct session *s, int member)
{
	return clock_pair_error(&s->seat[member].clock, clock_now());
}

void session_stepped(struct session *s, int member, int64_t heard, int64_t said, int64_t back)
{
	struct session_seat *w = &s->seat[member];
	apart_worked(&s->apart, member);
	if (!w->worked)
		w->worked = clock_now();
	if (heard)
		clock_pair_add(&w->clock, w->asked, heard, said, back);
}
