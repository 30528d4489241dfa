/* SPDX-License-Identifier: Apache-2.0 */
/* plan_host.c - bytes of what a plan offloads of a worker's layers to the memory of its host. The
 * worker owns `part` of its group's training state. */
#include "proto/protocol.h"

double plan_host_bytes(const struct plan_message *p, double part)
{
	const struct stage_options *o = &p->opt;
	const double act = (double)dtype_size(o->act);
	int64_t layers = 0;
	for (int k = 0; k < p->crew.chunks; k++) {
		const int v = chunk_number(p->crew.stages, plan_stage(p), k);
		layers += p->first[v + 1] - p->first[v];
	}
	const double numbers = (double)(layers * model_layer_parameters(&p->cfg));
	if (o->train_all) /* master copy, gradient and AdamW's two states, and the value */
		return part * numbers * (16 + (act < 4 ? act : 0));
	if (p->offload & OFFLOAD_EXPERTS)
		return (double)layers *
		       model_expert_bytes(&p->cfg, o->quantize, o->double_quant, o->act);
	return p->offload & OFFLOAD_PARAMETERS ? part * numbers * (o->quantize ? 0.6 : act) : 0;
}
