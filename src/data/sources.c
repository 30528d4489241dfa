/* SPDX-License-Identifier: Apache-2.0 */
/* sources.c - see sources.h. */
#include "data/sources.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/stream.h"

#include <ctype.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILES_MAX = 100000 };

void source_files_release(struct source_files *f)
{
	for (size_t i = 0; i < f->n; i++)
		mem_free(f->path[i]);
	mem_free(f->path);
	*f = (struct source_files){ 0 };
}

static int add(struct source_files *f, const char *path, struct err *e)
{
	char *copy = mem_strdup(path);
	if (f->n >= FILES_MAX) {
		mem_free(copy);
		return err_set(e, ERR_INPUT, "%s: more than %d files", path, FILES_MAX);
	}
	if (!copy || !mem_grow(&f->path, &f->cap, f->n + 1, sizeof *f->path)) {
		mem_free(copy);
		return err_nomem(e, strlen(path), "a path");
	}
	f->path[f->n++] = copy;
	return 0;
}

/* What the package datasets writes beside data is none; its Arrow files are refused by name. */
static bool is_data(const char *path)
{
	static const char *const endings[] = { ".json", ".jsonl", ".ndjson",  ".csv",
					       ".tsv",  ".txt",   ".parquet", ".arrow" };
	static const char *const beside[] = { "dataset_info.json", "dataset_infos.json",
					      "dataset_dict.json", "state.json" };
	for (size_t i = 0; i < ARRAY_LEN(beside); i++)
		if (!strcmp(path, beside[i]))
			return false;
	for (size_t i = 0; i < ARRAY_LEN(endings); i++)
		if (stream_ends(path, endings[i]))
			return true;
	return false;
}

