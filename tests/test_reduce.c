/* SPDX-License-Identifier: Apache-2.0 */
/* test_reduce.c - every row of sched/reduce.def over every transport: members are threads with
 * links to each other, and sums travel in frames as between workers.
 *
 * Every member must get the same bits; in the order `exact` those of the tree that is computed
 * here, in the order `fast` a sum within rounding of float64 and the same bits from run to run,
 * whatever the threads do when. A member that dies at any message ends the others with an error.
 * Over MPI the members are ranks: the program starts itself under mpirun, and a rank that dies in
 * the middle of a sum ends all, by MPI's rules. */
#include "support/summing.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/frame.h"
#include "support/long.h"

static const char *const transports[] = {
#define TRANSPORT(id) #id,
#include "net/transport.def"
#undef TRANSPORT
};

/* ---- the sums that are tried ---- */

/* Microbatches dealt at random to those with a share. */
static void deal(struct sums *s, const int *share, uint64_t seed)
{
	const struct rng_key key = rng_key(seed);
	uint64_t all = 0;
	for (int k = 0; k < s->n; k++)
		all += (uint64_t)share[k];
	for (int i = 0; i < s->microbatches; i++) {
		uint64_t x = rng_below(key, (uint64_t)i, all);
		int k = 0;
		for (; x >= (uint64_t)share[k]; k++)
			x -= (uint64_t)share[k];
		s->place[i] = k;
	}
}

static const struct {
	const char *name;
	int n, microbatches;
	int share[GROUP];
	size_t count, largest;
} row[] = {
	{ "alone", 1, 3, { 1 }, 7, 0 },
	{ "alone, nothing", 1, 2, { 1 }, 0, 0 },
	{ "two, nothing", 2, 4, { 1, 1 }, 0, 0 },
	{ "two, one number", 2, 4, { 1, 3 }, 1, 0 },
	{ "two, a prime", 2, 7, { 2, 1 }, 4099, 0 },
	{ "two, several segments", 2, 5, { 1, 1 }, 300007, 0 },
	{ "three, seven numbers", 3, 6, { 1, 2, 3 }, 7, 0 },
	{ "three, a large prime", 3, 9, { 1, 1, 5 }, 65537, 0 },
	{ "three, two without terms", 3, 4, { 0, 1, 0 }, 4099, 1000 },
	{ "three, the first without terms", 3, 13, { 0, 1, 2 }, 65537, 20000 },
	{ "four, fewer numbers than members", 4, 8, { 1, 1, 1, 1 }, 3, 0 },
	{ "four, uneven segments", 4, 16, { 4, 3, 2, 1 }, 4099, 1021 },
	{ "five, two numbers", 5, 11, { 1, 2, 1, 2, 1 }, 2, 0 },
	{ "five, segments of one number", 5, 5, { 1, 1, 1, 1, 1 }, 7, 1 },
	{ "five, more segments than are begun ahead", 5, 10, { 3, 0, 1, 1, 2 }, 2999, 29 },
	{ "five, fewer terms than members", 5, 2, { 1, 1, 1, 1, 1 }, 65537, 0 },
};

static void sums_make(struct sums *s, size_t i, enum sum_order order)
{
	*s = (struct sums){ .name = row[i].name,
			    .order = order,
			    .n = row[i].n,
			    .microbatches = row[i].microbatches,
			    .count = row[i].count,
			    .largest = row[i].largest };
	deal(s, row[i].share, 77 + i);
}

/* Each once without delays, and `turns` - 1 times with those of other seeds. */
static void all_of(struct group *g, const struct reducer *how, enum sum_order order, uint64_t turns,
		   double *worst_p)
{
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		struct sums s;
		float *first = NULL;
		if (row[i].n != g->n)
			continue;
		sums_make(&s, i, order);
		for (uint64_t turn = 0; turn < turns; turn++) {
			group_sum_once(g, &s, how, turn);
			for (int k = 0; k < g->n; k++) {
				if (g->m[k].rc < 0)
					fail_msg("%s over %s, %s: place %d: %s", how->name,
						 g->transport, s.name, k, g->m[k].e.msg);
				if (g->m[k].n)
					fail_msg("%s, %s: place %d got %zu messages too many",
						 how->name, s.name, k, g->m[k].n);
			}
			*worst_p = fmax(*worst_p, member_check(&g->m[0]));
			for (int k = 1; k < g->n; k++)
				assert_memory_equal(g->m[0].result, g->m[k].result,
						    s.count * sizeof *first);
			if (first)
				assert_memory_equal(first, g->m[0].result, s.count * sizeof *first);
			else
				first = g->m[0].result, g->m[0].result = NULL;
			group_drop(g);
		}
		mem_free(first);
	}
}

