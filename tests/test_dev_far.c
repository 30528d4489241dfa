/* SPDX-License-Identifier: Apache-2.0 */
/* test_dev_far.c - tensors from a card of this process to one of another process, directly
 * (dev/rt_far.c), and through the host's memory where the driver refuses that. Two processes with
 * a stand-in for a card (support/fake_rt.h), which looks at handles as drivers do: it opens no
 * memory of the same process, lets no memory be freed that another one has open, and may bring
 * wrong bytes. It says nothing about real cards. */
#include "support/fake_rt.h"

#include "base/log.h"
#include "base/note.h"
#include "dev/pin.h"
#include "dev/rt.h"
#include "net/net.h"
#include "support/meet.h"

#include <sys/wait.h>

enum { BYTES = 3 << 20, HEAD = 96, TAIL = 64 /* from the host */, MESSAGES = 30 };

static void fill(unsigned char *p, unsigned salt)
{
	for (size_t i = 0; i < BYTES; i++)
		p[i] = (unsigned char)(i * 31 + i / 4099 + salt);
}

/* Some messages come from the host itself, in memory in which a tensor lay before. */
static bool by_host(int i) { return i % 5 == 4; }

static bool pin(void *d, void *p, size_t n) { return dev_pin(d, p, n); }
static void unpin(void *d, void *p) { dev_unpin(d, p); }

static char words[400]; /* what the log said in this process */
static void keep_words(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	snprintf(words + strlen(words), sizeof words - strlen(words), "%s\n", line);
}

static struct net *open_net(struct dev *d)
{
	struct err e = { 0 };
	struct net *n;
	if (net_open("shm", &(struct net_options){ .window = 16 << 20 }, &n, &e) < 0)
		fail_msg("%s", e.msg);
	net_pin(n, &(struct net_pinner){ pin, unpin, d });
	return n;
}

struct ends {
	const char *spec, *sender, *receiver; /* faults of each */
	const char *sender_says, *receiver_says;
	bool direct, sender_first; /* who closes first */
	bool full;                 /* the receiver's card */
};

static void give(int fd)
{
	if (write(fd, "x", 1) != 1)
		_exit(3);
}
static void await(int fd)
{
	char c;
	if (read(fd, &c, 1) != 1)
		_exit(4);
}

static void receives(const struct ends *w, int address, int go, int done)
{
	struct err e = { 0 };
	struct link *l;
	struct net_msg m;
	char at[NET_ADDRESS];
	unsigned char *got = mem_alloc(BYTES + TAIL), *want = mem_alloc(BYTES + TAIL);
	faults(w->receiver);
	struct dev *d = open_card(w->spec);
	const struct rt *c = d->priv;
	struct dev_buf *y = take(d, BYTES + TAIL);
	while (w->full && dev_alloc(d, 2 << 20, &(struct dev_buf *){ NULL }, &e) == 0)
		continue;
	err_clear(&e);
	struct net *n = open_net(d);
	assert_int_equal(net_listen(n, "127.0.0.1:0", at, &e), 0);
	assert_int_equal(write(address, at, sizeof at), sizeof at);
	assert_int_equal(net_accept(n, net_in(20), &l, &e), 1);
	for (int i = 0; i < MESSAGES; i++) {
		assert_int_equal(link_recv(l, net_in(20), &m, &e), 1);
		/* a part of it, with what lies behind it, all of it */
		const size_t some = i % 3 == 0 ? BYTES - 4096 : i % 3 == 1 ? BYTES + TAIL : BYTES;
		assert_int_equal(dev_upload(DEV_REF(y, 0), (char *)m.data + HEAD, some, &e), 0);
		net_msg_release(&m);
		assert_int_equal(dev_download(got, DEV_REF(y, 0), some, &e), 0);
		fill(want, (unsigned)i);
		memset(want + BYTES, i, TAIL);
		assert_memory_equal(got, want, some);
	}
	assert_true(w->direct ? c->far_bytes >= (uint64_t)8 * BYTES : !c->far_bytes);
	give(done);
	await(go);
	if (w->receiver_says)
		has(words, w->receiver_says);
	else
		assert_string_equal(words, "");
	dev_free(y);
	net_close(n, 1);
	dev_close(d);
	give(done);
	mem_free(got);
	mem_free(want);
}

