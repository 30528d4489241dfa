/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_list.c - see checkpoint_list.h. */
#include "job/checkpoint_list.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "file/atomic.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_MOST = 4096, NAME = 64, RANGES_MOST = 64, STATE_MOST = 1 << 20 };

struct range {
	uint64_t from, to; /* serial numbers, both included */
};

/* latest.json */
struct record {
	bool there;
	char name[NAME];
	uint64_t written;
	struct range range[RANGES_MOST];
	size_t n;
};

int checkpoint_path(const char *output_dir, uint64_t step, char *path, size_t cap, struct err *e)
{
	int n = snprintf(path, cap, "%s/checkpoints/step-%06llu", output_dir,
			 (unsigned long long)step);
	return n > 0 && (size_t)n < cap
		       ? 0
		       : err_set(e, ERR_INPUT, "%s: the path is too long", output_dir);
}

static int record_path(const char *output_dir, char path[PATH_MOST], struct err *e)
{
	return snprintf(path, PATH_MOST, "%s/checkpoints/latest.json", output_dir) < PATH_MOST
		       ? 0
		       : err_set(e, ERR_INPUT, "%s: the path is too long", output_dir);
}

static int parse_ranges(const json_t *list, const char *path, struct record *r, struct err *e)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *v = json_array_get(list, i);
		json_int_t from = json_integer_value(json_array_get(v, 0)),
			   to = json_integer_value(json_array_get(v, 1));
		if (i == RANGES_MOST || from < 0 || to < from)
			return err_set(e, ERR_INPUT, "%s: 'abandoned' is not a list of ranges",
				       path);
		r->range[r->n++] = (struct range){ (uint64_t)from, (uint64_t)to };
	}
	return 0;
}

static int read_record(const char *output_dir, struct record *r_p, struct err *e)
{
	char path[PATH_MOST];
	struct record r = { .there = true };
	json_t *doc;
	const char *name = NULL;
	int64_t written = 0;
	TRY(record_path(output_dir, path, e));
	if (access(path, F_OK) < 0) {
		*r_p = (struct record){ .there = false };
		return 0;
	}
	TRY(json_parse_file(path, STATE_MOST, &doc, e));
	int rc = json_need_str(doc, path, "checkpoint", &name, e);
	if (rc >= 0)
		rc = json_need_int(doc, path, "written", 0, INT64_MAX, &written, e);
	if (rc >= 0)
		rc = parse_ranges(json_object_get(doc, "abandoned"), path, &r, e);
	if (rc >= 0) {
		snprintf(r.name, sizeof r.name, "%.60s", name);
		r.written = (uint64_t)written;
		*r_p = r;
	}
	json_decref(doc);
	return rc;
}

static int write_record(const char *output_dir, const struct record *r, struct err *e)
{
	char path[PATH_MOST];
	struct buf b = BUF_INIT;
	TRY(record_path(output_dir, path, e));
	buf_adds(&b, "{\"checkpoint\": ");
	json_quote(&b, r->name, strlen(r->name));
	buf_addf(&b, ", \"written\": %llu, \"abandoned\": [", (unsigned long long)r->written);
	for (size_t i = 0; i < r->n; i++)
		buf_addf(&b, "%s[%llu, %llu]", i ? ", " : "", (unsigned long long)r->range[i].from,
			 (unsigned long long)r->range[i].to);
	buf_adds(&b, "]}\n");
	int rc = buf_ok(&b, e);
	if (rc >= 0)
		rc = atomic_write_file(path, b.p, b.n, e);
	buf_release(&b);
	return rc;
}

/* Serial number and kind; 0 when an older version wrote it, or when it cannot be read. */
static void read_state(const char *output_dir, struct checkpoint_entry *v)
{
	char dir[PATH_MOST - 64], path[PATH_MOST];
	json_t *doc;
	struct err ignored = { 0 };
	int64_t serial = 0;
	if (checkpoint_path(output_dir, v->step, dir, sizeof dir, &ignored) < 0)
		return;
	snprintf(path, sizeof path, "%s/trainer_state.json", dir);
	if (json_parse_file(path, STATE_MOST, &doc, &ignored) < 0)
		return;
	if (json_opt_int(doc, path, "serial", 0, INT64_MAX, &serial, &ignored) >= 0)
		v->serial = (uint64_t)serial;
	v->timed = json_is_true(json_object_get(doc, "timed"));
	json_decref(doc);
}

