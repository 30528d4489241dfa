/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_filter.h - filters (v|name) and tests (v is name). */
#ifndef HS_DATA_JINJA_FILTER_H
#define HS_DATA_JINJA_FILTER_H

#include "data/jinja_value.h"

int jinja_filter(struct jx *x, const char *name, struct jval v, const struct jargs *a,
		 struct jval *v_p);
int jinja_test(struct jx *x, const char *name, struct jval v, const struct jargs *a, bool *yes_p);

#endif
