/* SPDX-License-Identifier: Apache-2.0 */
/* dev_watch.h - notices a device that does not come back from what it was given.
 *
 * A driver's waiting calls have no deadline of their own, and a thread inside one cannot be called
 * back. So a second thread looks at the clock: when a wait has lasted HS_DEVICE_TIMEOUT seconds
 * (120; 0: for ever), it calls who asked for that, once, with a line that names the device. The
 * command line then ends the process, by which the coordinator knows that this worker is lost. */
#ifndef HS_DEV_DEV_WATCH_H
#define HS_DEV_DEV_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* HS_DEVICE_TIMEOUT: seconds, "0.5" too; 0: for ever. 120 where it is not given, or, with a
 * warning, where it is no number. */
double dev_time_limit(void);

/* One for each device that is open. */
struct dev_watch {
	const char *name, *what; /* the device; what it is asked for */
	_Atomic int64_t since;   /* clock_now() when the wait began; 0: none */
	bool told;
	struct dev_watch *next;
};

/* For the process. `fn` is called in another thread, and had better end the process: the device's
 * thread will not. NULL: the line is logged. */
void dev_watch_on_hang(void (*fn)(const char *line));

/* `name` is borrowed until dev_watch_close() */
void dev_watch_open(struct dev_watch *w, const char *name);
void dev_watch_close(struct dev_watch *w);
/* Around every call that waits for the device. */
void dev_watch_begin(struct dev_watch *w, const char *what);
void dev_watch_end(struct dev_watch *w);

/* What devices are doing, for the last line of a process that is aborted: AMD's runtime ends the
 * process where a kernel fails, without naming the card. `who` and `what` stay until the device is
 * removed. */
void dev_work_add(const char *who, const char *const *what);
void dev_work_remove(const char *who);
/* Writes a line for each device; may be called in a signal's handler. */
void dev_work_say(int fd);

#endif
