/* dev_watch.h - ends the process when a device does not come back from what it was given.
 *
 * A driver's waiting calls have no deadline of their own, and a thread inside one cannot be called back. So a second thread looks at
 * the clock: when a wait has lasted HS_DEVICE_TIMEOUT seconds (120; 0: for ever), it says which device hangs, and the process ends with
 * status 1. Its coordinator then knows that it is lost. */
#ifndef HS_DEV_DEV_WATCH_H
#define HS_DEV_DEV_WATCH_H

#include <stdatomic.h>
#include <stdint.h>

/* One for each device that is open. */
struct dev_watch {
	const char *name, *what; /* the device; what it is asked for */
	_Atomic int64_t since;   /* clock_now() when the wait began; 0: none */
	struct dev_watch *next;
};

void dev_watch_open(struct dev_watch *w, const char *name); /* `name` is borrowed until dev_watch_close() */
void dev_watch_close(struct dev_watch *w);
/* Around every call that waits for the device. */
void dev_watch_begin(struct dev_watch *w, const char *what);
void dev_watch_end(struct dev_watch *w);

#endif