static bool is_mpi(const char *transport) { return !strcmp(transport, "mpi"); }

static void every_row_over_every_transport(void **state)
{
	(void)state;
	for (size_t t = 0; t < ARRAY_LEN(transports); t++) {
		if (is_mpi(transports[t]))
			continue;
		/* over the first, with every choice of members that add elsewhere (summing.c) */
		const uint64_t turns = test_is_long() ? 10 : strcmp(transports[t], "loop") ? 2 : 4;
		const struct reducer *how;
		for (size_t k = 0; (how = reducer_at(k)); k++) {
			double worst = 0;
			if (how->collective)
				continue;
			for (int n = 1; n <= GROUP; n++) {
				struct group g;
				group_make(&g, transports[t], n, 0);
				all_of(&g, how, SUM_FAST, turns, &worst);
				if (how->exact)
					all_of(&g, how, SUM_EXACT, turns, &worst);
				group_end(&g);
			}
			printf("%-8s over %-5s %sfast within %.2g of the sum of sizes\n", how->name,
			       transports[t], how->exact ? "exact is the tree, " : "", worst);
		}
	}
}

/* ---- the order of one member's messages ---- */

enum { SEGMENTS = 6 };
struct order {
	uint32_t numbers;
	int at, sent[SEGMENTS], received[SEGMENTS]; /* when the last of a segment was */
};

static int no_numbers(void *ctx, size_t k, size_t first, size_t count, float *v, struct err *e)
{
	(void)ctx, (void)k, (void)first, (void)e;
	memset(v, 0, count * sizeof *v);
	return 0;
}

static int no_result(void *ctx, size_t first, size_t count, const float *v, struct err *e)
{
	(void)ctx, (void)first, (void)count, (void)v, (void)e;
	return 0;
}

static int note_sent(void *ctx, int place, uint32_t number, const float *v, size_t count,
		     struct err *e)
{
	struct order *o = ctx;
	(void)place, (void)v, (void)count, (void)e;
	o->sent[number / o->numbers] = ++o->at;
	return 0;
}

static int note_received(void *ctx, int place, uint32_t number, float *v, size_t count,
			 struct err *e)
{
	struct order *o = ctx;
	(void)place, (void)e;
	memset(v, 0, count * sizeof *v);
	o->received[number / o->numbers] = ++o->at;
	return 0;
}

static int is_there(void *ctx, int place, uint32_t number, struct err *e)
{
	(void)ctx, (void)place, (void)number, (void)e;
	return 1;
}

/* Everything of segment s + 1 has been sent when a member waits for the last message of segment s:
 * while it works on that, something is on the wire. */
static void the_next_segment_is_on_its_way(void **state)
{
	static const char *const ways[] = { "ring", "direct" };
	const int place[] = { 0, 1 };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
		struct order o = { 0 };
		struct sum_terms terms = { 0 };
		struct reduction r = { .how = reducer_find(ways[i]),
				       .io = { no_numbers, no_result, note_sent, note_received,
					       NULL, is_there, &o, NULL, NULL, NULL },
				       .terms = &terms,
				       .n = 2,
				       .count = SEGMENTS * 100,
				       .largest = 100 };
		OK(sum_terms_find(&terms, SUM_FAST, place, 2, &err));
		o.numbers = r.how->numbers(&r);
		OK(reduce_begin(&r, &err));
		OK(reduce_finish(&r, &err));
		for (int s = 0; s + 1 < SEGMENTS; s++)
			assert_true(o.sent[s + 1] < o.received[s] && o.sent[s + 1] > 0);
		reduce_release(&r);
		sum_terms_release(&terms);
	}
}