static int in_order(const void *x, const void *y)
{
	const struct checkpoint_entry *a = x, *b = y;
	if (a->abandoned != b->abandoned)
		return a->abandoned ? -1 : 1;
	if (a->serial != b->serial)
		return a->serial < b->serial ? -1 : 1;
	return a->step < b->step ? -1 : a->step > b->step;
}

static int list(const char *output_dir, const struct record *r, struct checkpoint_entry **v_p,
		size_t *n_p, struct err *e)
{
	char path[PATH_MOST];
	struct checkpoint_entry *v = NULL;
	size_t n = 0, cap = 0;
	if (snprintf(path, sizeof path, "%s/checkpoints", output_dir) >= PATH_MOST)
		return err_set(e, ERR_INPUT, "%s: the path is too long", output_dir);
	DIR *d = opendir(path);
	if (!d && errno != ENOENT)
		return err_sys(e, errno, "%s", path);
	for (struct dirent *i; d && (i = readdir(d));) {
		char *end;
		if (strncmp(i->d_name, "step-", 5) || i->d_name[5] < '0' || i->d_name[5] > '9')
			continue;
		uint64_t step = strtoull(i->d_name + 5, &end, 10);
		if (*end)
			continue; /* step-000020.tmp: never finished */
		if (!mem_grow(&v, &cap, n + 1, sizeof *v)) {
			closedir(d);
			mem_free(v);
			return err_nomem(e, (n + 1) * sizeof *v, "the list of checkpoints");
		}
		v[n] = (struct checkpoint_entry){ .step = step };
		read_state(output_dir, &v[n]);
		for (size_t k = 0; k < r->n; k++)
			v[n].abandoned |=
				v[n].serial >= r->range[k].from && v[n].serial <= r->range[k].to;
		n++;
	}
	if (d)
		closedir(d);
	if (n)
		qsort(v, n, sizeof *v, in_order);
	*v_p = v;
	*n_p = n;
	return 0;
}

int checkpoint_list(const char *output_dir, struct checkpoint_entry **v_p, size_t *n_p,
		    struct err *e)
{
	struct record r;
	struct err ignored = { 0 };
	/* a record that cannot be read must not hide the checkpoints */
	if (read_record(output_dir, &r, &ignored) < 0)
		r = (struct record){ .there = false };
	return list(output_dir, &r, v_p, n_p, e);
}

/* The newest checkpoint that was written after the record, else the one that the record names. */
static const struct checkpoint_entry *newest(const struct record *r,
					     const struct checkpoint_entry *v, size_t n)
{
	if (!n)
		return NULL;
	if (!r->there)
		return &v[n - 1];
	if (v[n - 1].serial > r->written && !v[n - 1].abandoned)
		return &v[n - 1];
	for (size_t i = 0; i < n; i++) {
		char name[NAME];
		snprintf(name, sizeof name, "step-%06llu", (unsigned long long)v[i].step);
		if (!strcmp(name, r->name))
			return &v[i];
	}
	return NULL;
}

int checkpoint_latest(const char *output_dir, struct arena *a, const char **path_p, struct err *e)
{
	struct record r;
	struct checkpoint_entry *v;
	size_t n;
	char path[PATH_MOST];
	TRY(read_record(output_dir, &r, e));
	TRY(list(output_dir, &r, &v, &n, e));
	const struct checkpoint_entry *last = newest(&r, v, n);
	int rc = 0;
	if (n && !last)
		rc = err_set(e, ERR_INPUT,
			     "%s/checkpoints: %.64s is recorded as the newest but is missing; name "
			     "another one: resume_from_checkpoint=%s/checkpoints/step-%06llu",
			     output_dir, r.name, text_word(output_dir, path, sizeof path),
			     (unsigned long long)v[n - 1].step);
	if (last)
		rc = checkpoint_path(output_dir, last->step, path, sizeof path, e);
	mem_free(v);
	if (rc < 0)
		return rc;
	*path_p = NULL;
	if (last && !(*path_p = arena_strdup(a, path)))
		return err_nomem(e, strlen(path), "a path");
	return 0;
}

