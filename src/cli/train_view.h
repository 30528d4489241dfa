/* SPDX-License-Identifier: Apache-2.0 */
/* train_view.h - the display of a run: its lines and bar on the terminal, and the files in its
 * folder (metrics, loss curve, picture of the machines, trace, TensorBoard). */
#ifndef HS_CLI_TRAIN_VIEW_H
#define HS_CLI_TRAIN_VIEW_H

#include "train/train.h"

struct train_view;

/* From here on log lines are printed above the bar. `c` and `again`, the command that continues the
 * run, are borrowed. */
int train_view_new(const struct config *c, const char *again, struct train_view **v_p,
		   struct err *e);
void train_view_free(struct train_view *v); /* NULL is allowed */

struct train_sink train_view_sink(struct train_view *v);
/* A line above the bar. */
void train_view_say(struct train_view *v, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The last lines and files of a run that ended as it should, and of one that did not. */
void train_view_finish(struct train_view *v, const struct train_result *r);
void train_view_failed(struct train_view *v);

#endif
