/* SPDX-License-Identifier: Apache-2.0 */
/* note.h - the end of memory that two processes share for messages: room in which the devices of
 * both tell each other how a tensor can go from one to the other without the host (dev/rt_far.c).
 * Whoever shares the memory leaves NOTE_BYTES at its end and writes the mark; where it is missing
 * (a program from before there were notes) the bytes may be part of a message. */
#ifndef HS_BASE_NOTE_H
#define HS_BASE_NOTE_H

#include <stdbool.h>
#include <string.h>

enum { NOTE_BYTES = 512, NOTE_MARK = 16, NOTE_WORD = 64 /* at the very end, the link's own */ };

static const char note_mark[NOTE_MARK + 1] = "heteroshard note";

/* of memory p[0..n) */
static inline char *note_of(void *p, size_t n) { return (char *)p + n - NOTE_BYTES; }
static inline void note_begin(void *p, size_t n) { memcpy(note_of(p, n), note_mark, NOTE_MARK); }
static inline bool note_is_there(void *p, size_t n)
{
	return n >= NOTE_BYTES && !memcmp(note_of(p, n), note_mark, NOTE_MARK);
}

#endif
