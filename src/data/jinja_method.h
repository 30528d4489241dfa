/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_method.h - the functions a template can call: methods of strings, lists and dicts, and the
 * global ones. */
#ifndef HS_DATA_JINJA_METHOD_H
#define HS_DATA_JINJA_METHOD_H

#include "data/jinja_value.h"

/* Whether values of this kind have the method; J_UNDEF: whether there is such a global function. */
bool jinja_has_method(enum jkind k, const char *name);
int jinja_method(struct jx *x, const struct jmethod *m, const struct jargs *a, struct jval *v_p);

/* What methods share with filters. */
int jinja_strip(struct jx *x, const struct jstr *s, const struct jstr *chars, bool left, bool right,
		struct jval *v_p);
int jinja_replace(struct jx *x, const struct jstr *s, const struct jstr *old,
		  const struct jstr *with, int64_t count, struct jval *v_p);
int jinja_lines(struct jx *x, const struct jstr *s, bool ends, struct jval *v_p);
int jinja_join(struct jx *x, const struct jlist *l, const struct jstr *between, struct jval *v_p);
enum jcase { CASE_UPPER, CASE_LOWER, CASE_CAPITAL, CASE_TITLE };
int jinja_case(struct jx *x, const struct jstr *s, enum jcase c, struct jval *v_p);
int jinja_dict_items(struct jx *x, const struct jdict *d, struct jval *v_p);
/* printf as Python's %: %s %r %d %i %f %.Nf %% */
int jinja_format(struct jx *x, const struct jstr *f, const struct jval *v, size_t n,
		 struct jval *v_p);

#endif
