/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_session.c - a coordinator whose two workers say anything: joining, parameters, one step, the
 * state.
 *
 * The input: a byte of choices (who forgets WELCOME or READY; 128: both have kept the state of a
 * run whose coordinator was lost, 16: part of it), then messages, each a byte that says what and
 * from whom, and its own bytes. They are sent as soon as the worker has heard HELLO; then both hang
 * up, so that the coordinator ends whatever it waits for. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "net/net.h"
#include "small.h"
#include "coord/session.h"
#include "crew/snapshot.h"
#include "proto/record.h"
#include "train/round.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { SEATS = 2, MESSAGES = 64, MICROBATCHES = 2 };

enum { KEPT = 128, KEPT_PART = 16, RUN = 5, KEPT_STEP = 9 };

static char folder[64];
static unsigned choice;
static struct config cfg;
static struct job job;

/* ---- the job ---- */

static void make_job(void)
{
	static const char *const name[] = { "model.layers.0.self_attn.q_proj.lora_A.weight",
					    "model.layers.2.mlp.up_proj.lora_B.weight" };
	struct err e = { 0 };
	small_model(&job.model);
	small_write_model(&job.model, folder);
	cfg.wire_dtype = WIRE_FLOAT32;
	cfg.cache_dir = folder;
	job.cfg = &cfg;
	job.opt = (struct stage_options){ .act = DT_F32, .lora = { .r = 2, .scale = 1 } };
	job.optimizer = optimizer_find("adamw");
	job.nparam = ARRAY_LEN(name);
	job.param = calloc(job.nparam, sizeof *job.param);
	for (size_t i = 0; i < job.nparam; i++) {
		snprintf(job.param[i].name, sizeof job.param[i].name, "%s", name[i]);
		job.param[i].ndim = 2;
		job.param[i].dim[0] = 2;
		job.param[i].dim[1] = SMALL_HIDDEN;
		job.param[i].count = (uint64_t)2 * SMALL_HIDDEN;
		job.param[i].states = 2;
		job.param[i].kind[0] = optim_state_f32("exp_avg", job.param[i].count);
		job.param[i].kind[1] = optim_state_f32("exp_avg_sq", job.param[i].count);
	}
	if (model_file_open(folder, &job.file, &e) < 0)
		abort();
}

/* ---- the workers ---- */

struct worker {
	struct net *net;
	struct link *link;
	uint64_t job;
};

struct crowd {
	struct worker w[SEATS];
	struct feed in;
};

static void say(const struct worker *w, enum frame_kind kind, uint64_t step, uint32_t m,
		const void *p, size_t n)
{
	struct err e = { 0 };
	struct frame f = {
		.kind = kind, .job = w->job, .step = step, .microbatch = m, .size = n, .payload = p
	};
	if (w->link)
		link_send_frame(w->link, &f, NET_NOW, &e);
}

static void welcome(const struct worker *w, unsigned port)
{
	struct err e = { 0 };
	struct welcome c = {
		.id = "a", .host = "b", .backend = "cpu", .device = "d", .port = port
	};
	if (choice & KEPT) {
		c.keeps = 1;
		c.kept_part = (choice & KEPT_PART) != 0;
		c.kept_step = KEPT_STEP;
		c.kept_origin = c.kept_plan = 1;
	}
	if (w->link)
		welcome_send(w->link, &c, NET_NOW, &e);
}

/* What the coordinator asks when all are READY. */
static void clocks(const struct worker *w)
{
	unsigned char out[64];
	size_t n;
	struct err e = { 0 };
	for (int64_t turn = 0; turn < 8; turn++) {
		if (clock_write(&(struct clock_message){ turn, turn + 1 }, out, sizeof out, &n,
				&e) < 0)
			abort();
		say(w, FRAME_CLOCK, (uint64_t)turn, 0, out, n);
	}
}

static void say_state(const struct worker *w, struct feed *in, uint64_t step)
{
	static const char *const what[] = { "value", "exp_avg", "exp_avg_sq", "none" };
	float v[64] = { 0 };
	unsigned char out[1024];
	size_t n;
	struct err e = { 0 };
	unsigned how = feed_byte(in);
	struct state_message m = { .first = feed_byte(in),
				   .bytes = feed_byte(in) % 65 * 4,
				   .data = v };
	snprintf(m.name, sizeof m.name, "%s", how & 4 ? "nothing" : job.param[how % 2].name);
	snprintf(m.what, sizeof m.what, "%s", what[how / 8 % 4]);
	if (how & 128)
		m.first = UINT64_MAX - m.first;
	if (state_write(&m, out, sizeof out, &n, &e) < 0)
		abort();
	say(w, FRAME_STATE, step, 0, out, n);
}

