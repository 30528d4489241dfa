/* SPDX-License-Identifier: Apache-2.0 */
/* hub.c - see hub.h: names, the server's list of files, the cache. */
#include "hub/hub.h"

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/open.h"
#include "hub/http.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { LIST_MAX = 64 << 20, FILES_MAX = 4000 };

/* ---- names ---------------------------------------------------------------------------------- */

/* Letters, digits and -_. ; a part neither begins nor ends with a dot, so it is never "..". */
static bool good_part(const char *s, size_t n)
{
	if (!n || n > 96 || s[0] == '.' || s[n - 1] == '.' || s[0] == '-')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
		      (s[i] >= '0' && s[i] <= '9') || strchr("-_.", s[i])))
			return false;
	return true;
}

/* A path of such parts, also with blanks and dots in front: no "..", nothing hidden from view. */
static bool good_path(const char *s)
{
	size_t n;
	if (!*s || strlen(s) >= HUB_NAME || *s == '/')
		return false;
	for (;; s += n + 1) {
		n = strcspn(s, "/");
		if (!n || (n <= 2 && !strncmp(s, "..", n)))
			return false;
		for (size_t i = 0; i < n; i++)
			if ((unsigned char)s[i] < ' ' || s[i] == '\\' || s[i] == 127)
				return false;
		if (!s[n])
			return true;
	}
}

int hub_parse(const char *text, struct hub_name *n_p, struct err *e)
{
	struct hub_name n = { .repo = "" };
	const char *slash = strchr(text, '/');
	size_t owner = slash ? (size_t)(slash - text) : 0,
	       name = slash ? strcspn(slash + 1, "@:") : 0, len = owner + 1 + name;
	const char *p = text + len;
	if (!slash || !good_part(text, owner) || !good_part(slash + 1, name))
		goto wrong;
	memcpy(n.repo, text, len);
	if (*p == '@') {
		size_t k = strcspn(++p, ":");
		if (k >= sizeof n.revision)
			goto wrong;
		memcpy(n.revision, p, k);
		p += k;
		if (!good_path(n.revision) || n.revision[0] == '-')
			goto wrong;
	}
	if (*p == ':') {
		if (!good_path(p + 1))
			goto wrong;
		snprintf(n.file, sizeof n.file, "%s", p + 1);
	} else if (*p) {
		goto wrong;
	}
	*n_p = n;
	return 0;
wrong:
	return err_set(e, ERR_USAGE,
		       "%.200s: is neither a file here nor a name OWNER/NAME, with @REVISION and "
		       ":FILE behind it where they are wanted",
		       text);
}

bool hub_is_name(const char *text)
{
	struct hub_name n;
	struct err e;
	struct stat st;
	return text && stat(text, &st) < 0 && hub_parse(text, &n, &e) == 0;
}

/* ---- the cache ------------------------------------------------------------------------------ */

struct cache {
	char repo[HUB_PATH]; /* .../models--OWNER--NAME */
	char commit[41];
};

static const char *env(const char *name)
{
	const char *v = getenv(name);
	return v && *v ? v : NULL;
}

static bool yes(const char *v)
{
	return v && (!strcmp(v, "1") || !strcasecmp(v, "true") || !strcasecmp(v, "yes") ||
		     !strcasecmp(v, "on"));
}

static int fits(int n, struct err *e)
{
	return n >= 0 && n < HUB_PATH ? 0
				      : err_set(e, ERR_USAGE, "the path of the cache is too long");
}

static int home(char out[HUB_PATH], struct err *e)
{
	const char *h = env("HF_HOME"), *xdg = env("XDG_CACHE_HOME"), *user = env("HOME");
	if (h)
		return fits(snprintf(out, HUB_PATH, "%s", h), e);
	if (!xdg && !user)
		return err_set(e, ERR_USAGE,
			       "neither HF_HOME nor HOME is set: where is the cache?");
	return fits(
		snprintf(out, HUB_PATH, "%s%s/huggingface", xdg ? xdg : user, xdg ? "" : "/.cache"),
		e);
}

static int cache_open(const struct hub_name *n, bool dataset, struct cache *c, struct err *e)
{
	char root[HUB_PATH];
	const char *own = env("HF_HUB_CACHE"), *slash = strchr(n->repo, '/');
	TRY(home(root, e));
	return fits(snprintf(c->repo, HUB_PATH, "%s%s/%s--%.*s--%s", own ? own : root,
			     own ? "" : "/hub", dataset ? "datasets" : "models",
			     (int)(slash - n->repo), n->repo, slash + 1),
		    e);
}

