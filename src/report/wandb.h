/* SPDX-License-Identifier: Apache-2.0 */
/* wandb.h - the numbers of a run as an offline run of Weights & Biases: `wandb sync FOLDER` sends
 * it, from any machine and at any time; nothing has to be installed here.
 *
 * DIR/offline-run-DATE_TIME-ID/run-ID.wandb is a log of records: LevelDB's log format (blocks of
 * 32 KiB; a record is CRC-32, length, kind, bytes) behind a head of 7 bytes, each record a protobuf
 * of wandb_internal.proto. The numbers of its fields and the layout are those of wandb 0.31. Each
 * start of the program writes a run of its own. Not thread-safe. */
#ifndef HS_REPORT_WANDB_H
#define HS_REPORT_WANDB_H

#include <jansson.h>
#include <stdint.h>

struct err;
struct wandb;

struct wandb_run {
	const char *project, *entity, *name; /* entity MAY be NULL */
	const json_t *config;                /* an object */
};

int wandb_open(const char *dir, const struct wandb_run *r, struct wandb **w_p, struct err *e);
const char *wandb_folder(const struct wandb *w);
/* The values of a step follow each other; values of earlier steps are left out, because W&B takes
 * none. */
int wandb_metric(struct wandb *w, const char *key, int64_t step, double value, struct err *e);
/* Writes the last step and the end of the run, and releases it; NULL is allowed. */
void wandb_close(struct wandb *w, int failed);

#endif
