/* SPDX-License-Identifier: Apache-2.0 */
/* run_folder.c - see run_folder.h. */
#include "job/run_folder.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os_calls.h"
#include "base/version.h"
#include "file/atomic.h"
#include "file/output.h"
#include "job/checkpoint_list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_MOST = 4096, DEPTH_MOST = 4, STALE = 512, METRICS_MOST = 1 << 16 };

/* ---- which files are a run's ---- */

#define WEIGHTS "model.safetensors", "config.json"
#define ADAPTER "adapter_config.json", "adapter_model.safetensors"

/* Everything that a run writes; `*` does not match a '/'. */
static const char *const run_files[] = {
	"run.json",
	"run.lock",
	"run.term",
	"metrics.jsonl",
	"samples.jsonl",
	"loss.png",
	"plan.json",
	"profile.json",
	"profile.png",
	"profile.html",
	"prediction.json",
	"trace.json",
	"architecture.*",
	ADAPTER,
	WEIGHTS,
	"tokenizer.json",
	"tokenizer_config.json",
	"special_tokens_map.json",
	"chat_template.jinja",
	"generation_config.json",
	"tokenizer.model",
	"vocab.json",
	"merges.txt",
	"added_tokens.json",
	"tensorboard",
	"tensorboard/events.out.tfevents.*",
	"mlruns",
	"mlruns/0",
	"mlruns/0/meta.yaml",
	"mlruns/0/*",
	"mlruns/0/*/meta.yaml",
	"mlruns/0/*/metrics",
	"mlruns/0/*/params",
	"mlruns/0/*/tags",
	"mlruns/0/*/artifacts",
	"mlruns/0/*/metrics/*",
	"mlruns/0/*/params/*",
	"mlruns/0/*/tags/mlflow.runName",
	"wandb",
	"wandb/offline-run-*",
	"wandb/offline-run-*/run-*.wandb",
	"checkpoints",
	"checkpoints/latest.json",
	"checkpoints/incoming",
	"checkpoints/step-*",
	"checkpoints/step-*/*config.json",
	"checkpoints/step-*/*.safetensors",
	"checkpoints/step-*/tokenizer*",
	"checkpoints/step-*/special_tokens_map.json",
	"checkpoints/step-*/chat_template.jinja",
	"checkpoints/step-*/vocab.json",
	"checkpoints/step-*/merges.txt",
	"checkpoints/step-*/added_tokens.json",
	"checkpoints/step-*/trainer_state.json",
};

/* Results: in a folder without a run, a file of this name is not from this program. */
static const char *const results[] = { "metrics.jsonl", "samples.jsonl", "checkpoints", ADAPTER,
				       WEIGHTS,         "tensorboard",   "run.json" };

/* Files about an earlier run that not every run writes again. */
static const char *const leftovers[] = { "prediction.json", "trace.json", "loss.png",
					 "profile.json" };

bool run_folder_writes(const char *name)
{
	char whole[PATH_MOST];
	size_t n = strlen(name);
	if (n >= sizeof whole)
		return false;
	memcpy(whole, name, n + 1);
	if (n > 4 && !strcmp(whole + n - 4, ".tmp")) /* not finished when the run was killed */
		whole[n - 4] = 0;
	for (size_t i = 0; i < ARRAY_LEN(run_files); i++)
		if (!fnmatch(run_files[i], whole, FNM_PATHNAME))
			return true;
	return strstr(name, ".tmp/") && (!strncmp(name, "checkpoints/step-", 17) ||
					 !strncmp(name, "checkpoints/incoming.", 21));
}

