/* SPDX-License-Identifier: Apache-2.0 */
/* array.c - which kind of array a file is. */
#include "data/array.h"

#include "base/err.h"
#include "data/array_idx.h"
#include "data/array_images.h"
#include "data/array_npy.h"
#include "data/array_table.h"
#include "data/stream.h"

#include <sys/stat.h>

bool array_has_columns(const char *path)
{
	return stream_ends(path, ".csv") || stream_ends(path, ".tsv");
}

int array_open(const char *path, const struct array_wish *w, struct array **a_p, struct err *e)
{
	struct array_raw *r;
	struct stat st;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return images_open(path, w, a_p, e);
	if (array_has_columns(path))
		return table_open(path, stream_ends(path, ".csv") ? ',' : '\t', w, a_p, e);
	if (stream_ends(path, ".jsonl") || stream_ends(path, ".ndjson"))
		return table_open(path, 0, w, a_p, e);
	TRY(raw_new(path, w, &r, e));
	int rc;
	if (npy_is(r))
		rc = npy_read_header(r, e);
	else if (npz_is(r))
		rc = npz_find(r, w->columns, e);
	else if (idx_is(r))
		rc = idx_read_header(r, e);
	else
		rc = err_set(e, ERR_INPUT,
			     "%s: is neither .npy, .npz, IDX, nor is it called .csv, .tsv or "
			     ".jsonl",
			     path);
	if (rc < 0)
		array_close(&r->a);
	else
		*a_p = &r->a;
	return rc;
}
