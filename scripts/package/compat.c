/* SPDX-License-Identifier: Apache-2.0 */
/* compat.c - functions of glibc that came after 2.28, for the programs of `make dist`, which are
 * compiled against a newer one. Linked as a library of its own, before the C library, so that what
 * an older glibc lacks is found here. Each does what the manual page of its name says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

struct stat;
enum { AT_CWD = -100, NOFOLLOW = 0x100, EMPTY_PATH = 0x1000 };

/* On x86-64 and aarch64 the kernel's structure is that of the C library. */
PUBLIC int fstatat(int fd, const char *path, struct stat *s, int flags)
{
	return (int)syscall(SYS_newfstatat, fd, path, s, flags);
}
PUBLIC int stat(const char *path, struct stat *s) { return fstatat(AT_CWD, path, s, 0); }
PUBLIC int lstat(const char *path, struct stat *s) { return fstatat(AT_CWD, path, s, NOFOLLOW); }
PUBLIC int fstat(int fd, struct stat *s)
{
	if (fd < 0) {
		errno = EBADF;
		return -1;
	}
	return fstatat(fd, "", s, EMPTY_PATH);
}
PUBLIC int fstatat64(int fd, const char *path, struct stat *s, int flags)
{
	return fstatat(fd, path, s, flags);
}
PUBLIC int stat64(const char *path, struct stat *s) { return stat(path, s); }
PUBLIC int lstat64(const char *path, struct stat *s) { return lstat(path, s); }
PUBLIC int fstat64(int fd, struct stat *s) { return fstat(fd, s); }

PUBLIC int close_range(unsigned first, unsigned last, int flags)
{
	return (int)syscall(436, first, last, flags);
}
PUBLIC pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

PUBLIC void arc4random_buf(void *p, size_t n)
{
	for (char *at = p; n;) {
		long k = syscall(SYS_getrandom, at, n < 256 ? n : 256, 0);
		if (k < 0 && errno != EINTR)
			abort();
		at += k > 0 ? k : 0;
		n -= k > 0 ? (size_t)k : 0;
	}
}
PUBLIC uint32_t arc4random(void)
{
	uint32_t v;
	arc4random_buf(&v, sizeof v);
	return v;
}

/* 0: there may be several threads, so counters of references are atomic. */
PUBLIC char __libc_single_threaded = 0;

/* A library below Pango can ask the name service for records; nothing here has it do that. */
PUBLIC int dn_expand(const unsigned char *message, const unsigned char *end,
		     const unsigned char *from, char *to, int n)
{
	(void)message;
	(void)end;
	(void)from;
	(void)to;
	(void)n;
	errno = ENOSYS;
	return -1;
}
PUBLIC int res_nquery(void *state, const char *name, int class, int type, unsigned char *answer,
		      int n)
{
	(void)state;
	(void)name;
	(void)class;
	(void)type;
	(void)answer;
	(void)n;
	errno = ENOSYS;
	return -1;
}

/* Before 2.34 these were in libresolv, by names with two lines in front. */
#if defined(__x86_64__)
#define FIRST_VERSION "GLIBC_2.2.5"
#else
#define FIRST_VERSION "GLIBC_2.17"
#endif
static void *resolver(const char *name)
{
	void *h = dlopen("libresolv.so.2", RTLD_LAZY);
	return h ? dlvsym(h, name, FIRST_VERSION) : NULL;
}
PUBLIC int res_nsearch(void *state, const char *name, int class, int type, unsigned char *answer,
		       int n)
{
	int (*f)(void *, const char *, int, int, unsigned char *, int) = resolver("__res_nsearch");
	return f ? f(state, name, class, type, answer, n) : -1;
}
PUBLIC int res_query(const char *name, int class, int type, unsigned char *answer, int n)
{
	int (*f)(const char *, int, int, unsigned char *, int) = resolver("__res_query");
	return f ? f(name, class, type, answer, n) : -1;
}
