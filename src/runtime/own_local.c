/* SPDX-License-Identifier: Apache-2.0 */
/* own_local.c - see own_local.h. */
#include "runtime/own_local.h"

#include "base/err.h"
#include "model/model_block.h"
#include "runtime/runtime.h"

int own_local_open(struct own_local *l, const struct model_config *c,
		   const struct weight_source *src, const char *device, struct err *e)
{
	const struct stage_options o = {
		.first = 0, .last = c->layers, .act = DT_F32, .by_row = true
	};
	*l = (struct own_local){ 0 };
	TRY(runtime_device(device, &l->dev, e));
	int rc = stage_build(&l->stage, l->dev, c, &o, src, e);
	if (rc >= 0) {
		slot_init(&l->slot, &l->stage);
		l->has_slot = true;
	}
	if (rc < 0)
		own_local_close(l);
	return rc;
}

void own_local_close(struct own_local *l)
{
	if (l->has_slot) {
		slot_release(&l->slot);
		stage_release(&l->stage);
	}
	if (l->dev)
		dev_close(l->dev);
	*l = (struct own_local){ 0 };
}

int own_local_run(struct own_local *l, const struct microbatch *mb, float *y, struct err *e)
{
	const struct stage_batch b = runtime_batch(mb, 0);
	TRY(stage_begin(&l->slot, &b, e));
	TRY(stage_forward(&l->slot, e));
	const size_t bytes = stage_bytes(&l->stage, b.n, l->stage.cfg.layers);
	return y ? dev_download(y, l->slot.out, bytes, e) : 0;
}