/* The folders above a path. */
static int folders(const char *path, struct err *e)
{
	char p[HUB_PATH];
	snprintf(p, sizeof p, "%s", path);
	for (char *s = p + 1; (s = strchr(s, '/')); *s++ = '/') {
		*s = 0;
		if (mkdir(p, 0755) < 0 && errno != EEXIST)
			return err_sys(e, errno, "%s", p);
	}
	return 0;
}

static bool is_hex(const char *s, size_t n)
{
	return strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

static int path_in(const struct cache *c, char out[HUB_PATH], struct err *e, const char *a,
		   const char *b, const char *end)
{
	return fits(snprintf(out, HUB_PATH, "%s/%s/%s%s", c->repo, a, b, end), e);
}

/* The commit that a revision had when it was fetched last. */
static int read_ref(struct cache *c, const char *revision, struct err *e)
{
	char path[HUB_PATH];
	struct buf b = BUF_INIT;
	if (is_hex(revision, 40)) {
		memcpy(c->commit, revision, 41);
		return 0;
	}
	TRY(path_in(c, path, e, "refs", revision, ""));
	int rc = buf_read_file(&b, path, 4096, e);
	if (rc >= 0) {
		b.p[strcspn(b.p, "\r\n ")] = 0;
		if (is_hex(b.p, 40))
			memcpy(c->commit, b.p, 41);
		else
			rc = err_set(e, ERR_INPUT, "%s: holds no commit", path);
	}
	buf_release(&b);
	return rc;
}

static int write_ref(const struct cache *c, const char *revision, struct err *e)
{
	char path[HUB_PATH], now[HUB_PATH];
	if (is_hex(revision, 40))
		return 0;
	TRY(path_in(c, path, e, "refs", revision, ""));
	TRY(fits(snprintf(now, sizeof now, "%.4000s.%d", path, (int)getpid()), e));
	TRY(folders(path, e));
	int fd;
	TRY(open_write_err(now, OPEN_EMPTY, 0644, &fd, e));
	bool good = write(fd, c->commit, 40) == 40;
	good = close(fd) == 0 && good;
	if (!good || rename(now, path) < 0)
		return err_sys(e, errno, "%s", path);
	return 0;
}

/* ---- the server's list ---------------------------------------------------------------------- */

struct want {
	char name[HUB_NAME], hash[65];
	uint64_t size;
	bool git; /* git's SHA-1 instead of SHA-256 */
	char blob[HUB_PATH], part[HUB_PATH], url[HUB_PATH];
};

struct list {
	struct want *w;
	size_t n, cap;
};

static bool ends(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);
	return n > k && !strcasecmp(s + n - k, end);
}

static bool chosen(const struct hub_name *n, bool dataset, const char *file)
{
	static const char *const model[] = { ".safetensors", ".json",      ".model",
					     ".jinja",       "merges.txt", NULL },
				 *const data[] = { ".json",      ".jsonl",    ".csv",
						   ".tsv",       ".parquet",  ".txt",
						   ".json.gz",   ".jsonl.gz", ".csv.gz",
						   ".jsonl.zst", ".json.zst", NULL };
	if (n->file[0])
		return !strcmp(n->file, file);
	if (!dataset && strchr(file, '/')) /* other forms of the same model */
		return false;
	for (const char *const *end = dataset ? data : model; *end; end++)
		if (ends(file, *end) || !strcmp(file, *end))
			return true;
	return false;
}

static int add_file(struct list *l, const json_t *f, struct err *e)
{
	const json_t *lfs = json_object_get(f, "lfs");
	const char *name = json_string_value(json_object_get(f, "rfilename")),
		   *hash = json_string_value(
			   json_object_get(json_is_object(lfs) ? lfs : f,
					   json_is_object(lfs) ? "sha256" : "blobId"));
	const json_t *bytes = json_object_get(f, "size");
	json_int_t size = json_is_integer(bytes) ? json_integer_value(bytes) : -1;
	struct want w = { .git = !json_is_object(lfs) };
	if (!good_path(name) || !hash || !is_hex(hash, w.git ? 40 : 64) || size < 0)
		return err_set(e, ERR_INPUT,
			       "the server's list of files has an entry without a proper name, "
			       "size and hash: %.100s",
			       name);
	if (l->n >= FILES_MAX)
		return err_set(e, ERR_INPUT, "more than %d files", FILES_MAX);
	if (!mem_grow(&l->w, &l->cap, l->n + 1, sizeof w))
		return err_nomem(e, (l->n + 1) * sizeof w, "a list of files");
	snprintf(w.name, sizeof w.name, "%s", name);
	snprintf(w.hash, sizeof w.hash, "%s", hash);
	w.size = (uint64_t)size;
	l->w[l->n++] = w;
	return 0;
}

