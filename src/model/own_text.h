/* SPDX-License-Identifier: Apache-2.0 */
/* own_text.h - the text of a model of one's own:
 *
 *   input 64; linear 128; relu; linear 10; cross_entropy
 *   tokens 65 64; residual { rms_norm; attention heads=4 }; layer_norm; linear 65; cross_entropy
 *
 * Statements end at ';' or a line's end. The first is the input: `input D ...` for rows of floats
 * of that shape, or `tokens V W` for ids below V that are looked up in an embedding of width W.
 * Then come blocks: a kind, a number for its first setting, others as key=value, and braces around
 * the blocks inside of it. The last is the loss. '#' begins a comment. */
#ifndef HS_MODEL_OWN_TEXT_H
#define HS_MODEL_OWN_TEXT_H

#include "model/own_spec.h"

#include <stddef.h>

struct err;

/* `where` heads the messages. */
int own_read(const char *text, size_t n, const char *where, struct own_model *m_p, struct err *e);

/* "(3, 32, 32)" */
void own_shape_text(const struct own_shape *s, char *out, size_t cap);

#endif
