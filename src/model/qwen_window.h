/* SPDX-License-Identifier: Apache-2.0 */
/* qwen_window.h - which layers of the Qwen families use the sliding window. */
#ifndef HS_MODEL_QWEN_WINDOW_H
#define HS_MODEL_QWEN_WINDOW_H

#include "model/model.h"

int qwen_read_window(const json_t *j, const char *where, struct model_config *c, struct err *e);

#endif