/* The first entry of the folder that no run writes, in stray[PATH_MOST]; "": there is none. */
static int find_stray(const char *top, const char *below, int depth, char stray[PATH_MOST],
		      struct err *e)
{
	char path[PATH_MOST];
	if (snprintf(path, sizeof path, "%s%s%s", top, *below ? "/" : "", below) >= PATH_MOST)
		return err_set(e, ERR_INPUT, "%s: the path is too long", top);
	DIR *d = opendir(path);
	if (!d)
		return err_sys(e, errno, "%s", path);
	int rc = 0;
	for (struct dirent *i; !*stray && rc >= 0 && (i = readdir(d));) {
		char name[PATH_MOST];
		struct stat st;
		if (!strcmp(i->d_name, ".") || !strcmp(i->d_name, ".."))
			continue;
		snprintf(name, sizeof name, "%.2000s%s%s", below, *below ? "/" : "", i->d_name);
		bool found = !fstatat(dirfd(d), i->d_name, &st, AT_SYMLINK_NOFOLLOW);
		if (!run_folder_writes(name) || (found && S_ISLNK(st.st_mode)))
			memcpy(stray, name, sizeof name);
		else if (found && S_ISDIR(st.st_mode) && depth < DEPTH_MOST)
			rc = find_stray(top, name, depth + 1, stray, e);
	}
	closedir(d);
	return rc;
}

static bool has(const char *dir, const char *name)
{
	char path[PATH_MOST];
	struct stat st;
	return snprintf(path, sizeof path, "%s/%s", dir, name) < PATH_MOST && !lstat(path, &st);
}

bool run_folder_by_itself(const struct config *c)
{
	return c->auto_resume == AUTO_RESUME_ON ||
	       (c->auto_resume == AUTO_RESUME_CLUSTER && c->coordinator.given);
}

bool run_folder_is_run(const char *dir)
{
	struct checkpoint_entry *v = NULL;
	size_t n = 0;
	struct err ignored;
	if (has(dir, "run.json") || (has(dir, "metrics.jsonl") && has(dir, "plan.json")))
		return true;
	bool found = checkpoint_list(dir, &v, &n, &ignored) >= 0 && n > 0;
	mem_free(v);
	return found;
}

/* Whether the folder has a checkpoint or a result of training. */
static bool has_result(const char *dir)
{
	struct checkpoint_entry *v = NULL;
	size_t n = 0;
	struct err ignored;
	bool found = checkpoint_list(dir, &v, &n, &ignored) >= 0 && n > 0;
	mem_free(v);
	return found || has(dir, "adapter_model.safetensors") || has(dir, "model.safetensors");
}

/* Whether the run in the folder ended before its first step: nothing is lost with it. */
static bool has_done_nothing(const char *dir)
{
	char path[PATH_MOST];
	struct buf b = BUF_INIT;
	struct err ignored = { 0 };
	if (has_result(dir))
		return false;
	snprintf(path, sizeof path, "%.2047s/metrics.jsonl", dir);
	const bool any =
		has(dir, "metrics.jsonl") && (buf_read_file(&b, path, METRICS_MOST, &ignored) < 0 ||
					      (b.n && memmem(b.p, b.n, "\"loss\":", 7)));
	buf_release(&b);
	return !any;
}

/* ---- checks before anything is written ---- */

static bool lies_in(const char *path, const char *dir)
{
	char whole[PATH_MAX];
	size_t n = strlen(dir);
	return path && path[0] && realpath(path, whole) && !strncmp(whole, dir, n) &&
	       (!whole[n] || whole[n] == '/' || n == 1);
}

/* An input file that is in the folder; NULL: none. *what_p: the key that
 * names it. */
static const char *find_input(const struct config *c, const char *dir, const char **what_p)
{
	const struct {
		const char *what, *path;
	} one[] = { { "base_model", c->base_model },
		    { "the configuration", c->path },
		    { "key_file", c->key_file },
		    { "cache_dir", c->cache_dir } };
	for (size_t i = 0; i < ARRAY_LEN(one); i++)
		if (lies_in(one[i].path, dir)) {
			*what_p = one[i].what;
			return one[i].path;
		}
	for (size_t i = 0; i < c->ndatasets; i++)
		if (lies_in(c->datasets[i].path, dir)) {
			*what_p = "datasets";
			return c->datasets[i].path;
		}
	return NULL;
}

static int refuse_old_run(const char *dir, struct err *e)
{
	return err_set(e, ERR_USAGE,
		       "output_dir %s already holds a run%s replace it (overwrite_output_dir=true) "
		       "or choose another folder",
		       dir,
		       has_result(dir) ? ": resume it (resume_from_checkpoint=latest),"
				       : ", which has no checkpoint:");
}

