/* SPDX-License-Identifier: Apache-2.0 */
/* array_images.c - see array_images.h. */
#include "data/array_images.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "data/picture.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { PATH_MOST = 4096, FILE_MOST = 256 << 20 };

struct names {
	const char **v;
	size_t n, cap;
};

struct image {
	const char *folder, *name; /* folder NULL: the one that was opened */
	int32_t class;
};

struct images {
	struct array a;
	struct array_wish wish; /* without the strings */
	struct arena text;
	struct image *v;
	size_t cap;
	struct buf file;
	struct picture picture;
};

static bool is_image(const char *name)
{
	const char *dot = strrchr(name, '.');
	return dot &&
	       (!strcasecmp(dot, ".png") || !strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg"));
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int join(char out[PATH_MOST], const char *a, const char *b, const char *c, struct err *e)
{
	const int n = snprintf(out, PATH_MOST, "%s%s%s%s%s", a, b ? "/" : "", b ? b : "",
			       c ? "/" : "", c ? c : "");
	return n < PATH_MOST ? 0 : err_set(e, ERR_USAGE, "%.200s...: the path is too long", a);
}

/* The names in a folder that are images, or folders, in their order. */
static int list(struct images *m, const char *path, bool folders, struct names *out, struct err *e)
{
	char whole[PATH_MOST];
	struct dirent *d;
	struct stat st;
	int rc = 0;
	DIR *dir = opendir(path);
	if (!dir)
		return err_sys(e, errno, "%s", path);
	out->n = 0;
	while (rc >= 0 && (d = readdir(dir))) {
		if (d->d_name[0] == '.' || (!folders && !is_image(d->d_name)))
			continue;
		rc = join(whole, path, d->d_name, NULL, e);
		if (rc < 0 || stat(whole, &st) < 0 || (S_ISDIR(st.st_mode) != 0) != folders)
			continue;
		const char *name = arena_strdup(&m->text, d->d_name);
		if (!name || !mem_grow(&out->v, &out->cap, out->n + 1, sizeof *out->v))
			rc = err_nomem(e, out->n * sizeof *out->v, path);
		else
			out->v[out->n++] = name;
	}
	closedir(dir);
	if (rc >= 0 && out->n)
		qsort(out->v, out->n, sizeof *out->v, by_name);
	return rc;
}

static int add_images(struct images *m, const char *folder, int32_t class, struct names *files,
		      struct err *e)
{
	char path[PATH_MOST];
	TRY(join(path, m->a.path, folder, NULL, e));
	TRY(list(m, path, false, files, e));
	for (size_t i = 0; i < files->n; i++) {
		if (!mem_grow(&m->v, &m->cap, (size_t)m->a.rows + 1, sizeof *m->v))
			return err_nomem(e, m->a.rows * sizeof *m->v, path);
		m->v[m->a.rows++] = (struct image){ folder, files->v[i], class };
	}
	return 0;
}

static int find_images(struct images *m, struct err *e)
{
	struct names folders = { 0 }, files = { 0 };
	int rc = list(m, m->a.path, true, &folders, e);
	for (size_t i = 0; rc >= 0 && i < folders.n; i++)
		rc = add_images(m, folders.v[i], (int32_t)i, &files, e);
	if (rc >= 0 && !folders.n && m->wish.channels)
		rc = add_images(m, NULL, -1, &files, e);
	if (rc >= 0 && !m->a.rows)
		rc = err_set(e, ERR_INPUT,
			     "%s: holds no folder with images (.png, .jpg, .jpeg), one for each "
			     "class",
			     m->a.path);
	mem_free(folders.v);
	mem_free(files.v);
	return rc;
}

static int read_images(struct array *a, uint64_t first, uint64_t n, void *dst, struct err *e)
{
	struct images *m = (struct images *)(void *)a;
	const struct array_wish *w = &m->wish;
	char path[PATH_MOST];
	for (uint64_t i = 0; i < n; i++) {
		const struct image *v = &m->v[first + i];
		if (!w->channels) {
			TRY(array_put(a, dst, i, v->class, e));
			continue;
		}
		TRY(join(path, a->path, v->folder ? v->folder : v->name, v->folder ? v->name : NULL,
			 e));
		TRY(buf_read_file(&m->file, path, FILE_MOST, e));
		TRY(picture_decode(&m->picture, m->file.p, m->file.n, path, e));
		picture_fit(&m->picture, w->channels, w->height, w->width,
			    (float *)dst + i * a->each);
	}
	return 0;
}

static void close_images(struct array *a)
{
	struct images *m = (struct images *)(void *)a;
	mem_free(m->v);
	arena_release(&m->text);
	buf_release(&m->file);
	picture_release(&m->picture);
}

static const struct array_kind kind = { .name = "images",
					.read = read_images,
					.close = close_images };

int images_open(const char *path, const struct array_wish *w, struct array **a_p, struct err *e)
{
	struct images *m = mem_zalloc(sizeof *m);
	if (!m)
		return err_nomem(e, sizeof *m, path);
	buf_init(&m->file);
	m->wish = (struct array_wish){ .channels = w->channels,
				       .height = w->height,
				       .width = w->width };
	int rc = array_init(&m->a, &kind, path, w, e);
	if (rc >= 0 && w->channels && (w->whole || (w->channels != 1 && w->channels != 3)))
		rc = err_set(e, ERR_USAGE,
			     "%s: images are read by models whose rows are floats of the shape "
			     "(1 or 3, height, width)",
			     path);
	m->a.bytes = w->channels > 0;
	m->a.each = 1;
	if (w->channels)
		m->a.each = (uint64_t)w->channels * (uint64_t)w->height * (uint64_t)w->width;
	if (rc >= 0)
		rc = find_images(m, e);
	if (rc < 0)
		array_close(&m->a);
	else
		*a_p = &m->a;
	return rc;
}
