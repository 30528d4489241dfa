/* SPDX-License-Identifier: Apache-2.0 */
/* text_part.h - the language model of a folder that also has a model for pictures (Gemma 3 from 4B
 * on, Mistral Small 3.1, Ministral 3, Qwen2-VL to Qwen3-VL, Qwen3.5): it is read as a model of its
 * own, the rest is passed over.
 *
 * config.json has the language model's configuration under `text_config`, Qwen2-VL's of the hub
 * among its other keys; its tensors are named "language_model.model.layers.0..." in files of the
 * hub (Qwen2-VL's "model.layers.0..."), "model.language_model.layers.0..." inside transformers 5
 * and in adapters of PEFT. */
#ifndef HS_FILE_TEXT_PART_H
#define HS_FILE_TEXT_PART_H

#include <jansson.h>
#include <stddef.h>

struct err;

/* What the modules of an adapter have behind "model.". */
#define TEXT_PART_INSIDE "language_model."

/* 1: *text_p (a new reference) is the configuration of the language model, with what transformers
 * takes where a key is missing. 0: `config` is that of a language model alone. */
int text_part_config(const json_t *config, const char *where, json_t **text_p, struct err *e);
/* The name that a tensor or module has in the language model alone, made in `out` where it differs;
 * NULL: it belongs to another part. A name that does not fit stays as it is. */
const char *text_part_name(const char *name, char *out, size_t cap);

#endif