/* Shared state: each place gets the sums of its piece and no other, however uneven the pieces. */
static void every_row_scatters(void **state)
{
	enum { CUTS = 5 };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		const struct reducer *how;
		struct group g;
		group_make(&g, "loop", row[i].n, 0);
		for (size_t k = 0; (how = reducer_at(k)); k++)
			for (uint64_t c = 0; c < CUTS && !how->collective; c++) {
				struct sums s;
				const struct rng_key key = rng_key(31 * i + c);
				sums_make(&s, i, how->exact ? SUM_EXACT : SUM_FAST);
				s.shared = true;
				/* anywhere; or all of it to the first, or to the last */
				for (int p = 1; p < s.n; p++) {
					const size_t at = rng_below(key, (uint64_t)p, s.count + 1);
					s.cut[p] = c == 0              ? s.count
						   : c == 1            ? 0
						   : at > s.cut[p - 1] ? at
								       : s.cut[p - 1];
				}
				s.cut[s.n] = s.count;
				group_sum_once(&g, &s, how, c);
				for (int p = 0; p < g.n; p++) {
					if (g.m[p].rc < 0)
						fail_msg("%s, %s: place %d: %s", how->name, s.name,
							 p, g.m[p].e.msg);
					assert_int_equal(g.m[p].n, 0);
					member_check(&g.m[p]);
				}
				group_drop(&g);
			}
		group_end(&g);
	}
}

/* Windows that hold less than one message of a segment. */
static void small_windows(void **state)
{
	const uint64_t turns = test_is_long() ? 3 : 1;
	(void)state;
	for (size_t t = 0; t < ARRAY_LEN(transports); t++) {
		const struct reducer *how;
		struct group g;
		double worst = 0;
		if (is_mpi(transports[t]))
			continue;
		for (size_t k = 0; (how = reducer_at(k)); k++) {
			if (how->collective)
				continue;
			group_make(&g, transports[t], 3, 2000);
			all_of(&g, how, SUM_FAST, turns, &worst);
			if (how->exact)
				all_of(&g, how, SUM_EXACT, turns, &worst);
			group_end(&g);
		}
	}
}

/* ---- a member that dies ---- */

static bool is_lost_link(const struct err *e) { return e->code == ERR_NET; }

/* Member `who` dies at its message `at`. False: it had no such message. */
static bool one_death(const char *transport, const struct sums *s, const struct reducer *how,
		      int who, int at, int *errors_p)
{
	struct group g;
	group_make(&g, transport, s->n, 0);
	g.m[who].dies_at = at;
	group_sum_once(&g, s, how, (uint64_t)at + 1);
	const bool died = g.m[who].rc < 0;
	for (int k = 0; k < g.n; k++) {
		const struct member *m = &g.m[k];
		if (m->rc >= 0) /* it had all it needed, or nobody died */
			member_check(m);
		else if (k != who && !is_lost_link(&m->e))
			fail_msg("%s over %s: place %d dies at message %d; place %d: %s (%d)",
				 how->name, transport, who, at, k, m->e.msg, m->e.code);
		*errors_p += k != who && m->rc < 0;
	}
	if (died && g.m[who].e.code != ERR_CANCELLED)
		fail_msg("%s: place %d: %s", how->name, who, g.m[who].e.msg);
	group_drop(&g);
	group_end(&g);
	return died;
}

static void a_member_dies_at_every_message(void **state)
{
	(void)state;
	for (size_t t = 0; t < ARRAY_LEN(transports); t++) {
		/* a handshake each time: with encryption only some of the moments */
		const int stride = test_is_long() || !strcmp(transports[t], "loop") ? 1 : 5;
		const struct reducer *how;
		if (is_mpi(transports[t]))
			continue;
		for (size_t k = 0; (how = reducer_at(k)); k++) {
			if (how->collective)
				continue;
			struct sums s = { .name = "three segments",
					  .order = how->exact ? SUM_EXACT : SUM_FAST,
					  .n = 3,
					  .microbatches = 4,
					  .place = { 0, 1, 1, 2 },
					  .count = 30,
					  .largest = 10 };
			int deaths = 0, errors = 0;
			for (int who = 0; who < s.n; who++)
				for (int at = who;
				     one_death(transports[t], &s, how, who, at, &errors);
				     at += stride)
					deaths++;
			assert_true(deaths >= 3 && errors >= deaths);
			printf("%-8s over %-5s %d deaths, %d others ended by them\n", how->name,
			       transports[t], deaths, errors);
		}
	}
}

