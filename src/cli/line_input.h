/* SPDX-License-Identifier: Apache-2.0 */
/* line_input.h - lines that a person types at a prompt.
 *
 * On a terminal, when the program was built with libedit, a line can be edited, and the arrow keys
 * bring back the lines before it; they are kept in memory only. Else lines are read as they
 * come. */
#ifndef HS_CLI_LINE_INPUT_H
#define HS_CLI_LINE_INPUT_H

struct line_input;

/* NULL without memory. `prompt` is borrowed. */
struct line_input *line_input_new(const char *prompt);
void line_input_free(struct line_input *l);
/* Without its newline, valid until the next call; NULL at the end of the input, or when a signal
 * handler ran. */
const char *line_input_read(struct line_input *l);

#endif
