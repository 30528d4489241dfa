/* SPDX-License-Identifier: Apache-2.0 */
/* placement.c - writes a placement as plan.json into a run's folder (the format of plan/plan.h,
 * without predictions). */
#include "job/placement.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "file/atomic.h"
#include "job/job.h"
#include "sched/sched.h"

#include <stdio.h>
#include <string.h>

int chunk_number(int stages, int stage, int chunk) { return chunk * stages + stage; }

int placement_row(const struct placement *p, int stage)
{
	int row = 0;
	for (int s = 0; s < stage; s++)
		row += p->members ? p->members[s] : 1;
	return row;
}

int placement_rows(const struct placement *p) { return placement_row(p, p->stages); }

int placement_stage_of(const struct placement *p, int row)
{
	int s = 0;
	while (s + 1 < p->stages && placement_row(p, s + 1) <= row)
		s++;
	return s;
}

bool placement_has_only_experts(const struct placement *p, int row)
{
	const int s = placement_stage_of(p, row);
	return p->homes && row - placement_row(p, s) >= p->homes[s];
}

int chunk_stage_of_layer(int stages, int chunks, const int64_t *first, int64_t layer)
{
	int v = 0;
	while (v + 1 < stages * chunks && layer >= first[v + 1])
		v++;
	return v % stages;
}

int chunk_stage_of_param(int stages, int chunks, const int64_t *first, const char *name)
{
	int64_t layers = first[stages * chunks];
	long long layer;
	if (sscanf(name, "model.layers.%lld.", &layer) != 1 && sscanf(name, "%lld.", &layer) != 1)
		layer = !strncmp(name, "model.embed_tokens.", 19) || !strncmp(name, "embed.", 6)
				? -1
				: layers;
	else if (layer < 0 || layer >= layers)
		return -1;
	return chunk_stage_of_layer(stages, chunks, first, layer);
}

void placement_single(const struct model_config *c, const char **device, struct placement *p)
{
	*p = (struct placement){
		.stages = 1, .chunks = 1, .device = device, .schedule = sched_default()->name
	};
	p->first[1] = c->layers;
}

/* The devices of a stage; of a group, with the microbatches of each. */
static void put_devices(struct buf *b, const struct placement *p, int stage, int microbatches)
{
	const int row = placement_row(p, stage), n = placement_row(p, stage + 1) - row;
	int count[SCHED_MAX_GROUP];
	if (n > 1)
		sched_dealt(p->share ? p->share + row : NULL, n, microbatches, count);
	for (int k = 0; k < n; k++) {
		buf_adds(b, k ? ", {\"id\": " : "{\"id\": ");
		const char *id = p->id ? p->id[row + k] : p->device[row + k];
		json_quote(b, id, strlen(id));
		if (n > 1)
			buf_addf(b, ", \"microbatches\": %d", count[k]);
		if (n > 1 && p->state_share)
			buf_addf(b, ", \"state_share\": %.6f",
				 (double)p->state_share[row + k] / STATE_WHOLE);
		buf_adds(b, "}");
	}
}

/* The rows of each pass, where they differ from micro_batch_size. */
static void put_passes(struct buf *b, const struct job *j)
{
	for (size_t i = 0; i < j->npass; i++)
		buf_addf(b, "%s%d%s", i ? ", " : " \"passes\": [", j->pass[i],
			 i + 1 == j->npass ? "],\n" : "");
}

int placement_write(const struct job *j, const struct placement *p, const char *dir, struct err *e)
{
	const struct config *c = j->cfg;
	struct buf b = BUF_INIT;
	buf_adds(&b, "{\n \"version\": 1,\n \"planner\": \"manual\",\n \"model\": ");
	json_quote(&b, c->base_model, strlen(c->base_model));
	buf_addf(&b,
		 ",\n \"layers\": %lld,\n \"sequence_len\": %lld,\n \"global_batch\": %lld,\n "
		 "\"dtype\": \"%s\",\n \"schedule\": "
		 "\"%s\",\n"
		 " \"chunks\": %d,\n \"microbatch\": %lld,\n \"microbatches\": %d,\n",
		 (long long)j->model.layers, (long long)c->sequence_len,
		 (long long)(c->micro_batch_size * c->gradient_accumulation_steps),
		 dtype_name(j->opt.act), p->schedule, p->chunks, (long long)c->micro_batch_size,
		 job_passes(j));
	put_passes(&b, j);
	buf_adds(&b, " \"stages\": [");
	for (int v = 0; v < p->stages * p->chunks; v++) {
		buf_addf(&b, "%s\n  {\"layers\": [%lld, %lld], \"recompute\": %s, \"devices\": [",
			 v ? "," : "", (long long)p->first[v], (long long)p->first[v + 1],
			 j->opt.recompute || (p->recompute && p->recompute[v % p->stages])
				 ? "true"
				 : "false");
		put_devices(&b, p, v % p->stages, job_passes(j));
		buf_adds(&b, "]}");
	}
	buf_adds(&b, "\n ]\n}\n");
	int rc = buf_ok(&b, e);
	if (rc >= 0)
		rc = atomic_write_in(dir, "plan.json", b.p, b.n, e);
	buf_release(&b);
	return rc;
}
