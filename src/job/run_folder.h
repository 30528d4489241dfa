/* SPDX-License-Identifier: Apache-2.0 */
/* run_folder.h - output_dir, the folder of a run: whether this run may write there, and how an
 * earlier run in it is replaced.
 *
 * A run's folder has a mark, run.json, and a lock, run.lock, while a run writes there. Only a
 * folder in which every file is one that this program writes is ever replaced (the table in
 * run_folder.c; a new file of a run must be added there), and never one that holds the base model,
 * the data, the configuration or a key. It is replaced when that is asked for, or when it ended
 * before its first step. The old run is moved to OUTPUT.old only when the new one is
 * about to begin. It is removed after the new one's first checkpoint, and put back when the new one
 * fails before. */
#ifndef HS_JOB_RUN_FOLDER_H
#define HS_JOB_RUN_FOLDER_H

#include "file/lock.h"
#include "config/config.h"

struct err;
struct arena;

struct run_folder {
	const struct config *cfg; /* borrowed */
	char path[2048];          /* output_dir without links */
	struct file_lock lock;
	bool made;      /* the folder was not there before */
	bool replaces;  /* an old run is moved aside */
	bool resumes;   /* the run continues from a checkpoint of this folder */
	char from[64];  /* then its name */
	bool cut_off;   /* a run that was cut off goes on, or begins again (auto_resume) */
	bool continues; /* and its workers may have kept its state: run and term are those of it */
	/* Names the run, also over restarts of its coordinator, whose number is `term`; both are in
	 * run.term. `job`: of the configuration, "": not known (checkpoint_identity). */
	uint64_t run;
	uint32_t term;
	char job[65];
	bool is_aside; /* the old run is in OUTPUT.old */
	bool began;
	/* The caller's, before run_folder_begin(): for run.json (job.h). */
	const int *pass;
	size_t npass;
};

/* Whether the run may write into output_dir, before anything is changed: ERR_USAGE has the reason.
 * Makes and locks the folder. *resume_p: the checkpoint from which to continue, in `a`, or NULL. */
int run_folder_open(const struct config *c, struct arena *a, struct run_folder *f,
		    const char **resume_p, struct err *e);
/* The run goes on from a state that its workers have kept: nothing is replaced. */
void run_folder_goes_on(struct run_folder *f);
/* Before the first file of the run is written. */
int run_folder_begin(struct run_folder *f, struct err *e);
/* There is a checkpoint or a result: the old run is not needed any more. */
int run_folder_keep(struct run_folder *f, struct err *e);
/* `failed`: puts the old run back when this one has no checkpoint and no result. */
void run_folder_close(struct run_folder *f, bool failed);

/* Whether a start after one that was cut off goes on, or begins again, unasked (auto_resume). */
bool run_folder_by_itself(const struct config *c);
/* Whether the folder has the mark of a run, or the files of a run without one (older versions). */
bool run_folder_is_run(const char *dir);
/* Whether `name` is a file that a run writes into its folder ("metrics.jsonl",
 * "checkpoints/step-000020/trainer_state.json"). */
bool run_folder_writes(const char *name);

#endif