static int read_list(const struct hub_name *n, bool dataset, const json_t *doc, struct cache *c,
		     struct list *l, struct err *e)
{
	const char *commit = json_string_value(json_object_get(doc, "sha"));
	const json_t *files = json_object_get(doc, "siblings"), *f;
	size_t i;
	if (!commit || !is_hex(commit, 40) || !json_is_array(files))
		return err_set(e, ERR_INPUT, "%s: the server's answer has no commit and no files",
			       n->repo);
	memcpy(c->commit, commit, 41);
	json_array_foreach(files, i, f)
	{
		const char *name = json_string_value(json_object_get(f, "rfilename"));
		if (name && chosen(n, dataset, name))
			TRY(add_file(l, f, e));
	}
	if (!l->n)
		return err_set(e, ERR_INPUT, "%s: has %s%s", n->repo,
			       n->file[0] ? "no file " : "none of the files that are read here",
			       n->file);
	return 0;
}

/* A name in a URL. */
static void escaped(struct buf *b, const char *s, bool slashes)
{
	for (; *s; s++)
		if ((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
		    (*s >= '0' && *s <= '9') || strchr("-_.~", *s) || (*s == '/' && slashes))
			buf_addc(b, *s);
		else
			buf_addf(b, "%%%02X", (unsigned char)*s);
}

static int ask(const struct hub_name *n, const struct hub_options *o, const char *endpoint,
	       const struct http_options *h, struct cache *c, struct list *l, struct err *e)
{
	struct buf url = BUF_INIT, text = BUF_INIT;
	json_t *doc = NULL;
	buf_addf(&url, "%s/api/%s/%s/revision/", endpoint, o->dataset ? "datasets" : "models",
		 n->repo);
	escaped(&url, n->revision[0] ? n->revision : "main", false);
	buf_adds(&url, "?blobs=true");
	int rc = buf_ok(&url, e);
	if (rc >= 0)
		rc = http_get(url.p, h, LIST_MAX, &text, e);
	if (rc >= 0)
		rc = json_parse_text(text.p, text.n, url.p, &doc, e);
	if (rc >= 0)
		rc = read_list(n, o->dataset, doc, c, l, e);
	json_decref(doc);
	buf_release(&url);
	buf_release(&text);
	return rc;
}

/* ---- files ---------------------------------------------------------------------------------- */

static int hash_of(const char *path, bool git, uint64_t size, char hex[65], struct err *e)
{
	static const char digits[] = "0123456789abcdef";
	unsigned char md[EVP_MAX_MD_SIZE];
	unsigned int n = 0;
	char head[40];
	int fd;
	TRY(open_read(path, &fd, NULL, e));
	EVP_MD_CTX *x = EVP_MD_CTX_new();
	char *room = mem_alloc(1 << 20);
	bool good = x && room && EVP_DigestInit_ex(x, git ? EVP_sha1() : EVP_sha256(), NULL);
	if (good && git) {
		int k = snprintf(head, sizeof head, "blob %llu", (unsigned long long)size);
		good = EVP_DigestUpdate(x, head, (size_t)k + 1); /* with its NUL */
	}
	for (ssize_t k = 1; good && k > 0;) {
		k = read(fd, room, 1 << 20);
		good = k >= 0 && EVP_DigestUpdate(x, room, (size_t)k);
	}
	good = good && EVP_DigestFinal_ex(x, md, &n);
	for (unsigned i = 0; i < n && i < 32; i++) {
		hex[2 * i] = digits[md[i] >> 4];
		hex[2 * i + 1] = digits[md[i] & 15];
		hex[2 * i + 2] = 0;
	}
	EVP_MD_CTX_free(x);
	mem_free(room);
	close(fd);
	return good ? 0 : err_sys(e, errno, "%s: its hash", path);
}

/* Into the cache, where its hash is right. */
static int take(const struct want *w, struct err *e)
{
	char hex[65] = "";
	TRY(hash_of(w->part, w->git, w->size, hex, e));
	if (strcmp(hex, w->hash)) {
		unlink(w->part);
		return err_set(e, ERR_INPUT,
			       "%s: what was fetched has the hash %.16s..., the server's list says "
			       "%.16s...; it was removed: try again",
			       w->name, hex, w->hash);
	}
	if (rename(w->part, w->blob) < 0)
		return err_sys(e, errno, "%s", w->blob);
	return 0;
}

/* snapshots/COMMIT/FILE as a link to the blob. */
static int link_file(const struct cache *c, const struct want *w, struct err *e)
{
	char path[HUB_PATH], to[HUB_PATH] = "../../", old[HUB_PATH];
	TRY(fits(snprintf(path, sizeof path, "%s/snapshots/%s/%s", c->repo, c->commit, w->name),
		 e));
	TRY(folders(path, e));
	for (const char *s = w->name; (s = strchr(s, '/')); s++)
		strncat(to, "../", sizeof to - strlen(to) - 1);
	strncat(to, "blobs/", sizeof to - strlen(to) - 1);
	strncat(to, w->hash, sizeof to - strlen(to) - 1);
	ssize_t n = readlink(path, old, sizeof old - 1);
	if (n >= 0 && (size_t)n == strlen(to) && !memcmp(old, to, (size_t)n))
		return 0;
	if (n >= 0)
		unlink(path);
	if (symlink(to, path) < 0 && errno != EEXIST)
		return err_sys(e, errno, "%s", path);
	return 0;
}

/* The lock that huggingface_hub takes for the same file. */
static int lock_file(const struct cache *c, const char *hash, int *fd_p, struct err *e)
{
	char path[HUB_PATH];
	const char *name = strrchr(c->repo, '/');
	TRY(fits(snprintf(path, sizeof path, "%.*s/.locks%s/%s.lock", (int)(name - c->repo),
			  c->repo, name, hash),
		 e));
	TRY(folders(path, e));
	TRY(open_write_err(path, OPEN_LOCK, 0644, fd_p, e));
	if (flock(*fd_p, LOCK_EX | LOCK_NB) == 0)
		return 0;
	log_info("waiting: another process fetches %.16s...", hash);
	while (flock(*fd_p, LOCK_EX) < 0)
		if (errno != EINTR) {
			close(*fd_p);
			return err_sys(e, errno, "%s", path);
		}
	return 0;
}

static bool there(const char *path, uint64_t size)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == size;
}