/* The folder holds an old run that shall be replaced. */
static int check_replace(const struct config *c, const char *dir, struct err *e)
{
	char stray[PATH_MOST] = "";
	const char *what, *input = find_input(c, dir, &what);
	if (input)
		return err_set(e, ERR_USAGE,
			       "output_dir %s holds %s (%s), so it is not replaced: choose another "
			       "folder",
			       dir, what, input);
	TRY(find_stray(dir, "", 0, stray, e));
	if (stray[0])
		return err_set(e, ERR_USAGE,
			       "output_dir %s holds '%s', which %s, so it is not replaced: move "
			       "that file away or choose another folder",
			       dir, stray, run_folder_writes(stray) ? "is a link" : "is no run's");
	return 0;
}

/* The folder holds no run: it may hold no files of other programs. A profile or plan of this
 * program is allowed: `profile` and `plan` write into the folder before the run does. */
static int check_empty(const struct config *c, const char *dir, struct err *e)
{
	TRY(output_check_report(dir, true, NULL, 0, e));
	TRY(output_check_report(dir, false, NULL, 0, e));
	const char *what, *input = find_input(c, dir, &what);
	for (size_t i = 0; i < ARRAY_LEN(results); i++)
		if (has(dir, results[i]))
			return input ? err_set(e, ERR_USAGE,
					       "output_dir %s holds %s (%s): choose another folder",
					       dir, what, input)
				     : err_set(e, ERR_USAGE,
					       "output_dir %s holds '%s', which is not of a run of "
					       "this program: choose another folder",
					       dir, results[i]);
	return 0;
}

/* A run that was cut off, and whose configuration does not say what is to become of it: goes on
 * from its newest checkpoint. *again_p: it has none, and no result: it begins again. */
static bool find_cut_off(const struct config *c, struct arena *a, const char **from_p,
			 bool *again_p)
{
	struct err ignored = { 0 };
	if (!run_folder_by_itself(c) || c->resume_from_checkpoint || c->overwrite_output_dir ||
	    !run_folder_is_run(c->output_dir))
		return false;
	if (checkpoint_latest(c->output_dir, a, from_p, &ignored) < 0)
		*from_p = NULL;
	*again_p = !*from_p && !has_result(c->output_dir);
	return *from_p || *again_p;
}

static int find_resume(const struct config *c, struct arena *a, const char **from_p, struct err *e)
{
	const char *from = c->resume_from_checkpoint;
	struct stat st;
	if (from && !strcmp(from, "latest")) {
		TRY(checkpoint_latest(c->output_dir, a, &from, e));
		if (!from)
			return err_set(e, ERR_USAGE,
				       "resume_from_checkpoint: %s has no checkpoint to resume "
				       "from: leave it out to begin a run%s",
				       c->output_dir,
				       run_folder_is_run(c->output_dir) &&
						       !has_done_nothing(c->output_dir)
					       ? " (overwrite_output_dir=true replaces the one "
						 "that is there)"
					       : "");
	} else if (from && !has(from, "trainer_state.json")) {
		return err_set(e, ERR_USAGE,
			       "resume_from_checkpoint: %s is not %s: name a folder such as "
			       "%s/checkpoints/step-000020, or latest",
			       from,
			       stat(from, &st) < 0 ? "there"
						   : "a checkpoint (no trainer_state.json)",
			       c->output_dir);
	}
	*from_p = from;
	return 0;
}

/* Folders of reports that lead elsewhere: a run that somebody gave away would be written there. */
static int check_links(const char *dir, struct err *e)
{
	static const char *const folder[] = { "checkpoints", "tensorboard", "wandb", "mlruns",
					      "mlruns/0" };
	for (size_t i = 0; i < ARRAY_LEN(folder); i++) {
		char path[PATH_MOST];
		struct stat st;
		snprintf(path, sizeof path, "%.2047s/%s", dir, folder[i]);
		if (!lstat(path, &st) && S_ISLNK(st.st_mode))
			return err_set(e, ERR_USAGE,
				       "%s: is a link and is not written through: put the folder "
				       "itself there",
				       path);
	}
	return 0;
}