static void sends(const struct ends *w, int address, int go, int done)
{
	struct err e = { 0 };
	struct link *l;
	char at[NET_ADDRESS];
	unsigned char *v = mem_alloc(BYTES);
	faults(w->sender);
	struct dev *d = open_card(w->spec);
	struct rt *c = d->priv;
	struct dev_buf *x = take(d, BYTES);
	struct net *n = open_net(d);
	assert_int_equal(read(address, at, sizeof at), sizeof at);
	assert_int_equal(net_connect(n, at, NULL, net_in(20), &l, &e), 0);
	uint64_t direct = 0;
	for (int i = 0; i < MESSAGES; i++) {
		unsigned char *p = link_buffer(l, HEAD + BYTES + TAIL);
		assert_non_null(p);
		fill(v, (unsigned)i);
		memset(p + HEAD + BYTES, i, TAIL);
		if (by_host(i)) {
			memcpy(p + HEAD, v, BYTES);
		} else {
			assert_int_equal(dev_upload(DEV_REF(x, 0), v, BYTES, &e), 0);
			assert_int_equal(dev_download_begin(p + HEAD, DEV_REF(x, 0), BYTES, &e), 0);
			/* behind the copy, wherever it goes */
			assert_int_equal(dev_zero(DEV_REF(x, 0), BYTES, &e), 0);
			assert_int_equal(dev_download_end(d, &e), 0);
		}
		assert_int_equal(link_send_wait(l, p, HEAD + BYTES + TAIL, net_buffer_release, n,
						net_in(20), &e),
				 0);
	}
	direct = c->far_bytes;
	await(done);
	assert_true(w->direct ? direct >= (uint64_t)8 * BYTES : !direct);
	if (!w->sender_first) {
		give(go);
		await(done);
	}
	if (w->sender_says)
		has(words, w->sender_says);
	else
		assert_string_equal(words, "");
	dev_free(x);
	net_close(n, 1);
	dev_close(d);
	if (w->sender_first) {
		give(go);
		await(done);
	}
	mem_free(v);
}

static void run(const struct ends *w)
{
	int address[2], go[2], done[2], status;
	assert_int_equal(pipe(address) | pipe(go) | pipe(done), 0);
	fflush(NULL);
	for (int k = 0; k < 2; k++) {
		const pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			words[0] = 0;
			log_set_sink(keep_words, NULL, LOG_WARN);
			if (k == 0)
				receives(w, address[1], go[0], done[1]);
			else
				sends(w, address[0], go[1], done[0]);
			_exit(0);
		}
	}
	for (int k = 0; k < 2; k++) {
		assert_true(wait(&status) > 0);
		if (status)
			fail_msg("%s, faults '%s' and '%s': status %x", w->spec, w->sender,
				 w->receiver, (unsigned)status);
	}
	for (int k = 0; k < 2; k++) {
		close(address[k]);
		close(go[k]);
		close(done[k]);
	}
}

static void from_card_to_card(void **state)
{
	static const char refused[] = "it may not open another process's memory",
			  *const wrong = "bytes copied from another process's card were wrong";
	(void)state;
	meet_in("far");
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		const struct ends row[] = {
			{ specs[i], "memory=2048", "memory=2048", NULL, NULL, true, false, false },
			{ specs[i], "memory=2048", "memory=2048", NULL, NULL, true, true, false },
			/* a driver without handles; in a container; a link between cards that
			 * carries other bytes */
			{ specs[i], "memory=2048 noipc", "", "cannot be shared with another", NULL,
			  false, false, false },
			{ specs[i], "memory=2048", "memory=2048 ipcrefused",
			  "another process may not open its memory", refused, false, true, false },
			{ specs[i], "memory=2048", "memory=2048 ipcwrong",
			  "bytes that another process copied from it were wrong", wrong, false,
			  false, false },
			/* the memory is needed for the job */
			{ specs[i], "memory=64", "", NULL, NULL, false, false, false },
			{ specs[i], "memory=2048 free=100", "", NULL, NULL, false, false, false },
			{ specs[i], "memory=2048", "memory=16",
			  "another process may not open its memory", NULL, false, true, true },
		};
		/* HIP: the first, and a refusal */
		for (size_t k = 0; k < ARRAY_LEN(row); k += i ? 3 : 1)
			run(&row[k]);
	}
	setenv("HS_DEVICE_IPC", "0", 1);
	run(&(struct ends){ specs[0], "memory=2048", "memory=2048", NULL, NULL, false, false,
			    false });
	unsetenv("HS_DEVICE_IPC");
}

/* Cards of two makers use no handles of each other; nor does memory without the mark of its end. */
static void what_does_not_fit(void **state)
{
	struct err e = { 0 };
	uint64_t at;
	size_t n = 1 << 20, there;
	(void)state;
	faults("memory=2048");
	char *p = mem_zalloc(2 * n);
	struct dev *d[2] = { open_card("cuda:0"), open_card("hip:0") };
	struct rt *c[2] = { d[0]->priv, d[1]->priv };
	char *q = p + (4096 - (uintptr_t)p % 4096);
	assert_null(rt_far_new(c[0], q, n));
	note_begin(q, n);
	struct rt_far *f[2] = { rt_far_new(c[0], q, n), rt_far_new(c[1], q, n) };
	assert_non_null(f[0]);
	assert_int_equal(rt_far_receive(c[1], f[1], q + 96, n / 2, &at, &there, &e),
			 0); /* says HIP */
	assert_int_equal(there, 0);
	assert_int_equal(rt_far_send(c[0], f[0], q + 96, n / 2, &at, &e), 0);
	assert_int_equal(c[0]->far_lent, 0);
	/* beyond what the note leaves */
	assert_int_equal(rt_far_send(c[0], f[0], q + 96, n - 200, &at, &e), 0);
	for (int i = 0; i < 2; i++) {
		rt_far_free(c[i], f[i], true);
		dev_close(d[i]);
	}
	mem_free(p);
	faults("");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(from_card_to_card),
	cmocka_unit_test(what_does_not_fit),
};

FAKE_RT_MAIN(tests)
