/* SPDX-License-Identifier: Apache-2.0 */
/* mlflow.c - see mlflow.h. */
#include "report/mlflow.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/open.h"
#include "file/atomic.h"
#include "file/lines.h"
#include "file/hash.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RUNNING = 1, FINISHED = 3, FAILED = 4, ID = 32, PATH_MOST = 4096 };

struct mlflow {
	char top[PATH_MOST]; /* DIR/0/RUN */
	char where[PATH_MOST], id[ID + 1];
	char *name;
	int64_t began; /* milliseconds */
};

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int join(char out[PATH_MOST], const char *dir, const char *below, const char *name,
		struct err *e)
{
	if (snprintf(out, PATH_MOST, "%s/%s%s", dir, below, name) >= PATH_MOST)
		return err_set(e, ERR_INPUT, "%s: the path is too long", dir);
	return 0;
}

static void text(struct buf *b, const char *key, const char *value)
{
	buf_addf(b, "%s: ", key);
	json_quote(b, value, strlen(value)); /* JSON is YAML */
	buf_adds(b, "\n");
}

static int write_run(const struct mlflow *m, int status, struct err *e)
{
	struct buf b = BUF_INIT;
	buf_adds(&b, "artifact_uri: ");
	struct buf uri = BUF_INIT;
	buf_addf(&uri, "file://%s/0/%s/artifacts", m->where, m->id);
	int rc = buf_ok(&uri, e);
	if (rc >= 0)
		json_quote(&b, uri.p, uri.n);
	buf_release(&uri);
	if (status == RUNNING)
		buf_adds(&b, "\nend_time: null\n");
	else
		buf_addf(&b, "\nend_time: %lld\n", (long long)now_ms());
	buf_addf(&b,
		 "entry_point_name: ''\nexperiment_id: '0'\nlifecycle_stage: active\n"
		 "run_id: %s\nrun_uuid: %s\nsource_name: ''\nsource_type: 4\nsource_version: ''\n"
		 "start_time: %lld\nstatus: %d\ntags: []\nuser_id: ''\n",
		 m->id, m->id, (long long)m->began, status);
	text(&b, "run_name", m->name);
	if (rc >= 0)
		rc = buf_ok(&b, e);
	if (rc >= 0)
		rc = atomic_write_in(m->top, "meta.yaml", b.p, b.n, e);
	buf_release(&b);
	return rc;
}

static int write_experiment(const struct mlflow *m, const char *dir, const char *name,
			    struct err *e)
{
	struct buf b = BUF_INIT, uri = BUF_INIT;
	buf_addf(&uri, "file://%s/0", m->where);
	text(&b, "artifact_location", uri.failed ? "" : uri.p);
	buf_addf(&b,
		 "creation_time: %lld\nexperiment_id: '0'\nlast_update_time: %lld\n"
		 "lifecycle_stage: active\n",
		 (long long)m->began, (long long)m->began);
	text(&b, "name", name);
	int rc = buf_ok(&b, e);
	if (rc >= 0)
		rc = atomic_write_in(dir, "meta.yaml", b.p, b.n, e);
	buf_release(&b);
	buf_release(&uri);
	return rc;
}

/* The third word of a line, where it is a whole number. (sscanf would look at all that follows,
 * line after line.) */
static bool step_of(const char *p, const char *end, int64_t *step_p)
{
	char word[24];
	for (int i = 0; i < 2; i++) {
		p = memchr(p, ' ', (size_t)(end - p));
		if (!p++)
			return false;
	}
	size_t n = (size_t)(end - p);
	if (!n || n >= sizeof word)
		return false;
	memcpy(word, p, n);
	word[n] = 0;
	char *stop;
	*step_p = strtoll(word, &stop, 10);
	return !*stop;
}

/* Lines of steps after `last` go, and what is no line; those of an earlier process up to there
 * stay. */