static void sibling(const struct run_folder *f, const char *ending, char out[PATH_MOST])
{
	snprintf(out, PATH_MOST, "%s%s", f->path, ending);
}

/* Handles OUTPUT.old, which a run leaves when it is killed while it replaces another one. */
static int look_aside(struct run_folder *f, struct err *e)
{
	char old[PATH_MOST], fresh[PATH_MOST], stray[PATH_MOST] = "";
	struct stat st;
	sibling(f, ".old", old);
	sibling(f, ".new", fresh);
	if (!lstat(fresh, &st) && run_folder_is_run(fresh) && lstat(old, &st) < 0 &&
	    rename(fresh, old) < 0)
		return err_sys(e, errno, "%s: renaming to %s", fresh, old);
	if (lstat(old, &st) < 0)
		return 0;
	if (f->replaces) {
		TRY(find_stray(old, "", 0, stray, e));
		if (stray[0] || !run_folder_is_run(old))
			return err_set(e, ERR_USAGE,
				       "%s is in the way and no run of this program: output_dir is "
				       "moved there before it is replaced; move it away",
				       old);
	}
	log_info("%s holds an earlier run, moved aside by one that was killed", old);
	return 0;
}

static int take_lock(const char *dir, struct file_lock *l, struct err *e)
{
	char path[PATH_MOST], stale[STALE];
	if (snprintf(path, sizeof path, "%s/run.lock", dir) >= PATH_MOST)
		return err_set(e, ERR_INPUT, "%s: the path is too long", dir);
	int rc = file_lock_take(path, l, stale, sizeof stale, e);
	if (rc < 0)
		return rc == ERR_USAGE ? err_prefix(e, "output_dir holds a run that is not over")
				       : rc;
	if (stale[0])
		log_info("%s: the run of %s ended without an end", dir, stale);
	return 0;
}

static int write_term(const struct run_folder *f, struct err *e)
{
	char text[200];
	snprintf(text, sizeof text, "{\"run\": \"%016llx\", \"term\": %u, \"job\": \"%.64s\"}\n",
		 (unsigned long long)f->run, f->term, f->job);
	return atomic_write_in(f->path, "run.term", text, strlen(text), e);
}

/* Who starts in the folder: of a run that was cut off the next coordinator, which is on disk before
 * any worker hears of it; else the first one of a new run. */
static int begin_term(struct run_folder *f, struct err *e)
{
	char path[PATH_MOST];
	struct err ignored = { 0 };
	json_t *doc = NULL;
	int64_t term = 0;
	snprintf(path, sizeof path, "%.2047s/run.term", f->path);
	if (f->cut_off && json_parse_file(path, 4096, &doc, &ignored) >= 0) {
		const char *run = json_string_value(json_object_get(doc, "run")),
			   *job = json_string_value(json_object_get(doc, "job"));
		if (run && json_opt_int(doc, path, "term", 1, UINT32_MAX - 1, &term, &ignored) >= 0)
			f->run = strtoull(run, NULL, 16);
		snprintf(f->job, sizeof f->job, "%.64s", job ? job : "");
	}
	json_decref(doc);
	f->continues = f->run && term;
	f->term = f->continues ? (uint32_t)term + 1 : 1;
	if (f->continues)
		return write_term(f, e);
	f->job[0] = 0;
	do
		randombytes_buf(&f->run, sizeof f->run);
	while (!f->run);
	return 0;
}

void run_folder_goes_on(struct run_folder *f)
{
	f->replaces = false;
	f->resumes = true;
}