static void say_record(const struct worker *w, struct feed *in)
{
	const unsigned how = feed_byte(in);
	struct run_record r = { .run = RUN + (how & 1), .act = DT_F32, .owed = how & 2 };
	unsigned char out[1024];
	size_t n;
	struct err e = { 0 };
	r.st = (struct train_state){ .step = KEPT_STEP + (how >> 2 & 1),
				     .origin = 1,
				     .rules = RULES_NOW,
				     .scale.scale = how >> 3 };
	snprintf(r.job, sizeof r.job, "job");
	if (record_write(&r, out, sizeof out, &n, &e) < 0)
		abort();
	say(w, FRAME_RECORD, 0, 0, out, how & 64 ? n - 1 : n);
}

static void say_step(const struct worker *w, struct feed *in, unsigned what, uint64_t step)
{
	unsigned char out[2048];
	size_t n = 0;
	struct err e = { 0 };
	unsigned how = feed_byte(in);
	struct norm_entry v[4] = { { -1, 1 }, { 0, how }, { (int)how - 3, 2 }, { 1 << 30, 1 } };
	struct span span[4] = { { .begin = how, .end = 5, .kind = (uint8_t)how } };
	struct loss_message loss = { .sum = how, .trained = how, .hits = how };
	struct stepped_message m = { .busy = 1, .heard = how, .said = 3 };
	int rc = what == FRAME_LOSS   ? loss_write(&loss, out, sizeof out, &n, &e)
		 : what == FRAME_NORM ? norm_write(v, how % 5, out, sizeof out, &n, &e)
				      : stepped_write(&m, span, how % 5, out, sizeof out, &n, &e);
	if (rc < 0)
		abort();
	say(w, what, step, how / 16, out, n);
}

/* Until the coordinator has taken what it can make use of: from a worker that spoke too early, or
 * has hung up, it takes no more. */
static void wait_until_taken(const struct crowd *c)
{
	uint64_t before = UINT64_MAX;
	for (int idle = 0; idle < 20;) {
		struct link_stats v;
		uint64_t all = 0;
		for (int i = 0; i < SEATS; i++)
			if (c->w[i].link && link_state(c->w[i].link) == LINK_UP) {
				link_stats(c->w[i].link, &v);
				all += v.in_flight;
			}
		if (!all)
			return;
		idle = all == before ? idle + 1 : 0;
		before = all;
		usleep(200);
	}
}

static void message(struct crowd *c, uint64_t *step)
{
	struct feed *in = &c->in;
	struct err e = { 0 };
	unsigned char out[1024];
	unsigned how = feed_byte(in), n;
	const struct worker *w = &c->w[how >> 7];
	struct wire_writer ww = wire_write(out, sizeof out);
	const uint8_t *p;
	if (how >> 6 & 1) {
		wait_until_taken(c);
		++*step;
	}
	switch (how % 16) {
	case 0:
		welcome(w, feed_byte(in));
		break;
	case 1:
		say(w, FRAME_READY, 0, 0, NULL, 0);
		clocks(w);
		break;
	case 2:
		n = feed_byte(in) % 8;
		wire_put_u32(&ww, n);
		for (unsigned i = 0; i < n; i++)
			wire_put_u32(&ww, feed_byte(in) % 32);
		say(w, FRAME_WEIGHTS_NEED, 0, 0, out, ww.n);
		break;
	case 3:
	case 4:
		say_step(w, in, FRAME_LOSS, *step);
		break;
	case 5:
	case 6:
		say_step(w, in, FRAME_NORM, *step);
		break;
	case 8:
		if (choice & KEPT) {
			say_record(w, in);
			break;
		}
		/* fall through */
	case 7:
		say_step(w, in, FRAME_STEPPED, *step);
		break;
	case 9:
	case 10:
		say_state(w, in, *step);
		break;
	case 11:
		say(w, FRAME_SAVED, *step, 0, NULL, 0);
		break;
	case 12:
		say(w, FRAME_FINISH, *step, 0, NULL, 0);
		break;
	case 13:
		wire_put_str(&ww, "because");
		wire_put_u32(&ww, feed_byte(in));
		say(w, feed_byte(in) & 1 ? FRAME_ABORT : FRAME_REFUSE, *step, 0, out, ww.n);
		break;
	case 14:
		n = feed_byte(in);
		out[0] = (unsigned char)feed_byte(in);
		n = (unsigned)feed_bytes(in, feed_byte(in), &p);
		say(w, out[0], *step, feed_byte(in), p, n);
		break;
	default:
		n = (unsigned)feed_bytes(in, feed_byte(in), &p);
		if (w->link)
			link_send_copy(w->link, p, n, NET_NOW, &e);
	}
}

static void *crowd(void *ctx)
{
	struct crowd *c = ctx;
	struct err e = { 0 };
	uint64_t step = 1;
	unsigned how = feed_byte(&c->in);
	for (int i = 0; i < SEATS; i++) {
		struct worker *w = &c->w[i];
		struct net_msg m;
		struct frame f;
		struct hello h;
		if (net_accept(w->net, net_in(5), &w->link, &e) != 1)
			continue;
		if (link_recv_frame(w->link, net_in(5), &m, &f, &e) <= 0)
			continue;
		if (hello_read(&f, &h, &e) < 0) { /* the other one's answer has ended it already */
			net_msg_release(&m);
			continue;
		}
		w->job = how & 64 ? 1 : h.job;
		net_msg_release(&m);
		if (!(how & 1u << i))
			welcome(w, 1);
		if (!(how & 4u << i))
			say(w, FRAME_READY, 0, 0, NULL, 0);
	}
	wait_until_taken(c);
	for (int i = 0; i < SEATS; i++)
		if (!(how & 4u << i))
			clocks(&c->w[i]);
	for (int k = 0; k < MESSAGES && c->in.n; k++)
		message(c, &step);
	wait_until_taken(c);
	for (int i = 0; i < SEATS; i++)
		if (c->w[i].link)
			link_close(c->w[i].link);
	return NULL;
}

