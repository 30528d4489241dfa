/* SPDX-License-Identifier: Apache-2.0 */
/* Models and data sets by name from a server on loopback that behaves like the hub: the layout of
 * the cache, redirects, ranges, errors that pass and that do not, hostile lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "hub/http.h"
#include "hub/hub.h"
#include "support/hub_server.h"
#include "support/scratch.h"

static struct hub_server *server;

/* Each test has a server and a cache of its own. */
static int setup(void **state)
{
	static int n;
	char name[20];
	(void)state;
	server = hub_server_start();
	snprintf(name, sizeof name, "home%d", n++);
	setenv("HF_HOME", scratch("%s", name), 1);
	setenv("HF_ENDPOINT", server->url, 1);
	unsetenv("HF_TOKEN");
	unsetenv("HF_TOKEN_PATH");
	unsetenv("HF_HUB_CACHE");
	unsetenv("HF_HUB_OFFLINE");
	unsetenv("http_proxy");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	hub_server_stop(server);
	return 0;
}

static int fetch(const char *text, bool dataset, char *path, struct err *e)
{
	const struct hub_options o = { .dataset = dataset, .retry_ms = 1, .stall_s = 1 };
	struct hub_name n;
	err_clear(e);
	int rc = hub_parse(text, &n, e);
	return rc < 0 ? rc : hub_fetch(&n, &o, path, e);
}

static void must(const char *text, bool dataset, char *path)
{
	struct err e = { 0 };
	if (fetch(text, dataset, path, &e) < 0)
		fail_msg("%s: %s", text, e.msg);
}

static void refuse(const char *text, const char *why)
{
	struct err e = { 0 };
	char path[HUB_PATH];
	if (fetch(text, false, path, &e) >= 0 || !strstr(e.msg, why) || strchr(e.msg, '\n'))
		fail_msg("%s: '%s' instead of '%s'", text, e.msg, why);
}

