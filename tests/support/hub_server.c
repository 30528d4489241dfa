/* SPDX-License-Identifier: Apache-2.0 */
/* hub_server.c - see hub_server.h. */
#include "support/hub_server.h"

#include <arpa/inet.h>
#include <openssl/evp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LARGE = 300000 };

struct server {
	struct hub_server s;
	int fd[2], port[2], stop[2]; /* the second port is where redirects lead */
	pthread_t thread;
	char large[LARGE];
};

static const char config[] = "{\"model_type\": \"llama\"}\n";
static struct server *only;

const char *hub_server_large(size_t *n_p)
{
	*n_p = LARGE;
	return only->large;
}

static void hash(const char *p, size_t n, bool git, char *hex)
{
	unsigned char md[64];
	unsigned int k;
	char head[40];
	EVP_MD_CTX *x = EVP_MD_CTX_new();
	EVP_DigestInit_ex(x, git ? EVP_sha1() : EVP_sha256(), NULL);
	if (git)
		EVP_DigestUpdate(x, head, (size_t)snprintf(head, sizeof head, "blob %zu", n) + 1);
	EVP_DigestUpdate(x, p, n);
	EVP_DigestFinal_ex(x, md, &k);
	EVP_MD_CTX_free(x);
	for (unsigned i = 0; i < k; i++)
		snprintf(hex + 2 * i, 3, "%02x", md[i]);
}

static void put(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
		if (k <= 0)
			return;
		p += k;
		n -= (size_t)k;
	}
}

static void answer(int fd, const char *status, const char *headers, const char *body, size_t n)
{
	char head[1024];
	int k = snprintf(head, sizeof head,
			 "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n",
			 status, n, headers);
	put(fd, head, (size_t)k);
	put(fd, body, n);
}

static void list(struct server *v, int fd)
{
	char body[2048], sha1[41], sha256[65], size[60] = "";
	const unsigned long long large = v->s.huge ? 1ull << 50 : LARGE;
	hash(config, sizeof config - 1, true, sha1);
	hash(v->large, LARGE, false, sha256);
	if (!v->s.no_size)
		snprintf(size, sizeof size, "\"size\": %llu, ", large);
	int n = snprintf(
		body, sizeof body,
		"{\"sha\": \"" HUB_COMMIT "\", \"siblings\": ["
		"{\"rfilename\": \"%s\", \"size\": %zu, \"blobId\": \"%s\"}, "
		"{\"rfilename\": \"model.safetensors\", %s\"blobId\": \"x\", "
		"\"lfs\": {\"sha256\": \"%s\", \"size\": %llu}}, "
		"{\"rfilename\": \"README.md\", \"size\": 3, \"blobId\": \"x\"}, "
		"{\"rfilename\": \"data/train-0.jsonl\", \"size\": %zu, \"blobId\": \"%s\"}]}",
		v->s.bad_name ? "../config.json" : "config.json", sizeof config - 1,
		v->s.no_list_hash ? "" : sha1, size, sha256, large, sizeof config - 1, sha1);
	answer(fd, "200 OK", "Content-Type: application/json\r\n", body, (size_t)n);
}

static void file(struct server *v, int fd, const char *head, const char *p, size_t n)
{
	const char *range = strcasestr(head, "\r\nRange: bytes=");
	size_t from = range ? strtoul(range + 15, NULL, 10) : 0;
	char headers[100] = "", *copy = malloc(n);
	memcpy(copy, p, n);
	v->s.files++;
	v->s.ranges += from > 0;
	if (v->s.wrong)
		copy[n / 2] ^= 1;
	if (from && v->s.no_range-- > 0)
		from = 0;
	if (from >= n) {
		answer(fd, "416 Range Not Satisfiable", "", "", 0);
	} else if (v->s.busy > 0) {
		v->s.busy--;
		answer(fd, "429 Too Many Requests", "Retry-After: 0\r\n", "slow down", 9);
	} else if (v->s.broken > 0) {
		v->s.broken--;
		answer(fd, "503 Service Unavailable", "", "later", 5);
	} else if (v->s.cut > 0) {
		v->s.cut--;
		char text[200];
		int k = snprintf(text, sizeof text,
				 "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
				 from ? "206 Partial Content" : "200 OK", n - from);
		put(fd, text, (size_t)k);
		put(fd, copy + from, (n - from) / 2);
	} else {
		if (from)
			snprintf(headers, sizeof headers, "Content-Range: bytes %zu-%zu/%zu\r\n",
				 from, n - 1, n);
		answer(fd, from ? "206 Partial Content" : "200 OK", headers, copy + from, n - from);
	}
	free(copy);
}

