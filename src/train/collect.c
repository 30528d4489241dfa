/* SPDX-License-Identifier: Apache-2.0 */
/* collect.c - see collect.h. */
#include "train/collect.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

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
