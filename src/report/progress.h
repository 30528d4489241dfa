/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h - the display of a running job: a line for each step and, on a terminal, below them a
 * bar that is redrawn, with an optional table above it.
 *
 * The text goes to a function of the caller (libraries do not print). Without a terminal there are
 * plain lines only, fit for a file. Thread-safe: log lines may come from other threads through
 * progress_line(). A redrawing is one write.
 *
 * The terminal may change its size at any time, also while text is on its way to it, and may then
 * wrap its lines anew or cut them. So the cursor waits at the beginning of the table, which both
 * kinds of terminal keep where it is, and table and bar are written with wrapping switched off:
 * they take as many rows as they have lines, whatever the width. Nothing depends on a width that
 * was asked before. */
#ifndef HS_REPORT_PROGRESS_H
#define HS_REPORT_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct err;
struct progress;

typedef void (*progress_write_fn)(void *ctx, const char *text, size_t n);

/* Lines above the bar, each ended by a newline and narrower than the terminal. Called at each
 * redrawing; must not call progress_*(). */
typedef void (*progress_table_fn)(void *ctx, int columns, int rows, struct buf *out);

struct progress_look {
	int columns, rows; /* of the terminal; columns 0: not a terminal, plain lines */
	bool colour, utf8;
	int64_t interval; /* least nanoseconds from one redrawing to the next */
	/* The size of the terminal now, called with the context of the write function. NULL: it
	 * does not change. With it, progress_refresh() must be called several times a second. */
	void (*size)(void *ctx, int *columns_p, int *rows_p);
};

struct progress_step {
	int64_t step, steps; /* this one (from 1) and all of them; steps 0: not known */
	double loss, learning_rate;
	double grad_norm; /* NaN: not shown */
	double tokens_per_second;
	double eta;        /* seconds to the end; NaN: not known */
	double val_loss;   /* NaN: not evaluated at this step */
	double loss_scale; /* of float16, that this step had; 0: none */
	bool skipped;      /* the loss or the norm was not finite: no update */
	bool rewards;      /* of preferences: their margin, and the share that is right */
	double margin, right;
	double experts; /* share of needed experts that were on the device; 0, NaN: not shown */
};

int progress_new(progress_write_fn write, void *ctx, struct progress_look look,
		 struct progress **p_p, struct err *e);
void progress_free(struct progress *p); /* removes bar and table; NULL is allowed */
/* `line`: this step gets a line of its own (logging_steps); the bar moves in any case. */
void progress_step(struct progress *p, const struct progress_step *s, bool line);
/* One line of other text, above table and bar. */
void progress_line(struct progress *p, const char *text);
/* An activity with parts ("evaluating", 3 of 12): shown in the bar only. */
void progress_part(struct progress *p, const char *what, int64_t done, int64_t all);
/* Shown from the next redrawing on. NULL: no table. */
void progress_table(struct progress *p, progress_table_fn fn, void *ctx);
/* Redraws changes whose interval has passed, and everything when the size of the terminal has
 * changed. To be called several times a second, at regular intervals. */
void progress_refresh(struct progress *p);

/* "1:05", "2:03:04", "3 days 4 h" */
void progress_duration(double seconds, char *s, size_t cap);

#endif
