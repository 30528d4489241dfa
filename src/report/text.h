/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - texts from files and from other machines, made fit to be shown: in a page, in a picture,
 * on a terminal.
 *
 * What is no UTF-8 or no printable character (controls, escape sequences, marks that turn the
 * direction of writing) becomes '?'. */
#ifndef HS_REPORT_TEXT_H
#define HS_REPORT_TEXT_H

#include <stddef.h>

struct buf;

/* At most `most` characters, the last one then an ellipsis; 0: all. `out` has `cap` bytes. NULL is
 * as "". */
void text_clean(char *out, size_t cap, const char *s, size_t most);
/* The same as HTML and SVG want it: markup characters escaped. */
void text_markup(struct buf *out, const char *s, size_t most);
/* Columns on a terminal; colour sequences take none. */
int text_width(const char *s);

#endif
