/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_hub.c - a model or data set fetched by name from a server that answers anything. The
 * functions of libcurl that carry requests are replaced: the input says what comes back.
 *
 * Byte 0 chooses: 1 a data set, 2 a token, 4 offline at the second time, 8 the rest is the text of
 * a name, 16 another endpoint. Byte 1 chooses the name. Then come the answers to the requests, in
 * their order: status, result, headers, and the bytes of the body or what the server should send.
 * Everything is fetched twice, with the same cache. What is said to be there is there, under its
 * hash, and nothing lies outside of the cache. */
#include <curl/curl.h>
#include <ftw.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "fuzz/small.h"
#include "hub/hub.h"
#include "starve.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define MUST(x)                                                                                    \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

static struct feed in;
static char folder[64];

/* ---- what stands in for libcurl ------------------------------------------------------------- */

enum { HANDLES = 64, ENDLESS = 1 << 20 };

/* What the server has, by the end of the address. make_seeds.py has the same texts. */
static const char config_text[] = "{\"model_type\": \"llama\"}\n",
		  large_text[] = "0123456789abcdef";

struct fake {
	char url[4096], range[40];
	curl_write_callback header, write;
	void *header_ctx, *write_ctx, *private_;
	long status;
	bool running, done;
	CURLcode result;
};

static struct fake *handle[HANDLES];

static bool ends(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);
	return n >= k && !strcmp(s + n - k, end);
}

static bool deliver(struct fake *f, const void *p, size_t n)
{
	return !n || f->write((char *)(uintptr_t)p, 1, n, f->write_ctx) == n;
}

static bool head(struct fake *f, const char *line)
{
	size_t n = strlen(line);
	return f->header((char *)(uintptr_t)line, 1, n, f->header_ctx) == n;
}

/* false: somebody wants no more. */
static bool body(struct fake *f, unsigned how)
{
	const char *text = ends(f->url, ".json") ? config_text : large_text;
	size_t from = strtoul(f->range, NULL, 10), n = strlen(text);
	const uint8_t *p;
	static const char zeros[4096];
	switch (how % 4) {
	case 0:
		n = feed_byte(&in);
		n = feed_bytes(&in, n << 8 | feed_byte(&in), &p);
		return deliver(f, p, n / 2) && deliver(f, p + n / 2, n - n / 2);
	case 1: /* what there is, from where it was asked for */
		return from >= n || deliver(f, text + from, n - from);
	case 2:
		return deliver(f, text, n / 2);
	default:
		for (size_t k = 0; k < ENDLESS; k += sizeof zeros)
			if (!deliver(f, zeros, sizeof zeros))
				return false;
		return true;
	}
}

static void transfer(struct fake *f)
{
	static const long status[] = { 200, 206, 404, 401, 403, 416, 429, 503 };
	static const CURLcode result[] = { CURLE_OK,
					   CURLE_OK,
					   CURLE_COULDNT_CONNECT,
					   CURLE_PARTIAL_FILE,
					   CURLE_TOO_MANY_REDIRECTS,
					   CURLE_OUT_OF_MEMORY,
					   CURLE_OPERATION_TIMEDOUT,
					   CURLE_PEER_FAILED_VERIFICATION };
	static const char *const code[] = { "X-Error-Code: GatedRepo\r\n",
					    "x-error-code: RevisionNotFound\r\n",
					    "x-error-code: EntryNotFound\r\n",
					    "x-error-code:\r\n" };
	unsigned how = feed_byte(&in), more = feed_byte(&in);
	bool on = true;
	f->status = status[how % 8];
	f->result = result[how / 8 % 8];
	f->done = true;
	if (how & 64)
		on = head(f, "HTTP/1.1 302 Found\r\n") && head(f, code[3]);
	on = on && head(f, "HTTP/1.1 200 OK\r\n") && (!(how & 128) || head(f, code[more / 4 % 4]));
	for (int i = 0; on && more / 16 == 15 && i < 20000; i++)
		on = head(f, "X-More: and more, and more\r\n");
	if (f->result == CURLE_COULDNT_CONNECT)
		f->status = 0;
	else if (!on || !body(f, more))
		f->result = CURLE_WRITE_ERROR;
}

