/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - texts from files and from other machines, made safe to show.
 *
 * What a terminal would obey instead of show (controls, the escape sequences that begin with
 * them, marks that change the direction of writing) and what is not UTF-8 become '?'; a newline
 * or another white space among the controls becomes a space. This is the only place that
 * decides what may be shown: errors (err.c) and log lines (log.c) pass through it, and so does
 * what the command line prints of a file, what links say of peers (net/wire.h) and what reports
 * draw (report/text.h). A word of a command that is shown is written by text_word(). */
#ifndef HS_BASE_TEXT_H
#define HS_BASE_TEXT_H

#include <stddef.h>

/* What passes beside characters that are plainly visible. */
enum text_pass {
	TEXT_LINE = 0,  /* nothing: names, messages */
	TEXT_LINES = 1, /* newline and tab: texts of several lines */
	TEXT_PROSE = 3, /* also the marks without width that words and emoji are joined with */
};

/* Bytes of the character at `s` (n > 0 bytes), 0 when it is none that may be shown. */
size_t text_char(const char *s, size_t n, enum text_pass pass);
/* Makes s[0..n) safe in place and returns its new length; a NUL is put behind it when there is
 * room, that is when the length has changed. */
size_t text_safe(char *s, size_t n, enum text_pass pass);
/* The same for a text that ends with a NUL. */
void text_safe_str(char *s, enum text_pass pass);

/* The bytes of out[] that any word needs. */
#define TEXT_WORD(n) (4 * (n) + 3)
/* `word` as a POSIX shell is given it: in single quotes where it needs them. "..." when it does not
 * fit: a part of a path could be another path. Returns out. */
const char *text_word(const char *word, char *out, size_t cap);

#endif
