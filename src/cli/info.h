/* SPDX-License-Identifier: Apache-2.0 */
/* info.h - descriptions for `heteroshard info`: each function makes one JSON object of facts (the
 * caller releases it). Members ending in "bytes" and "parameters" are numbers that the text output
 * gives units; a list of objects becomes a table. */
#ifndef HS_CLI_INFO_H
#define HS_CLI_INFO_H

#include <jansson.h>
#include <stdbool.h>

struct err;

int info_model(const char *path, bool tensors, json_t **o_p, struct err *e);
int info_safetensors(const char *path, bool tensors, json_t **o_p, struct err *e);
int info_adapter(const char *dir, bool tensors, json_t **o_p, struct err *e);
int info_checkpoint(const char *dir, json_t **o_p, struct err *e);
int info_run(const char *dir, json_t **o_p, struct err *e);
/* plan.json, profile.json, trainer_state.json */
int info_json(const char *path, json_t **o_p, struct err *e);

#endif
