/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_mpi.c - the contract of net.h over MPI: starts itself as three ranks under mpirun.
 * Skipped where MPI is not built in or mpirun is not installed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/frame.h"
#include "net/net.h"

#ifdef HAVE_MPI

static struct err err;
#define SOON net_in(30)
#define MUST(what)                                                                                 \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "rank %d, line %d: %s: %s\n", rank, __LINE__, #what,       \
				err.msg);                                                          \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static int rank, size;
static struct net *net;

static void address_of(int r, char out[32]) { snprintf(out, 32, "rank:%d", r); }

/* Every rank dials every higher one: a link to each, found by address. */
static void all_links(struct link *to[3])
{
	char at[32];
	for (int r = rank + 1; r < size; r++) {
		address_of(r, at);
		MUST(net_connect(net, at, NULL, SOON, &to[r], &err) == 0);
	}
	for (int k = 0; k < rank; k++) {
		struct link *l;
		MUST(net_accept(net, SOON, &l, &err) == 1);
		MUST(strncmp(link_address(l), "rank:", 5) == 0);
		to[link_address(l)[5] - '0'] = l;
	}
	for (int r = 0; r < size; r++)
		MUST(r == rank || link_state(to[r]) == LINK_UP);
}

static void order(struct link *to[3])
{
	enum { MANY = 200 };
	static unsigned char p[70000];
	struct net_msg m;
	for (int i = 0; i < MANY; i++)
		for (int r = 0; r < size; r++)
			if (r != rank) {
				size_t n = (size_t)(i * 7919) % sizeof p;
				memset(p, i + rank, n);
				MUST(link_send_copy(to[r], p, n, SOON, &err) == 0);
			}
	for (int r = 0; r < size; r++)
		for (int i = 0; r != rank && i < MANY; i++) {
			size_t n = (size_t)(i * 7919) % sizeof p;
			MUST(link_recv(to[r], SOON, &m, &err) == 1);
			MUST(m.size == n);
			for (size_t k = 0; k < n; k++)
				MUST(((unsigned char *)m.data)[k] == (unsigned char)(i + r));
			net_msg_release(&m);
		}
}

static int released;

static void release(void *ctx, void *data)
{
	(void)ctx;
	__atomic_add_fetch(&released, 1, __ATOMIC_SEQ_CST);
	free(data);
}

/* One message of any content from `l`. */
static void hear(struct link *l)
{
	struct net_msg m;
	MUST(link_recv(l, SOON, &m, &err) == 1);
	net_msg_release(&m);
}

static void say(struct link *l) { MUST(link_send_copy(l, "x", 1, SOON, &err) == 0); }

/* Rank 0 sends to rank 1, which receives only when rank 2 says so: a full window, a message of 64
 * MiB alone, ownership. */
static void pressure(struct link *to[3])
{
	struct net_msg m;
	const size_t big = 64 << 20;
	if (rank == 0) {
		int n = 0, rc;
		struct link_stats st;
		hear(to[1]); /* rank 1 has received all that came before */
		for (link_stats(to[1], &st); st.in_flight > 1 << 16; link_stats(to[1], &st))
			usleep(1000); /* until its credit has arrived */
		for (;; n++) {
			void *p = calloc(1, 1 << 20);
			rc = link_send(to[1], p, 1 << 20, release, NULL, &err);
			if (rc != 0) {
				free(p);
				break;
			}
		}
		/* the window is 8 MiB; each message counts a little more than its bytes */
		MUST(rc == LINK_FULL && n == 7);
		say(to[2]);
		struct net_poll p = { .link = to[1], .want = NET_SEND };
		MUST(net_poll(net, &p, 1, SOON) == 1);
		unsigned char *q = malloc(big);
		memset(q, 3, big);
		MUST(link_send_wait(to[1], q, big, release, NULL, SOON, &err) == 0);
		MUST(link_recv(to[1], SOON, &m, &err) == 1 && m.size == 0);
		net_msg_release(&m);
		MUST(__atomic_load_n(&released, __ATOMIC_SEQ_CST) == n + 1);
	} else if (rank == 1) {
		say(to[0]);
		hear(to[2]);
		for (int i = 0; i < 7; i++) {
			MUST(link_recv(to[0], SOON, &m, &err) == 1 && m.size == 1 << 20);
			net_msg_release(&m);
		}
		MUST(link_recv(to[0], SOON, &m, &err) == 1 && m.size == big);
		for (size_t i = 0; i < big; i += 997)
			MUST(((unsigned char *)m.data)[i] == 3);
		net_msg_release(&m);
		MUST(link_send_copy(to[0], NULL, 0, SOON, &err) == 0);
	} else {
		hear(to[0]);
		say(to[1]);
	}
}

