/* SPDX-License-Identifier: Apache-2.0 */
/* state_files.h - the training state of a job in files instead of memory: values and optimizer
 * states, one safetensors file each, which a job's arrays (job.h: value, state) are mappings of.
 *
 * While the state of all workers is collected its numbers are written as they come, beside the
 * checkpoints: DIR/checkpoints/incoming.tmp/. The files are those of a checkpoint (but for an
 * adapter's values, which PEFT names otherwise), so a checkpoint only moves them into its folder.
 * What is mapped stays readable when the files are moved or removed. The pages that were read are
 * given back piece by piece: a state that is larger than the machine's memory can be collected,
 * saved and sent out again. */
#ifndef HS_JOB_STATE_FILES_H
#define HS_JOB_STATE_FILES_H

#include "file/safetensors.h"
#include "job/job.h"

struct err;

enum state_file { STATE_VALUES, STATE_STATES };

struct state_files {
	struct st_out out[2]; /* enum state_file */
	char *dir;            /* incoming.tmp; NULL: nothing is there */
};

/* Empty files in DIR/checkpoints/incoming.tmp; an earlier one is removed. */
int state_files_begin(struct state_files *f, struct job *j, const char *dir, struct err *e);
/* Bytes [off, off+n) of array `index` of a parameter (job_kept()). */
int state_files_put(struct state_files *f, struct job *j, const struct trained_param *p, int index,
		    uint64_t off, const void *v, uint64_t n, struct err *e);
/* All of it is there: the job's arrays are these files from now on. */
int state_files_end(struct state_files *f, struct job *j, struct err *e);
/* With the folder; the mappings stay. All zero is allowed. */
void state_files_release(struct state_files *f);

/* The job's arrays become mappings of a checkpoint's files, when all tensors are there and all
 * their numbers are finite. */
int state_files_map(struct job *j, const char *values, const char *states, struct err *e);
/* A file of the job's values under the parameters' names, or of its states: the one that was
 * written while they were collected, if it is still where it was, else written now. */
int state_files_write(struct job *j, enum state_file which, const char *path, struct err *e);
/* The values as a model's folder has them: the experts of gpt-oss in one tensor for all of a layer,
 * where transformers looks for them. A checkpoint has them under the parameters' names. */
int state_files_result(struct job *j, const char *path, struct err *e);

#endif
