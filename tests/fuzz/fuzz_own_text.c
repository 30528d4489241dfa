/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a model of one's own: it is read or refused with one line; of what was read every
 * parameter has a name, a shape and a layer. */
#include "base/err.h"
#include "base/mem.h"
#include "model/own.h"
#include "model/own_text.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static struct own_model m;
	struct err e = { 0 };
	struct own_param p;
	char name[256];
	int layer;
	const int rc = own_read((const char *)data, n, "fuzz", &m, &e);
	if (rc < 0) {
		if (!e.msg[0] || strchr(e.msg, '\n') || rc != e.code)
			abort();
		return 0;
	}
	for (size_t i = 0; own_param_at(&m, i, &p, name, &layer); i++)
		if (!name[0] || layer < -1 || layer >= m.n || p.dim[0] < 1 || p.ndim < 1 ||
		    (p.ndim == 2 && p.dim[1] < 1))
			abort();
	return 0;
}