/* Until nobody reads any more. */
static void endless(int fd, const char *head, const char *piece, size_t n, unsigned pause_us)
{
	for (ssize_t k = send(fd, head, strlen(head), MSG_NOSIGNAL); k > 0; usleep(pause_us))
		k = send(fd, piece, n, MSG_NOSIGNAL);
}

static void serve(struct server *v, int fd, int which)
{
	char head[8192], to[200];
	size_t n = 0;
	while (n < sizeof head - 1) {
		ssize_t k = recv(fd, head + n, sizeof head - 1 - n, 0);
		if (k <= 0)
			return;
		n += (size_t)k;
		head[n] = 0;
		if (strstr(head, "\r\n\r\n"))
			break;
	}
	bool token = strcasestr(head, "\r\nAuthorization: Bearer secret\r\n");
	v->s.requests++;
	v->s.tokens += token;
	v->s.foreign_tokens += which && strcasestr(head, "Authorization:");
	static const char more[] = "X-More: and more, and more, and more, and more, and more\r\n";
	if (v->s.drip > 0) {
		v->s.drip--;
		endless(fd, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", " ", 1, 50000);
	} else if (v->s.endless_text) {
		endless(fd, "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n", more,
			sizeof more - 1, 0);
	} else if (v->s.endless_head) {
		endless(fd, "HTTP/1.1 404 Not Found\r\n", more, sizeof more - 1, 0);
	} else if (which) {
		file(v, fd, head, v->large, LARGE);
	} else if (v->s.gated && !token) {
		answer(fd, "401 Unauthorized", "X-Error-Code: GatedRepo\r\n", "no", 2);
	} else if (v->s.private_ && !token) {
		answer(fd, "401 Unauthorized", "", "no", 2);
	} else if (strstr(head, "/none/")) {
		answer(fd, "404 Not Found", "X-Error-Code: RepoNotFound\r\n", "no", 2);
	} else if (strstr(head, "/revision/v9?")) {
		answer(fd, "404 Not Found", "X-Error-Code: RevisionNotFound\r\n", "no", 2);
	} else if (v->s.text) {
		answer(fd, "200 OK", "", "<html>", 6);
	} else if (!strncmp(head, "GET /api/", 9)) {
		list(v, fd);
	} else if (strstr(head, "/model.safetensors ")) {
		snprintf(to, sizeof to, "Location: http://127.0.0.1:%d/large\r\n", v->port[1]);
		answer(fd, "302 Found", to, "", 0);
	} else {
		file(v, fd, head, config, sizeof config - 1);
	}
}

static void *work(void *ctx)
{
	struct server *v = ctx;
	struct pollfd p[3] = { { v->fd[0], POLLIN, 0 },
			       { v->fd[1], POLLIN, 0 },
			       { v->stop[0], POLLIN, 0 } };
	while (poll(p, 3, -1) > 0 && !p[2].revents)
		for (int i = 0; i < 2; i++)
			if (p[i].revents) {
				int fd = accept(v->fd[i], NULL, NULL);
				if (fd < 0)
					continue;
				serve(v, fd, i);
				close(fd);
			}
	return NULL;
}

struct hub_server *hub_server_start(void)
{
	struct server *v = calloc(1, sizeof *v);
	only = v;
	for (size_t i = 0; i < LARGE; i++)
		v->large[i] = (char)(i * 2654435761u >> 13);
	for (int i = 0; i < 2; i++) {
		struct sockaddr_in a = { .sin_family = AF_INET,
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		socklen_t n = sizeof a;
		v->fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (bind(v->fd[i], (struct sockaddr *)&a, n) < 0 || listen(v->fd[i], 16) < 0 ||
		    getsockname(v->fd[i], (struct sockaddr *)&a, &n) < 0)
			abort();
		v->port[i] = ntohs(a.sin_port);
	}
	snprintf(v->s.url, sizeof v->s.url, "http://127.0.0.1:%d", v->port[0]);
	if (pipe(v->stop) < 0 || pthread_create(&v->thread, NULL, work, v))
		abort();
	return &v->s;
}

void hub_server_stop(struct hub_server *s)
{
	struct server *v = (struct server *)s;
	if (write(v->stop[1], "x", 1) != 1)
		abort();
	pthread_join(v->thread, NULL);
	for (int i = 0; i < 2; i++) {
		close(v->fd[i]);
		close(v->stop[i]);
	}
	free(v);
}
