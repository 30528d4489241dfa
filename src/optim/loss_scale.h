/* SPDX-License-Identifier: Apache-2.0 */
/* loss_scale.h - dynamic loss scaling (Micikevicius et al., "Mixed Precision Training", ICLR 2018),
 * for activations in float16.
 *
 * Gradients of the loss are multiplied by a power of two where they begin, and divided by it in
 * the optimizer, so that small ones do not vanish in float16. A step whose gradient is not finite
 * is not applied and halves the scale; 2000 good ones in a row double it: what
 * torch.amp.GradScaler does. torch scales the mean loss, here it is the sum over the trained
 * tokens: the beginning is torch's 65536 divided by the tokens of the first step. Decided by the
 * coordinator alone; kept in checkpoints. */
#ifndef HS_OPTIM_LOSS_SCALE_H
#define HS_OPTIM_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

struct loss_scale {
	double scale;  /* 0: not in use */
	uint64_t good; /* applied steps since it changed */
};

#define LOSS_SCALE_MOST 0x1p40 /* a message with a larger one is refused */

void loss_scale_begin(struct loss_scale *s, uint64_t tokens);
/* After a step. True when the overflow is the scale's fault: it was above 1, and is halved now. */
bool loss_scale_update(struct loss_scale *s, bool finite);

#endif
