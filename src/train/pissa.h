/* SPDX-License-Identifier: Apache-2.0 */
/* pissa.h - adapters that begin as the largest singular values of the weights, over a base that
 * lacks them.
 *
 * Meng et al. 2024 (PiSSA, arXiv 2404.02948): W = U S V^T; A = sqrt(S/s) V^T and B = U sqrt(S/s) of
 * the r largest values, and the base becomes W - s B A, in its own dtype. With adapter: qlora that
 * base is what becomes 4 bits. So the base is another model: a folder beside the run's,
 * OUTPUT_DIR-pissa/base, to which the trained adapter belongs, as PEFT has it too. */
#ifndef HS_TRAIN_PISSA_H
#define HS_TRAIN_PISSA_H

#include "base/dtype.h"
#include "config/config.h"

#include <signal.h>

struct arena;
struct err;

/* Where the configuration asks for it: makes base and first adapter, or finds those that an earlier
 * run of the same configuration made, and *c_p becomes the configuration of a run that begins with
 * them. What a run that was killed has left unfinished is made again; where another process makes
 * them, that is an error. It and its texts are in `a`. `stop` MAY be NULL. */
int pissa_begin(const struct config **c_p, enum dtype act, const volatile sig_atomic_t *stop,
		struct arena *a, struct err *e);

#endif