int checkpoint_prune(const char *output_dir, int64_t keep, uint64_t best, struct err *e)
{
	struct record r;
	struct checkpoint_entry *v;
	size_t n, left;
	TRY(read_record(output_dir, &r, e));
	TRY(list(output_dir, &r, &v, &n, e));
	const struct checkpoint_entry *last = newest(&r, v, n);
	int rc = 0;
	left = n;
	for (size_t i = 0; i < n; i++)
		left -= best && v[i].step == best && &v[i] != last;
	for (size_t i = 0; rc >= 0 && i < n; i++) {
		char path[PATH_MOST];
		if (&v[i] == last || (best && v[i].step == best) ||
		    !(v[i].timed || (keep > 0 && left > (size_t)keep)))
			continue;
		rc = checkpoint_path(output_dir, v[i].step, path, sizeof path, e);
		if (rc >= 0)
			rc = dir_remove(path, e);
		left--;
	}
	mem_free(v);
	return rc;
}

static uint64_t largest(const struct record *r, const struct checkpoint_entry *v, size_t n)
{
	uint64_t most = r->written;
	for (size_t i = 0; i < n; i++)
		most = v[i].serial > most ? v[i].serial : most;
	return most;
}

int checkpoint_serial(const char *output_dir, uint64_t *serial_p, struct err *e)
{
	struct record r;
	struct checkpoint_entry *v;
	size_t n;
	TRY(read_record(output_dir, &r, e));
	TRY(list(output_dir, &r, &v, &n, e));
	*serial_p = largest(&r, v, n) + 1;
	mem_free(v);
	return 0;
}

int checkpoint_written(const char *output_dir, uint64_t step, uint64_t serial, struct err *e)
{
	struct record r;
	TRY(read_record(output_dir, &r, e));
	snprintf(r.name, sizeof r.name, "step-%06llu", (unsigned long long)step);
	r.written = serial > r.written ? serial : r.written;
	return write_record(output_dir, &r, e);
}

/* Marks every number above `serial` as abandoned; numbers at or below it are no
 * longer abandoned. */
static void leave(struct record *r, uint64_t serial, uint64_t most)
{
	size_t n = 0;
	for (size_t i = 0; i < r->n; i++) {
		struct range v = r->range[i];
		if (serial >= v.from && serial <= v.to)
			v.from = serial + 1; /* the run continues inside this branch */
		if (v.from <= v.to && v.to < serial)
			r->range[n++] = v;
	}
	if (n == RANGES_MOST) /* the oldest range is dropped */
		memmove(&r->range[0], &r->range[1], --n * sizeof r->range[0]);
	if (serial < most)
		r->range[n++] = (struct range){ serial + 1, most };
	r->n = n;
}

int checkpoint_resumed(const char *output_dir, const char *name, size_t *left_p, struct err *e)
{
	struct record r;
	struct checkpoint_entry *v;
	size_t n;
	TRY(read_record(output_dir, &r, e));
	TRY(list(output_dir, &r, &v, &n, e));
	uint64_t serial = 0, most = largest(&r, v, n), step = 0;
	*left_p = 0;
	for (size_t i = 0; i < n; i++) {
		char one[NAME];
		snprintf(one, sizeof one, "step-%06llu", (unsigned long long)v[i].step);
		if (!strcmp(one, name)) {
			serial = v[i].serial;
			step = v[i].step;
		}
	}
	for (size_t i = 0; i < n; i++)
		*left_p +=
			!v[i].abandoned && (v[i].serial > serial || (!serial && v[i].step > step));
	mem_free(v);
	snprintf(r.name, sizeof r.name, "%.60s", name);
	leave(&r, serial, most);
	r.written = most;
	r.there = true;
	return write_record(output_dir, &r, e);
}
