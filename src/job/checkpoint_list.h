/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_list.h - the checkpoints of a run's folder, and which of them is the newest.
 *
 * The newest checkpoint is the one that was written last, not the one with the largest step: a run
 * may be resumed from an earlier checkpoint. Each checkpoint has a serial number that counts the
 * writing (trainer_state.json), and checkpoints/latest.json says from which one the run was
 * resumed last:
 *   {"checkpoint": "step-000001", "written": 4, "abandoned": [[2, 4]]}
 * `written` is the largest serial number at that time; larger ones were written later. `abandoned`
 * are the ranges of serial numbers that were left by going back; they are never taken as the
 * newest, and they are removed first. Checkpoints of older versions have serial 0 and are ordered
 * by step. */
#ifndef HS_JOB_CHECKPOINT_LIST_H
#define HS_JOB_CHECKPOINT_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct arena;

struct checkpoint_entry {
	uint64_t step, serial;
	bool timed;     /* written because of the time, not of the step */
	bool abandoned; /* of an abandoned branch */
};

/* The complete ones in the order of their importance: abandoned ones first, the newest last.
 * *v_p: mem_free. */
int checkpoint_list(const char *output_dir, struct checkpoint_entry **v_p, size_t *n_p,
		    struct err *e);
/* The newest complete checkpoint of a run's folder, in `a`; NULL when there is none. ERR_INPUT when
 * the recorded one is missing. */
int checkpoint_latest(const char *output_dir, struct arena *a, const char **path_p, struct err *e);
/* Removes the oldest so that `keep` remain (0: all), and every timed one but the newest of all.
 * That of step `best` (0: none) stays, uncounted. */
int checkpoint_prune(const char *output_dir, int64_t keep, uint64_t best, struct err *e);

/* The serial number of the next checkpoint. */
int checkpoint_serial(const char *output_dir, uint64_t *serial_p, struct err *e);
/* A checkpoint of this folder with this number was written. */
int checkpoint_written(const char *output_dir, uint64_t step, uint64_t serial, struct err *e);
/* The run is resumed from the checkpoint `name` ("step-000001") of this folder: later ones are
 * abandoned. *left_p: their number. */
int checkpoint_resumed(const char *output_dir, const char *name, size_t *left_p, struct err *e);

/* OUTPUT/checkpoints/step-000020 */
int checkpoint_path(const char *output_dir, uint64_t step, char *path, size_t cap, struct err *e);

#endif