static bool is_folder(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Files that match a pattern, sorted. `only_data`: of these the data files; `split`: and of these
 * those of the split. */
static int match(struct source_files *f, const char *pattern, bool only_data, const char *split,
		 struct err *e)
{
	glob_t g;
	int rc = glob(pattern, 0, NULL, &g);
	if (rc == GLOB_NOMATCH)
		return 0;
	if (rc)
		return err_set(e, ERR_IO, "%s: the files cannot be listed", pattern);
	for (size_t i = 0; i < g.gl_pathc && rc >= 0; i++) {
		const char *name = strrchr(g.gl_pathv[i], '/');
		name = name ? name + 1 : g.gl_pathv[i];
		if (is_folder(g.gl_pathv[i]) || (only_data && !is_data(name)) ||
		    (split && !strstr(name, split)))
			continue;
		rc = add(f, g.gl_pathv[i], e);
	}
	globfree(&g);
	return rc;
}

/* PATH/PATTERN, in which the folder's own name is no pattern. */
static int pattern_in(const char *path, const char *below, struct buf *b, struct err *e)
{
	buf_reset(b);
	for (; *path; path++) {
		if (strchr("*?[\\", *path))
			buf_addc(b, '\\');
		buf_addc(b, *path);
	}
	buf_addc(b, '/');
	buf_adds(b, below);
	return buf_ok(b, e);
}

/* Whether one of the words stands in the file's name, between what is no letter. */
static bool names(const char *path, const char *const *words)
{
	const char *name = strrchr(path, '/');
	name = name ? name + 1 : path;
	for (; *words; words++)
		for (const char *at = name; (at = strstr(at, *words)); at++)
			if ((at == name || !isalpha((unsigned char)at[-1])) &&
			    !isalpha((unsigned char)at[strlen(*words)]))
				return true;
	return false;
}

/* As of axolotl, who names no split trains on `train`: beside its files those of other splits are
 * left out. */
static void leave_out(struct source_files *f, size_t from, const char *path)
{
	static const char *const train[] = { "train", "training", NULL };
	static const char *const other[] = { "test", "testing", "validation", "valid", "val",
					     "dev",  "eval",    "evaluation", NULL };
	bool any = false;
	size_t n = from;
	for (size_t i = from; i < f->n; i++)
		any = any || names(f->path[i], train);
	for (size_t i = from; i < f->n; i++)
		if (any && names(f->path[i], other)) {
			log_info("%s is left out: %s has files of the split 'train' ('split' or "
				 "'data_files' says otherwise)",
				 f->path[i], path);
			mem_free(f->path[i]);
		} else {
			f->path[n++] = f->path[i];
		}
	f->n = n;
}

static int folder(struct source_files *f, const char *path, const char *split, bool held_out,
		  struct err *e)
{
	static const char *const below[] = { "*", "data/*" };
	size_t before = f->n;
	struct buf pattern = BUF_INIT;
	int rc = 0;
	for (int round = *split ? 0 : 1; rc >= 0 && round < 2 && f->n == before; round++)
		for (size_t i = 0; rc >= 0 && i < ARRAY_LEN(below) && f->n == before; i++) {
			/* other splits' files are not a split's */
			if (round && *split && strcmp(split, "train"))
				break;
			rc = pattern_in(path, below[i], &pattern, e);
			if (rc >= 0)
				rc = match(f, pattern.p, true, round ? NULL : split, e);
		}
	buf_release(&pattern);
	if (!*split && !held_out)
		leave_out(f, before, path);
	if (rc >= 0 && f->n == before)
		return err_set(e, ERR_INPUT,
			       "%s: the folder has no data files%s%s (.json, .jsonl, .csv, .tsv, "
			       ".parquet, .txt)",
			       path, *split ? " of the split " : "", split);
	return rc;
}

static bool has_pattern(const char *name) { return strpbrk(name, "*?[") != NULL; }

/* `pattern`: what finds files where nothing has the name `path`; NULL: nothing. */
static int one_path(struct source_files *f, const char *path, const char *pattern,
		    const char *split, bool held_out, struct err *e)
{
	size_t before = f->n;
	if (is_folder(path))
		return folder(f, path, split, held_out, e);
	struct stat st;
	if (!pattern || stat(path, &st) == 0)
		return add(f, path, e);
	TRY(match(f, pattern, false, NULL, e));
	if (f->n == before)
		return err_set(e, ERR_INPUT, "%s: no file matches", path);
	return 0;
}

int source_files(const struct dataset_source *s, struct source_files *f, struct err *e)
{
	struct source_slice x;
	int rc = source_slice(s, &x, e);
	*f = (struct source_files){ 0 };
	if (rc >= 0 && !s->ndata_files)
		rc = one_path(f, s->path, has_pattern(s->path) ? s->path : NULL, x.name,
			      s->held_out, e);
	struct buf pattern = BUF_INIT;
	for (size_t i = 0; i < s->ndata_files && rc >= 0; i++) {
		char path[4096];
		const char *name = s->data_files[i];
		bool beside = is_folder(s->path) && name[0] != '/';
		snprintf(path, sizeof path, "%.2000s%s%.2000s", beside ? s->path : "",
			 beside ? "/" : "", name);
		if (beside)
			rc = pattern_in(s->path, name, &pattern, e);
		if (rc >= 0)
			rc = one_path(f, path,
				      !has_pattern(name) ? NULL
				      : beside           ? pattern.p
							 : name,
				      x.name, s->held_out, e);
	}
	buf_release(&pattern);
	if (rc < 0)
		source_files_release(f);
	return rc;
}

/* One end of a slice at *s. */
static int slice_end(const char **s, bool *given, bool *percent, double *at)
{
	char *end;
	if (**s == ':' || **s == ']')
		return 0;
	*at = strtod(*s, &end);
	if (end == *s || !(fabs(*at) <= 1e15))
		return -1;
	*percent = *end == '%';
	if (!*percent && *at != floor(*at))
		return -1;
	*given = true;
	*s = end + *percent;
	return 0;
}

int source_slice(const struct dataset_source *s, struct source_slice *x, struct err *e)
{
	*x = (struct source_slice){ .name = "" };
	const char *p = s->split ? s->split : "";
	size_t n = strcspn(p, "[");
	if (n >= sizeof x->name || strpbrk(p, "+/*?"))
		goto wrong;
	memcpy(x->name, p, n);
	p += n;
	if (!*p)
		return 0;
	p++;
	if (slice_end(&p, &x->from.given, &x->from.percent, &x->from.at) < 0 || *p++ != ':' ||
	    slice_end(&p, &x->to.given, &x->to.percent, &x->to.at) < 0 || strcmp(p, "]"))
		goto wrong;
	x->count = x->from.percent || x->to.percent || x->from.at < 0 || x->to.at < 0;
	return 0;
wrong:
	return err_set(e, ERR_USAGE,
		       "%s: split '%.60s' is not understood; write a name, or a part of it: "
		       "train[:100], train[10%%:20%%], train[-50:]",
		       s->path, s->split);
}

static uint64_t place(bool percent, double at, uint64_t n)
{
	if (percent) /* to the nearest, halves to even, as datasets does */
		at = nearbyint(at * (double)n / 100);
	if (at < 0)
		at += (double)n;
	return at < 0 ? 0 : at > (double)n ? n : (uint64_t)at;
}

void source_range(const struct source_slice *x, uint64_t n, uint64_t *lo_p, uint64_t *hi_p)
{
	*lo_p = x->from.given ? place(x->from.percent, x->from.at, n) : 0;
	*hi_p = x->to.given ? place(x->to.percent, x->to.at, n) : n;
}
