/* SPDX-License-Identifier: Apache-2.0 */
/* work_wire.h - what is computed of a layer: the part of PLAN and PROFILE that describes it. */
#ifndef HS_PROTO_WORK_WIRE_H
#define HS_PROTO_WORK_WIRE_H

#include "model/stage.h"
#include "net/wire.h"
#include "optim/optim.h"

struct err;

void work_put(struct wire_writer *w, const struct stage_options *o, const char *optimizer,
	      const struct optim_config *c);
void work_get(struct wire_reader *r, struct stage_options *o, char optimizer[OPTIM_NAME],
	      struct optim_config *c);
int work_check(const char *what, enum dtype wire, const struct stage_options *o,
	       const char *optimizer, struct err *e);

#endif