/* Whether there is room for what is missing. */
static int room_for(const struct cache *c, const struct http_file *f, size_t n, struct err *e)
{
	struct statvfs disk;
	struct stat st;
	double missing = 0, left;
	for (size_t i = 0; i < n; i++) {
		missing += (double)f[i].size;
		if (stat(f[i].path, &st) == 0)
			missing -= fmin((double)st.st_size, (double)f[i].size);
	}
	if (statvfs(c->repo, &disk) < 0)
		return 0;
	left = (double)disk.f_bavail * (double)disk.f_frsize;
	if (missing <= left)
		return 0;
	return err_set(e, ERR_IO,
		       "%.1f GB are to be fetched, and %s has room for %.1f GB: free some, or name "
		       "another place (HF_HUB_CACHE)",
		       missing / 1e9, c->repo, left / 1e9);
}

static int fetch_all(const struct hub_name *n, const struct hub_options *o, const char *endpoint,
		     const struct http_options *h, struct cache *c, struct list *l, struct err *e)
{
	struct http_file *f = mem_array(l->n, sizeof *f);
	int *lock = mem_array(l->n, sizeof *lock);
	size_t nf = 0, locked = 0;
	int rc = f && lock ? 0 : err_nomem(e, l->n * sizeof *f, "a list of files");
	for (; rc >= 0 && locked < l->n; locked++) {
		struct want *w = &l->w[locked];
		struct buf url = BUF_INIT;
		buf_addf(&url, "%s/%s%s/resolve/%s/", endpoint, o->dataset ? "datasets/" : "",
			 n->repo, c->commit);
		escaped(&url, w->name, true);
		snprintf(w->url, sizeof w->url, "%.4000s", url.p);
		rc = buf_ok(&url, e);
		buf_release(&url);
		if (rc < 0)
			goto out;
		TRYOUT(path_in(c, w->blob, e, "blobs", w->hash, ""));
		TRYOUT(path_in(c, w->part, e, "blobs", w->hash, ".incomplete"));
		TRYOUT(folders(w->blob, e));
		lock[locked] = -1;
		bool twice = false; /* the same contents under two names have one lock */
		for (size_t i = 0; i < locked; i++)
			twice = twice || !strcmp(l->w[i].hash, w->hash);
		if (twice || there(w->blob, w->size))
			continue;
		rc = lock_file(c, w->hash, &lock[locked], e);
		if (rc >= 0 && !there(w->blob, w->size))
			f[nf++] = (struct http_file){ w->url, w->part, w->name, w->size };
	}
	if (rc >= 0 && nf)
		rc = room_for(c, f, nf, e);
	if (rc >= 0 && nf)
		rc = http_files(f, nf, h, e);
	/* each one that is wrong is removed; the first is the error */
	bool fetched = rc >= 0;
	for (size_t i = 0; fetched && i < l->n; i++) {
		struct err other = { 0 };
		int one = there(l->w[i].blob, l->w[i].size) ? 0 : take(&l->w[i], &other);
		if (one >= 0)
			one = link_file(c, &l->w[i], &other);
		if (one < 0 && rc >= 0) {
			rc = one;
			*e = other;
		}
	}
out:
	for (size_t i = 0; i < locked; i++)
		if (lock[i] >= 0)
			close(lock[i]);
	mem_free(lock);
	mem_free(f);
	return rc;
}

