/* SPDX-License-Identifier: Apache-2.0 */
/* beat.c - see beat.h. */
#include "proto/beat.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/os_calls.h"

#include <time.h>

static void say(struct beat *b)
{
	unsigned char out[64];
	size_t n;
	struct err ignored = { 0 };
	const struct progress m = { .state = atomic_load(&b->state),
				    .instruction = atomic_load(&b->instruction),
				    .step = atomic_load(&b->step),
				    .bytes = atomic_load(&b->bytes) };
	if (progress_write(&m, out, sizeof out, &n, &ignored) < 0)
		return;
	const struct frame f = { .kind = FRAME_PROGRESS,
				 .job = b->job,
				 .epoch = b->epoch,
				 .step = m.step,
				 .from = b->member,
				 .to = FRAME_COORDINATOR,
				 .size = n,
				 .payload = out };
	/* A full or lost link is noticed elsewhere. */
	link_send_frame(b->link, &f, NET_NOW, &ignored);
}

static void *run(void *ctx)
{
	struct beat *b = ctx;
	pthread_mutex_lock(&b->lock);
	while (!b->stop) {
		if (os_cond_wait(&b->wake, &b->lock, clock_now() + (int64_t)(b->every * 1e9)))
			continue;
		pthread_mutex_unlock(&b->lock);
		say(b);
		pthread_mutex_lock(&b->lock);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

int beat_start(struct beat *b, struct err *e)
{
	if (!(b->every > 0))
		return 0;
	pthread_mutex_init(&b->lock, NULL);
	os_cond_init(&b->wake);
	int rc = pthread_create(&b->thread, NULL, run, b);
	if (rc) {
		pthread_cond_destroy(&b->wake);
		pthread_mutex_destroy(&b->lock);
		return err_sys(e, rc, "starting a worker's thread");
	}
	b->running = true;
	return 0;
}

void beat_stop(struct beat *b)
{
	if (!b->running)
		return;
	pthread_mutex_lock(&b->lock);
	b->stop = true;
	pthread_cond_signal(&b->wake);
	pthread_mutex_unlock(&b->lock);
	pthread_join(b->thread, NULL);
	pthread_cond_destroy(&b->wake);
	pthread_mutex_destroy(&b->lock);
	b->running = false;
}

void beat_round(struct beat *b, uint64_t step)
{
	atomic_store(&b->step, step);
	atomic_store(&b->instruction, 0);
	atomic_store(&b->state, PROGRESS_WORKING);
}

void beat_instruction(struct beat *b, uint32_t at)
{
	atomic_store(&b->instruction, at);
	atomic_store(&b->state, PROGRESS_WORKING);
}

void beat_state(struct beat *b, enum progress_state s) { atomic_store(&b->state, s); }

void beat_bytes(struct beat *b, uint64_t bytes) { atomic_fetch_add(&b->bytes, bytes); }
