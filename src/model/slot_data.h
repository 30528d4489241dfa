/* SPDX-License-Identifier: Apache-2.0 */
/* slot_data.h - the data of a microbatch on its way to the device, for the blocks that need it. The
 * memory is the slot's. */
#ifndef HS_MODEL_SLOT_DATA_H
#define HS_MODEL_SLOT_DATA_H

#include "model/stage.h"

struct err;

int slot_upload_ints(struct slot *sl, const int32_t *v, int64_t n, struct dev_ref *r_p,
		     struct err *e);
/* The rows that are trained, and their labels, which must be below `classes`. */
int slot_upload_labels(struct slot *sl, int64_t classes, struct err *e);
/* The targets of all rows, `words` of 4 bytes each: floats, or (classes > 0) the number of a class,
 * or -100 for a row that is not trained. */
int slot_upload_targets(struct slot *sl, int64_t words, int64_t classes, struct err *e);
/* Where each row stands: its row in the global batch, and its offset there. */
int slot_upload_places(struct slot *sl, struct err *e);
/* An id that is not below `vocab` is an error. */
int slot_check_ids(const struct slot *sl, int64_t vocab, struct err *e);
/* Adds the losses of the trained rows, and their hits, to those of the slot. */
int slot_add_losses(struct slot *sl, const struct tensor *loss, struct err *e);

/* The same where every row has a loss. */
int slot_add_row_losses(struct slot *sl, const struct tensor *loss, struct err *e);

#endif
