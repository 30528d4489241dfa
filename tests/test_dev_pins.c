/* SPDX-License-Identifier: Apache-2.0 */
/* test_dev_pins.c - memory that two processes of a machine share is known to their cards: tensors
 * go there and come from there without a copy on the way. On a stand-in (support/fake_rt.h), which
 * takes no other memory for transfers beside kernels, and ends the process when known memory is
 * unmapped. It says nothing about real cards. */
#include "support/fake_rt.h"

#include "dev/pin.h"
#include "dev/rt.h"
#include "net/net.h"
#include "support/meet.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { BYTES = 6 << 20, LATER = 4096 /* of the first byte of a transfer */ };

static unsigned char *pages(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(p != MAP_FAILED);
	return p;
}

static void fill(unsigned char *p, size_t n, unsigned salt)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(i * 31 + i / 4099 + salt);
}

/* There and back, and each end used at once by somebody else. */
static void round_trip(struct dev *d, unsigned char *host, size_t n, unsigned char *want)
{
	struct err e = { 0 };
	struct dev_buf *a = take(d, n), *b = take(d, n);
	fill(host + LATER, n, 1);
	memcpy(want, host + LATER, n);
	assert_int_equal(dev_upload(DEV_REF(a, 0), host + LATER, n, &e), 0);
	memset(host + LATER, 0, n); /* the caller's again */
	assert_int_equal(scale(d, b, a, (int64_t)(n / 4), 1, &e), 0);
	assert_int_equal(dev_upload(DEV_REF(a, 0), host + LATER, n, &e), 0); /* after the kernel */
	assert_int_equal(dev_copy(DEV_REF(a, 0), DEV_REF(b, 0), n, &e), 0);
	assert_int_equal(dev_download_begin(host + LATER, DEV_REF(a, 0), n, &e), 0);
	assert_int_equal(dev_zero(DEV_REF(a, 0), n, &e), 0); /* after what was begun */
	assert_int_equal(dev_download_end(d, &e), 0);
	assert_memory_equal(host + LATER, want, n);
	assert_int_equal(dev_download(host + LATER, DEV_REF(a, 0), n, &e), 0);
	assert_int_equal(host[LATER] | host[LATER + n - 1], 0);
	dev_free(a);
	dev_free(b);
}

static void transfers_without_a_copy(void **state)
{
	static const size_t sizes[] = { RT_DIRECT - 4, RT_DIRECT, BYTES };
	unsigned char *host = pages(BYTES + 2 * LATER), *want = mem_alloc(BYTES);
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++)
		for (int turn = 0; turn < 3; turn++) {
			faults(turn == 1 ? "noregister" : "");
			struct dev *d = open_card(specs[i]);
			const struct rt *c = d->priv;
			const bool known = turn < 2 && dev_pin(d, host, BYTES + 2 * LATER);
			assert_true(dev_pins(d) && known == (turn == 0));
			for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
				const uint64_t before = c->direct;
				round_trip(d, host, sizes[k], want);
				assert_true(c->direct - before ==
					    (known && sizes[k] >= RT_DIRECT ? 4 * sizes[k] : 0));
			}
			if (known) {
				/* beyond the end it is other memory */
				assert_false(dev_pin(d, host + LATER, LATER));
				dev_unpin(d, host + LATER);
				dev_unpin(d, host);
				const uint64_t before = c->direct;
				round_trip(d, host, BYTES, want);
				assert_true(c->direct == before);
				assert_true(dev_pin(d, host, LATER)); /* forgotten at the close */
			}
			dev_close(d);
		}
	faults("");
	munmap(host, BYTES + 2 * LATER);
	mem_free(want);
	struct dev *cpu = open_card("cpu");
	assert_false(dev_pins(cpu));
	dev_close(cpu);
}

/* The stand-in notices: this test could not pass with memory that goes too early. */
static void unmapped_too_early_is_noticed(void **state)
{
	int status;
	(void)state;
	fflush(stdout);
	const pid_t pid = fork();
	if (!pid) {
		struct dev *d = open_card(specs[0]);
		unsigned char *host = pages(BYTES);
		if (!dev_pin(d, host, BYTES) || munmap(host, BYTES))
			_exit(1);
		dev_unpin(d, host);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static bool pin(void *d, void *p, size_t n) { return dev_pin(d, p, n); }
static void unpin(void *d, void *p) { dev_unpin(d, p); }

/* A card writes into the memory of a link, another one at its end reads it there. */
static void from_card_to_card(const char *spec, bool refused)
{
	struct err e = { 0 };
	struct net *a, *b;
	struct link *la, *lb;
	struct net_msg m;
	char at[NET_ADDRESS];
	unsigned char *got = mem_alloc(BYTES), *want = mem_alloc(BYTES);
	faults(refused ? "noregister" : "");
	struct dev *from = open_card(spec), *to = open_card(spec);
	struct rt *cf = from->priv, *ct = to->priv;
	struct dev_buf *x = take(from, BYTES), *y = take(to, BYTES);
	fill(want, BYTES, 5);
	assert_int_equal(dev_upload(DEV_REF(x, 0), want, BYTES, &e), 0);
	const struct net_options o = { .window = 16 << 20 };
	assert_int_equal(net_open("shm", &o, &a, &e), 0);
	assert_int_equal(net_open("shm", &o, &b, &e), 0);
	net_pin(a, &(struct net_pinner){ pin, unpin, from });
	net_pin(b, &(struct net_pinner){ pin, unpin, to });
	assert_int_equal(net_listen(b, "127.0.0.1:0", at, &e), 0);
	assert_int_equal(net_connect(a, at, NULL, net_in(20), &la, &e), 0);
	assert_int_equal(net_accept(b, net_in(20), &lb, &e), 1);
	for (int i = 0; i < 9; i++) { /* more than the window: buffers are used again */
		unsigned char *p = link_buffer(la, BYTES + 64);
		assert_non_null(p);
		assert_int_equal(dev_download_begin(p + 64, DEV_REF(x, 0), BYTES, &e), 0);
		assert_int_equal(dev_download_end(from, &e), 0);
		assert_int_equal(
			link_send_wait(la, p, BYTES + 64, net_buffer_release, a, net_in(20), &e),
			0);
		assert_int_equal(link_recv(lb, net_in(20), &m, &e), 1);
		assert_int_equal(dev_upload(DEV_REF(y, 0), (char *)m.data + 64, BYTES, &e), 0);
		net_msg_release(&m);
		assert_int_equal(dev_download(got, DEV_REF(y, 0), BYTES, &e), 0);
		assert_memory_equal(got, want, BYTES);
	}
	const uint64_t all = refused ? 0 : (uint64_t)9 * BYTES;
	assert_true(cf->direct == all && ct->direct == all);
	assert_true(refused ? !cf->npinned : cf->npinned > 0 && ct->npinned > 0);
	/* one end is closed before its card, the other one after it */
	net_close(a, 1);
	assert_int_equal(cf->npinned, 0);
	net_pin(b, NULL);
	dev_free(x);
	dev_free(y);
	dev_close(from);
	dev_close(to);
	net_close(b, 1);
	assert_int_equal(mappings(), 0);
	mem_free(got);
	mem_free(want);
	faults("");
}

static void memory_of_links(void **state)
{
	(void)state;
	meet_in("pins");
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		from_card_to_card(specs[i], false);
		from_card_to_card(specs[i], true);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(transfers_without_a_copy),
	cmocka_unit_test(unmapped_too_early_is_noticed),
	cmocka_unit_test(memory_of_links),
};

FAKE_RT_MAIN(tests)
