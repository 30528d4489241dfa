/* SPDX-License-Identifier: Apache-2.0 */
/* rtc.c - see rtc.h. */
#include "dev/rtc.h"

#include "base/buf.h"
#include "base/dl.h"
#include "base/err.h"
#include "base/mem.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_MOST ((size_t)16 << 20)
#define CODE_MOST ((size_t)256 << 20)
#define ARCHS 128

struct functions {
	int (*version)(int *, int *);
	int (*create)(void **, const char *, const char *, int, const char *const *,
		      const char *const *);
	int (*destroy)(void **);
	int (*compile)(void *, int, const char *const *);
	int (*log_size)(void *, size_t *);
	int (*log)(void *, char *);
	int (*code_size)(void *, size_t *);
	int (*code)(void *, char *);
	const char *(*error)(int);
	/* NVRTC only */
	int (*ptx_size)(void *, size_t *);
	int (*ptx)(void *, char *);
	int (*narchs)(int *);
	int (*archs)(int *);
};

struct rtc {
	struct functions f;
	enum rtc_kind kind;
	int major, minor, narchs;
	int archs[ARCHS];
	char name[48];
	const char *library;
};

#define ROW(member, symbol)                                                                        \
	{                                                                                          \
		symbol, offsetof(struct functions, member), 0                                      \
	}
#define COMMON(prefix)                                                                             \
	ROW(version, prefix "Version"), ROW(create, prefix "CreateProgram"),                       \
		ROW(destroy, prefix "DestroyProgram"), ROW(compile, prefix "CompileProgram"),      \
		ROW(log_size, prefix "GetProgramLogSize"), ROW(log, prefix "GetProgramLog"),       \
		ROW(error, prefix "GetErrorString")

static const struct dl_symbol nvrtc_symbols[] = { COMMON("nvrtc"),
						  ROW(code_size, "nvrtcGetCUBINSize"),
						  ROW(code, "nvrtcGetCUBIN"),
						  ROW(ptx_size, "nvrtcGetPTXSize"),
						  ROW(ptx, "nvrtcGetPTX"),
						  ROW(narchs, "nvrtcGetNumSupportedArchs"),
						  ROW(archs, "nvrtcGetSupportedArchs") };
static const struct dl_symbol hiprtc_symbols[] = { COMMON("hiprtc"),
						   ROW(code_size, "hiprtcGetCodeSize"),
						   ROW(code, "hiprtcGetCode") };

/* newest first; before ROCm 5.3 hipRTC lay in the driver's library */
static const char *const nvrtc_names[] = { "libnvrtc.so.13",
					   "libnvrtc.so.12",
					   "libnvrtc.so.11.2",
					   "libnvrtc.so",
					   "/usr/local/cuda/lib64/libnvrtc.so",
					   "/opt/cuda/lib64/libnvrtc.so",
					   NULL };
static const char *const hiprtc_names[] = { "libhiprtc.so.8",
					    "libhiprtc.so.7",
					    "libhiprtc.so.6",
					    "libhiprtc.so.5",
					    "libhiprtc.so",
					    "/opt/rocm/lib/libhiprtc.so",
					    "/opt/rocm/core-10/lib/libhiprtc.so",
					    "libamdhip64.so.5",
					    "libamdhip64.so",
					    NULL };

