/* SPDX-License-Identifier: Apache-2.0 */
/* train_stages.h - the display of the stages of a running job: a table while it runs, lines without
 * a terminal, architecture.* with the measured figures. Everything is copied from the structs of
 * the run, which may be released earlier. */
#ifndef HS_CLI_TRAIN_STAGES_H
#define HS_CLI_TRAIN_STAGES_H

#include "train/train.h"

struct buf;
struct live_look;
struct train_stages;

int train_stages_new(const struct config *c, const struct train_info *i, struct train_stages **t_p,
		     struct err *e);
void train_stages_free(struct train_stages *t); /* NULL is allowed */

int train_stages_count(const struct train_stages *t);
/* "a on box1: cpu", for the trace. */
void train_stages_name(const struct train_stages *t, int stage, char *s, size_t cap);
void train_stages_step(struct train_stages *t, const struct train_step *s);
/* The last step as a table; means over the run's steps but the first as one line. */
void train_stages_table(const struct train_stages *t, const struct live_look *look,
			struct buf *out);
void train_stages_line(const struct train_stages *t, struct buf *out);
/* The same as JSON: objects of id, device, layers, and of the last step busy and memory. */
void train_stages_json(const struct train_stages *t, struct buf *out);
/* DIR/architecture.*: with the planned figures before the first step, with the measured ones
 * after it. */
int train_stages_draw(const struct train_stages *t, const char *title, struct err *e);

#endif
