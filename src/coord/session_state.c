/* SPDX-License-Identifier: Apache-2.0 */
/* session_state.c - parameters and optimizer states between the coordinator and the workers that
 * hold them, in parts and by name. */
#include "coord/session_priv.h"

#include "base/err.h"
#include "base/mem.h"
#include "crew/snapshot.h"

#include <stdio.h>
#include <string.h>

enum { STATE_PART = 4 << 20 /* numbers */ };

static int stage_of_param(const struct session *s, const char *name)
{
	return chunk_stage_of_param(s->place->stages, s->place->chunks, s->place->first, name);
}

/* Of an expert that is dealt who has it, else the first of the group; where the group shares the
 * state, each of it. */
static bool sends_param(const struct session *s, int worker, const char *name)
{
	const int at = deal_place_of(&s->place->deal, name), place = at == DEAL_HOME ? 0 : at;
	return crew_stage_of(&s->crew, worker) == stage_of_param(s, name) &&
	       (crew_place_of(&s->crew, worker) == place || s->place->state_share);
}

/* Of [first, end), what has not come yet. */
static int take_rest(struct session *s, int worker, struct trained_param *p, int index,
		     const struct state_message *m, size_t size, uint64_t end,
		     struct snapshot *into, struct err *e)
{
	struct ranges *got = &p->got[index];
	for (uint64_t at = m->first; at < end;) {
		uint64_t to;
		if (ranges_next(got, at, end, &to)) {
			at = to;
			continue;
		}
		if (ranges_add(got, at, to, e) < 0)
			return err_prefix(e, "%s: STATE: '%s' of '%s'", session_name(s, worker),
					  m->what, m->name);
		TRY(snapshot_put(into, p, index, at * size,
				 (const unsigned char *)m->data + (at - m->first) * size,
				 (to - at) * size, e));
		at = to;
	}
	return 0;
}

/* Only the first of the group that holds a parameter sends it, or where the group shares the state,
 * each of it; each number once. */
int session_take_state(struct session *s, int worker, const struct frame *f, struct snapshot *into,
		       uint64_t *kept, struct err *e)
{
	struct state_message m;
	TRY(state_read(f->payload, f->size, &m, e));
	struct trained_param *p = job_param(s->job, m.name);
	struct optim_state kind = { 0 };
	int index = 0;
	const bool known = p && job_kept(p, m.what, &kind, &index);
	const size_t size = known ? dtype_size(kind.dtype) : 1;
	uint64_t end;
	if (!known || !m.bytes || m.bytes % size || !add_ok(m.first, m.bytes / size, &end) ||
	    end > kind.count)
		return err_set(e, ERR_PROTOCOL, "%s: STATE: '%s' of '%s' is not part of this job",
			       session_name(s, worker), m.what, m.name);
	if (kept && m.bytes > *kept)
		return err_set(e, ERR_PROTOCOL, "%s: STATE of more than there is",
			       session_name(s, worker));
	if (kept)
		*kept -= m.bytes;
	if (kept)
		return take_rest(s, worker, p, index, &m, size, end, into, e);
	if (!sends_param(s, worker, m.name))
		return err_set(e, ERR_PROTOCOL,
			       "%s: STATE: '%s' is sent by the first worker of stage %d",
			       session_name(s, worker), m.name, stage_of_param(s, m.name));
	if (ranges_add(&p->got[index], m.first, end, e) < 0)
		return err_prefix(e, "%s: STATE: '%s' of '%s'", session_name(s, worker), m.what,
				  m.name);
	if (into)
		return snapshot_put(into, p, index, m.first * size, m.data, m.bytes, e);
	memcpy((unsigned char *)job_array(p, index) + m.first * size, m.data, m.bytes);
	return 0;
}

/* What the disk refuses is noted: the workers send to the end all the same. */
static int take_or_note(struct session *s, const struct session_event *ev, struct snapshot *into,
			struct err *refused, struct err *e)
{
	const int rc = session_take_state(s, ev->member, &ev->f, into, NULL, e);
	if (rc != ERR_IO)
		return rc;
	*refused = *e;
	err_clear(e);
	return 0;
}

void session_state_reset(struct session *s)
{
	struct job *j = s->job;
	for (int i = 0; i < s->n; i++)
		s->seat[i].saved = false;
	for (size_t i = 0; i < j->nparam; i++)
		for (int k = 0; k <= j->param[i].states; k++)
			ranges_reset(&j->param[i].got[k]);
}

int session_state_whole(const struct session *s, struct err *e)
{
	const struct job *j = s->job;
	for (size_t i = 0; i < j->nparam; i++)
		for (int k = 0; k <= j->param[i].states; k++) {
			const struct trained_param *p = &j->param[i];
			uint64_t due = k ? p->kind[k - 1].count : p->count;
			const uint64_t came = ranges_sum(&p->got[k]);
			if (came != due)
				return err_set(e, ERR_PROTOCOL,
					       "no worker sent all of '%s': %llu of %llu numbers",
					       p->name, (unsigned long long)came,
					       (unsigned long long)due);
		}
	return 0;
}

