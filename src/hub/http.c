/* SPDX-License-Identifier: Apache-2.0 */
/* http.c - see http.h. What may pass (no answer, a cut connection, 408, 429, 5xx) is tried again
 * after growing pauses, or after what Retry-After says; a file goes on where it was. */
#include "hub/http.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/open.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	TRIES = 6,
	AT_ONCE = 4,
	STALL_SECONDS = 30,
	STALL_BYTES = 1000, /* a second */
	RETRY_MOST_MS = 60000,
	HEADERS_MOST = 256 << 10,
	ERROR_MOST = 64 << 10 /* of an answer that is an error, and not looked at */
};

struct get {
	CURL *c;
	struct curl_slist *headers;
	const struct http_file *file; /* NULL: into memory */
	struct buf *out;
	size_t limit;
	int fd;
	uint64_t have, want; /* bytes of the file on disk */
	size_t headers_seen, error_seen;
	bool refused; /* the answer is no file: it goes nowhere */
	bool too_large, io, many_headers;
	int io_errno;
	char code[64]; /* the server's word for what is wrong */
	long status;
	unsigned tries;
	uint64_t not_before; /* in nanoseconds */
	bool running, done;
};

static void pause_ms(unsigned ms)
{
	struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };
	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

static size_t on_header(char *p, size_t size, size_t n, void *ctx)
{
	struct get *g = ctx;
	static const char name[] = "x-error-code:";
	n *= size;
	g->headers_seen += n;
	if (g->headers_seen > HEADERS_MOST) {
		g->many_headers = true;
		return 0;
	}
	if (n > 5 && !strncmp(p, "HTTP/", 5)) /* of the last answer after redirects */
		g->code[0] = 0;
	if (n > sizeof name && !strncasecmp(p, name, sizeof name - 1)) {
		size_t k = 0;
		for (size_t i = sizeof name - 1; i < n && k + 1 < sizeof g->code; i++)
			if ((p[i] >= 'a' && p[i] <= 'z') || (p[i] >= 'A' && p[i] <= 'Z'))
				g->code[k++] = p[i];
		g->code[k] = 0;
	}
	return n;
}

static size_t on_data(char *p, size_t size, size_t n, void *ctx)
{
	struct get *g = ctx;
	long status = 0;
	n *= size;
	curl_easy_getinfo(g->c, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200 && status != 206) { /* the text of an error */
		g->error_seen += n;
		return g->error_seen > ERROR_MOST ? 0 : n;
	}
	if (!g->file) {
		if (g->out->n + n > g->limit) {
			g->too_large = true;
			return 0;
		}
		buf_add(g->out, p, n);
		return g->out->failed ? 0 : n;
	}
	if (g->have && status == 200 && !g->refused) { /* it does not go on: from the beginning */
		if (ftruncate(g->fd, 0) < 0 || lseek(g->fd, 0, SEEK_SET) < 0)
			goto fail;
		g->have = 0;
	}
	g->refused = true; /* only the first piece decides */
	if (n > g->want - g->have) {
		g->too_large = true;
		return 0;
	}
	for (size_t done = 0; done < n;) {
		ssize_t k = write(g->fd, p + done, n - done);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			goto fail;
		done += (size_t)k;
	}
	g->have += n;
	return n;
fail:
	g->io = true;
	g->io_errno = errno;
	return 0;
}

/* Over https, or to this machine. */
static bool may_carry_token(const char *url)
{
	CURLU *u = curl_url();
	char *scheme = NULL, *host = NULL;
	struct in_addr a;
	bool may = u && !curl_url_set(u, CURLUPART_URL, url, 0) &&
		   !curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) &&
		   !curl_url_get(u, CURLUPART_HOST, &host, 0);
	if (may && strcmp(scheme, "https"))
		may = !strcmp(host, "localhost") || !strcmp(host, "[::1]") ||
		      (inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127);
	curl_free(scheme);
	curl_free(host);
	curl_url_cleanup(u);
	return may;
}