/* ---- all ------------------------------------------------------------------------------------ */

static int read_token(struct buf *out, struct err *e)
{
	char path[HUB_PATH], root[HUB_PATH];
	const char *token = env("HF_TOKEN"), *own = env("HF_TOKEN_PATH");
	if (token) {
		buf_adds(out, token);
	} else {
		TRY(home(root, e));
		TRY(fits(snprintf(path, sizeof path, "%s%s", own ? own : root, own ? "" : "/token"),
			 e));
		if (access(path, R_OK) == 0)
			TRY(buf_read_file(out, path, 4096, e));
	}
	while (out->n && (unsigned char)out->p[out->n - 1] <= ' ')
		out->p[--out->n] = 0;
	for (size_t i = 0; i < out->n; i++)
		if ((unsigned char)out->p[i] <= ' ')
			return err_set(e, ERR_USAGE, "the token has a blank or a line feed in it");
	return buf_ok(out, e);
}

static int result(const struct hub_name *n, const struct cache *c, char path[HUB_PATH],
		  struct err *e)
{
	struct stat st;
	TRY(fits(snprintf(path, HUB_PATH, "%s/snapshots/%s%s%s", c->repo, c->commit,
			  n->file[0] ? "/" : "", n->file),
		 e));
	if (stat(path, &st) < 0)
		return err_set(e, ERR_INPUT,
			       "%s is not in the cache (%s), and HF_HUB_OFFLINE is set", n->repo,
			       path);
	return 0;
}

int hub_fetch(const struct hub_name *n, const struct hub_options *o, char path[HUB_PATH],
	      struct err *e)
{
	const char *revision = n->revision[0] ? n->revision : "main",
		   *given = o->endpoint && *o->endpoint ? o->endpoint : env("HF_ENDPOINT");
	struct cache c = { .commit = "" };
	struct list l = { 0 };
	struct buf token = BUF_INIT, endpoint = BUF_INIT;
	int rc;
	TRY(cache_open(n, o->dataset, &c, e));
	if (yes(env("HF_HUB_OFFLINE"))) {
		if (read_ref(&c, revision, e) < 0)
			return err_set(e, ERR_INPUT,
				       "%s is not in the cache (%s), and HF_HUB_OFFLINE is set",
				       n->repo, c.repo);
		return result(n, &c, path, e);
	}
	if (!given)
		return err_set(e, ERR_USAGE,
			       "%s: there is no such file or folder; to fetch a model or data "
			       "set of that name set HF_ENDPOINT to the address of the hub",
			       n->repo);
	buf_adds(&endpoint, given);
	while (endpoint.n && endpoint.p[endpoint.n - 1] == '/')
		endpoint.p[--endpoint.n] = 0;
	if (strncmp(endpoint.p, "https://", 8) && strncmp(endpoint.p, "http://", 7)) {
		rc = err_set(e, ERR_USAGE, "HF_ENDPOINT: '%.100s' does not begin with https://",
			     given);
		goto out;
	}
	TRYOUT(read_token(&token, e));
	const struct http_options h = { .token = token.p,
					.retry_ms = o->retry_ms ? o->retry_ms : 1000,
					.stall_s = o->stall_s };
	TRYOUT(ask(n, o, endpoint.p, &h, &c, &l, e));
	TRYOUT(fetch_all(n, o, endpoint.p, &h, &c, &l, e));
	TRYOUT(write_ref(&c, revision, e));
	rc = result(n, &c, path, e);
out:
	mem_free(l.w);
	buf_release(&token);
	buf_release(&endpoint);
	return rc;
}
