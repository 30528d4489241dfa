/* SPDX-License-Identifier: Apache-2.0 */
/* plan_draw.h - the picture of a shard_plan as the configuration has it: nothing is measured, no
 * worker has to run. */
#ifndef HS_CLI_PLAN_DRAW_H
#define HS_CLI_PLAN_DRAW_H

struct config;
struct err;

/* DIR/architecture.png and the other formats (report/topology.h). Where base_model is there, the
 * layers must be the model's. */
int plan_draw_shards(const struct config *c, const char *dir, struct err *e);

#endif