static int set_up(struct get *g, const char *url, const struct http_options *o, struct err *e)
{
	char header[4200];
	g->c = curl_easy_init();
	if (!g->c)
		return err_nomem(e, sizeof *g, "a request");
	if (o->token && o->token[0] && may_carry_token(url)) {
		snprintf(header, sizeof header, "Authorization: Bearer %.4096s", o->token);
		g->headers = curl_slist_append(NULL, header);
		if (!g->headers)
			return err_nomem(e, sizeof header, "a request");
		curl_easy_setopt(g->c, CURLOPT_HTTPHEADER, g->headers);
	}
	curl_easy_setopt(g->c, CURLOPT_URL, url);
	curl_easy_setopt(g->c, CURLOPT_USERAGENT, "heteroshard");
	curl_easy_setopt(g->c, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(g->c, CURLOPT_REDIR_PROTOCOLS_STR,
			 strncmp(url, "https", 5) ? "http,https" : "https");
	curl_easy_setopt(g->c, CURLOPT_FOLLOWLOCATION, 1L);
	curl_easy_setopt(g->c, CURLOPT_MAXREDIRS, 5L);
	curl_easy_setopt(g->c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(g->c, CURLOPT_CONNECTTIMEOUT, 30L);
	curl_easy_setopt(g->c, CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES);
	curl_easy_setopt(g->c, CURLOPT_LOW_SPEED_TIME,
			 o->stall_s ? (long)o->stall_s : (long)STALL_SECONDS);
	curl_easy_setopt(g->c, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(g->c, CURLOPT_HEADERDATA, g);
	curl_easy_setopt(g->c, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(g->c, CURLOPT_WRITEDATA, g);
	curl_easy_setopt(g->c, CURLOPT_PRIVATE, g);
	return 0;
}

static void tear_down(struct get *g)
{
	if (g->c)
		curl_easy_cleanup(g->c);
	curl_slist_free_all(g->headers);
	if (g->file && g->fd >= 0)
		close(g->fd);
}

static int status_error(const struct get *g, const char *what, const struct http_options *o,
			struct err *e)
{
	bool token = o->token && o->token[0];
	long s = g->status;
	if (!strcmp(g->code, "GatedRepo"))
		return err_set(
			e, ERR_INPUT,
			"%s: access is granted by its owner (HTTP %ld): accept its terms on its "
			"page%s",
			what, s,
			token ? " with the account of this token"
			      : ", then set HF_TOKEN to a token of your account");
	if (s == 401 || s == 403)
		return err_set(
			e, ERR_INPUT,
			"%s: the server wants %s (HTTP %ld); it may also not exist: check the "
			"name%s",
			what, token ? "a token with more rights" : "a token", s,
			token ? "" : ", or set HF_TOKEN");
	if (s == 404)
		return err_set(e, ERR_INPUT, "%s: the server has no such %s (HTTP 404)", what,
			       !strcmp(g->code, "RevisionNotFound") ? "revision"
			       : !strcmp(g->code, "EntryNotFound")  ? "file"
								    : "name");
	return err_set(e, ERR_IO, "%s: the server answers HTTP %ld%s", what, s,
		       s == 429 ? ": too many requests; try again later" : "");
}

/* After a transfer: 1 it is done, 0 try again, or an error. */
static int judge(struct get *g, CURLcode rc, const char *what, const struct http_options *o,
		 struct err *e)
{
	curl_off_t after = 0;
	g->status = 0;
	curl_easy_getinfo(g->c, CURLINFO_RESPONSE_CODE, &g->status);
	if (g->io)
		return err_sys(e, g->io_errno, "%s", g->file->path);
	if (g->too_large)
		return err_set(e, ERR_INPUT, "%s: the server sends more than %llu bytes", what,
			       (unsigned long long)(g->file ? g->want : g->limit));
	if (g->many_headers)
		return err_set(e, ERR_INPUT, "%s: the server sends more than %d bytes of headers",
			       what, HEADERS_MOST);
	if (g->error_seen > ERROR_MOST)
		rc = CURLE_OK; /* the rest of it is not wanted */
	g->headers_seen = g->error_seen = 0;
	/* the range is behind the end: what is there is wrong, or whole */
	if (g->file && g->status == 416 && g->have == g->want)
		return 1;
	if (g->file && g->status == 416 && ftruncate(g->fd, 0) == 0) {
		g->have = 0;
		rc = CURLE_RECV_ERROR;
	}
	bool whole = rc == CURLE_OK && (g->status == 200 || g->status == 206);
	if (whole && (!g->file || g->have == g->want))
		return 1;
	bool passing = whole || rc != CURLE_OK || g->status == 408 || g->status == 429 ||
		       g->status == 416 || g->status >= 500;
	if (rc == CURLE_OUT_OF_MEMORY || (g->out && g->out->failed))
		return err_nomem(e, g->limit, "an answer");
	if (rc == CURLE_UNSUPPORTED_PROTOCOL || rc == CURLE_URL_MALFORMAT ||
	    rc == CURLE_TOO_MANY_REDIRECTS || rc == CURLE_PEER_FAILED_VERIFICATION)
		passing = false;
	if (passing && ++g->tries < TRIES) {
		curl_easy_getinfo(g->c, CURLINFO_RETRY_AFTER, &after);
		uint64_t ms = o->retry_ms << (g->tries - 1);
		if (after > 0 && (uint64_t)after * 1000 > ms)
			ms = (uint64_t)after * 1000;
		ms = ms > RETRY_MOST_MS ? RETRY_MOST_MS : ms;
		g->not_before = (uint64_t)clock_now() + ms * 1000000;
		return 0;
	}
	if (rc != CURLE_OK || whole)
		return err_set(
			e, ERR_IO, "%s: %s%s", what,
			rc != CURLE_OK ? curl_easy_strerror(rc) : "the file is cut off",
			passing ? "; what was fetched is kept, and the next try goes on there"
				: "");
	return status_error(g, what, o, e);
}

int http_get(const char *url, const struct http_options *o, size_t limit, struct buf *out,
	     struct err *e)
{
	struct get g = { .out = out, .limit = limit, .fd = -1 };
	int rc = set_up(&g, url, o, e);
	while (rc == 0) {
		uint64_t now = (uint64_t)clock_now();
		if (g.not_before > now)
			pause_ms((unsigned)((g.not_before - now) / 1000000));
		buf_reset(out);
		rc = judge(&g, curl_easy_perform(g.c), url, o, e);
	}
	tear_down(&g);
	return rc < 0 ? rc : 0;
}

/* ---- files ---------------------------------------------------------------------------------- */

static int begin(struct get *g, CURLM *m, struct err *e)
{
	char range[40];
	g->refused = false;
	if (lseek(g->fd, (off_t)g->have, SEEK_SET) < 0)
		return err_sys(e, errno, "%s", g->file->path);
	snprintf(range, sizeof range, "%llu-", (unsigned long long)g->have);
	curl_easy_setopt(g->c, CURLOPT_RANGE, g->have ? range : NULL);
	if (curl_multi_add_handle(m, g->c) != CURLM_OK)
		return err_nomem(e, sizeof *g, "a request");
	g->running = true;
	return 0;
}

static int open_file(struct get *g, const struct http_file *f, const struct http_options *o,
		     struct err *e)
{
	struct stat st;
	*g = (struct get){ .file = f, .fd = -1, .want = f->size };
	TRY(open_write_err(f->path, OPEN_LOCK, 0644, &g->fd, e));
	if (fstat(g->fd, &st) < 0)
		return err_sys(e, errno, "%s", f->path);
	g->have = (uint64_t)st.st_size;
	if (g->have > g->want) { /* not the beginning of this file */
		if (ftruncate(g->fd, 0) < 0)
			return err_sys(e, errno, "%s", f->path);
		g->have = 0;
	}
	g->done = g->have == g->want;
	return set_up(g, f->url, o, e);
}

/* Bytes so far, the rate of this run and the time that is left, at most once in two seconds. */
static void tell(const struct get *g, size_t n, uint64_t began, uint64_t had, uint64_t *told)
{
	uint64_t now = (uint64_t)clock_now(), have = 0, want = 0;
	size_t done = 0;
	if (now - *told < 2000000000)
		return;
	for (size_t i = 0; i < n; i++) {
		have += g[i].have;
		want += g[i].want;
		done += g[i].done;
	}
	double seconds = (double)(now - began) / 1e9, rate = (double)(have - had) / seconds;
	char left[40] = "";
	if (rate > 0 && want > have)
		snprintf(left, sizeof left, ", %.0f s left", (double)(want - have) / rate);
	log_info("fetching: %zu of %zu files, %.1f of %.1f MB, %.1f MB/s%s", done, n,
		 (double)have / 1e6, (double)want / 1e6, rate / 1e6, left);
	*told = now;
}

static int collect(CURLM *m, const struct http_options *o, struct err *e)
{
	CURLMsg *msg;
	int left;
	while ((msg = curl_multi_info_read(m, &left))) {
		struct get *g;
		CURLcode result = msg->data.result;
		if (msg->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&g);
		curl_multi_remove_handle(m, g->c);
		g->running = false;
		int rc = judge(g, result, g->file->name, o, e);
		if (rc < 0)
			return rc;
		g->done = rc > 0;
	}
	return 0;
}

static int run(struct get *g, size_t n, CURLM *m, const struct http_options *o, struct err *e)
{
	uint64_t began = (uint64_t)clock_now(), told = began, had = 0;
	for (size_t i = 0; i < n; i++)
		had += g[i].have;
	for (;;) {
		size_t running = 0, done = 0;
		int active;
		for (size_t i = 0; i < n; i++) {
			running += g[i].running;
			done += g[i].done;
		}
		if (done == n)
			return 0;
		for (size_t i = 0; i < n && running < AT_ONCE; i++)
			if (!g[i].done && !g[i].running &&
			    g[i].not_before <= (uint64_t)clock_now()) {
				TRY(begin(&g[i], m, e));
				running++;
			}
		if (curl_multi_perform(m, &active) != CURLM_OK ||
		    curl_multi_poll(m, NULL, 0, 100, NULL) != CURLM_OK)
			return err_set(e, ERR_INTERNAL, "libcurl does not go on");
		TRY(collect(m, o, e));
		tell(g, n, began, had, &told);
	}
}

int http_files(const struct http_file *f, size_t n, const struct http_options *o, struct err *e)
{
	struct get *g = mem_array(n, sizeof *g);
	CURLM *m = curl_multi_init();
	size_t opened = 0;
	int rc = g && m ? 0 : err_nomem(e, n * sizeof *g, "requests");
	for (; opened < n && rc >= 0; opened++)
		rc = open_file(&g[opened], &f[opened], o, e);
	if (rc >= 0)
		rc = run(g, n, m, o, e);
	for (size_t i = 0; i < opened; i++) {
		if (g[i].running)
			curl_multi_remove_handle(m, g[i].c);
		tear_down(&g[i]);
	}
	curl_multi_cleanup(m);
	mem_free(g);
	return rc;
}

static size_t drop_data(char *p, size_t size, size_t n, void *ctx)
{
	size_t *left = ctx;
	(void)p;
	if (size * n > *left)
		return 0;
	*left -= size * n;
	return size * n;
}

int http_post(const char *url, const char *json, struct err *e)
{
	size_t left = ERROR_MOST;
	long status = 0;
	char why[CURL_ERROR_SIZE] = "";
	CURL *c = curl_easy_init();
	struct curl_slist *head = curl_slist_append(NULL, "Content-Type: application/json");
	int rc = 0;
	if (!c || !head) {
		rc = err_nomem(e, 1024, "a request");
		goto out;
	}
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_USERAGENT, "heteroshard");
	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_TIMEOUT, 10L);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, head);
	curl_easy_setopt(c, CURLOPT_POSTFIELDS, json);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, drop_data);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, &left);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why);
	const CURLcode code = curl_easy_perform(c);
	curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
	if (status / 100 != 2 && (code == CURLE_OK || status))
		rc = err_set(e, ERR_IO, "the server answers with %ld", status);
	else if (code != CURLE_OK && status / 100 != 2)
		rc = err_set(e, ERR_IO, "%s", why[0] ? why : curl_easy_strerror(code));
out:
	curl_slist_free_all(head);
	curl_easy_cleanup(c);
	return rc;
}
