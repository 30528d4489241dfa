/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_shm_lies.c - a peer on the same machine that lies about shared memory, or writes to it
 * while it is read. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "net/frame.h"
#include "net/net.h"
#include "net/shm_meet.h"
#include "net/shm_memory.h"
#include "net/shm_pass.h"
#include "net/shm_proof.h"
#include "net/tls_head.h"
#include "support/meet.h"
#include "support/ok.h"
#include "support/raw.h"
#include "support/scratch.h"

static struct err err;
#define SOON net_in(20)

/* ---- a peer that writes false values -------------------------------------------------------- */

enum { WINDOW = 1 << 20, LARGEST = 1 << 18, PAGE = 4096 };

struct liar {
	struct net *n;
	struct link *l; /* the honest end */
	int fd;         /* the hostile peer's end */
};

static void say_head(struct liar *x, enum head_type type, uint64_t a, uint64_t b, int pass)
{
	raw_head(x->fd, type, a, b, pass);
}

static void liar_begin(struct liar *x)
{
	unsigned char first[PROOF_FIRST] = "HSP1", back[PROOF_FIRST + PROOF_SIGNATURE + HEAD_BYTES];
	const struct net_options o = { .window = WINDOW, .max_message = LARGEST };
	OK(net_open("shm", &o, &x->n, &err));
	OK(net_listen(x->n, "127.0.0.1:3021", NULL, &err));
	assert_int_equal(meet_connect("127.0.0.1:3021", &x->fd, &err), 1);
	fcntl(x->fd, F_SETFL, 0);
	raw_say(x->fd, first, sizeof first, NULL, 0);
	say_head(x, HEAD_HELLO, WINDOW, LARGEST, -1);
	assert_int_equal(recv(x->fd, back, sizeof back, MSG_WAITALL), sizeof back);
	assert_int_equal(net_accept(x->n, SOON, &x->l, &err), 1);
}

static int make_memory(size_t size, unsigned seals)
{
	int fd = memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

enum { SEALED = F_SEAL_SHRINK | F_SEAL_GROW };

static void no_seals(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 1 << 16, 0, make_memory(1 << 16, 0));
}
static void may_shrink(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 1 << 16, 0, make_memory(1 << 16, F_SEAL_GROW));
}
static void a_real_file(struct liar *x)
{
	const char *path = scratch("real");
	scratch_text(path, "x");
	int fd = open(path, O_RDWR);
	assert_true(fd >= 0 && ftruncate(fd, 1 << 16) == 0);
	say_head(x, HEAD_MEMORY, 1 << 16, 0, fd);
	close(fd);
}
static void a_device(struct liar *x)
{
	int fd = open("/dev/zero", O_RDWR);
	say_head(x, HEAD_MEMORY, 1 << 16, 0, fd);
	close(fd);
}
static void smaller_than_said(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 1 << 16, 0, make_memory(PAGE, SEALED));
}
static void no_descriptor(struct liar *x) { say_head(x, HEAD_MEMORY, 1 << 16, 0, -1); }
static void several_descriptors(struct liar *x)
{
	unsigned char head[HEAD_BYTES];
	int fd[3];
	for (int i = 0; i < 3; i++)
		fd[i] = make_memory(1 << 16, SEALED);
	head_write(head, HEAD_MEMORY, 1 << 16, 0);
	raw_say(x->fd, head, sizeof head, fd, 3);
	for (int i = 0; i < 3; i++)
		close(fd[i]);
}
static void a_large_number(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 1 << 16, SHM_BUFFERS, make_memory(1 << 16, SEALED));
}
static void the_same_number(struct liar *x)
{
	for (int i = 0; i < 2; i++)
		say_head(x, HEAD_MEMORY, 1 << 16, 3, make_memory(1 << 16, SEALED));
}
static void too_much_at_once(struct liar *x)
{
	say_head(x, HEAD_MEMORY, WINDOW + LARGEST + PAGE, 0,
		 make_memory(WINDOW + LARGEST + PAGE, SEALED));
}
static void too_much_in_all(struct liar *x)
{
	for (uint64_t i = 0; i < (WINDOW + LARGEST) / PAGE + 1; i++) {
		int fd = make_memory(PAGE, SEALED);
		say_head(x, HEAD_MEMORY, PAGE, i, fd);
		close(fd);
	}
}
static void odd_sizes(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 5000, 0, make_memory(5000, SEALED));
}
static void nothing_at_all(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 0, 0, make_memory(0, SEALED));
}
static void not_shared(struct liar *x) { say_head(x, HEAD_SHARED, 100, 7, -1); }
static void far_outside(struct liar *x) { say_head(x, HEAD_SHARED, 100, UINT64_MAX, -1); }
static void beyond_the_end(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 1 << 16, 0, make_memory(1 << 16, SEALED));
	say_head(x, HEAD_SHARED, (1 << 16) - 63, 0, -1);
}
static void endless(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 1 << 16, 0, make_memory(1 << 16, SEALED));
	say_head(x, HEAD_SHARED, UINT64_MAX - 100, 0, -1);
}
static void twice_in_one(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 1 << 16, 0, make_memory(1 << 16, SEALED));
	say_head(x, HEAD_SHARED, 100, 0, -1);
	say_head(x, HEAD_SHARED, 100, 0, -1);
}
static void drops_what_is_used(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 1 << 16, 0, make_memory(1 << 16, SEALED));
	say_head(x, HEAD_SHARED, 100, 0, -1);
	say_head(x, HEAD_DROP, 0, 0, -1);
}
static void drops_what_is_not_there(struct liar *x) { say_head(x, HEAD_DROP, 0, 5, -1); }
static void more_than_the_window(struct liar *x)
{
	for (uint64_t i = 0; i < 8; i++) {
		int fd = make_memory(LARGEST, SEALED);
		say_head(x, HEAD_MEMORY, LARGEST, i, fd);
		say_head(x, HEAD_SHARED, LARGEST - 64, i, -1);
		close(fd);
	}
}
static void garbage(struct liar *x)
{
	unsigned char p[2000];
	for (size_t i = 0; i < sizeof p; i++)
		p[i] = (unsigned char)(i * i * 31 + 7);
	raw_say(x->fd, p, sizeof p, NULL, 0);
}
static void second_hello(struct liar *x) { say_head(x, HEAD_HELLO, WINDOW, LARGEST, -1); }

