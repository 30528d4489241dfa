/* SPDX-License-Identifier: Apache-2.0 */
/* cost_parts.h - what the files of the cost model share; other code includes cost.h. */
#ifndef HS_PLAN_COST_PARTS_H
#define HS_PLAN_COST_PARTS_H

#include "plan/cost.h"
#include "plan/sum_time.h"
#include "tensor/state_cut.h"

/* How many members of a stage are played, each with its own list; 1: the stage is one member of the
 * play. And the number of those before a stage. */
int cost_members(const struct pipe *q, int stage);
bool cost_is_played(const struct pipe *q, int stage);
int cost_first_played(const struct pipe *q, int stage);

/* A row for another microbatch size than the candidate's (Cephalo lets every device have its
 * own). */
const struct cost_row *cost_row_of(const struct cost *c, const struct cost_row *r, int m);
/* Layers of all chunks of a stage; *largest_p: of its largest chunk. */
int cost_layers(const struct pipe *q, int stage, int *largest_p);
/* Of the embedding, in float32. */
double cost_table_bytes(const struct profile *p);
/* Whether the members of a group store parts of the training state, or of the values too. */
bool cost_shares_state(const struct plan_stage *g);
/* Whether everything is trained, and not adapters. */
bool cost_trains_all(const struct profile *p);
/* The values of chunk v of the model that a sharded group gathers. */
double cost_gathered_gib(const struct profile *p, const struct pipe *q, int v);
/* Whether a device has this in the memory of its host (enum offload). */
bool cost_offloads(const struct cost *c, int device, unsigned what);
/* What n layers have less on a device whose experts are offloaded: all but the slots. */
double cost_offloaded_experts(const struct cost *c, int device, int n);
/* Seconds to copy a byte, as a large message has it. */
double cost_copy_s(const struct cost *c, const struct curve *k);
/* Seconds that a pass of a chunk of n layers waits for experts from the memory of its host: those
 * that its tokens choose, but for the share that is in slots, as far as they take longer than the
 * products that they come beside. As if all experts were chosen equally often. */
double cost_fetch(const struct cost *c, const struct cost_row *r, const struct pipe *q, int device,
		  int n, bool back);
/* Of all that is trained in a stage: gradients, optimizer states, float32 copies. */
double cost_state_gib(const struct cost *c, const struct pipe *q, int stage);
/* What member i of a stage's group loses of its computing to its own messages, where it is a
 * processor: they are sent, checked and copied by the same cores. Of the chunk whose gradients `g`
 * has and whose values are so many bytes; `last`: it is gathered once, not twice. Of other devices
 * nothing: the host does it. */
struct cost_talk cost_talk(const struct sum_group *g, const struct plan_stage *s, int i, bool last,
			   double values);
enum sum_order cost_order(const struct cost *c);
/* float32 gradients of what is trained in n layers, in the model's front and in its end: a head
 * that is the embedding has gradients of its own, and nothing else. */
double cost_trained_gib(const struct profile *p, int n, bool front, bool end);
/* The same of n layers of a stage. */
double cost_gradient_gib(const struct cost *c, const struct pipe *q, int stage, int n);

#endif
