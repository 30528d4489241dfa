/* cache.h - where this program keeps what it need not fetch or measure twice. */
#ifndef HS_TRAIN_CACHE_H
#define HS_TRAIN_CACHE_H

#include <stddef.h>

struct err;

/* The folder of one kind of thing ("weights", "links"), not made yet: GIVEN/part, or with NULL $XDG_CACHE_HOME/heteroshard/part, or
 * ~/.cache/heteroshard/part. */
int cache_folder(const char *given, const char *part, char *out, size_t cap, struct err *e);

#endif
