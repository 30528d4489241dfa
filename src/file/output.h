/* SPDX-License-Identifier: Apache-2.0 */
/* output.h - checks whether a file or folder may be written, before any work is done.
 *
 * An input of a command is never its output, also not by option; neither is a folder that holds an
 * input. An existing file is replaced only when the user asks for it and this program wrote it. */
#ifndef HS_FILE_OUTPUT_H
#define HS_FILE_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

struct err;

/* ERR_USAGE when `out` is the file or folder of one of input[n] (NULL entries are ignored), or a
 * folder that contains one of them. */
int output_not_input(const char *out, const char *const *input, size_t n, struct err *e);
/* Whether `plan` (or, without `plan`, `profile`) may write its files into the folder: plan.json and
 * profile.json there are this program's, or its picture of a shard_plan is, or nothing is there
 * that they would replace, and none of input[n] is among them. */
int output_check_report(const char *dir, bool plan, const char *const *input, size_t n,
			struct err *e);
/* A GGUF file that this program wrote, by its pair GGUF_MARK. */
bool output_is_our_gguf(const char *path);
/* A JSON object of at most 64 MiB that has all of these keys (ended by NULL). */
bool output_is_json_with(const char *path, const char *const *key);

#endif