static const struct family {
	const char *title, *env;
	const char *const *names;
	const struct dl_symbol *symbols;
	size_t nsymbols;
} families[] = {
	[RTC_NVRTC] = { "NVRTC", "HS_NVRTC_LIBRARY", nvrtc_names, nvrtc_symbols,
			ARRAY_LEN(nvrtc_symbols) },
	[RTC_HIPRTC] = { "hipRTC", "HS_HIPRTC_LIBRARY", hiprtc_names, hiprtc_symbols,
			 ARRAY_LEN(hiprtc_symbols) },
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rtc *opened[16];
static size_t nopened;

/* A library by its name, opened once. */
static int library(enum rtc_kind k, const char *name, const struct rtc **r_p, struct err *e)
{
	const struct family *f = &families[k];
	const char *const names[] = { name, NULL };
	void *handle;
	for (size_t i = 0; i < nopened; i++)
		if (opened[i]->kind == k && !strcmp(opened[i]->library, name)) {
			*r_p = opened[i];
			return 0;
		}
	struct rtc *r = mem_zalloc(sizeof *r + strlen(name) + 1);
	if (!r || nopened == ARRAY_LEN(opened)) {
		mem_free(r);
		return err_nomem(e, sizeof *r, "a compiler");
	}
	memcpy(r + 1, name, strlen(name) + 1);
	*r = (struct rtc){ .kind = k, .library = (const char *)(r + 1) };
	int rc = dl_open(names, f->symbols, f->nsymbols, &r->f, &handle, e);
	if (rc < 0) {
		mem_free(r);
		return rc;
	}
	r->f.version(&r->major, &r->minor);
	snprintf(r->name, sizeof r->name, "%s %d.%d", f->title, r->major, r->minor);
	if (k == RTC_NVRTC && r->f.narchs(&r->narchs) == 0 && r->narchs > 0 && r->narchs <= ARCHS)
		r->f.archs(r->archs);
	else
		r->narchs = 0;
	opened[nopened++] = r;
	*r_p = r;
	return 0;
}

/* "sm_86": 86 */
static int number_of(const char *arch)
{
	return strncmp(arch, "sm_", 3) ? 0 : (int)strtol(arch + 3, NULL, 10);
}

/* hipRTC before ROCm 5.3, which lies in the driver's library, ends in a crash when asked for an
 * architecture it does not know, so the library below it is asked first. Only then: it brings an
 * LLVM, and two in one process (PoCL has another) conflict. */
static bool amd_knows(const struct rtc *r, const char *arch)
{
	static const char *const names[] = { "libamd_comgr.so.3", "libamd_comgr.so.2",
					     "libamd_comgr.so" };
	const size_t card = strcspn(arch, ":");
	const char *s;
	size_t n = 0;
	void *h = NULL;
	if (!strstr(r->library, "libamdhip64"))
		return true;
	for (size_t i = 0; i < ARRAY_LEN(names) && !h; i++)
		/* It stays open: the compiler library cannot be loaded twice. */
		h = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (!h)
		return true;
	int (*count)(size_t *) = (int (*)(size_t *))(uintptr_t)dlsym(h, "amd_comgr_get_isa_count");
	int (*name)(size_t, const char **) =
		(int (*)(size_t, const char **))(uintptr_t)dlsym(h, "amd_comgr_get_isa_name");
	if (!count || !name || count(&n) != 0)
		return true;
	for (size_t i = 0; i < n; i++) { /* amdgcn-amd-amdhsa--gfx90a */
		const char *dash = name(i, &s) == 0 ? strrchr(s, '-') : NULL;
		if (dash && strcspn(dash + 1, ":") == card && !strncmp(dash + 1, arch, card))
			return true;
	}
	return false;
}

static int serves(const struct rtc *r, const char *arch, int most, struct err *e)
{
	if (r->kind == RTC_HIPRTC)
		return !arch || amd_knows(r, arch)
			       ? 0
			       : err_set(e, ERR_UNSUPPORTED,
					 "%s does not know %s: install a newer ROCm", r->name,
					 arch);
	if (most && r->major > most)
		return err_set(
			e, ERR_UNSUPPORTED,
			"%s is newer than the driver, which takes CUDA %d: update the driver, or "
			"install "
			"the NVRTC of CUDA %d (HS_NVRTC_LIBRARY names one in an unusual place)",
			r->name, most, most);
	if (arch && (!r->narchs || number_of(arch) < r->archs[0]))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s makes code for sm_%d and newer, this card is %s: install the "
			       "NVRTC of an older "
			       "CUDA (12 goes down to sm_50; HS_NVRTC_LIBRARY names one in an "
			       "unusual place)",
			       r->name, r->narchs ? r->archs[0] : 0, arch);
	return 0;
}