CURL *curl_easy_init(void)
{
	for (size_t i = 0; i < HANDLES; i++)
		if (!handle[i])
			return handle[i] = calloc(1, sizeof **handle);
	return NULL;
}

void curl_easy_cleanup(CURL *c)
{
	for (size_t i = 0; i < HANDLES; i++)
		if (handle[i] == c)
			handle[i] = NULL;
	free(c);
}

#undef curl_easy_setopt
#undef curl_easy_getinfo
CURLcode curl_easy_setopt(CURL *c, CURLoption o, ...)
{
	struct fake *f = c;
	va_list a;
	va_start(a, o);
	switch ((int)o) {
	case CURLOPT_URL:
		snprintf(f->url, sizeof f->url, "%s", va_arg(a, const char *));
		break;
	case CURLOPT_RANGE: {
		const char *s = va_arg(a, const char *);
		snprintf(f->range, sizeof f->range, "%s", s ? s : "");
		break;
	}
	case CURLOPT_HEADERFUNCTION:
		f->header = va_arg(a, curl_write_callback);
		break;
	case CURLOPT_HEADERDATA:
		f->header_ctx = va_arg(a, void *);
		break;
	case CURLOPT_WRITEFUNCTION:
		f->write = va_arg(a, curl_write_callback);
		break;
	case CURLOPT_WRITEDATA:
		f->write_ctx = va_arg(a, void *);
		break;
	case CURLOPT_PRIVATE:
		f->private_ = va_arg(a, void *);
		break;
	default:
		break;
	}
	va_end(a);
	return CURLE_OK;
}

CURLcode curl_easy_getinfo(CURL *c, CURLINFO what, ...)
{
	struct fake *f = c;
	va_list a;
	va_start(a, what);
	if (what == CURLINFO_RESPONSE_CODE)
		*va_arg(a, long *) = f->status;
	else if (what == CURLINFO_PRIVATE)
		*va_arg(a, void **) = f->private_;
	else if (what == CURLINFO_RETRY_AFTER)
		*va_arg(a, curl_off_t *) = 0;
	va_end(a);
	return CURLE_OK;
}

CURLcode curl_easy_perform(CURL *c)
{
	struct fake *f = c;
	transfer(f);
	return f->result;
}

CURLM *curl_multi_init(void) { return handle; }
CURLMcode curl_multi_cleanup(CURLM *m) { return m == handle ? CURLM_OK : CURLM_BAD_HANDLE; }

CURLMcode curl_multi_add_handle(CURLM *m, CURL *c)
{
	struct fake *f = c;
	(void)m;
	MUST(!f->running);
	f->running = true;
	f->done = false;
	return CURLM_OK;
}

CURLMcode curl_multi_remove_handle(CURLM *m, CURL *c)
{
	(void)m;
	((struct fake *)c)->running = false;
	return CURLM_OK;
}

CURLMcode curl_multi_perform(CURLM *m, int *active_p)
{
	(void)m;
	*active_p = 0;
	for (size_t i = 0; i < HANDLES; i++)
		if (handle[i] && handle[i]->running && !handle[i]->done)
			transfer(handle[i]);
	return CURLM_OK;
}

CURLMcode curl_multi_poll(CURLM *m, struct curl_waitfd v[], unsigned n, int ms, int *n_p)
{
	(void)m;
	(void)v;
	(void)n;
	(void)ms;
	(void)n_p;
	return CURLM_OK;
}

CURLMsg *curl_multi_info_read(CURLM *m, int *left_p)
{
	static CURLMsg msg;
	(void)m;
	*left_p = 0;
	for (size_t i = 0; i < HANDLES; i++)
		if (handle[i] && handle[i]->running && handle[i]->done) {
			msg = (CURLMsg){ .msg = CURLMSG_DONE, .easy_handle = handle[i] };
			msg.data.result = handle[i]->result;
			return &msg;
		}
	return NULL;
}

/* ---- the cache ------------------------------------------------------------------------------ */

static int forget(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st;
	(void)kind;
	return at->level ? remove(path) : 0;
}

