/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_run.h - executing a parsed template (jinja_run.c), and going on from a place in the middle
 * of an execution with fewer turns (jinja_mark.c, jinja_render.c).
 *
 * The text of the first n turns of a conversation begins as that of all turns does, until the
 * template reads something that fewer turns would have changed. So an execution over all turns that
 * keeps marks counts in `need` how many turns there must be at least for everything read so far to
 * be the same; before every turn of a loop over the turns it marks its place and what may change
 * later. With the first n turns it goes on at the last mark whose need is at most n, which is
 * exact whatever the template does. The list of the turns is therefore a kind of its own (J_TURNS);
 * whatever uses it in a way that has no rule below gets an ordinary list, and needs all turns. */
#ifndef HS_DATA_JINJA_RUN_H
#define HS_DATA_JINJA_RUN_H

#include "data/jinja_tree.h"

struct jframe {
	struct jframe *up;
	const char **name;
	struct jval *v;
	size_t n, cap;
	bool kept; /* a macro was defined in it or below it */
};

/* Where an execution is in the blocks of the root: the next one of `seq` is i + 1. */
struct jpath {
	const struct jpath *up;
	const struct jnode *seq;
	size_t i;
};

struct jmarks;

struct jrun {
	struct jx x;
	struct js_build *out;
	struct jframe *root;
	const struct jpath *path; /* only with marks */
	struct jlist turns;       /* with J_TURNS: all of them; n: how many there are now */
	struct jmarks *marks;     /* NULL: none are kept */
	size_t need;              /* turns; SIZE_MAX: all */
};

int jframe_new(struct jx *x, struct jframe *up, struct jframe **f_p);
int jframe_set(struct jx *x, struct jframe *f, const char *name, struct jval v);

int jrun_exec(struct jrun *r, struct jframe *f, const struct jnode *n);
/* The turns of a JN_FOR at the root, from number i of those that begin at `first`, and its else. */
int jrun_turns(struct jrun *r, const struct jnode *n, size_t first, size_t i);

/* ---- marks (jinja_mark.c) -------------------------------------------------------------------- */

struct jsaved;

/* A loop over the turns, which begin at `first`. */
struct jmark_loop {
	const struct jnode *n;
	size_t first;
	const struct jpath *path;
	unsigned depth;
	struct jsaved *root;
};

/* Before turn i of a loop; without a loop: before everything. */
struct jmark {
	size_t need, i, at; /* at: how much text there is */
	uint64_t used, built, steps;
	const struct jmark_loop *loop;
	struct jdict *spaces;
	struct jsaved *saved;
};

struct jmarks {
	struct arena mem;
	struct jmark *mark; /* need rises */
	size_t n, cap;
	size_t members; /* of namespaces, that were kept */
};

int jmarks_loop(struct jrun *r, const struct jnode *n, size_t first, struct jmark_loop **l_p);
int jmarks_add(struct jrun *r, const struct jmark_loop *l, size_t i);
/* The last mark that `n` turns are enough for; NULL: none, where not even the variables fit. */
const struct jmark *jmarks_find(const struct jmarks *m, size_t n);
/* Everything as it was at the mark, but the text. */
void jmarks_back(struct jrun *r, const struct jmark *m);
void jmarks_release(struct jmarks *m);

#endif
