/* SPDX-License-Identifier: Apache-2.0 */
/* window.h - for families: which layers use the sliding window. */
#ifndef HS_MODEL_WINDOW_H
#define HS_MODEL_WINDOW_H

#include "model/model.h"

/* Layers first..layers have the window; 0: none has. */
void model_window_layers(struct model_config *c, int64_t window, int64_t first);
/* All layers have the window but each `every`th, which is the last one of so many. */
void model_window_every(struct model_config *c, int64_t window, int64_t every);

/* `layer_types`, where it is given, says which layers have the window. */
int model_window_types(const json_t *j, const char *where, struct model_config *c, struct err *e);

/* The keys of the Qwen families: `layer_types` decides where it is given; else layers from
 * max_window_layers on, when use_sliding_window is true. */
int qwen_read_window(const json_t *j, const char *where, struct model_config *c, struct err *e);

#endif
