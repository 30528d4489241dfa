/* SPDX-License-Identifier: Apache-2.0 */
/* dl.h - opening a vendor's library at run time and filling a table of its functions. */
#ifndef HS_BASE_DL_H
#define HS_BASE_DL_H

#include <stddef.h>

struct err;

struct dl_symbol {
	const char *name;
	size_t offset; /* of the function pointer in the caller's table */
	int optional;  /* a missing one leaves NULL instead of failing */
};

/* Opens the first of the NULL-terminated `names` that loads and fills `table`. On failure nothing
 * stays open. ERR_UNSUPPORTED: none of them is installed; ERR_DEVICE: one is, but is damaged, or
 * lacks what it needs or a symbol; the message names it. */
int dl_open(const char *const *names, const struct dl_symbol *symbols, size_t n, void *table,
	    void **handle_p, struct err *e);
void dl_close(void *handle);

#endif