/* ---- the coordinator ---- */

static int train(struct session *s, struct rounds *r, struct arena *a,
		 const struct placement *place, struct err *e)
{
	static const int32_t id[] = { 1, 2, 3, 4 }, pos[] = { 0, 1, 2, 3 },
			     label[] = { 2, 3, 4, -100 }, start[] = { 0, 4 };
	const struct microbatch mb = {
		.n = 4, .nseq = 1, .id = id, .pos = pos, .label = label, .start = start
	};
	const struct step_message step = { .apply = true,
					   .s = { .step = 1, .scale = 1 },
					   .lr = 0.1 };
	double sum, sqnorm;
	uint64_t trained;
	TRY(session_assign(s, place, (const int[]){ 0, 1 }, e));
	TRY(rounds_init(r, s, &(struct round_options){ .trace = true }, a, e));
	TRY(session_begin(s, place, true, e));
	round_begin(r, ROUND_TRAIN, MICROBATCHES, 1, 1);
	for (uint32_t m = 0; m < MICROBATCHES; m++)
		TRY(round_send(r, m, &mb, e));
	TRY(round_losses(r, &sum, &trained, e));
	TRY(round_norms(r, &sqnorm, e));
	TRY(round_step(r, &step, e));
	TRY(round_end(r, e));
	TRY(session_pull_state(s, 2, NULL, e));
	return session_push_state(s, 3, e);
}

/* What workers have kept of a run, before the first plan. */
static int take_kept(struct session *s, struct err *e)
{
	const struct train_state st = { 0 };
	struct snapshot set;
	struct buf record = BUF_INIT;
	session_set_patience(s, &(struct patience){ .silent = 0.3 });
	snapshot_init(&set, &job, NULL, &st, true);
	set.over = true;
	int rc = session_pull_kept(s, 0, &set, &record, e);
	snapshot_release(&set);
	buf_release(&record);
	return rc;
}

static void coordinate(void)
{
	struct err e = { 0 };
	struct session *s = NULL;
	static const char *device[] = { "cpu", "cpu" };
	static struct placement place;
	struct seat_spec seat[SEATS] = { { .kind = SEAT_REMOTE,
					   .id = "a",
					   .host = "ha",
					   .device = "cpu",
					   .address = "worker-0" },
					 { .kind = SEAT_REMOTE,
					   .id = "b",
					   .host = "hb",
					   .device = "cpu",
					   .address = "worker-1" } };
	const struct session_options o = {
		.seat = seat, .n = SEATS, .join_timeout = 0.3, .run = choice & KEPT ? RUN : 0
	};
	place = (struct placement){ .stages = SEATS,
				    .chunks = 1,
				    .first = { 0, 1, SMALL_LAYERS },
				    .device = device,
				    .schedule = "1f1b",
				    .reduce_order = SUM_EXACT,
				    .reducer = "direct" };
	int rc = session_join(&job, &o, &s, &e);
	if (rc >= 0) {
		struct rounds r = { 0 };
		struct arena a = ARENA_INIT;
		if (choice & KEPT)
			rc = take_kept(s, &e);
		if (rc >= 0)
			rc = train(s, &r, &a, &place, &e);
		rounds_release(&r);
		arena_release(&a);
		session_close(s, rc < 0 ? &e : NULL);
	}
	if (rc < 0 && (e.code != rc || !e.msg[0] || strchr(e.msg, '\n')))
		abort();
}

static void leave(void)
{
	struct err e = { 0 };
	dir_remove(folder, &e);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	snprintf(folder, sizeof folder, "%s/hs-fuzz-XXXXXX",
		 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (!mkdtemp(folder))
		abort();
	atexit(leave);
	make_job();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct crowd c = { .in = { data, size } };
	struct err e = { 0 };
	pthread_t thread;
	choice = size ? *data : 0;
	for (int i = 0; i < SEATS; i++) {
		char at[32];
		snprintf(at, sizeof at, "worker-%d", i);
		if (net_open("loop", &(struct net_options){ 0 }, &c.w[i].net, &e) < 0 ||
		    net_listen(c.w[i].net, at, NULL, &e) < 0)
			abort();
	}
	if (pthread_create(&thread, NULL, crowd, &c))
		abort();
	coordinate();
	pthread_join(thread, NULL);
	for (int i = 0; i < SEATS; i++)
		net_close(c.w[i].net, 0);
	return 0;
}
