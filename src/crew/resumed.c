/* SPDX-License-Identifier: Apache-2.0 */
/* resumed.c - see resumed.h. */
#include "crew/resumed.h"

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "job/checkpoint_list.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_MOST = 4096 };

static uint64_t rows_then(const json_t *then)
{
	const json_int_t size = json_integer_value(json_object_get(then, "micro_batch_size")),
			 steps = json_integer_value(
				 json_object_get(then, "gradient_accumulation_steps"));
	uint64_t rows;
	return size > 0 && steps > 0 && mul_ok((uint64_t)size, (uint64_t)steps, &rows) ? rows : 0;
}

static void move(const struct job *j, uint64_t was, struct train_state *s)
{
	const struct config *c = j->cfg;
	const uint64_t is = (uint64_t)(c->micro_batch_size * c->gradient_accumulation_steps),
		       n = batches_per_epoch(j->batches, s->epoch);
	uint64_t rows;
	const bool moved = was && was != is && mul_ok(s->batch, was, &rows);
	if (moved)
		s->batch = rows / is;
	if (s->batch >= n) {
		log_warn("epoch %llu of the data has %llu steps now, and more were done: the run "
			 "goes on with the next epoch",
			 (unsigned long long)s->epoch + 1, (unsigned long long)n);
		s->batch = 0;
		s->epoch++;
	} else if (moved) {
		log_info("a step had %llu rows and has %llu now: the run goes on after row %llu of "
			 "epoch %llu of the data",
			 (unsigned long long)was, (unsigned long long)is,
			 (unsigned long long)(s->batch * is), (unsigned long long)s->epoch + 1);
	}
}

static bool same_data(const struct job *j, const json_t *doc, const json_t *then)
{
	return job_same_data(j, json_string_value(json_object_get(doc, "dataset_digest"))) &&
	       json_number_value(json_object_get(then, "val_set_size")) == j->cfg->val_set_size;
}

static void forget_best(struct train_state *s) { s->best_step = s->evals_since_best = 0; }

uint64_t resumed_steps(const struct job *j, const struct train_state *s)
{
	const struct config *c = j->cfg;
	return c->max_steps > 0
		       ? (uint64_t)c->max_steps
		       : s->step + batches_left(j->batches, c->num_epochs, s->epoch, s->batch);
}

void resumed_state(struct job *j, bool unsaved, struct train_state *s)
{
	char path[PATH_MOST], file[PATH_MOST + 32];
	struct err ignored = { 0 };
	job_set_steps(j, resumed_steps(j, s));
	if (!j->cfg->load_best_model_at_end || !s->best_step ||
	    (unsaved && s->best_step == s->step) ||
	    checkpoint_path(j->cfg->output_dir, s->best_step, path, sizeof path, &ignored) < 0)
		return;
	snprintf(file, sizeof file, "%s/trainer_state.json", path);
	if (!access(file, F_OK))
		return;
	log_warn("%s, which had the lowest loss so far, is not there: the best model is looked for "
		 "from here on (load_best_model_at_end)",
		 path);
	forget_best(s);
}

int resumed_read(struct job *j, const char *path, bool allow_changes, struct train_state *s_p,
		 struct err *e)
{
	char file[PATH_MOST];
	json_t *doc = NULL;
	struct train_state s;
	TRY(checkpoint_read(j, path, allow_changes, &s, e));
	snprintf(file, sizeof file, "%.4000s/trainer_state.json", path);
	TRY(json_parse_file(file, 0, &doc, e));
	const json_t *then = json_object_get(doc, "config");
	move(j, rows_then(then), &s);
	if (s.best_step && !same_data(j, doc, then)) {
		log_info("the lowest loss so far, after step %llu, is of other data and does not "
			 "count",
			 (unsigned long long)s.best_step);
		forget_best(&s);
	}
	json_decref(doc);
	resumed_state(j, false, &s);
	*s_p = s;
	return 0;
}
