/* SPDX-License-Identifier: Apache-2.0 */
/* cards.h - a library of cards (cards.def), and adding one of them to a profile that does not have
 * it.
 *
 * Where the times of the new device come from, in this order: a device of the same card in the
 * profile (copied); a device whose card is in the library (its measured times, scaled by the ratio
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
struct profile_device;

enum card_native { CARD_NO16, CARD_F16, CARD_BF16 };

/* TFLOP/s; measured 0: the data sheet alone */
struct card_rate {
	double measured, peak;
};

struct card {
	const char *name, *also;
	int family;
	double memory_gib, gbytes_per_s;
	struct card_rate fp32, fp16;
	enum card_native native;
	bool on_host; /* its memory is the host's */
	double watts; /* 0: not known */
};

/* What is counted with in a dtype. */
struct card_speed {
	double tflops, peak, share; /* share = tflops / peak */
	bool measured;
	bool assumed; /* share is ours; else it is that of measured cards of the family */
};

const struct card *card_at(size_t i);
/* By name or another name, in any case, with or without its maker, series and "GB", as people write
 * and drivers report it ("3090", "NVIDIA GeForce RTX 3090"); or words that only one card has. NULL:
 * none or several. */
const struct card *card_find(const char *kind);
/* The same, else ERR_USAGE: which cards it can mean, or the nearest ones. `where` heads the line,
 * and `hint` (MAY be NULL) ends it. */
int card_need(const char *kind, const char *where, const char *hint, const struct card **card_p,
	      struct err *e);
struct card_speed card_speed(const struct card *c, const char *dtype);
/* "measured 73 TFLOP/s", "46 TFLOP/s: 65 % of the data sheet's 71, as measured cards of its kind
 * reach" */
void card_speed_text(const struct card_speed *s, struct buf *b);

/* Forward and backward times of a device by a rate alone, where the profile's model is set: a
 * layer, embedding, head and optimizer. A pass takes at least the time of reading its weights;
 * gbytes_per_s 0: not known, and neither that nor the optimizer is counted. */
int card_times(struct profile *p, struct profile_device *d, double tflops, double gbytes_per_s,
	       struct err *e);

/* Adds the device that `text` describes:
 * "kind=p40,host=box2,bandwidth=0.117[,latency=0.3][,memory=24][,id=new][,count=2]", or shorter
 * "p40", which is on a host of its own at a gigabit. bandwidth (GB/s) and
 * latency (ms) are those of the new host's link to every other host; a host of the profile keeps
 * its own. Lines about where its times come from are added to `notes` (MAY be NULL). ERR_USAGE for
 * anything wrong. */
int profile_add_card(struct profile *p, const char *text, struct buf *notes, struct err *e);

#endif
