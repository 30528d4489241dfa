/* SPDX-License-Identifier: Apache-2.0 */
/* collect.c - see collect.h. */
#include "train/collect.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "train/start.h"

int train_collect(struct trainer *t, struct err *e)
{
	const int64_t began = clock_now();
	TRY(session_pull_state(t->ses, ++t->rounds.number, &t->set, e));
	snapshot_end(&t->set, &t->st);
	if (snapshots_taken(&t->snapshots, t->st.step, began) && t->stays &&
	    t->cfg->snapshot_to == SNAPSHOT_MEMORY && !t->snapshots.steps)
		log_info("a snapshot of the training state (%.1f MB) takes %.2f s: there is one "
			 "about every %.0f s",
			 (double)t->snapshots.bytes / 1e6, t->snapshots.cost,
			 snapshots_interval(&t->snapshots));
	return 0;
}

void train_begin_set(struct trainer *t, bool start)
{
	const struct config *c = t->cfg;
	t->stays = start_is_cluster(t) && !t->o->ranks;
	t->first = t->st;
	t->saved = t->st.step;
	t->evaluated = UINT64_MAX;
	snapshot_init(&t->set, t->job, t->stays && c->snapshot_to == SNAPSHOT_MEMORY, &t->st,
		      start);
	snapshots_init(&t->snapshots, c, snapshot_bytes(t->job), t->st.step);
	if (t->stays && c->snapshot_to == SNAPSHOT_OFF)
		log_warn("snapshot_to is off: when a worker is lost, the job goes back to the "
			 "newest checkpoint, and computes up to %llu steps again",
			 (unsigned long long)(t->job->save_every ? t->job->save_every
								 : t->job->total_steps));
}
