/* SPDX-License-Identifier: Apache-2.0 */
/* model_rows.h - the options of every command that opens a whole model on one device; they fill a
 * struct runtime_options directly. */
#ifndef HS_CLI_MODEL_ROWS_H
#define HS_CLI_MODEL_ROWS_H

#include "base/opt.h"
#include "runtime/runtime.h"

/* `at`: the offset of the struct runtime_options in the command's arguments. */
#define MODEL_ROW_CHAT(at)                                                                         \
	{                                                                                          \
		.key = "chat_template", .kind = OPT_STR,                                           \
		.offset = (at) + offsetof(struct runtime_options, chat_template), .arg = "NAME",   \
		.help = "instead of the one recognised from the model"                             \
	}
#define MODEL_ROWS(at)                                                                             \
	{ .key = "adapter",                                                                        \
	  .kind = OPT_STR,                                                                         \
	  .offset = (at) + offsetof(struct runtime_options, adapter),                              \
	  .arg = "DIR",                                                                            \
	  .help = "LoRA adapter (PEFT folder)",                                                    \
	  .section = "Model and device" },                                                         \
		{ .key = "load_in_4bit",                                                           \
		  .kind = OPT_BOOL,                                                                \
		  .offset = (at) + offsetof(struct runtime_options, load_in_4bit),                 \
		  .help = "quantise the weights to NF4" },                                         \
		{ .key = "double_quant",                                                           \
		  .kind = OPT_BOOL,                                                                \
		  .offset = (at) + offsetof(struct runtime_options, double_quant),                 \
		  .help = "quantise the scales too" },                                             \
		{ .key = "device",                                                                 \
		  .kind = OPT_STR,                                                                 \
		  .offset = (at) + offsetof(struct runtime_options, device),                       \
		  .def = "auto",                                                                   \
		  .arg = "NAME",                                                                   \
		  .help = "backend or backend:index" },                                            \
	{                                                                                          \
		.key = "compute_dtype", .kind = OPT_ENUM,                                          \
		.offset = (at) + offsetof(struct runtime_options, compute_dtype), .def = "auto",   \
		.choices = "auto|float32|bfloat16|float16", .arg = "DTYPE",                        \
		.help = "what to compute in"                                                       \
	}

#endif
