/* SPDX-License-Identifier: Apache-2.0 */
/* deal_wire.h - the part of PLAN that says which member has which experts. */
#ifndef HS_PROTO_DEAL_WIRE_H
#define HS_PROTO_DEAL_WIRE_H

#include "net/wire.h"
#include "proto/protocol.h"

void deal_put(struct wire_writer *w, const struct expert_deal *d);
/* A copy is the caller's in any case (p->dealt). */
int deal_get(struct wire_reader *r, struct plan_message *p, struct err *e);
/* When the model and the crew are known. */
int deal_check(const struct plan_message *p, struct err *e);

#endif
