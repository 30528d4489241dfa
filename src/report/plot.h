/* SPDX-License-Identifier: Apache-2.0 */
/* plot.h - loss.png: training loss, validation loss and learning rate over the steps, drawn
 * with cairo. */
#ifndef HS_REPORT_PLOT_H
#define HS_REPORT_PLOT_H

#include "report/metrics.h"

struct err;

struct plot_loss {
	const char *title;    /* "SmolLM2-135M-Instruct, LoRA r 16" */
	const char *subtitle; /* one line of facts; NULL: none */
	struct metrics_curve curve;
};

/* 1600 x 900, written atomically. Points that are not finite leave a gap. ERR_INPUT when there is
 * nothing to draw. */
int plot_loss(const char *path, const struct plot_loss *p, struct err *e);

#endif