static int open_any(enum rtc_kind k, const char *arch, int most, const struct rtc **r_p,
		    struct err *e)
{
	const struct family *f = &families[k];
	const char *own = getenv(f->env);
	const char *const one[] = { own, NULL };
	struct err worst = { 0 };
	bool none = true; /* of those tried so far is there */
	for (const char *const *name = own && own[0] ? one : f->names; *name; name++) {
		const struct rtc *r = NULL;
		struct err why = { 0 };
		int rc = library(k, *name, &r, &why);
		const bool absent = rc == ERR_UNSUPPORTED;
		if (rc == 0)
			rc = serves(r, arch, most, &why);
		if (rc == 0) {
			*r_p = r;
			return 0;
		}
		/* the message is about an unsuitable library rather than a missing one */
		if (!worst.code || (none && !absent))
			worst = why;
		none = none && absent;
	}
	if (none && !(own && own[0]))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s is not installed (%s), and the kernels are compiled on the "
			       "machine that runs them",
			       f->title, f->names[0]);
	*e = worst;
	return e->code;
}

int rtc_open(enum rtc_kind k, const char *arch, int most, const struct rtc **r_p, struct err *e)
{
	pthread_mutex_lock(&lock);
	int rc = open_any(k, arch, most, r_p, e);
	pthread_mutex_unlock(&lock);
	return rc;
}

const char *rtc_name(const struct rtc *r) { return r->name; }

int rtc_archs(const struct rtc *r, int *archs, int most)
{
	const int n = r->narchs < most ? r->narchs : most;
	memcpy(archs, r->archs, (size_t)n * sizeof *archs);
	return n;
}

/* Appends what size(p) and get(p) give. */
static int fetch(void *p, int (*size)(void *, size_t *), int (*get)(void *, char *), size_t most,
		 struct buf *b)
{
	size_t n = 0;
	int rc = size(p, &n);
	if (rc || !n)
		return rc;
	if (n > most)
		return -1;
	char *s = mem_alloc(n);
	if (!s) {
		b->failed = true;
		return 0;
	}
	rc = get(p, s);
	if (!rc)
		buf_add(b, s, n);
	mem_free(s);
	return rc;
}

int rtc_compile(const struct rtc *r, const char *text, const char *arch, struct buf *code,
		struct buf *log, struct err *e)
{
	char option[96];
	const char *const options[] = { option };
	bool ptx = false;
	void *p = NULL;
	if (r->kind == RTC_NVRTC) {
		int at = -1;
		for (int i = 0; i < r->narchs && r->archs[i] <= number_of(arch); i++)
			at = i;
		if (at < 0)
			return serves(r, arch, 0, e);
		ptx = r->archs[at] != number_of(arch);
		snprintf(option, sizeof option, "--gpu-architecture=%s_%d", ptx ? "compute" : "sm",
			 r->archs[at]);
	} else {
		snprintf(option, sizeof option, "--offload-arch=%s", arch);
	}
	int rc = r->f.create(&p, text, "heteroshard.cu", 0, NULL, NULL);
	if (rc)
		return err_set(e, ERR_DEVICE, "%s does not accept the kernels: %s", r->name,
			       r->f.error(rc));
	rc = r->f.compile(p, 1, options);
	fetch(p, r->f.log_size, r->f.log, LOG_MOST, log);
	if (log->n && !log->p[log->n - 1])
		log->n--; /* the NUL is counted by the library */
	const char *what = "does not compile the kernels";
	if (!rc) {
		what = "gives no code";
		rc = ptx ? fetch(p, r->f.ptx_size, r->f.ptx, CODE_MOST, code)
			 : fetch(p, r->f.code_size, r->f.code, CODE_MOST, code);
	}
	r->f.destroy(&p);
	if (rc)
		return err_set(e, ERR_DEVICE, "%s %s for %s: %s", r->name, what, arch,
			       r->f.error(rc));
	if (!code->n)
		return err_set(e, ERR_DEVICE, "%s gives no code for %s", r->name, arch);
	return buf_ok(code, e);
}
