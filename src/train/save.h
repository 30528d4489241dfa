/* SPDX-License-Identifier: Apache-2.0 */
/* save.h - when and where a run is saved, and how failures to save are handled.
 *
 * When saving fails in the middle of a run, it is a warning: training goes on and saving is tried
 * again. The last save of a run is tried again until the process ends, in another folder when the
 * caller names one. The result is written before the last checkpoint. */
#ifndef HS_TRAIN_SAVE_H
#define HS_TRAIN_SAVE_H

#include "job/checkpoint.h"
#include "job/run_folder.h"

struct err;

/* Slots as of struct train_sink; both MAY be NULL. */
struct save_sink {
	void *ctx;
	int (*saved)(void *ctx, uint64_t step, const char *path, struct err *e);
	int (*blocked)(void *ctx, const char *why, char *other, size_t cap);
};

enum save_kind { SAVE_STEP, SAVE_TIMED };

struct saver {
	struct job *job;
	struct save_sink sink;
	struct arena *arena;
	struct run_folder folder;
	char dir[2048];     /* the folder: output_dir, or the one that was chosen in its place */
	const char *newest; /* checkpoint; NULL: there is none yet */
	int64_t last;       /* time of the last one, or of the beginning */
	double seconds;     /* that it took */
	bool failed;        /* the last one: tried again soon */
};

/* `st`: where the run begins. `resume`: the checkpoint from which it continues, or NULL. ERR_IO
 * when not even one checkpoint fits on the disk. */
int saver_init(struct saver *s, struct job *j, const struct save_sink *sink, struct arena *a,
	       const struct train_state *st, const char *resume, struct err *e);
/* Whether a checkpoint is due by the clock (save_minutes). */
bool saver_due(const struct saver *s);
/* The job's values and states are as after st->step; gathering them began at clock `began`. */
int saver_save(struct saver *s, const struct train_state *st, enum save_kind kind, int64_t began,
	       struct err *e);
/* The end of the run: its result, and a checkpoint unless the step has one. */
int saver_finish(struct saver *s, const struct train_state *st, bool checkpoint, struct err *e);

#endif
