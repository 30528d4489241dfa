/* SPDX-License-Identifier: Apache-2.0 */
/* playing.c - see playing.h. */
#include "support/playing.h"

#include "base/err.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct player *playing;
double playing_ones[64], playing_twos[64];

static double worst;

double playing_worst(void) { return worst; }

void playing_close(double got, double want)
{
	double d = fabs(got - want);
	if (!(d <= worst))
		worst = d;
	if (!(d <= 1e-9 * (1 + fabs(want))))
		fail_msg("got %.12g, expected %.12g", got, want);
}

struct play playing_unit(int stages, int chunks, int microbatches)
{
	return (struct play){ .stages = stages,
			      .chunks = chunks,
			      .microbatches = microbatches,
			      .forward_s = playing_ones,
			      .backward_s = playing_twos };
}

struct play_result playing_run(const struct sched *s, const struct play *p)
{
	struct err e = { 0 };
	struct play_result r;
	if (sched_play(playing, s, p, false, &r, &e) < 0)
		fail_msg("%s, %d stages, %d chunks, %d microbatches: %s", s->name, p->stages,
			 p->chunks, p->microbatches, e.msg);
	return r;
}

int playing_begin(void **state)
{
	(void)state;
	for (int i = 0; i < 64; i++) {
		playing_ones[i] = 1;
		playing_twos[i] = 2;
	}
	playing = player_new();
	return playing ? 0 : -1;
}

int playing_end(void **state)
{
	(void)state;
	player_free(playing);
	return 0;
}