static void large_is_right(const char *snapshot)
{
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	char path[HUB_PATH + 30];
	size_t n;
	const char *want = hub_server_large(&n);
	snprintf(path, sizeof path, "%s/model.safetensors", snapshot);
	if (buf_read_file(&b, path, 0, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(b.n, n);
	assert_memory_equal(b.p, want, n);
	buf_release(&b);
}

static void test_layout(void **state)
{
	(void)state;
	char path[HUB_PATH], want[HUB_PATH], link[HUB_PATH + 40], to[300];
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	must("own/model", false, path);
	snprintf(want, sizeof want, "%s/hub/models--own--model/snapshots/" HUB_COMMIT,
		 getenv("HF_HOME"));
	assert_string_equal(path, want);
	large_is_right(path);
	snprintf(link, sizeof link, "%s/config.json", path);
	ssize_t n = readlink(link, to, sizeof to - 1);
	assert_true(n > 0);
	to[n] = 0;
	assert_int_equal(strncmp(to, "../../blobs/", 12), 0);
	assert_int_equal(strlen(to), 12 + 40);
	snprintf(link, sizeof link, "%s/README.md", path); /* not a file of the model */
	assert_int_equal(access(link, F_OK), -1);
	snprintf(want, sizeof want, "%s/hub/models--own--model/refs/main", getenv("HF_HOME"));
	assert_int_equal(buf_read_file(&b, want, 0, &e), 0);
	assert_string_equal(b.p, HUB_COMMIT);
	buf_release(&b);
	/* nothing is fetched twice */
	int files = server->files;
	must("own/model", false, path);
	assert_int_equal(server->files, files);
	/* one file; a data set; a revision; another place of the cache */
	must("own/model:config.json", false, path);
	assert_string_equal(path + strlen(path) - 12, "/config.json");
	must("own/set@v1.0", true, path);
	snprintf(want, sizeof want, "%s/hub/datasets--own--set/snapshots/" HUB_COMMIT,
		 getenv("HF_HOME"));
	assert_string_equal(path, want);
	snprintf(link, sizeof link, "%s/data/train-0.jsonl", path);
	n = readlink(link, to, sizeof to - 1);
	assert_int_equal(strncmp(to, "../../../blobs/", 15), 0);
	assert_int_equal(access(link, R_OK), 0);
	setenv("HF_HUB_CACHE", scratch("other"), 1);
	must("own/model:config.json", false, path);
	assert_int_equal(strncmp(path, scratch("other"), strlen(scratch("other"))), 0);
}

static void test_offline(void **state)
{
	(void)state;
	char path[HUB_PATH], again[HUB_PATH];
	must("own/model", false, path);
	setenv("HF_HUB_OFFLINE", "1", 1);
	unsetenv("HF_ENDPOINT");
	int requests = server->requests;
	must("own/model", false, again);
	assert_string_equal(path, again);
	refuse("own/other", "not in the cache");
	refuse("own/model:none.json", "not in the cache");
	assert_int_equal(server->requests, requests);
	unsetenv("HF_HUB_OFFLINE");
	refuse("own/model", "set HF_ENDPOINT");
	setenv("HF_ENDPOINT", "ftp://x", 1);
	refuse("own/model", "does not begin with https://");
}

static void test_token(void **state)
{
	(void)state;
	char path[HUB_PATH];
	server->gated = true;
	refuse("own/model", "accept its terms on its page, then set HF_TOKEN");
	server->gated = false;
	server->private_ = true;
	refuse("own/model", "the server wants a token (HTTP 401)");
	assert_int_equal(server->tokens, 0);
	setenv("HF_TOKEN", "secret\n", 1);
	must("own/model", false, path);
	assert_true(server->tokens >= 2);
	assert_int_equal(server->foreign_tokens, 0); /* the redirect leads to another port */
	setenv("HF_TOKEN", "two words", 1);
	refuse("own/model", "the token has a blank");
	/* from the file */
	unsetenv("HF_TOKEN");
	scratch_text(scratch("token"), "secret\n");
	setenv("HF_TOKEN_PATH", scratch("token"), 1);
	must("own/model@again", false, path);
}

static void test_passing(void **state)
{
	(void)state;
	char path[HUB_PATH];
	server->busy = 2;
	server->broken = 1;
	server->cut = 2;
	must("own/model", false, path);
	large_is_right(path);
	assert_true(server->ranges >= 1);
	assert_int_equal(server->cut + server->busy + server->broken, 0);
}

/* A server that sends the whole file where a part was asked for. */
static void test_no_range(void **state)
{
	(void)state;
	char path[HUB_PATH];
	server->cut = 3;
	server->no_range = 1;
	must("own/model", false, path);
	large_is_right(path);
}

/* What an earlier process left goes on; what is too long for the file does not. */
static void test_resume(void **state)
{
	(void)state;
	char path[HUB_PATH];
	struct err e = { 0 };
	server->cut = 1000;
	assert_true(fetch("own/model", false, path, &e) < 0);
	assert_non_null(strstr(e.msg, "what was fetched is kept"));
	server->cut = 0;
	int ranges = server->ranges;
	must("own/model", false, path);
	large_is_right(path);
	assert_true(server->ranges > ranges);
}

static void test_wrong(void **state)
{
	(void)state;
	char path[HUB_PATH];
	server->wrong = true;
	refuse("own/model", "the server's list says");
	server->wrong = false;
	must("own/model", false, path); /* nothing wrong was kept */
	large_is_right(path);
	refuse("own/none/x", "is neither a file here nor a name");
	refuse("none/model", "the server has no such name (HTTP 404)");
	refuse("own/model@v9", "the server has no such revision (HTTP 404)");
	refuse("own/model:none.bin", "has no file none.bin");
	server->no_list_hash = true;
	refuse("own/model", "without a proper name, size and hash");
	server->no_list_hash = false;
	server->bad_name = true; /* of a data set, files in folders are taken too */
	struct err e = { 0 };
	assert_int_equal(fetch("own/set", true, path, &e), ERR_INPUT);
	assert_non_null(strstr(e.msg, "without a proper name, size and hash"));
	server->bad_name = false;
	server->text = true;
	refuse("own/model", "/api/models/own/model/revision/main");
}

static void test_names(void **state)
{
	(void)state;
	static const char *const bad[] = { "",     "name",     "a/b/c",    "/a/b",
					   "../b", "a/..",     "a/b@",     "a/b@../x",
					   "a/b:", "a/b:../x", "a/b:/etc", "a/b@x:y/..",
					   "-a/b", "a b/c",    "a/b?x" };
	struct hub_name n;
	struct err e;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (hub_parse(bad[i], &n, &e) >= 0)
			fail_msg("'%s' is taken for a name", bad[i]);
	assert_int_equal(hub_parse("A-1/b_2.c@refs/pr/1:sub/x.gguf", &n, &e), 0);
	assert_string_equal(n.repo, "A-1/b_2.c");
	assert_string_equal(n.revision, "refs/pr/1");
	assert_string_equal(n.file, "sub/x.gguf");
	assert_true(hub_is_name("own/model"));
	assert_false(hub_is_name("src/hub"));
}

/* A server that takes time, memory or disk. */
static void test_endless(void **state)
{
	(void)state;
	char path[HUB_PATH];
	struct err e = { 0 };
	server->no_size = true;
	refuse("own/model", "an entry without a proper name, size and hash");
	server->no_size = false;
	server->huge = true;
	int files = server->files;
	refuse("own/model", "GB are to be fetched, and");
	assert_int_equal(server->files, files);
	server->huge = false;
	server->endless_text = true;
	refuse("own/model", "the server has no such name (HTTP 404)");
	server->endless_text = false;
	server->endless_head = true;
	assert_true(fetch("own/model", false, path, &e) < 0);
	printf("  %s\n", e.msg);
	server->endless_head = false;
	/* byte by byte, then as it should be */
	server->drip = 1;
	must("own/model", false, path);
	assert_int_equal(server->drip, 0);
}

/* The token goes to this machine, not to hosts whose names begin like it. */
static void test_other_hosts(void **state)
{
	(void)state;
	static const char *const host[] = { "localhost.invalid", "127.0.0.1.invalid",
					    "localhost@x.invalid", "127.x@y.invalid" };
	char path[HUB_PATH], endpoint[100];
	struct err e;
	setenv("HF_TOKEN", "secret", 1);
	setenv("http_proxy", server->url, 1);
	for (size_t i = 0; i < ARRAY_LEN(host); i++) {
		int seen = server->requests;
		snprintf(endpoint, sizeof endpoint, "http://%s", host[i]);
		setenv("HF_ENDPOINT", endpoint, 1);
		assert_true(fetch("own/model", false, path, &e) < 0);
		assert_true(server->requests > seen); /* it was asked, as a proxy */
		assert_int_equal(server->tokens, 0);
	}
	unsetenv("http_proxy");
	setenv("HF_ENDPOINT", server->url, 1);
	must("own/model", false, path);
	assert_true(server->tokens > 0);
}

struct listener {
	int fd, port;
	const char *answer;
	char seen[2048];
};

/* Takes one request whole, headers and as much body as they say, and answers it. */
static void *take_one(void *ctx)
{
	struct listener *l = ctx;
	size_t n = 0, body = 0, all = sizeof l->seen - 1;
	const int c = accept(l->fd, NULL, NULL);
	while (c >= 0 && n < all) {
		const ssize_t k = recv(c, l->seen + n, sizeof l->seen - 1 - n, 0);
		if (k <= 0)
			break;
		l->seen[n += (size_t)k] = 0;
		const char *end = strstr(l->seen, "\r\n\r\n"),
			   *len = strstr(l->seen, "Content-Length: ");
		if (end && len) {
			body = strtoul(len + 16, NULL, 10);
			all = (size_t)(end + 4 - l->seen) + body;
		}
	}
	if (c >= 0 && send(c, l->answer, strlen(l->answer), MSG_NOSIGNAL) < 0)
		l->seen[0] = 0;
	close(c);
	return NULL;
}

static int post(const char *answer, struct listener *l, struct err *e)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t n = sizeof a;
	pthread_t t;
	char url[64];
	*l = (struct listener){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
				.answer = answer };
	assert_true(l->fd >= 0 && bind(l->fd, (struct sockaddr *)&a, sizeof a) == 0 &&
		    listen(l->fd, 1) == 0 && getsockname(l->fd, (struct sockaddr *)&a, &n) == 0);
	assert_int_equal(pthread_create(&t, NULL, take_one, l), 0);
	snprintf(url, sizeof url, "http://127.0.0.1:%d/hook", ntohs(a.sin_port));
	const int rc = http_post(url, "{\"text\":\"done\"}", e);
	pthread_join(t, NULL);
	close(l->fd);
	return rc;
}

/* What `notify` sends arrives; an answer that is an error, a redirect or another scheme are
 * errors. */
static void test_post(void **state)
{
	(void)state;
	struct listener l;
	struct err e;
	assert_int_equal(post("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", &l, &e), 0);
	assert_true(!strncmp(l.seen, "POST /hook HTTP/1.1\r\n", 21));
	assert_non_null(strstr(l.seen, "Content-Type: application/json\r\n"));
	assert_non_null(strstr(l.seen, "\r\n\r\n{\"text\":\"done\"}"));
	assert_true(post("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", &l, &e) < 0);
	assert_non_null(strstr(e.msg, "500"));
	assert_true(post("HTTP/1.1 302 There\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", &l,
			 &e) < 0);
	assert_non_null(strstr(e.msg, "302"));
	assert_true(post("", &l, &e) < 0); /* closed without an answer */
	assert_true(http_post("file:///etc/hostname", "{}", &e) < 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = { T(test_layout),  T(test_offline),  T(test_token),
					    T(test_passing), T(test_no_range), T(test_resume),
					    T(test_wrong),   T(test_names),    T(test_other_hosts),
					    T(test_endless), T(test_post) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
