/* SPDX-License-Identifier: Apache-2.0 */
/* config_parts.h - declarations shared by the files of the configuration only; other code
 * uses config.h. */
#ifndef HS_CONFIG_CONFIG_PARTS_H
#define HS_CONFIG_CONFIG_PARTS_H

#include "config/config.h"

struct yaml_node;

/* Reads the value of the key `coordinator`, `workers` or `shard_plan`. */
int config_cluster_read(struct config *c, const char *key, const struct yaml_node *n,
			const char *file, struct err *e);
/* Workers with num_gpus: N become N workers ID.0 to ID.(N-1), their entries of shard_plan
 * N entries. */
int config_cluster_expand(struct config *c, const char *where, struct err *e);
/* `experts` of an entry of shard_plan: adds its ids to those of the entry. */
int config_experts_read(struct config *c, struct config_shard *s, const char *file, int line,
			struct err *e);
/* Whether "backend" or "backend:index" names a backend; `what`: "'device' of worker 'a'". */
int config_device_check(const char *device, const char *where, const char *what, struct err *e);
/* Checks the cluster part: identities, addresses, coverage of the layers. */
int config_cluster_check(const struct config *c, const char *where, struct err *e);
/* Sets c->pass and c->npass from `passes` and the shard plan, and checks them. */
int config_passes_settle(struct config *c, const char *where, struct err *e);
/* Whether a worker may hold several chunks of the model under the schedule. */
bool config_interleaves(const struct config *c);
/* Sets the keys that follow from others, then checks keys against each other. `seen`: one flag a
 * row, set where a key was given. */
int config_check(struct config *c, enum config_need need, const char *where, const bool *seen,
		 struct err *e);

/* The key `datasets` (config_data.c). */
/* `test`: of test_datasets */
int config_data_read(struct config *c, const struct yaml_node *n, const char *where, bool test,
		     struct err *e);
void config_data_json(struct buf *o, const struct config *c);

#endif