static int is_earlier(void *ctx, const char *line, size_t n, struct err *e)
{
	int64_t step;
	(void)e;
	return step_of(line, line + n, &step) && step <= *(const int64_t *)ctx;
}

static int cut_all_back(const struct mlflow *m, int64_t last, struct err *e)
{
	char dir[PATH_MOST], path[PATH_MOST];
	TRY(join(dir, m->top, "", "metrics", e));
	DIR *d = opendir(dir);
	if (!d)
		return err_sys(e, errno, "%s", dir);
	int rc = 0;
	for (struct dirent *f; rc >= 0 && (f = readdir(d));) {
		if (f->d_name[0] == '.')
			continue;
		rc = join(path, dir, "", f->d_name, e);
		if (rc >= 0)
			rc = lines_keep(path, is_earlier, &last, e);
	}
	closedir(d);
	return rc;
}

int mlflow_open(const char *dir, const char *experiment, const char *name, int64_t resume_step,
		struct mlflow **m_p, struct err *e)
{
	static const char *const folders[] = { "metrics", "params", "tags", "artifacts" };
	char path[PATH_MOST], hex[HASH_HEX];
	struct mlflow *m = mem_zalloc(sizeof *m);
	int rc;
	if (!m)
		return err_nomem(e, sizeof *m, "the metrics for MLflow");
	m->began = now_ms();
	m->name = mem_strdup(name);
	if (!m->name) {
		rc = err_nomem(e, strlen(name), "a name");
		goto out;
	}
	TRYOUT(join(path, dir, "", "0", e));
	TRYOUT(dir_make_result(path, e));
	if (!realpath(dir, m->where)) {
		rc = err_sys(e, errno, "%s", dir);
		goto out;
	}
	/* one run a folder: its name is that of the place */
	hash_bytes(m->where, strlen(m->where), hex);
	memcpy(m->id, hex, ID);
	TRYOUT(write_experiment(m, path, experiment, e));
	TRYOUT(join(m->top, path, "", m->id, e));
	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		TRYOUT(join(path, m->top, "", folders[i], e));
		TRYOUT(dir_make_result(path, e));
	}
	TRYOUT(join(path, m->top, "", "tags", e));
	TRYOUT(atomic_write_in(path, "mlflow.runName", m->name, strlen(m->name), e));
	TRYOUT(cut_all_back(m, resume_step, e));
	TRYOUT(write_run(m, RUNNING, e));
	*m_p = m;
out:
	if (rc < 0) {
		mem_free(m->name);
		mem_free(m);
	}
	return rc;
}

int mlflow_param(struct mlflow *m, const char *key, const char *value, struct err *e)
{
	char path[PATH_MOST];
	TRY(join(path, m->top, "", "params", e));
	return atomic_write_in(path, key, value, strlen(value), e);
}

int mlflow_metric(struct mlflow *m, const char *key, int64_t step, double value, struct err *e)
{
	char path[PATH_MOST], line[128];
	int fd, n;
	TRY(join(path, m->top, "metrics/", key, e));
	if (isfinite(value))
		n = snprintf(line, sizeof line, "%lld %.17g %lld\n", (long long)now_ms(), value,
			     (long long)step);
	else
		n = snprintf(line, sizeof line, "%lld %s %lld\n", (long long)now_ms(),
			     isnan(value) ? "nan"
			     : value > 0  ? "inf"
					  : "-inf",
			     (long long)step);
	TRY(open_write_err(path, OPEN_APPEND, 0666, &fd, e));
	ssize_t wrote = write(fd, line, (size_t)n);
	int errnum = wrote < 0 ? errno : ENOSPC;
	close(fd);
	return wrote == n ? 0 : err_sys(e, errnum, "cannot write %s", path);
}

void mlflow_close(struct mlflow *m, int failed)
{
	struct err ignored;
	if (!m)
		return;
	write_run(m, failed ? FAILED : FINISHED, &ignored);
	mem_free(m->name);
	mem_free(m);
}
