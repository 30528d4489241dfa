/* SPDX-License-Identifier: Apache-2.0 */
/* output.c - see output.h. */
#include "file/output.h"

#include "base/err.h"
#include "base/json.h"
#include "base/open.h"
#include "file/gguf.h"
#include "file/gguf_write.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JSON_MOST = 64 << 20 };

/* `path` is `top` or lies below it. */
static bool is_below(const char *path, const char *top)
{
	char a[PATH_MAX], b[PATH_MAX];
	if (!realpath(path, a) || !realpath(top, b))
		return false;
	size_t n = strlen(b);
	return !strncmp(a, b, n) && (!a[n] || a[n] == '/' || n == 1);
}

int output_not_input(const char *out, const char *const *input, size_t n, struct err *e)
{
	struct stat to, from;
	if (stat(out, &to) < 0)
		return 0;
	for (size_t i = 0; i < n; i++) {
		if (!input[i] || stat(input[i], &from) < 0)
			continue;
		if ((to.st_dev == from.st_dev && to.st_ino == from.st_ino) ||
		    (S_ISDIR(to.st_mode) && is_below(input[i], out)))
			return err_set(e, ERR_USAGE,
				       "%s is read by this command (%s), so it is not written: "
				       "choose another name",
				       out, input[i]);
	}
	return 0;
}

bool output_is_our_gguf(const char *path)
{
	struct gguf g;
	struct err ignored = { 0 };
	if (gguf_open(path, &g, &ignored) < 0)
		return false;
	bool found = gguf_find(&g, GGUF_MARK) != NULL;
	gguf_close(&g);
	return found;
}

bool output_is_json_with(const char *path, const char *const *key)
{
	json_t *doc;
	struct err ignored = { 0 };
	if (json_parse_file(path, JSON_MOST, &doc, &ignored) < 0)
		return false;
	bool found = json_is_object(doc);
	for (; *key && found; key++)
		found = json_object_get(doc, *key) != NULL;
	json_decref(doc);
	return found;
}

static bool join(const char *dir, const char *name, char path[PATH_MAX])
{
	return snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX;
}

/* A picture of a shard_plan alone: all that `plan` writes where nothing is to be measured. */
static bool is_our_picture(const char *dir)
{
	static const char mark[] = "digraph heteroshard {";
	char path[PATH_MAX], begin[sizeof mark - 1];
	struct err e = { 0 };
	int fd;
	if (!join(dir, "architecture.dot", path) || open_read(path, &fd, NULL, &e) < 0)
		return false;
	const bool ours = read(fd, begin, sizeof begin) == (ssize_t)sizeof begin &&
			  !memcmp(begin, mark, sizeof begin);
	close(fd);
	return ours;
}

int output_check_report(const char *dir, bool plan, const char *const *input, size_t n,
			struct err *e)
{
	static const char *const plan_keys[] = { "version", "stages", NULL };
	static const char *const profile_keys[] = { "version", "devices", NULL };
	static const char *const others[] = { "profile.png",      "profile.html",
					      "trace.json",       "architecture.png",
					      "architecture.svg", "architecture.dot",
					      "architecture.mmd", "architecture.pdf" };
	const struct {
		const char *name;
		const char *const *keys;
		bool written;
	} main_file[] = { { "plan.json", plan_keys, plan },
			  { "profile.json", profile_keys, !plan } };
	char path[PATH_MAX];
	struct stat st;
	if (stat(dir, &st) < 0)
		return 0;
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ERR_USAGE, "%s is a file: choose another folder (--out)", dir);
	bool ours = is_our_picture(dir);
	for (size_t i = 0; i < sizeof main_file / sizeof *main_file; i++) {
		if (!join(dir, main_file[i].name, path) || stat(path, &st) < 0)
			continue;
		bool known = output_is_json_with(path, main_file[i].keys);
		ours |= known;
		if (main_file[i].written && !known)
			return err_set(e, ERR_USAGE,
				       "%s is there and was not written by this program: choose "
				       "another folder (--out)",
				       path);
		if (main_file[i].written)
			TRY(output_not_input(path, input, n, e));
	}
	for (size_t i = 0; i < sizeof others / sizeof *others && !ours; i++)
		if ((plan || i < 2) && join(dir, others[i], path) && !stat(path, &st))
			return err_set(e, ERR_USAGE,
				       "%s is there without a plan.json or profile.json of this "
				       "program: choose another folder (--out)",
				       path);
	return 0;
}
