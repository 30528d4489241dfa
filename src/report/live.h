/* SPDX-License-Identifier: Apache-2.0 */
/* live.h - the stages of a pipeline as a table on the terminal: worker, host, use of time, use of
 * memory, rate of the link. Pure: a struct in, text out. */
#ifndef HS_REPORT_LIVE_H
#define HS_REPORT_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;

struct live_stage {
	const char *worker, *host, *device; /* any bytes */
	const char *layers;                 /* "0-14", "0-7, 16-23" */
	double busy, wait;                  /* shares of the step, 0 to 1; NaN: not known */
	uint64_t memory, memory_total;      /* bytes; 0: not known */
	/* bytes per second to the next stage; NaN: not known, or none */
	double rate;
	double experts;    /* share of the needed experts that were there; 0: none are offloaded */
	const char *stage; /* "0"; in a group stage and place, "0.1"; NULL: its index */
};

struct live_look {
	int columns; /* no line is longer */
	int rows;    /* most lines; at least 3 */
	bool colour, utf8;
};

/* Lines, each ended by a newline. When the terminal is too narrow, the less important columns are
 * left out; when it is too short, the stages that are least busy, and a line gives their number. */
void live_table(const struct live_stage *v, int n, const struct live_look *look, struct buf *out);
/* One plain line: "stages 0 local busy 71 % waiting 24 %; 1 b ...", for output without
 * a terminal. */
void live_line(const struct live_stage *v, int n, struct buf *out);

#endif
