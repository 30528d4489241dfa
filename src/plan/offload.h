/* SPDX-License-Identifier: Apache-2.0 */
/* offload.h - plans whose devices have parameters, optimizer or activations in the memory of their
 * hosts (enum offload). */
#ifndef HS_PLAN_OFFLOAD_H
#define HS_PLAN_OFFLOAD_H

#include "plan/plan.h"
#include "tensor/state_cut.h"

struct err;

/* Makes it the plan's: where parameters or activations are offloaded, its schedule becomes one that
 * works on one chunk at a time, one stage is cut into its layers, and several into as many chunks
 * as `max_chunks` allows; groups store their values in pieces. A plan that has such chunks keeps
 * them. */
int plan_set_offload(const struct profile *p, struct plan *plan, unsigned offload, int max_chunks,
		     struct err *e);
/* Whether plans with it are cut into chunks; and into how many, with so many layers a stage. */
bool plan_is_layerwise(const struct profile *p, unsigned offload);
int plan_offload_chunks(int stages, const int *layers, int max_chunks);
/* Whether it is the memory of a device of its own that plans are short of. */
bool plan_can_offload(const struct profile *p);
/* What `auto` tries, one after the other, until a plan fits: the k-th; 0 behind the last. */
unsigned plan_offload_at(const struct profile *p, int k);
/* "[activations, parameters]" */
void plan_offload_text(unsigned offload, char *out, size_t n);

#endif