/* Frames, a link that is closed behind its last message, deadlines. */
static void ending(struct link *to[3])
{
	struct net_msg m;
	struct frame f = { .kind = FRAME_FINISH, .step = 9 }, g;
	struct link *l;
	char at[32];
	int left = (rank + 1) % size, right = (rank + 2) % size;
	int64_t began = clock_now();
	MUST(net_accept(net, net_in(0.02), &l, &err) == 0 && clock_now() - began >= 20000000);
	/* Tell both other ranks that this one is done with the line above, so that no frame comes
	 * before its receiver expects it. */
	for (int r = 0; r < size; r++)
		if (r != rank)
			say(to[r]);
	for (int r = 0; r < size; r++)
		if (r != rank)
			hear(to[r]);
	MUST(link_send_frame(to[left], &f, SOON, &err) == 0);
	MUST(link_recv_frame(to[right], SOON, &m, &g, &err) == 1 && g.kind == FRAME_FINISH &&
	     g.step == 9);
	net_msg_release(&m);
	if (rank == 0) {
		for (int i = 0; i < 20; i++)
			MUST(link_send_copy(to[2], "tail", 4, SOON, &err) == 0);
		link_close(to[2]);
	} else if (rank == 2) {
		for (int i = 0; i < 20; i++)
			hear(to[0]);
		MUST(link_recv(to[0], SOON, &m, &err) == ERR_NET &&
		     strstr(err.msg, "closed by the peer"));
	}
	address_of(rank, at);
	MUST(net_dial(net, at, NULL, SOON, &l, &err) == ERR_USAGE);
	MUST(net_dial(net, "rank:99", NULL, SOON, &l, &err) == ERR_USAGE);
}

static int run_rank(void)
{
	struct net_options o = { .window = 8 << 20 };
	struct net *second;
	struct link *to[3] = { NULL };
	char at[NET_ADDRESS];
	alarm(120);
	MUST(net_open("mpi", &o, &net, &err) == 0);
	struct net_ranks world;
	MUST(net_world(net, &world, &err) == 0 && world.size == 3 &&
	     world.local == (world.rank ? world.rank - 1 : 0));
	rank = world.rank;
	size = world.size;
	MUST(net_open("mpi", &o, &second, &err) == ERR_UNSUPPORTED);
	if (rank == 2)
		usleep(50000); /* others dial before this one listens */
	MUST(net_listen(net, "rank:*", at, &err) == 0);
	all_links(to);
	order(to);
	pressure(to);
	ending(to);
	net_close(net, 20);
	return 0;
}

static void three_ranks(void **state)
{
	(void)state;
	if (system("command -v mpirun >/dev/null 2>&1") != 0)
		skip();
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	assert_true(n > 0);
	self[n] = 0;
	setenv("HS_TEST_RANK", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
	setenv("OMPI_MCA_btl", "self,vader,tcp", 1); /* this machine only */
	setenv("OMPI_MCA_btl_tcp_if_include", "lo", 1);
	setenv("OMPI_MCA_oob_tcp_if_include", "lo", 1);
	setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
	/* MPI keeps memory to the end and unloads the plug-ins that allocated it, so no suppression
	 * can name them. */
	setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
	pid_t pid = fork();
	if (pid == 0) {
		execlp("mpirun", "mpirun", "-n", "3", self, (char *)NULL);
		_exit(127);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	if (getenv("HS_TEST_RANK"))
		return run_rank();
	const struct CMUnitTest tests[] = { cmocka_unit_test(three_ranks) };
	return cmocka_run_group_tests_name("net_mpi", tests, NULL, NULL);
}

#else

static void not_built_in(void **state)
{
	(void)state;
	skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(not_built_in) };
	return cmocka_run_group_tests_name("net_mpi", tests, NULL, NULL);
}

#endif
