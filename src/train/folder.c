/* SPDX-License-Identifier: Apache-2.0 */
/* folder.c - see folder.h. */
#include "train/folder.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const double room_every = 2; /* seconds between two attempts */

/* Nothing can be written into the folder of a run that is there. */
static bool disk_is_full(const char *dir)
{
	struct statvfs v;
	char path[2100];
	snprintf(path, sizeof path, "%.2047s/run.term", dir);
	return !access(path, F_OK) && !statvfs(dir, &v) && v.f_bavail < 4;
}

int train_folder_open(struct trainer *t, const char **resume_p, struct err *e)
{
	const char *dir = t->cfg->output_dir;
	for (bool said = false;; said = true) {
		int rc = run_folder_open(t->cfg, &t->arena, &t->saver.folder, resume_p, e);
		if (rc != ERR_IO || !disk_is_full(dir))
			return rc;
		if (!said)
			log_warn("%s. The run goes on when there is room; Ctrl-C ends it", e->msg);
		err_clear(e);
		for (int64_t end = net_in(room_every); clock_now() < end; usleep(50000))
			if (t->o->stop && *t->o->stop)
				return err_set(e, ERR_CANCELLED,
					       "interrupted while waiting for room in %s", dir);
	}
}

int train_folder_begin(struct trainer *t, struct err *e)
{
	struct run_folder *f = &t->saver.folder;
	memcpy(f->job, t->identity, sizeof t->identity);
	f->pass = t->job->pass;
	f->npass = t->job->npass;
	int rc = run_folder_begin(f, e);
	if (rc != ERR_IO || !f->continues || f->replaces)
		return rc;
	log_warn("%s; the run goes on", e->msg);
	err_clear(e);
	return 0;
}
