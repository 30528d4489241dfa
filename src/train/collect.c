/* SPDX-License-Identifier: Apache-2.0 */
/* collect.c - see collect.h. */
#include "train/collect.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "train/start.h"

/* Where the disk does not take it, into the memory: saving is tried again, and says so. */
static int collect(struct trainer *t, struct err *e)
{
	int rc = session_pull_state(t->ses, ++t->rounds.number, &t->set, e);
	if (rc >= 0)
		rc = snapshot_end(&t->set, &t->st, e);
	if (rc != ERR_IO || t->set.twice || t->set.over)
		return rc;
	log_warn("%s; the training state is collected in memory", e->msg);
	err_clear(e);
	t->set.over = true;
	rc = session_pull_state(t->ses, ++t->rounds.number, &t->set, e);
	if (rc >= 0)
		rc = snapshot_end(&t->set, &t->st, e);
	t->set.over = false;
	return rc;
}

/* Once, when the first one has been measured: how often there will be one. */
static void say_interval(struct trainer *t)
{
	struct snapshots *s = &t->snapshots;
	if (s->said || !t->stays || s->steps)
		return;
	s->said = true;
	log_info("a snapshot of the training state (%.1f MB) takes %.2f s: there is one about "
		 "every %.0f s",
		 (double)s->bytes / 1e6, s->cost, snapshots_interval(s));
}

int train_collect(struct trainer *t, struct err *e)
{
	const int64_t began = clock_now();
	TRY(collect(t, e));
	snapshots_taken(&t->snapshots, t->st.step, began);
	if (t->snapshots.to == SNAPSHOT_MEMORY)
		say_interval(t);
	return 0;
}

void train_saved(struct trainer *t, int64_t began)
{
	if (t->snapshots.to != SNAPSHOT_DISK)
		return;
	snapshots_taken(&t->snapshots, t->st.step, began);
	say_interval(t);
}

void train_begin_set(struct trainer *t, bool start)
{
	const struct config *c = t->cfg;
	/* without a checkpoint */
	t->first = t->kept ? (struct train_state){ .rules = t->st.rules } : t->st;
	t->saved = t->kept ? UINT64_MAX : t->st.step;
	t->evaluated = UINT64_MAX;
	snapshots_init(&t->snapshots, c, snapshot_bytes(t->job), t->st.step);
	const enum config_snapshot to = t->snapshots.to;
	snapshot_init(&t->set, t->job, t->stays && to == SNAPSHOT_MEMORY ? NULL : c->output_dir,
		      &t->st, start);
	if (t->stays && to == SNAPSHOT_DISK && c->snapshot_to == SNAPSHOT_AUTO)
		log_info("snapshots go to the disk: two training states of %.1f MB would take more "
			 "than half of the memory that is free here (snapshot_to)",
			 (double)t->snapshots.bytes / 1e6);
	if (t->stays && to == SNAPSHOT_OFF)
		log_warn("snapshot_to is off: when a worker is lost, the job goes back to the "
			 "newest checkpoint, and computes up to %llu steps again",
			 (unsigned long long)(t->job->save_every ? t->job->save_every
								 : t->job->total_steps));
}
