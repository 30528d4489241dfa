/* opencl_program.c - compiling the kernels: one program for each dtype of activations, kept on disk.
 *
 * The cache is a file $XDG_CACHE_HOME/heteroshard/kernels/KEY.cl (else ~/.cache/...): KEY is a hash of the text, the device and its
 * driver; the file opens with a hash of what follows, so a damaged one is seen and ignored. It is written beside and renamed. Without a
 * folder that can be written there is no cache, and no error. */
#include "dev/opencl.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPTIONS "-cl-std=CL1.2"
#define HASH 16
#define CACHE_MOST ((uint64_t)256 << 20) /* bytes of a program, at most */
#define LOG_MOST ((size_t)4 << 20)

static void hash(const void *p, size_t n, unsigned char h[HASH]) { crypto_generichash(h, HASH, p, n, NULL, 0); }

/* The folder, made when it is not there; false: there is none. */
static bool folder(char *s, size_t n)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int len = xdg && xdg[0] == '/'     ? snprintf(s, n, "%s/heteroshard/kernels", xdg)
		  : home && home[0] == '/' ? snprintf(s, n, "%s/.cache/heteroshard/kernels", home)
					   : -1;
	if (len < 0 || (size_t)len >= n)
		return false;
	for (char *p = s + 1;; p++) {
		const char was = *p;
		if (was && was != '/')
			continue;
		*p = 0;
		if (mkdir(s, 0700) < 0 && errno != EEXIST)
			return false;
		*p = was;
		if (!was)
			break;
	}
	return true;
}

static void key_of(const struct opencl *c, const char *text, size_t n, char key[2 * HASH + 1])
{
	crypto_generichash_state s;
	unsigned char h[HASH];
	char version[128] = "", platform[256] = "";
	opencl_text(c->lib, c->at.device, CL_DEVICE_VERSION, version, sizeof version);
	c->lib->f.clGetPlatformInfo(c->at.platform, CL_PLATFORM_VERSION, sizeof platform - 1, platform, NULL);
	crypto_generichash_init(&s, NULL, 0, HASH);
	const char *part[] = { OPTIONS, c->name, c->vendor, c->driver, version, platform };
	for (size_t i = 0; i < ARRAY_LEN(part); i++)
		crypto_generichash_update(&s, (const unsigned char *)part[i], strlen(part[i]) + 1);
	crypto_generichash_update(&s, (const unsigned char *)text, n);
	crypto_generichash_final(&s, h, HASH);
	for (int i = 0; i < HASH; i++)
		snprintf(key + 2 * i, 3, "%02x", h[i]);
}

static bool write_file(const char *path, const void *head, size_t nhead, const void *p, size_t n)
{
	char tmp[1100];
	snprintf(tmp, sizeof tmp, "%s.%ld", path, (long)getpid());
	FILE *f = fopen(tmp, "we");
	if (!f)
		return false;
	bool ok = fwrite(head, 1, nhead, f) == nhead && fwrite(p, 1, n, f) == n;
	ok = fclose(f) == 0 && ok;
	if (ok && rename(tmp, path) == 0)
		return true;
	unlink(tmp);
	return false;
}

/* A program from the cache, NULL when it is not there, damaged, or refused by the driver. */
static cl_program cached(struct opencl *c, const char *path)
{
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	unsigned char h[HASH];
	cl_program p = NULL;
	if (access(path, R_OK) < 0)
		return NULL;
	if (buf_read_file(&b, path, CACHE_MOST, &e) < 0 || b.n <= HASH)
		goto out;
	hash(b.p + HASH, b.n - HASH, h);
	if (memcmp(h, b.p, HASH) != 0) {
		log_warn("%s is damaged and is made anew", path);
		goto out;
	}
	const size_t n = b.n - HASH;
	const unsigned char *bytes = (const unsigned char *)b.p + HASH;
	int32_t status = 0, rc = 0;
	p = c->lib->f.clCreateProgramWithBinary(c->context, 1, &c->at.device, &n, &bytes, &status, &rc);
	if (rc == CL_SUCCESS && status == CL_SUCCESS &&
	    c->lib->f.clBuildProgram(p, 1, &c->at.device, OPTIONS, NULL, NULL) == CL_SUCCESS)
		goto out;
	if (p)
		c->lib->f.clReleaseProgram(p);
	p = NULL;
out:
	buf_release(&b);
	return p;
}

