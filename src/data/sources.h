/* SPDX-License-Identifier: Apache-2.0 */
/* sources.h - which files a dataset has and which of their records are used. */
#ifndef HS_DATA_SOURCES_H
#define HS_DATA_SOURCES_H

#include "data/dataset.h"

/* The files of a source in order: its path, or `data_files` (beside the path, where that is a
 * folder), each a file, a pattern with * ? [ ], or a folder, of which the data files are taken. In
 * a folder, those whose name has the name of the split, where there are such. */
struct source_files {
	char **path;
	size_t n, cap;
};
int source_files(const struct dataset_source *s, struct source_files *f, struct err *e);
void source_files_release(struct source_files *f);

/* `split`: "train", "train[:100]", "[10%:]", "train[-50:]" as Hugging Face's datasets reads it. */
struct source_slice {
	char name[64]; /* "" when none is given */
	struct {
		bool given, percent;
		double at; /* below 0: counted from the end */
	} from, to;
	bool count; /* the number of records must be known */
};
int source_slice(const struct dataset_source *s, struct source_slice *x, struct err *e);
/* Which of `n` records: [*lo_p, *hi_p). Without `count`, n is not used but for an open end. */
void source_range(const struct source_slice *x, uint64_t n, uint64_t *lo_p, uint64_t *hi_p);

#endif
