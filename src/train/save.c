/* SPDX-License-Identifier: Apache-2.0 */
/* save.c - see save.h. */
#include "train/save.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "file/atomic.h"
#include "job/checkpoint_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

enum {
	MINUTES = 10, /* save_minutes: auto */
	COST = 50,    /* auto: at most one part in so many of the time is spent saving */
	AGAIN = 60    /* seconds after which a save that failed is tried again */
};

static double interval(const struct saver *s)
{
	const char *minutes = s->job->cfg->save_minutes;
	double least = COST * s->seconds;
	if (strcmp(minutes, "auto"))
		return strtod(minutes, NULL) * 60;
	return least > MINUTES * 60 ? least : MINUTES * 60;
}

bool saver_due(const struct saver *s)
{
	double passed = clock_seconds(clock_now() - s->last), every = interval(s);
	return every > 0 && passed >= (s->failed && every > AGAIN ? AGAIN : every);
}

/* ---- space on the disk ---- */

static const char *megabytes(uint64_t bytes, char *s, size_t cap)
{
	snprintf(s, cap, bytes < 10000000000 ? "%.1f MB" : "%.0f MB", (double)bytes * 1e-6);
	return s;
}

static int check_room(const struct saver *s, const struct train_state *st, struct err *e)
{
	const struct config *c = s->job->cfg;
	struct statvfs v;
	char have[32], need[32];
	if (statvfs(s->dir, &v) < 0)
		return 0;
	uint64_t room = (uint64_t)v.f_bavail * v.f_frsize, one = checkpoint_bytes(s->job),
		 result = checkpoint_result_bytes(s->job), count = 1;
	if (room < one + result) {
		err_set(e, ERR_IO,
			"output_dir %s: %s are free, a checkpoint and the result of this "
			"run take %s: make room or choose another folder",
			s->dir, megabytes(room, have, sizeof have),
			megabytes(one + result, need, sizeof need));
		if (!s->folder.cut_off)
			return e->code;
		log_warn("%s; the run goes on, and tries to save", e->msg);
		err_clear(e);
		return 0;
	}
	if (s->job->save_every > 0 && s->job->total_steps > st->step)
		count += (s->job->total_steps - st->step) / s->job->save_every;
	if (c->save_total_limit > 0 && count > (uint64_t)c->save_total_limit + 1)
		/* the oldest is removed after the newest has been written; and the best one */
		count = (uint64_t)c->save_total_limit + 1 + c->load_best_model_at_end;
	if ((room - result) / one < count)
		log_warn("output_dir %s: %s are free; %llu checkpoints of %s will not fit: set "
			 "save_total_limit, or save less often (save_steps)",
			 s->dir, megabytes(room, have, sizeof have), (unsigned long long)count,
			 megabytes(one, need, sizeof need));
	return 0;
}

int saver_init(struct saver *s, struct job *j, const struct save_sink *sink, struct arena *a,
	       const struct train_state *st, const char *resume, struct err *e)
{
	s->job = j;
	s->sink = *sink;
	s->arena = a;
	s->newest = resume;
	s->last = clock_now();
	snprintf(s->dir, sizeof s->dir, "%.2047s", j->cfg->output_dir);
	return check_room(s, st, e);
}

/* ---- saving ---- */

static int write_checkpoint(struct saver *s, const struct train_state *st, struct err *e)
{
	const char *path;
	TRY(checkpoint_write(s->job, st, s->dir, s->arena, &path, e));
	s->newest = path;
	const struct config *c = s->job->cfg;
	TRY(checkpoint_prune(s->dir, c->save_total_limit,
			     c->load_best_model_at_end ? st->best_step : 0, e));
	TRY(run_folder_keep(&s->folder, e));
	return s->sink.saved ? s->sink.saved(s->sink.ctx, st->step, path, e) : 0;
}

int saver_save(struct saver *s, const struct train_state *st, enum save_kind kind, int64_t began,
	       struct err *e)
{
	struct train_state now = *st;
	now.timed = kind == SAVE_TIMED;
	int rc = write_checkpoint(s, &now, e);
	s->last = clock_now();
	s->seconds = clock_seconds(s->last - began);
	s->failed = rc < 0;
	if (rc == ERR_CANCELLED) /* a caller's callback */
		return rc;
	if (rc < 0) {
		/* stopping would lose the steps since the last checkpoint */
		log_warn("%s; training goes on, saving is tried again", e->msg);
		err_clear(e);
	}
	return 0;
}

static int write_end(struct saver *s, const struct train_state *st, bool checkpoint, struct err *e)
{
	TRY(dir_make_result(s->dir, e));
	TRY(checkpoint_export(s->job, s->dir, e));
	return checkpoint ? write_checkpoint(s, st, e) : run_folder_keep(&s->folder, e);
}

int saver_finish(struct saver *s, const struct train_state *st, bool checkpoint, struct err *e)
{
	struct train_state now = *st;
	now.timed = false;
	for (;;) {
		char other[sizeof s->dir] = "";
		int rc = write_end(s, &now, checkpoint || s->failed, e);
		if (rc >= 0 || !s->sink.blocked ||
		    s->sink.blocked(s->sink.ctx, e->msg, other, sizeof other) < 0)
			return rc;
		err_clear(e);
		if (other[0])
			memcpy(s->dir, other, sizeof other);
	}
}
