/* SPDX-License-Identifier: Apache-2.0 */
/* chat_loop.h - a conversation with a model on a terminal.
 *
 * Each answer sees all messages before it. Lines that begin with '/' are commands: /new forgets the
 * conversation, /exit ends it, as the end of input does. Ctrl-C ends an answer, and at the prompt
 * the conversation. */
#ifndef HS_CLI_CHAT_LOOP_H
#define HS_CLI_CHAT_LOOP_H

#include "runtime/generate.h"

struct err;

struct chat_options {
	const char *system; /* MAY be NULL */
	int64_t max_new_tokens;
	struct sampling sampling;
	bool stats; /* tokens per second after each answer, on standard error */
};

int chat_loop(struct runtime *r, const struct chat_options *o, struct err *e);
void chat_stats(const struct generate_stats *st); /* one line on standard error */

#endif
