/* SPDX-License-Identifier: Apache-2.0 */
/* cards.h - adding a card that the profile does not have, from a library of measured
 * cards (cards.def).
 *
 * Where the times of the new device come from, in this order: a device of the same kind in the
 * profile (copied); a device whose kind is in the library (its measured times, scaled by the ratio
 * of the two cards' rates, so that the efficiency of this program is in the figure); the library's
 * rate alone: forward = (2 parameters T + 2 T^2 C) / rate a sequence and layer, backward twice
 * that, or once where little is trained (LoRA: no weight gradients). One rate per card and dtype: a
 * card can be fast in fp32 and slow in fp16 (P40). bfloat16 counts as fp16: a
 * card without bfloat16 makes the job compute in float16. */
#ifndef HS_PLAN_CARDS_H
#define HS_PLAN_CARDS_H

#include <stdbool.h>
#include <stddef.h>

struct err;
struct buf;
struct profile;

struct card {
	const char *name;
	double memory_gib, fp32, fp16; /* GiB, TFLOP/s; 0: not measured */
	bool bf16;
};

const struct card *card_at(size_t i);
/* By name, ignoring case; also by a prefix that only one card has ("v100"). NULL: none. */
const struct card *card_find(const char *kind);

/* Adds the device that `text` describes:
 * "kind=p40,host=box2,bandwidth=0.117[,latency=0.3][,memory=24][,id=new]". bandwidth (GB/s) and
 * latency (ms) are those of the new host's link to every other host; a host of the profile keeps
 * its own. Lines about where its times come from are added to `notes` (MAY be NULL). ERR_USAGE for
 * anything wrong. */
int profile_add_card(struct profile *p, const char *text, struct buf *notes, struct err *e);

#endif