int run_folder_open(const struct config *c, struct arena *a, struct run_folder *f_p,
		    const char **resume_p, struct err *e)
{
	struct run_folder f = { .cfg = c, .lock = FILE_LOCK_INIT };
	char whole[PATH_MAX];
	const char *from = NULL;
	struct stat st;
	bool again = false, cut_off;
	TRY(find_resume(c, a, &from, e));
	cut_off = find_cut_off(c, a, &from, &again);
	f.made = stat(c->output_dir, &st) < 0;
	if (!f.made && !S_ISDIR(st.st_mode))
		return err_set(e, ERR_USAGE, "output_dir %s is a file: choose another folder",
			       c->output_dir);
	TRY(dir_make_result(c->output_dir, e));
	if (!realpath(c->output_dir, whole) || strlen(whole) >= sizeof f.path) {
		int rc = err_sys(e, errno ? errno : ENAMETOOLONG, "%s", c->output_dir);
		if (f.made)
			rmdir(c->output_dir);
		return rc;
	}
	snprintf(f.path, sizeof f.path, "%.2047s", whole);
	int rc = take_lock(f.path, &f.lock, e);
	f.resumes = from && lies_in(from, f.path);
	if (f.resumes && realpath(from, whole))
		snprintf(f.from, sizeof f.from, "%.63s", strrchr(whole, '/') + 1);
	if (rc >= 0 && !f.resumes && run_folder_is_run(f.path)) {
		again |= has_done_nothing(f.path);
		f.replaces = c->overwrite_output_dir || again;
		rc = f.replaces ? check_replace(c, f.path, e) : refuse_old_run(c->output_dir, e);
	} else if (rc >= 0 && !f.resumes) {
		rc = check_empty(c, f.path, e);
	}
	if (rc >= 0)
		rc = check_links(f.path, e);
	if (rc >= 0)
		rc = look_aside(&f, e);
	f.cut_off = cut_off;
	if (rc >= 0)
		rc = begin_term(&f, e);
	if (rc < 0) {
		file_lock_release(&f.lock);
		if (f.made)
			rmdir(c->output_dir);
		return rc;
	}
	*f_p = f;
	*resume_p = from;
	return 0;
}

/* ---- one run in the place of another ---- */

/* The new folder, locked, is exchanged with the old one in one step where the file system can do
 * that, so that output_dir exists at every moment. */
static int move_aside(struct run_folder *f, struct err *e)
{
	char old[PATH_MOST], fresh[PATH_MOST], path[PATH_MOST];
	struct file_lock lock = FILE_LOCK_INIT;
	struct stat st;
	sibling(f, ".old", old);
	sibling(f, ".new", fresh);
	if (!lstat(old, &st)) {
		if (!has_result(f->path)) { /* a run that was killed early: the older one is kept */
			f->is_aside = true;
			return 0;
		}
		TRY(dir_remove(old, e));
	}
	TRY(dir_remove(fresh, e));
	TRY(dir_make_result(fresh, e));
	if (!stat(f->path, &st)) /* who may read the old run may read the new one */
		chmod(fresh, st.st_mode & 0777);
	int rc = take_lock(fresh, &lock, e);
	if (rc < 0) {
		rmdir(fresh);
		return rc;
	}
	bool swapped = os_swap_names(fresh, f->path);
	if (swapped ? rename(fresh, old) < 0
		    : rename(f->path, old) < 0 || rename(fresh, f->path) < 0) {
		rc = err_sys(e, errno, "output_dir %s cannot be moved to %s: choose another folder",
			     f->path, old);
		if (swapped)
			os_swap_names(fresh, f->path);
		else
			rename(old, f->path);
		file_lock_release(&lock);
		dir_remove(fresh, &(struct err){ 0 });
		return rc;
	}
	/* both locks are held; the folders have changed places, so have the files */
	snprintf(path, sizeof path, "%.4080s/run.lock", old);
	unlink(path);
	close(f->lock.fd);
	mem_free(lock.path);
	f->lock.fd = lock.fd; /* its path has not changed */
	f->is_aside = true;
	return 0;
}

/* Every file of a run in the folder, but not the lock. */
static int remove_files(const char *dir, struct err *e)
{
	DIR *d = opendir(dir);
	if (!d)
		return err_sys(e, errno, "%s", dir);
	int rc = 0;
	for (struct dirent *i; rc >= 0 && (i = readdir(d));) {
		char path[PATH_MOST];
		struct stat st;
		if (!strcmp(i->d_name, ".") || !strcmp(i->d_name, "..") ||
		    !strcmp(i->d_name, "run.lock") || !run_folder_writes(i->d_name))
			continue;
		snprintf(path, sizeof path, "%.2047s/%s", dir, i->d_name);
		if (!lstat(path, &st) && S_ISDIR(st.st_mode))
			rc = dir_remove(path, e);
		else if (unlink(path) < 0 && errno != ENOENT)
			rc = err_sys(e, errno, "%s: removing", path);
	}
	closedir(d);
	return rc;
}