/* ---- over MPI: the members are ranks ---- */

#ifdef HAVE_MPI

enum { RANKS = 4 };

static void rank_links(struct group *g, struct member *m)
{
	char at[32];
	for (int r = m->me + 1; r < g->n; r++) {
		snprintf(at, sizeof at, "rank:%d", r);
		OK(net_connect(m->net, at, NULL, net_in(patience), &m->link[r], &err));
	}
	for (int k = 0; k < m->me; k++) {
		struct link *l;
		assert_int_equal(net_accept(m->net, net_in(patience), &l, &err), 1);
		m->link[link_address(l)[5] - '0'] = l;
	}
}

/* Every rank tells a digest of what it got, in numbers that the sum keeps as they are. */
static void same_everywhere(const struct group *g, const struct member *m)
{
	enum { PIECES = 3, BITS = 21 };
	const unsigned char *p = (const unsigned char *)m->result;
	uint64_t digest = 14695981039346656037u;
	for (size_t i = 0; i < m->sums->count * sizeof *m->result; i++)
		digest = (digest ^ p[i]) * 1099511628211u;
	float *v = net_group_room(m->all, (size_t)g->n * PIECES);
	assert_non_null(v);
	memset(v, 0, (size_t)g->n * PIECES * sizeof *v);
	for (int k = 0; k < PIECES; k++)
		v[m->me * PIECES + k] = (float)(digest >> k * BITS & ((1u << BITS) - 1));
	OK(net_group_sum(m->all, (size_t)g->n * PIECES, &err));
	const int64_t deadline = net_in(patience);
	while (net_group_done(m->all, &err) == 0) {
		net_poll(m->net, NULL, 0, deadline);
		assert_true(clock_now() < deadline);
	}
	for (int k = 0; k < g->n; k++)
		assert_memory_equal(v + k * PIECES, v + m->me * PIECES, PIECES * sizeof *v);
}

static void one_of(struct group *g, struct member *m, const struct sums *s,
		   const struct reducer *how, uint64_t delays, double *worst_p)
{
	m->sums = s;
	m->how = how;
	m->step++;
	m->delayed = delays;
	m->turn = delays;
	m->advances = (int)(delays % 5) * 3;
	m->delays = rng_key(delays * 100 + (uint64_t)m->me);
	m->ops = 0;
	m->results = 0;
	m->result = mem_array(s->count + 1, sizeof *m->result);
	assert_non_null(m->result);
	for (size_t k = 0; k < s->count; k++)
		m->result[k] = NAN;
	member_run(m);
	if (m->rc < 0)
		fail_msg("%s over mpi, %s: rank %d: %s", how->name, s->name, m->me, m->e.msg);
	if (m->n)
		fail_msg("%s, %s: rank %d got %zu messages too many", how->name, s->name, m->me,
			 m->n);
	*worst_p = fmax(*worst_p, member_check(m));
	same_everywhere(g, m);
	mem_free(m->result);
	m->result = NULL;
}

static void ranks_try(struct group *g, struct member *m, const struct reducer *how,
		      enum sum_order order)
{
	const uint64_t turns = test_is_long() ? 10 : 2;
	double worst = 0;
	for (size_t i = 0; i < ARRAY_LEN(row); i++)
		for (uint64_t turn = 0; row[i].n == g->n && turn < turns; turn++) {
			struct sums s;
			sums_make(&s, i, order);
			one_of(g, m, &s, how, turn, &worst);
		}
	if (!m->me)
		printf("%-8s over mpi, %d ranks, %s: within %.2g of the sum of sizes\n", how->name,
		       g->n, sum_order_name(order), worst);
}