static void keep(struct opencl *c, cl_program p, const char *path)
{
	size_t n = 0;
	if (c->lib->f.clGetProgramInfo(p, CL_PROGRAM_BINARY_SIZES, sizeof n, &n, NULL) != CL_SUCCESS || !n || n > CACHE_MOST)
		return;
	unsigned char *bytes = mem_alloc(n), h[HASH];
	if (!bytes)
		return;
	if (c->lib->f.clGetProgramInfo(p, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, NULL) == CL_SUCCESS) {
		hash(bytes, n, h);
		if (!write_file(path, h, HASH, bytes, n))
			log_debug("compiled kernels could not be kept in %s", path);
	}
	mem_free(bytes);
}

/* The compiler's first lines, and where all of them are. */
static int build_failed(struct opencl *c, cl_program p, int32_t code, const char *key, struct err *e)
{
	size_t n = 0;
	char *log = NULL, path[1100] = "", dir[1024], brief[400] = "";
	if (c->lib->f.clGetProgramBuildInfo(p, c->at.device, CL_PROGRAM_BUILD_LOG, 0, NULL, &n) == CL_SUCCESS && n &&
	    n < LOG_MOST && (log = mem_zalloc(n + 1)) != NULL)
		c->lib->f.clGetProgramBuildInfo(p, c->at.device, CL_PROGRAM_BUILD_LOG, n, log, NULL);
	if (log && folder(dir, sizeof dir)) {
		snprintf(path, sizeof path, "%s/%s.log", dir, key);
		if (!write_file(path, "", 0, log, strlen(log)))
			path[0] = 0;
	}
	if (log) {
		snprintf(brief, sizeof brief, "%s", log);
		int lines = 0;
		for (char *s = brief; *s; s++)
			if (*s == '\n') {
				*s = ++lines == 3 ? 0 : ' ';
				if (!*s)
					break;
			}
	}
	mem_free(log);
	return err_set(e, ERR_DEVICE, "%s (driver %s) does not compile the kernels: %s: %s%s%s%s", c->name, c->driver,
		       opencl_error(code), brief[0] ? brief : "the compiler says nothing", path[0] ? " (the whole log is in " : "",
		       path, path[0] ? ")" : "");
}

int opencl_build(struct opencl *c, const char *text, size_t n, cl_program *p_p, struct err *e)
{
	char key[2 * HASH + 1], dir[1024], path[1100] = "";
	int32_t rc;
	key_of(c, text, n, key);
	if (folder(dir, sizeof dir)) {
		snprintf(path, sizeof path, "%s/%s.cl", dir, key);
		*p_p = cached(c, path);
		if (*p_p)
			return 0;
	}
	cl_program p = c->lib->f.clCreateProgramWithSource(c->context, 1, &text, &n, &rc);
	if (rc != CL_SUCCESS)
		return err_set(e, ERR_DEVICE, "%s takes no program: %s", c->name, opencl_error(rc));
	rc = c->lib->f.clBuildProgram(p, 1, &c->at.device, OPTIONS, NULL, NULL);
	if (rc != CL_SUCCESS) {
		build_failed(c, p, rc, key, e);
		c->lib->f.clReleaseProgram(p);
		return e->code;
	}
	if (path[0])
		keep(c, p, path);
	*p_p = p;
	return 0;
}

int opencl_kernel(struct opencl *c, enum gpu_entry n, enum dtype t, cl_kernel *k_p, struct err *e)
{
	int32_t rc = 0;
	if (!c->built[t].program) {
		struct buf b = BUF_INIT;
		gpu_text(t, &b);
		int r = buf_ok(&b, e);
		if (r == 0)
			r = opencl_build(c, b.p, b.n, &c->built[t].program, e);
		buf_release(&b);
		if (r < 0)
			return r;
	}
	cl_kernel *k = &c->built[t].kernel[n];
	if (!*k)
		*k = c->lib->f.clCreateKernel(c->built[t].program, gpu_entry_name(n), &rc);
	if (!*k)
		return err_set(e, ERR_DEVICE, "%s has no kernel %s after compiling: %s", c->name, gpu_entry_name(n),
			       opencl_error(rc));
	*k_p = *k;
	return 0;
}

void opencl_programs_release(struct opencl *c)
{
	for (size_t t = 0; t < ARRAY_LEN(c->built); t++) {
		for (int n = 0; n < GPU_ENTRIES; n++)
			if (c->built[t].kernel[n])
				c->lib->f.clReleaseKernel(c->built[t].kernel[n]);
		if (c->built[t].program)
			c->lib->f.clReleaseProgram(c->built[t].program);
	}
}
