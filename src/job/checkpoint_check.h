/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_check.h - whether a checkpoint is complete, and whether it belongs to a job.
 *
 * trainer_state.json names every other file of the folder with its size and hash (hash.h), and ends
 * with a hash of all its own text before that line. */
#ifndef HS_JOB_CHECKPOINT_CHECK_H
#define HS_JOB_CHECKPOINT_CHECK_H

#include "file/hash.h"

#include <jansson.h>
#include <stdbool.h>

struct buf;
struct err;
struct job;

/* {"adapter_model.safetensors": {"bytes": 1234, "hash": "..."}, ...} of every file in `dir`
 * but trainer_state.json. */
int checkpoint_hashes(const char *dir, struct buf *out, struct err *e);
/* Ends the text of trainer_state.json, which lacks only its closing brace. */
void checkpoint_seal(struct buf *text);

/* Reads trainer_state.json and compares every hash; checkpoints of version 1 have none. ERR_INPUT
 * names the file that differs and an earlier checkpoint that is complete. *doc_p: json_decref. */
int checkpoint_verify(const char *dir, json_t **doc_p, struct err *e);
/* ERR_USAGE names all differences between the job and the saved one. `allow_changes`:
 * permitted differences are only logged; a difference with which the state cannot be used is
 * still an error. */
int checkpoint_same_job(struct job *j, const json_t *doc, const char *path, bool allow_changes,
			struct err *e);

/* A hash of all that must be equal where a run goes on from a state in memory: base model, data,
 * and the settings that change the result. After job_hash_base(). */
int checkpoint_identity(const struct job *j, char hex[HASH_HEX], struct err *e);

#endif
