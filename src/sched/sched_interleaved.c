/* SPDX-License-Identifier: Apache-2.0 */
/* sched_interleaved.c - several chunks per worker (Narayanan et al., "Efficient Large-Scale
 * Language Model Training on GPU Clusters Using Megatron-LM", SC 2021, section 2.2.2): the bubble
 * shrinks by the number of chunks, at the price of as many times the messages.
 *
 * Microbatches go round in groups: a group's forwards of chunk 0, then of chunk 1, ...; its
 * backwards from the last chunk to the first. Stage s runs `ahead` = 2 (stages - 1 - s) + (chunks -
 * 1) * (size of a group) forwards ahead, then alternates. Megatron-LM uses groups of `stages`
 * microbatches and refuses other counts, because a remainder smaller than `stages` would leave two
 * stages waiting for each other. Here the microbatches are divided into m / stages groups as evenly
 * as possible (each then has at least `stages`), and `ahead` is that of the largest group. With
 * fewer microbatches than stages there is one group and all forwards come first: what is then in
 * flight is still less than what stage 0 holds with full groups. One chunk is 1f1b. */
#include "sched/sched.h"

/* Sizes of the groups: the first `m % groups` ones have one more. */
struct groups {
	int count, size, larger;
};

static struct groups groups_of(int stages, int m)
{
	int n = m / stages > 0 ? m / stages : 1;
	return (struct groups){ n, m / n, m % n };
}

static int ahead_of(int stages, int chunks, int m, int stage)
{
	struct groups g = groups_of(stages, m);
	long long all = (long long)chunks * m, n;

	if (m < stages)
		return (int)all;
	n = 2ll * (stages - 1 - stage) + (long long)(chunks - 1) * (g.size + (g.larger > 0));
	return (int)(n < all ? n : all);
}

/* Walks through (group, chunk, microbatch of the group); backwards take the chunks from the last to
 * the first. */
struct walk {
	struct groups g;
	int chunks, group, chunk, i, first;
};

static struct instr walk_next(struct walk *w, enum instr_kind kind)
{
	int size = w->g.size + (w->group < w->g.larger);
	int chunk = kind == INSTR_FORWARD ? w->chunk : w->chunks - 1 - w->chunk;
	struct instr in = instr_compute(kind, w->first + w->i, chunk);

	if (++w->i == size) {
		w->i = 0;
		if (++w->chunk == w->chunks) {
			w->chunk = 0;
			w->group++;
			w->first += size;
		}
	}
	return in;
}

static void order(int stages, int chunks, int microbatches, int stage, struct instr *out)
{
	struct walk f = { groups_of(stages, microbatches), chunks, 0, 0, 0, 0 }, b = f;
	int all = chunks * microbatches, ahead = ahead_of(stages, chunks, microbatches, stage),
	    done = 0;

	if (chunks == 1) {
		sched_1f1b.order(stages, chunks, microbatches, stage, out);
		return;
	}
	for (; done < ahead; done++)
		*out++ = walk_next(&f, INSTR_FORWARD);
	for (int i = 0; i < all; i++) {
		if (done < all) {
			*out++ = walk_next(&f, INSTR_FORWARD);
			done++;
		}
		*out++ = walk_next(&b, INSTR_BACKWARD);
	}
}

static int in_flight(int stages, int chunks, int microbatches, int stage)
{
	int all = chunks * microbatches, ahead = ahead_of(stages, chunks, microbatches, stage);

	if (chunks == 1)
		return sched_1f1b.in_flight(stages, chunks, microbatches, stage);
	return ahead < all ? ahead + 1 : all;
}

const struct sched sched_interleaved = {
	.name = "interleaved",
	.help = "several chunks per worker (Megatron-LM): smaller bubble, more messages",
	.chunked = true,
	.order = order,
	.in_flight = in_flight,
};