/* Every row; or one sum in which rank HS_TEST_DIES ends itself at its message HS_TEST_AT. */
static void as_a_rank(void **state)
{
	const char *dies = getenv("HS_TEST_DIES"), *only = getenv("HS_TEST_ROW");
	const struct reducer *how;
	struct net_ranks world;
	struct group g = { .transport = "mpi" };
	const char *at[RANKS];
	char text[RANKS][32];
	(void)state;
	alarm(150);
	struct member *m = &g.m[0];
	OK(net_open("mpi", &(struct net_options){ .window = 8 << 20 }, &m->net, &err));
	OK(net_world(m->net, &world, &err));
	OK(net_listen(m->net, "rank:*", m->at, &err));
	g.n = world.size;
	m->me = world.rank;
	m->dies_at = NEVER;
	rank_links(&g, m);
	for (int r = 0; r < g.n; r++) {
		snprintf(text[r], sizeof text[r], "rank:%d", r);
		at[r] = text[r];
	}
	at[g.n - 1] = "rank:99";
	assert_int_equal(net_group_make(m->net, at, g.n, &m->all, &err), ERR_USAGE);
	at[g.n - 1] = text[g.n - 1];
	OK(net_group_make(m->net, at, g.n, &m->all, &err));
	if (dies && strtol(dies, NULL, 10) == m->me)
		m->dies_at = (int)strtol(getenv("HS_TEST_AT"), NULL, 10);
	for (size_t k = 0; (how = reducer_at(k)); k++) {
		if (only && strcmp(only, how->name))
			continue;
		ranks_try(&g, m, how, SUM_FAST);
		if (how->exact)
			ranks_try(&g, m, how, SUM_EXACT);
	}
	net_close(m->net, 20);
	m->net = NULL;
	member_leave(m);
}

/* The exit status of `n` ranks of this program. */
static int run_ranks(int n)
{
	char self[4096], count[8];
	ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
	assert_true(length > 0);
	self[length] = 0;
	snprintf(count, sizeof count, "%d", n);
	setenv("HS_TEST_RANK", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
	setenv("OMPI_MCA_btl", "self,vader,tcp", 1); /* this machine only */
	setenv("OMPI_MCA_btl_tcp_if_include", "lo", 1);
	setenv("OMPI_MCA_oob_tcp_if_include", "lo", 1);
	setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* MPI keeps memory to the end */
		unsetenv("CMOCKA_MESSAGE_OUTPUT");           /* a rank is no test of its own */
		execlp("mpirun", "mpirun", "-n", count, self, (char *)NULL);
		_exit(127);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	unsetenv("HS_TEST_RANK");
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool has_mpirun(void) { return !system("command -v mpirun >/dev/null 2>&1"); }

static void every_row_over_mpi(void **state)
{
	(void)state;
	if (!has_mpirun())
		skip();
	for (int n = 1; n <= RANKS; n++)
		assert_int_equal(run_ranks(n), 0);
}

/* While others are in the middle of the sum, and for rows of messages too. */
static void a_rank_that_dies_ends_all(void **state)
{
	static const struct {
		const char *how, *who, *at;
	} death[] = { { "mpi", "0", "2" }, { "mpi", "2", "5" }, { "ring", "1", "7" } };
	(void)state;
	if (!has_mpirun())
		skip();
	for (size_t i = 0; i < (test_is_long() ? ARRAY_LEN(death) : 2); i++) {
		setenv("HS_TEST_ROW", death[i].how, 1);
		setenv("HS_TEST_DIES", death[i].who, 1);
		setenv("HS_TEST_AT", death[i].at, 1);
		const int rc = run_ranks(3);
		unsetenv("HS_TEST_ROW");
		unsetenv("HS_TEST_DIES");
		if (rc == 0 || rc == 127)
			fail_msg("%s: rank %s dies at message %s: status %d", death[i].how,
				 death[i].who, death[i].at, rc);
	}
}

#endif

int main(void)
{
#ifdef HAVE_MPI
	if (getenv("HS_TEST_RANK")) {
		const struct CMUnitTest rank[] = { cmocka_unit_test(as_a_rank) };
		return cmocka_run_group_tests(rank, sums_gradients, sums_drop);
	}
#endif
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_over_every_transport),
		cmocka_unit_test(the_next_segment_is_on_its_way),
		cmocka_unit_test(every_row_scatters),
		cmocka_unit_test(small_windows),
		cmocka_unit_test(a_member_dies_at_every_message),
#ifdef HAVE_MPI
		cmocka_unit_test(every_row_over_mpi),
		cmocka_unit_test(a_rank_that_dies_ends_all),
#endif
	};
	return cmocka_run_group_tests(tests, sums_gradients, sums_drop);
}
