/* SPDX-License-Identifier: Apache-2.0 */
/* array_npy.h - NumPy's .npy, format versions 1 to 3 (numpy.lib.format), and .npz, which is a ZIP
 * archive of such files (APPNOTE.TXT 6.3, with the 64-bit records). */
#ifndef HS_DATA_ARRAY_NPY_H
#define HS_DATA_ARRAY_NPY_H

#include "data/array_raw.h"

/* Whether r's file is one. */
bool npy_is(const struct array_raw *r);
bool npz_is(const struct array_raw *r);
/* Reads the header at r->at, which is then where the numbers begin. */
int npy_read_header(struct array_raw *r, struct err *e);
/* Finds the array `name` (NULL: the only one), and reads its header. */
int npz_find(struct array_raw *r, const char *name, struct err *e);

#endif