static void lies_end_the_link(void **state)
{
	(void)state;
	static const struct {
		void (*lie)(struct liar *x);
		const char *says;
	} lies[] = { { no_seals, "change its size" },
		     { may_shrink, "change its size" },
		     { a_real_file, "change its size" },
		     { a_device, "change its size" },
		     { smaller_than_said, "change its size" },
		     { no_descriptor, "without its descriptor" },
		     { several_descriptors, "without its descriptor" },
		     { a_large_number, "too large a number" },
		     { the_same_number, "number that is in use" },
		     { too_much_at_once, "larger than this side accepts" },
		     { too_much_in_all, "larger than this side accepts" },
		     { odd_sizes, "larger than this side accepts" },
		     { nothing_at_all, "larger than this side accepts" },
		     { not_shared, "did not share" },
		     { far_outside, "did not share" },
		     { beyond_the_end, "larger than its buffer" },
		     { endless, "larger than this side accepts" },
		     { twice_in_one, "still uses" },
		     { drops_what_is_used, "not its own" },
		     { drops_what_is_not_there, "not its own" },
		     { more_than_the_window, "more than its window" },
		     { garbage, "no head of a message" },
		     { second_hello, "HELLO for a second time" } };
	meet_in("liar");
	int files = open_files();
	for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
		struct liar x;
		struct net_msg m, held[16];
		int rc, n = 0;
		liar_begin(&x);
		lies[i].lie(&x);
		while ((rc = link_recv(x.l, SOON, &m, &err)) == 1 && n < 16)
			held[n++] = m;
		if (rc != ERR_PROTOCOL || !strstr(err.msg, lies[i].says))
			fail_msg("lie %zu: %d, %s", i, rc, err.msg);
		while (n)
			net_msg_release(&held[--n]);
		close(x.fd);
		net_close(x.n, 1);
	}
	assert_int_equal(mappings(), 0);
	for (int fd = 3; fd < 300; fd++) /* the hostile peer's descriptors */
		if (fd > files + 1)
			close(fd);
}

/* Descriptors that no head asks for are closed, one or several of them. */
static void descriptors_that_nobody_wants(void **state)
{
	(void)state;
	struct liar x;
	struct net_msg m;
	meet_in("liar");
	liar_begin(&x);
	unsigned char head[HEAD_BYTES + 1];
	int fd[8], before = 0;
	for (int i = 0; i < 8; i++)
		fd[i] = make_memory(PAGE, SEALED);
	for (int i = 0; i < 64; i++) { /* a message of one byte */
		head_write(head, HEAD_MESSAGE, 1, 0);
		head[HEAD_BYTES] = 1;
		raw_say(x.fd, head, sizeof head, fd, 1 + i % 8);
		assert_int_equal(link_recv(x.l, SOON, &m, &err), 1);
		net_msg_release(&m);
		before = i == 31 ? open_files() : before;
	}
	assert_int_equal(open_files(), before);
	for (int i = 0; i < 8; i++)
		close(fd[i]);
	close(x.fd);
	net_close(x.n, 1);
}