static int write_mark(const struct run_folder *f, struct err *e)
{
	struct buf b = BUF_INIT;
	char host[256] = "";
	gethostname(host, sizeof host - 1);
	buf_addf(&b, "{\"program\": \"heteroshard\", \"version\": \"%s\", \"host\": ", HS_VERSION);
	json_quote(&b, host, strlen(host));
	for (size_t i = 0; i < f->npass; i++)
		buf_addf(&b, "%s%d%s", i ? ", " : ", \"passes\": [", f->pass[i],
			 i + 1 == f->npass ? "]" : "");
	buf_addf(&b, ", \"pid\": %ld, \"started\": %lld}\n", (long)getpid(),
		 (long long)(clock_wall() / 1000000000));
	int rc = buf_ok(&b, e);
	if (rc >= 0)
		rc = atomic_write_in(f->path, "run.json", b.p, b.n, e);
	buf_release(&b);
	return rc;
}

int run_folder_begin(struct run_folder *f, struct err *e)
{
	if (f->replaces)
		TRY(move_aside(f, e));
	f->began = true;
	if (f->replaces)
		TRY(remove_files(f->path, e));
	for (size_t i = 0; i < ARRAY_LEN(leftovers); i++) {
		char path[PATH_MOST];
		/* a run without a profile does not write it; a file without a run may have been
		 * measured just before */
		if (!strcmp(leftovers[i], "profile.json") &&
		    !(f->resumes && !strcmp(config_profile(f->cfg), "none")))
			continue;
		snprintf(path, sizeof path, "%.2047s/%s", f->path, leftovers[i]);
		if (unlink(path) < 0 && errno != ENOENT)
			return err_sys(e, errno, "%s: removing", path);
	}
	if (f->resumes && f->from[0]) {
		size_t left;
		TRY(checkpoint_resumed(f->path, f->from, &left, e));
		if (left)
			log_info("the run goes back to %s: %zu later checkpoint%s stay%s beside it "
				 "until replaced or pruned, and latest does not mean %s",
				 f->from, left, left > 1 ? "s" : "", left > 1 ? "" : "s",
				 left > 1 ? "them" : "it");
	}
	TRY(write_term(f, e));
	return write_mark(f, e);
}

int run_folder_keep(struct run_folder *f, struct err *e)
{
	char old[PATH_MOST];
	if (!f->is_aside)
		return 0;
	f->is_aside = false;
	sibling(f, ".old", old);
	return dir_remove(old, e);
}

/* Removes this run's folder and moves the old one back. */
static void put_back(struct run_folder *f)
{
	char old[PATH_MOST];
	struct err e = { 0 };
	sibling(f, ".old", old);
	bool swapped = os_swap_names(old, f->path);
	if (swapped ? dir_remove(old, &e) < 0
		    : dir_remove(f->path, &e) < 0 || rename(old, f->path) < 0)
		log_warn("the earlier run is not all back in its place (%s, %s): %s", f->path, old,
			 e.msg);
	else
		log_info("%s is again the run that was there before", f->cfg->output_dir);
	close(f->lock.fd); /* its file was removed with the folder */
	mem_free(f->lock.path);
	f->lock = (struct file_lock)FILE_LOCK_INIT;
}

void run_folder_close(struct run_folder *f, bool failed)
{
	struct err e = { 0 };
	if (!f->cfg)
		return;
	if (f->is_aside && failed && !has_result(f->path))
		put_back(f);
	else if (f->is_aside && run_folder_keep(f, &e) < 0)
		log_warn("%s", e.msg);
	file_lock_release(&f->lock);
	if (f->made && !f->began)
		rmdir(f->cfg->output_dir);
	f->cfg = NULL;
}
