/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - texts from files and from other machines, made safe to show in a page, in a picture or
 * on a terminal.
 *
 * Invalid UTF-8 and unprintable characters become '?'; base/text.h says which those are. */
#ifndef HS_REPORT_TEXT_H
#define HS_REPORT_TEXT_H

#include <stddef.h>

struct buf;

/* At most `most` characters, the last one an ellipsis where the text is cut; 0: all. `out` has
 * `cap` bytes. NULL counts as "". */
void text_clean(char *out, size_t cap, const char *s, size_t most);
/* The same for HTML and SVG: markup characters are escaped. */
void text_markup(struct buf *out, const char *s, size_t most);
/* Columns on a terminal; colour sequences take none. */
int text_width(const char *s);

#endif