static bool hash_is(const char *path, const char *hash)
{
	unsigned char md[EVP_MAX_MD_SIZE];
	char text[1 << 12], all[(1 << 12) + 40], hex[2 * EVP_MAX_MD_SIZE + 1];
	unsigned n = 0;
	FILE *f = fopen(path, "r");
	MUST(f);
	size_t k = fread(text, 1, sizeof text, f);
	bool whole = fgetc(f) == EOF, git = strlen(hash) == 40;
	fclose(f);
	if (!whole)
		return true;
	size_t h = git ? (size_t)snprintf(all, 40, "blob %zu", k) + 1 : 0;
	memcpy(all + h, text, k);
	MUST(EVP_Digest(all, h + k, md, &n, git ? EVP_sha1() : EVP_sha256(), NULL) == 1);
	for (unsigned i = 0; i < n; i++)
		snprintf(hex + 2 * i, 3, "%02x", md[i]);
	return !strcmp(hex, hash);
}

/* Each file of the cache is where it belongs: blobs have their hash, links lead to blobs. */
static int looked_at(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	char to[512] = "";
	(void)st;
	if (kind == FTW_SL || kind == FTW_SLN) {
		MUST(readlink(path, to, sizeof to - 1) > 0 && strstr(path, "/snapshots/") &&
		     strstr(to, "../blobs/"));
	} else if (kind == FTW_F && strstr(path, "/blobs/") && !ends(path, ".incomplete")) {
		MUST(hash_is(path, path + at->base));
	}
	return 0;
}

/* ---- one input ------------------------------------------------------------------------------ */

static void check(int rc, const struct err *e)
{
	MUST(rc >= 0 || (e->code == rc && e->msg[0] && !strchr(e->msg, '\n')));
}

static void name_of(struct err *e)
{
	char text[600];
	struct hub_name n;
	size_t k = in.n < sizeof text - 1 ? in.n : sizeof text - 1;
	memcpy(text, in.p, k);
	text[k] = 0;
	int rc = hub_parse(text, &n, e);
	check(rc, e);
	MUST(rc < 0 || (strchr(n.repo, '/') && n.file[0] != '/' && !strstr(n.file, "/../") &&
			strncmp(n.file, "../", 3) != 0));
	hub_is_name(text);
}

static void once(const uint8_t *p, size_t size)
{
	static const char *const name[] = { "own/model",
					    "own/model@v1",
					    "own/model:config.json",
					    "own/model@0123456789abcdef0123456789abcdef01234567",
					    "own/set",
					    "own/set:data/a.jsonl",
					    "own/a@b/c",
					    "own/model:model.safetensors" };
	struct err e = { 0 };
	struct hub_name n;
	char path[HUB_PATH];
	in = (struct feed){ p, size };
	unsigned how = feed_byte(&in);
	const struct hub_options o = { .dataset = how & 1, .retry_ms = 1 };
	if (how & 8) {
		name_of(&e);
		return;
	}
	setenv("HF_TOKEN", how & 2 ? "secret" : "", 1);
	setenv("HF_ENDPOINT", how & 16 ? "https://hub.invalid//" : "http://127.0.0.1:1", 1);
	unsetenv("HF_HUB_OFFLINE");
	MUST(hub_parse(name[feed_byte(&in) % 8], &n, &e) == 0);
	for (int i = 0; i < 2; i++) {
		err_clear(&e);
		int rc = hub_fetch(&n, &o, path, &e);
		check(rc, &e);
		MUST(rc < 0 || (!strncmp(path, folder, strlen(folder)) && !access(path, F_OK)));
		if (how & 4)
			setenv("HF_HUB_OFFLINE", "1", 1);
	}
	for (size_t i = 0; i < HANDLES; i++)
		MUST(!handle[i]);
	nftw(folder, looked_at, 8, FTW_PHYS);
	nftw(folder, forget, 8, FTW_PHYS | FTW_DEPTH);
}

static void tidy(void)
{
	nftw(folder, forget, 8, FTW_PHYS | FTW_DEPTH);
	rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	log_set_sink(NULL, NULL, LOG_ERROR);
	snprintf(folder, sizeof folder, "%s/hs-fuzz-XXXXXX",
		 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	MUST(mkdtemp(folder));
	atexit(tidy);
	setenv("HF_HOME", folder, 1);
	unsetenv("HF_TOKEN_PATH");
	unsetenv("HF_HUB_CACHE");
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size)
		starve(once, data, size);
	return 0;
}