/* What the peer writes into the shared memory harms only itself: the word that says who owns a
 * buffer, and the bytes of a message that is being read. */
static void scribbles(void **state)
{
	(void)state;
	struct liar x;
	struct net_msg m;
	struct frame f;
	meet_in("liar");
	liar_begin(&x);
	int fd = make_memory(1 << 16, SEALED), rc = 0;
	unsigned char *p = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(p != MAP_FAILED);
	unsigned char batch[FRAME_HEADER + 20000] = { 0 };
	size_t n;
	const struct frame out = { .kind = FRAME_BATCH,
				   .size = sizeof batch - FRAME_HEADER,
				   .payload = batch + FRAME_HEADER };
	OK(frame_encode(&out, batch, sizeof batch, &n, &err));
	memcpy(p, batch, n);
	say_head(&x, HEAD_MEMORY, 1 << 16, 0, fd);
	pid_t pid = fork();
	if (pid == 0) { /* writes all the time, headers and all */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (uint32_t k = 1;; k = k * 1664525 + 1013904223) {
			p[k % (FRAME_HEADER + 64)] = (unsigned char)(k >> 24);
			p[65536 - 64] = (unsigned char)(k >> 16);
			if (k % 64 == 0)
				memcpy(p, batch, FRAME_HEADER);
		}
	}
	int good = 0, bad = 0;
	for (int i = 0; i < 3000 && !bad; i++) {
		say_head(&x, HEAD_SHARED, n, 0, -1);
		rc = link_recv_frame(x.l, SOON, &m, &f, &err);
		if (rc == 1) {
			good++;
			assert_true(f.size <= n - FRAME_HEADER);
			net_msg_release(&m);
		} else {
			bad++;
			assert_int_equal(rc, ERR_PROTOCOL);
		}
	}
	printf("a peer that scribbles: %d frames taken, then: %s\n", good, bad ? err.msg : "-");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	munmap(p, 1 << 16);
	close(fd);
	close(x.fd);
	net_close(x.n, 1);
}

/* A descriptor that the honest end has shared. */
static int take_memory(struct liar *x)
{
	unsigned char head[HEAD_BYTES];
	struct crypt_io io = { .fd = x->fd };
	int fd = -1;
	while (fd < 0)
		assert_true(pass_read(&io, head, sizeof head, &fd) > 0);
	return fd;
}

/* The peer has the memory of both directions too, and tries to make it shorter while this side
 * uses it. A hole in it reads as zeros. */
static void memory_stays_as_long_as_it_is(void **state)
{
	(void)state;
	enum { SIZE = 1 << 16, LONG = 100000 };
	struct liar x;
	struct net_msg m;
	meet_in("liar");
	liar_begin(&x);
	char *p = link_buffer(x.l, LONG);
	assert_non_null(p);
	memset(p, 5, LONG);
	assert_int_equal(link_send(x.l, p, LONG, net_buffer_release, x.n, &err), 0);
	int fd = take_memory(&x);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(ftruncate(fd, 2 * LONG), -1);
	close(fd);
	fd = make_memory(SIZE, SEALED);
	say_head(&x, HEAD_MEMORY, SIZE, 0, fd);
	say_head(&x, HEAD_SHARED, SIZE - 64, 0, -1);
	assert_int_equal(link_recv(x.l, SOON, &m, &err), 1);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE), 0);
	size_t sum = 0;
	for (size_t i = 0; i < m.size; i++)
		sum += ((unsigned char *)m.data)[i];
	assert_int_equal(sum, 0);
	net_msg_release(&m);
	assert_int_equal(link_state(x.l), LINK_UP);
	close(fd);
	close(x.fd);
	net_close(x.n, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lies_end_the_link),
		cmocka_unit_test(descriptors_that_nobody_wants),
		cmocka_unit_test(scribbles),
		cmocka_unit_test(memory_stays_as_long_as_it_is),
	};
	return cmocka_run_group_tests_name("net_shm_lies", tests, NULL, NULL);
}
