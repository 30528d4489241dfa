/* SPDX-License-Identifier: Apache-2.0 */
/* info.h - descriptions for `heteroshard info`: each function makes one JSON object of facts (the
 * caller releases it). Members ending in "bytes" and "parameters" are numbers that the text output
 * gives units; a list of objects becomes a table.
 *
 * The list of tensors can be long, so it is no part of the object: `rows` (NULL: it is not wanted)
 * makes one row at a time. */
#ifndef HS_CLI_INFO_H
#define HS_CLI_INFO_H

#include <jansson.h>
#include <stdbool.h>

struct err;

struct info_rows {
	const char *name; /* of the list; NULL: there is none */
	size_t n;
	json_t *(*row)(void *ctx, size_t i); /* an object, to be released */
	void (*close)(void *ctx);
	void *ctx;
};

int info_model(const char *path, struct info_rows *rows, json_t **o_p, struct err *e);
/* 1, or 0: the file is none. */
int info_gguf_adapter(const char *path, struct info_rows *rows, json_t **o_p);
int info_safetensors(const char *path, struct info_rows *rows, json_t **o_p, struct err *e);
int info_adapter(const char *dir, struct info_rows *rows, json_t **o_p, struct err *e);
int info_checkpoint(const char *dir, json_t **o_p, struct err *e);
int info_run(const char *dir, json_t **o_p, struct err *e);
/* plan.json, profile.json, trainer_state.json */
int info_json(const char *path, json_t **o_p, struct err *e);

#endif
