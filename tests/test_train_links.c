/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_links.c - ways between workers are measured through the session and the fastest is
 * chosen: over memory, over TCP with keys, and (as root) between two network namespaces with a
 * slow and a fast cable. */
#include <setjmp.h>
#include <dirent.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <math.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "net/frame.h"
#include "net/wire.h"
#include "support/scratch.h"
#include "support/tiny.h"
#include "coord/join.h"
#include "job/job.h"
#include "worker/serve.h"
#include "survey/links_measure.h"
#include "worker/link_probe.h"

#include <pthread.h>

static struct err err;
static char self[4096];
#define MUST(what)                                                                                 \
	do {                                                                                       \
		if ((what) < 0)                                                                    \
			fail_msg("line %d: %s: %s", __LINE__, #what, err.msg);                     \
	} while (0)

/* ---- a session of workers that this process runs in threads of its own, over TCP ---- */

struct place {
	struct tiny t;
	struct config *c;
	struct job job;
};

static void place_make(struct place *p)
{
	static char cache[300];
	tiny_make(&p->t, 2, 8);
	snprintf(cache, sizeof cache, "cache_dir=%s/cache", p->t.dir);
	const char *const more[] = { cache, "compute_dtype=float32", NULL };
	p->c = tiny_config(&p->t, "run", more);
	MUST(job_open(p->c, DT_F32, NULL, &p->job, &err));
}

static void place_remove(struct place *p)
{
	job_close(&p->job);
	config_free(p->c);
	tiny_remove(&p->t);
}

struct worker {
	struct key_pair key;
	struct net *net;
	char listens[NET_ADDRESS], id[8], coordinator[KEY_TEXT];
	struct way way[2]; /* its own and the other's */
	pthread_t thread;
	int rc;
	struct err e;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	const struct serve o = { .net = w->net,
				 .listens = w->listens,
				 .id = w->id,
				 .device = "cpu",
				 .coordinator_key = w->coordinator,
				 .ways = { .way = w->way, .n = w->way[0].address[0] ? 2 : 0 },
				 .join_timeout = 60 };
	w->rc = worker_serve(&o, &w->e);
	net_close(w->net, 2);
	return NULL;
}

/* The configuration of the two machines with two cables: the slower one's addresses. */
static void has_configuration(struct worker *w, const char *a, const char *b)
{
	w->way[0] = (struct way){ "10.91.1.1:41509", a };
	w->way[1] = (struct way){ "10.91.1.2:41510", b };
}

static void worker_start(struct worker *w, const char *id, const char *at, const char *coordinator,
			 const char *other)
{
	struct net_options o = { .key = &w->key };
	snprintf(w->id, sizeof w->id, "%s", id);
	snprintf(w->coordinator, sizeof w->coordinator, "%s", coordinator);
	MUST(net_open(NET_DEFAULT, &o, &w->net, &err));
	MUST(net_allow(w->net, coordinator, &err));
	MUST(net_allow(w->net, other, &err));
	MUST(net_listen(w->net, at, w->listens, &err));
	assert_int_equal(pthread_create(&w->thread, NULL, work, w), 0);
}

static void join(struct place *p, const struct key_pair *key, const struct seat_spec *seat, int n,
		 struct session **s_p)
{
	struct net_options o = { .key = key };
	struct session_options so = { .seat = seat, .n = n, .join_timeout = 60 };
	MUST(net_open(NET_DEFAULT, &o, &so.net, &err));
	MUST(session_join(&p->job, &so, s_p, &err));
}

static void good_row(const struct link_row *r)
{
	assert_true(r->way.reached && r->best && r->way.latency > 0);
	for (int back = 0; back < 2; back++)
		for (int i = 0; i < PROBE_SIZES; i++)
			assert_true(link_rate(r, back, probe_size[i]) > 0);
	printf("  %s -> %s: %.1f us, %.2f and %.2f GB/s\n", r->from_address, r->to_address,
	       r->way.latency * 1e6, link_rate(r, false, 1 << 20) * 1e-9,
	       link_rate(r, true, 1 << 20) * 1e-9);
}

static void over_memory(void **state)
{
	(void)state;
	static const char *const device[] = { "cpu", "cpu", "cpu" };
	struct place p;
	struct arena a = ARENA_INIT;
	struct seat_spec *seat;
	struct session *s;
	const struct link_table *t;
	bool turned;
	place_make(&p);
	MUST(join_threads(&p.job, device, 3, 0, &a, &seat, &s, &err));
	const struct links_options o = { .seconds = 0.05 };
	MUST(links_measure(s, &o, &t, &err));
	assert_int_equal(t->machines, 1);
	assert_int_equal(t->n, 1);
	good_row(&t->row[0]);
	assert_ptr_equal(link_best(t, 2, 1, &turned), &t->row[0]);
	session_close(s, NULL);
	arena_release(&a);
	place_remove(&p);
}

static const char *path_in(const char *dir, const char *name)
{
	static char path[600];
	snprintf(path, sizeof path, "%.300s/%.200s", dir, name);
	return path;
}

/* Rewrites the one cached pair as if its way had been found closed `ago` minutes ago. */
static void close_way(const struct place *p, const struct link_row *r, int64_t ago)
{
	char dir[300];
	snprintf(dir, sizeof dir, "%s/cache/links", p->t.dir);
	DIR *d = opendir(dir);
	assert_non_null(d);
	for (struct dirent *f; (f = readdir(d));)
		if (f->d_name[0] != '.')
			scratch_text(path_in(dir, f->d_name),
				     "{\"version\": 1, \"measured\": %lld, \"ways\": [{\"from\": "
				     "\"%s\", \"to\": \"%s\", \"unreachable\": \"closed\"}]}",
				     (long long)(clock_wall() - ago * 60 * 1000000000),
				     r->from_address, r->to_address);
	closedir(d);
}

static void over_tcp_with_keys(void **state)
{
	(void)state;
	struct place p;
	struct key_pair key;
	struct worker w[2] = { 0 };
	struct seat_spec seat[2];
	struct session *s;
	const struct link_table *t;
	place_make(&p);
	MUST(key_pair_generate(&key, &err));
	for (int i = 0; i < 2; i++)
		MUST(key_pair_generate(&w[i].key, &err));
	for (int i = 0; i < 2; i++) {
		worker_start(&w[i], i ? "b" : "a", i ? "127.0.0.3:0" : "127.0.0.2:0", key.pub,
			     w[!i].key.pub);
		seat[i] = (struct seat_spec){ .kind = SEAT_REMOTE,
					      .id = w[i].id,
					      .host = "here",
					      .device = "cpu",
					      .key = w[i].key.pub };
		snprintf(seat[i].address, sizeof seat[i].address, "%s", w[i].listens);
	}
	join(&p, &key, seat, 2, &s);
	const struct welcome *caps = session_caps(s);
	assert_string_equal(caps[0].address[0].address, "127.0.0.2");
	assert_true(caps[1].port != 0 && caps[1].naddress == 1);
	struct links_options o = { .seconds = 0.05 };
	MUST(links_measure(s, &o, &t, &err));
	assert_int_equal(t->n, 1);
	good_row(&t->row[0]);
	double latency = t->row[0].way.latency;
	MUST(links_measure(s, &o, &t, &err)); /* from the cache: the very same figures */
	assert_true(t->row[0].way.latency == latency);
	/* a closed way is believed for minutes, not for a day */
	const struct link_row row = t->row[0];
	close_way(&p, &row, 2);
	MUST(links_measure(s, &o, &t, &err));
	assert_int_equal(t->row[0].from, row.to); /* it was dialled from the other side */
	close_way(&p, &row, 10);
	MUST(links_measure(s, &o, &t, &err));
	assert_true(t->row[0].way.reached && t->row[0].from == row.from);
	latency = t->row[0].way.latency;
	o.refresh = true;
	MUST(links_measure(s, &o, &t, &err));
	assert_true(t->row[0].way.latency != latency);
	session_close(s, NULL);
	for (int i = 0; i < 2; i++) {
		pthread_join(w[i].thread, NULL);
		if (w[i].rc < 0)
			fail_msg("%s", w[i].e.msg);
	}
	place_remove(&p);
}

/* ---- what comes from outside is checked ---- */

static void bad_orders_and_figures(void **state)
{
	(void)state;
	struct probe_order *o = calloc(1, sizeof *o), *q = calloc(1, sizeof *q);
	struct probe_way v[2] = { { .reached = true,
				    .latency = 1e-3,
				    .out = { { 3, 1e8, 0.1 } },
				    .in = { { 3, 2e8, 0.1 } } },
				  { .why = "nobody there" } },
			 r[2];
	struct buf b = BUF_INIT;
	struct frame f = { .kind = FRAME_PROBE };
	*o = (struct probe_order){ .mode = PROBE_MEASURE,
				   .id = "b",
				   .seconds = 1,
				   .n = 2,
				   .address = { "10.0.0.1;10.0.0.2:1", "x" } };
	MUST(probe_order_write(o, &b, &err));
	f.payload = b.p;
	f.size = b.n;
	MUST(probe_order_read(&f, q, &err));
	assert_memory_equal(o, q, sizeof *o);
	for (f.size = 0; f.size < b.n; f.size++)
		assert_int_equal(probe_order_read(&f, q, &err), ERR_PROTOCOL);
	o->seconds = 1e9;
	MUST(probe_order_write(o, &b, &err));
	f.payload = b.p;
	f.size = b.n;
	assert_int_equal(probe_order_read(&f, q, &err), ERR_PROTOCOL);

	MUST(probe_ways_write(v, 2, &b, &err));
	f = (struct frame){ .kind = FRAME_PROBED, .payload = b.p, .size = b.n };
	MUST(probe_ways_read(&f, 2, r, &err));
	assert_true(r[0].reached && r[0].in[0].rate == 2e8 && !r[1].reached &&
		    !strcmp(r[1].why, "nobody there"));
	assert_int_equal(probe_ways_read(&f, 1, r, &err), ERR_PROTOCOL);
	for (f.size = 0; f.size < b.n; f.size++)
		assert_int_equal(probe_ways_read(&f, 2, r, &err), ERR_PROTOCOL);
	const double absurd[] = { 0, -1, 1e300, (double)NAN };
	for (size_t i = 0; i < 4; i++) {
		v[0].in[0].rate = absurd[i];
		MUST(probe_ways_write(v, 2, &b, &err));
		f = (struct frame){ .kind = FRAME_PROBED, .payload = b.p, .size = b.n };
		assert_int_equal(probe_ways_read(&f, 2, r, &err), ERR_PROTOCOL);
	}

	uint32_t left = 0;
	unsigned char p[13] = { 2 }; /* GIVE 0 messages of 0 bytes */
	f = (struct frame){ .kind = FRAME_PROBE, .payload = p, .size = sizeof p };
	assert_int_equal(probe_answer(NULL, &f, &left, &err), ERR_PROTOCOL);
	memset(p + 1, 0xfe, 12); /* more bytes than there are */
	assert_int_equal(probe_answer(NULL, &f, &left, &err), ERR_PROTOCOL);
	f = (struct frame){ .kind = FRAME_ACTIVATION };
	/* nobody asked for it */
	assert_int_equal(probe_answer(NULL, &f, &left, &err), ERR_PROTOCOL);
	buf_release(&b);
	free(o);
	free(q);
}

/* ---- two machines with two cables ---- */

static int run(const char *command) { return system(command); } /* of this test, with fixed texts */

static void cables(bool up)
{
	static const char *const down = "for n in a b; do ip netns del hslink-$n 2>/dev/null; done";
	static const char *const make =
		"set -e; for n in a b; do ip netns add hslink-$n; ip -n hslink-$n link set lo up; "
		"done\n"
		"for c in 1:20mbit 2:300mbit; do i=${c%%:*}; rate=${c#*:}\n"
		"ip link add hsl$i netns hslink-a type veth peer name hsl$i netns hslink-b\n"
		"for n in a:1 b:2; do ns=hslink-${n%%:*}; ip -n $ns addr add 10.91.$i.${n#*:}/24 "
		"dev "
		"hsl$i; ip -n $ns link set hsl$i up\n"
		"tc -n $ns qdisc add dev hsl$i root tbf rate $rate burst 64k latency 100ms; done; "
		"done\n";
	run(down);
	if (up)
		assert_int_equal(run(make), 0);
}

/* In namespace b: `self b KEYFILE KEY-OF-THE-OTHER`. */
static int be_worker_b(char **argv)
{
	struct worker w = { 0 };
	MUST(key_pair_load(argv[2], &w.key, &err));
	has_configuration(&w, argv[3], w.key.pub);
	worker_start(&w, "b", "*:41510", argv[3], argv[3]);
	pthread_join(w.thread, NULL);
	return w.rc < 0;
}

/* In namespace a: the coordinator and worker 'a', with one key. */
static int be_coordinator(char **argv)
{
	struct place p;
	struct worker w = { 0 };
	struct session *s;
	const struct link_table *t;
	bool turned;
	char address[NET_ADDRESS];
	place_make(&p);
	MUST(key_pair_load(argv[2], &w.key, &err));
	has_configuration(&w, w.key.pub, argv[3]);
	worker_start(&w, "a", "*:41509", w.key.pub, w.key.pub);
	struct seat_spec seat[2] = {
		{ .kind = SEAT_REMOTE,
		  .id = "a",
		  .host = "a",
		  .device = "cpu",
		  .key = w.key.pub,
		  .address = "10.91.1.1:41509" },
		{ .kind = SEAT_REMOTE,
		  .id = "b",
		  .host = "b",
		  .device = "cpu",
		  .key = argv[3],
		  .address = "10.91.1.2:41510" },
	};
	join(&p, &w.key, seat, 2, &s);
	const struct links_options o = { .seconds = 0.4 };
	MUST(links_measure(s, &o, &t, &err));
	for (size_t i = 0; i < t->n; i++)
		printf("  %s (%s) -> %s (%s): %s, %.1f us, %.2f MB/s there, %.2f MB/s back%s%s\n",
		       t->row[i].from_address, t->row[i].from_interface, t->row[i].to_address,
		       t->row[i].to_interface,
		       t->row[i].way.reached ? "reached" : t->row[i].way.why,
		       t->row[i].way.latency * 1e6, link_rate(&t->row[i], false, 1 << 20) * 1e-6,
		       link_rate(&t->row[i], true, 1 << 20) * 1e-6,
		       t->row[i].configured ? ", configured" : "", t->row[i].best ? ", best" : "");
	assert_int_equal(t->machines, 2);
	assert_int_equal(t->n, 4);
	const struct link_row *r = link_best(t, 1, 0, &turned);
	assert_true(r && turned && !r->configured);
	assert_string_equal(r->to_address, "10.91.2.2");
	links_address(session_ends(s), t, 0, 1, true, address);
	assert_memory_equal(strchr(address, ';') + 1, "10.91.2.2:41510#", 16);
	links_address(session_ends(s), t, 1, 0, true, address);
	assert_true(!strncmp(address, "10.91.2.2;", 10));
	session_close(s, NULL);
	pthread_join(w.thread, NULL);
	place_remove(&p);
	return 0;
}

static void the_faster_cable_is_chosen(void **state)
{
	(void)state;
	if (geteuid() != 0 || run("ip netns add hslink-a 2>/dev/null && ip netns del hslink-a && "
				  "command -v tc >/dev/null") != 0) {
		printf("network namespaces and tc need root and iproute2\n");
		skip();
	}
	struct tiny t;
	struct key_pair key[2];
	char file[2][300], command[9200];
	tiny_make(&t, 1, 1);
	for (int i = 0; i < 2; i++) {
		snprintf(file[i], sizeof file[i], "%.200s/key%d", t.dir, i);
		MUST(key_pair_generate(&key[i], &err));
		MUST(key_pair_save(&key[i], file[i], &err));
	}
	cables(true);
	snprintf(command, sizeof command,
		 "ip netns exec hslink-b '%s' b '%s' '%s' & ip netns exec hslink-a '%s' a '%s' "
		 "'%s'; rc=$?; wait $! || rc=1; exit "
		 "$rc",
		 self, file[1], key[0].pub, self, file[0], key[1].pub);
	int rc = run(command);
	cables(false);
	tiny_remove(&t);
	assert_int_equal(rc, 0);
}

int main(int argc, char **argv)
{
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	self[n > 0 ? n : 0] = 0;
	if (argc == 4)
		return strcmp(argv[1], "b") ? be_coordinator(argv) : be_worker_b(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(over_memory),
		cmocka_unit_test(over_tcp_with_keys),
		cmocka_unit_test(bad_orders_and_figures),
		cmocka_unit_test(the_faster_cable_is_chosen),
	};
	return cmocka_run_group_tests_name("train_links", tests, NULL, NULL);
}
