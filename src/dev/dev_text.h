/* SPDX-License-Identifier: Apache-2.0 */
/* dev_text.h - kernels that are not the program's own: a text in the dialect of kernel/prelude.k
 * with the entry points of kernel/user.k. A device compiles it at its first launch and keeps what
 * comes out as long as it is open; errors begin with the text's name. */
#ifndef HS_DEV_DEV_TEXT_H
#define HS_DEV_DEV_TEXT_H

#include "dev/dev.h"

/* It stays where it is as long as devices are open. */
struct dev_text {
	const char *name; /* for messages: "the block 'bend'" */
	const char *text;
	bool params; /* PARAMS is there */
};

enum dev_text_entry { TEXT_FORWARD, TEXT_BACKWARD, TEXT_PARAMS, TEXT_ENTRIES };

/* A launch of one: its arguments by DEV_TEXT_SIG; either so many work-groups, or as many as `lanes`
 * need. */
#define DEV_TEXT_SIG "bbbbbbbbiiiiffffff"
struct dev_text_launch {
	const struct dev_text *text;
	enum dev_text_entry entry;
	enum dtype t; /* T of the text */
	int64_t groups, lanes;
	int64_t passes; /* of a lane through loops of the text, at most */
	const union dev_arg *arg;
};

/* ERR_UNSUPPORTED where the device compiles no texts; ERR_DEVICE where it does not compile this
 * one. */
int dev_launch_text(struct dev *d, const struct dev_text_launch *l, struct err *e);

#endif
