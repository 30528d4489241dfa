/* SPDX-License-Identifier: Apache-2.0 */
/* fields.h - records whose keys have other names than ours, and prompts put together by a
 * format. */
#ifndef HS_DATA_FIELDS_H
#define HS_DATA_FIELDS_H

#include "data/dataset.h"

#include <jansson.h>

/* A record's text as JSON, with what Python writes (json_load_python()). An error's line inside the
 * text is in *line_p. */
int fields_parse(const char *text, size_t n, json_t **doc_p, uint64_t *line_p, struct err *e);
/* Gives the keys of a record, and of its turns, our names. With a format, the record gets `prompt`
 * and `completion` instead. */
int fields_rename(const struct dataset_source *src, json_t *rec, struct err *e);
/* Takes members that are null out of a record and of the objects in it: every item of a column has
 * the members of all others. */
void fields_drop_nulls(json_t *v);

#endif
