/* SPDX-License-Identifier: Apache-2.0 */
/* err.h - how every part of the program reports failure.
 *
 * A function that can fail returns int and takes `struct err *e` last: 0, or a negative ERR_ code
 * with the message already written. The function that detects the failure writes the message (what
 * failed, on which file, key, line, worker or device, and what to do about it: one line, no
 * newline, no full stop); its callers pass it on. Outputs are set only on success, and a failed
 * init leaves nothing to release. `e` is never NULL. */
#ifndef HS_BASE_ERR_H
#define HS_BASE_ERR_H

#include <stdarg.h>

enum err_code {
	ERR_USAGE = -1,       /* the user's command line or configuration (exit status 2) */
	ERR_INPUT = -2,       /* a file, record or message that breaks its format */
	ERR_UNSUPPORTED = -3, /* well-formed, but not supported */
	/* the operating system refused a file operation (full disk, permission) */
	ERR_IO = -4,
	ERR_NOMEM = -5,     /* host or device memory */
	ERR_DEVICE = -6,    /* a device, its driver or its compiler */
	ERR_NET = -7,       /* a link: lost peer, refused, deadline */
	ERR_PROTOCOL = -8,  /* a peer that does not follow the protocol */
	ERR_CANCELLED = -9, /* the user or a peer asked to stop */
	ERR_INTERNAL = -10, /* a broken invariant of this program */
};

struct err {
	int code; /* 0 or an err_code */
	char msg[1024];
};

/* Writes the message and returns `code`, so that a failing function can `return err_set(e,
 * ERR_INPUT, ...)`. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int err_vset(struct err *e, int code, const char *fmt, va_list ap);
/* The same with ": " and the text of `errnum` behind it. */
int err_sys(struct err *e, int errnum, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Puts "text: " before the message that `e` already holds, and returns its code. */
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* ERR_NOMEM with what was asked for. */
int err_nomem(struct err *e, unsigned long long bytes, const char *what);
void err_clear(struct err *e);

/* Runs a call and leaves the function with its code when it fails. Only where nothing has to
 * be released. */
#define TRY(call)                                                                                  \
	do {                                                                                       \
		int try_rc_ = (call);                                                              \
		if (try_rc_ < 0)                                                                   \
			return try_rc_;                                                            \
	} while (0)

/* The same for functions with one exit: sets `rc` (a local int) and jumps to `out`. */
#define TRYOUT(call)                                                                               \
	do {                                                                                       \
		rc = (call);                                                                       \
		if (rc < 0)                                                                        \
			goto out;                                                                  \
	} while (0)

#endif
