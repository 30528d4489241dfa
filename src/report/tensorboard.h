/* SPDX-License-Identifier: Apache-2.0 */
/* tensorboard.h - scalars as TensorBoard reads them: an event file of framed protobuf records.
 *
 * Record: u64 LE length, u32 LE masked CRC-32C of the length, data, u32 LE masked CRC-32C of the
 * data; masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8 (tensorflow/core/lib/io/record_writer.h).
 * Data: tensorflow.Event {double wall_time = 1; int64 step = 2; string file_version = 3; Summary
 * summary = 5}, Summary {repeated Value value = 1}, Value {string tag = 1; float simple_value = 2}.
 * A file begins with file_version "brain.Event:2". */
#ifndef HS_REPORT_TENSORBOARD_H
#define HS_REPORT_TENSORBOARD_H

#include <stddef.h>
#include <stdint.h>

struct err;
struct tensorboard;

/* A new event file in `dir` (created when missing); a resumed run gets a second file there. */
/* Viewers read the files in the order of their names: the second one's is greater, whatever the
 * clock says. */
int tensorboard_open(const char *dir, struct tensorboard **t_p, struct err *e);
/* What a full disk does not take is kept, up to some megabytes, and written later. */
/* Steps from `step` on come again: viewers forget what they have of them, when the next value comes
 * or at the end. Not before: the run may be killed and go on from later steps. */
void tensorboard_go_back(struct tensorboard *t, int64_t step);
void tensorboard_close(struct tensorboard *t); /* NULL is allowed */
/* "train/loss" */
int tensorboard_scalar(struct tensorboard *t, const char *tag, int64_t step, double value,
		       struct err *e);

#endif
