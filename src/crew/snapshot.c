/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.c - see snapshot.h. */
#include "crew/snapshot.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

enum { ARRAYS = 1 + PARAM_STATES };

void snapshot_init(struct snapshot *s, struct job *j, const char *dir, const struct train_state *st,
		   bool start)
{
	*s = (struct snapshot){
		.job = j, .twice = !dir, .dir = dir, .whole = true, .start = start, .st = *st
	};
}

void snapshot_release(struct snapshot *s)
{
	for (size_t i = 0; s->next && i < s->job->nparam * ARRAYS; i++)
		mem_free(s->next[i]);
	mem_free(s->next);
	state_files_release(&s->files);
	*s = (struct snapshot){ 0 };
}

static uint64_t array_bytes(const struct trained_param *p, int k)
{
	return k ? p->kind[k - 1].count * dtype_size(p->kind[k - 1].dtype)
		 : p->count * sizeof(float);
}

uint64_t snapshot_bytes(const struct job *j)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < j->nparam; i++)
		for (int k = 0; k <= j->param[i].states; k++)
			sum += array_bytes(&j->param[i], k);
	return sum;
}

static int alloc_next(struct snapshot *s, struct err *e)
{
	const struct job *j = s->job;
	if (!s->next)
		s->next = mem_array(j->nparam * ARRAYS + 1, sizeof *s->next);
	if (!s->next)
		return err_nomem(e, j->nparam * ARRAYS * sizeof *s->next, "a snapshot");
	for (size_t i = 0; i < j->nparam; i++)
		for (int k = 0; k <= j->param[i].states; k++) {
			const uint64_t n = array_bytes(&j->param[i], k);
			void **p = &s->next[i * ARRAYS + (size_t)k];
			if (!*p)
				*p = mem_alloc(n ? n : 1);
			if (!*p)
				return err_nomem(e, n, "a snapshot");
		}
	return 0;
}

int snapshot_begin(struct snapshot *s, struct err *e)
{
	if (s->twice)
		return alloc_next(s, e);
	if (!s->over)
		return state_files_begin(&s->files, s->job, s->dir, e);
	s->whole = false;
	return job_alloc_state(s->job, e);
}

int snapshot_put(struct snapshot *s, const struct trained_param *p, int index, uint64_t off,
		 const void *v, uint64_t n, struct err *e)
{
	if (!s->twice && !s->over)
		return state_files_put(&s->files, s->job, p, index, off, v, n, e);
	void *const to = s->twice ? s->next[(size_t)(p - s->job->param) * ARRAYS + (size_t)index]
				  : job_array(p, index);
	memcpy((unsigned char *)to + off, v, n);
	return 0;
}

static void change_places(struct snapshot *s)
{
	if (s->job->mapped[0])
		job_drop_state(s->job);
	for (size_t i = 0; i < s->job->nparam; i++) {
		struct trained_param *p = &s->job->param[i];
		for (int k = 0; k <= p->states; k++) {
			void **next = &s->next[i * ARRAYS + (size_t)k], *was = job_array(p, k);
			if (k)
				p->state[k - 1] = *next;
			else
				p->value = *next;
			*next = was;
		}
	}
}

int snapshot_end(struct snapshot *s, const struct train_state *st, struct err *e)
{
	if (s->twice)
		change_places(s);
	else if (!s->over)
		TRY(state_files_end(&s->files, s->job, e));
	s->whole = true;
	s->start = false;
	s->st = *st;
	return 0;
}