/* Each member of the plan says so once. */
static int take_saved(struct session *s, int worker, int *left, struct err *e)
{
	if (s->seat[worker].saved || crew_stage_of(&s->crew, worker) < 0)
		return err_set(e, ERR_PROTOCOL, "%s sent SAVED %s", session_name(s, worker),
			       s->seat[worker].saved ? "twice" : "and has no part in the job");
	s->seat[worker].saved = true;
	--*left;
	return 0;
}

int session_pull_state(struct session *s, uint64_t step, struct snapshot *into, struct err *e)
{
	struct job *j = s->job;
	TRY(into ? snapshot_begin(into, e) : job_alloc_state(j, e));
	session_state_reset(s);
	TRY(session_send_all(s, FRAME_SAVE, step, NULL, 0, e));
	int left = 0;
	struct err full = { 0 };
	for (int i = 0; i < s->n; i++)
		left += crew_stage_of(&s->crew, i) >= 0;
	while (left) {
		struct session_event ev;
		int rc = 0;
		TRY(session_hear(s, &ev, e));
		if (ev.f.kind == FRAME_STATE)
			rc = take_or_note(s, &ev, into, &full, e);
		else if (ev.f.kind == FRAME_SAVED)
			rc = take_saved(s, ev.member, &left, e);
		else
			rc = err_set(e, ERR_PROTOCOL, "%s sent %s while saving",
				     session_name(s, ev.member), frame_name(ev.f.kind));
		net_msg_release(&ev.msg);
		if (rc < 0)
			return rc;
	}
	if (full.code) {
		*e = full;
		return full.code;
	}
	return session_state_whole(s, e);
}

/* To the members of a stage that have the parameter: `at` of the deal. */
static int send_to_group(struct session *s, int stage, int at, uint64_t step, size_t n,
			 struct err *e)
{
	for (int k = 0, m; (m = crew_at(&s->crew, stage, k)) >= 0; k++)
		if (at == DEAL_HOME ? !s->crew.member[m].only_experts : k == at)
			TRY(session_send(s, m, FRAME_STATE, step, 0, s->out.p, n, e));
	return 0;
}

/* The value of a tied embedding goes to the end of the model too, which has a replica. */
static int send_to_holders(struct session *s, const char *name, const char *what, uint64_t step,
			   size_t n, struct err *e)
{
	const struct crew *c = &s->crew;
	int stage = stage_of_param(s, name);
	TRY(send_to_group(s, stage, deal_place_of(&s->place->deal, name), step, n, e));
	bool replica = c->tied && c->stages > 1 && !strcmp(what, "value") &&
		       !strncmp(name, "model.embed_tokens.", 19);
	return replica ? send_to_group(s, c->stages - 1, DEAL_HOME, step, n, e) : 0;
}

static int send_one(struct session *s, struct trained_param *p, const char *what, uint64_t step,
		    struct err *e)
{
	struct optim_state kind;
	int index;
	job_kept(p, what, &kind, &index);
	const unsigned char *v = job_array(p, index);
	const size_t size = dtype_size(kind.dtype);
	for (uint64_t at = 0; at < kind.count; at += STATE_PART) {
		uint64_t some = kind.count - at < STATE_PART ? kind.count - at : STATE_PART;
		struct state_message m = { .first = at,
					   .bytes = some * size,
					   .data = v + at * size };
		size_t n, cap = m.bytes + 512;
		snprintf(m.name, sizeof m.name, "%s", p->name);
		snprintf(m.what, sizeof m.what, "%s", what);
		buf_reset(&s->out);
		buf_reserve(&s->out, cap);
		TRY(buf_ok(&s->out, e));
		TRY(state_write(&m, s->out.p, cap, &n, e));
		TRY(send_to_holders(s, p->name, what, step, n, e));
		job_drop_pages(s->job, m.data, m.bytes);
	}
	return 0;
}

int session_push_state(struct session *s, uint64_t step, struct err *e)
{
	struct job *j = s->job;
	for (size_t i = 0; i < j->nparam; i++) {
		TRY(send_one(s, &j->param[i], "value", step, e));
		for (int k = 0; k < j->param[i].states; k++)
			TRY(send_one(s, &j->param[i], j->param[i].kind[k].name, step, e));
	}
	return 0;
}

int session_send_record(struct session *s, const void *record, size_t n, struct err *e)
{
	return session_send_all(s, FRAME_RECORD, 0, record, n, e);
}

uint64_t session_epoch(const struct session *s) { return s->epoch; }
