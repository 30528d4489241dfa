/* SPDX-License-Identifier: Apache-2.0 */
/* work_wire.c - see work_wire.h. */
#include "proto/work_wire.h"

#include "base/err.h"
#include "proto/pairs_wire.h"

/* PLAN and PROFILE have fields for each module. */
_Static_assert(LIN_COUNT == 53, "other modules are another protocol: raise HELLO_PROTOCOL, run "
				"tests/fuzz/make_seeds.py, and write the new number here");

void work_put(struct wire_writer *w, const struct stage_options *o, const char *optimizer,
	      const struct optim_config *c)
{
	wire_put_u8(w, (uint8_t)o->act);
	wire_put_u8(w, o->quantize);
	wire_put_u8(w, o->double_quant);
	wire_put_u8(w, o->train_all);
	wire_put_u8(w, o->recompute);
	wire_put_u64(w, o->seed);
	wire_put_u8(w, o->by_row);
	wire_put_u32(w, (uint32_t)o->lora.r);
	wire_put_f64(w, (double)o->lora.scale);
	wire_put_f64(w, (double)o->lora.dropout);
	wire_put_f64(w, (double)o->lora.b_rate);
	wire_put_f64(w, (double)o->neftune);
	wire_put_f64(w, (double)o->router_loss);
	wire_put_f64(w, (double)o->router_z);
	wire_put_u64(w, o->lora.seed);
	for (int i = 0; i < LIN_COUNT; i++)
		wire_put_u8(w, o->lora.target[i]);
	for (int i = 0; i < LIN_COUNT; i++) {
		wire_put_u32(w, (uint32_t)o->lora.rank[i]);
		wire_put_f64(w, (double)o->lora.factor[i]);
	}
	for (size_t i = 0; i < sizeof o->lora.skip; i++)
		wire_put_u8(w, o->lora.skip[i]);
	wire_put_u8(w, o->lora.dora);
	wire_put_u8(w, o->lora.save_embed);
	wire_put_u8(w, o->lora.save_head);
	prefer_put(w, &o->prefer);
	wire_put_str(w, optimizer);
	wire_put_f64(w, c->beta1);
	wire_put_f64(w, c->beta2);
	wire_put_f64(w, c->epsilon);
	wire_put_f64(w, c->momentum);
	wire_put_f64(w, c->weight_decay);
}

void work_get(struct wire_reader *r, struct stage_options *o, char optimizer[OPTIM_NAME],
	      struct optim_config *c)
{
	o->act = wire_get_u8(r);
	o->quantize = wire_get_u8(r);
	o->double_quant = wire_get_u8(r);
	o->train_all = wire_get_u8(r);
	o->recompute = wire_get_u8(r);
	o->seed = wire_get_u64(r);
	o->by_row = wire_get_u8(r);
	o->lora.r = wire_get_u32(r);
	o->lora.scale = (float)wire_get_f64(r);
	o->lora.dropout = (float)wire_get_f64(r);
	o->lora.b_rate = (float)wire_get_f64(r);
	o->neftune = (float)wire_get_f64(r);
	o->router_loss = (float)wire_get_f64(r);
	o->router_z = (float)wire_get_f64(r);
	o->lora.seed = wire_get_u64(r);
	for (int i = 0; i < LIN_COUNT; i++)
		o->lora.target[i] = wire_get_u8(r);
	for (int i = 0; i < LIN_COUNT; i++) {
		o->lora.rank[i] = wire_get_u32(r);
		o->lora.factor[i] = (float)wire_get_f64(r);
	}
	for (size_t i = 0; i < sizeof o->lora.skip; i++)
		o->lora.skip[i] = wire_get_u8(r);
	o->lora.dora = wire_get_u8(r);
	o->lora.save_embed = wire_get_u8(r);
	o->lora.save_head = wire_get_u8(r);
	prefer_get(r, &o->prefer);
	wire_get_str(r, optimizer, OPTIM_NAME);
	c->beta1 = wire_get_f64(r);
	c->beta2 = wire_get_f64(r);
	c->epsilon = wire_get_f64(r);
	c->momentum = wire_get_f64(r);
	c->weight_decay = wire_get_f64(r);
}

int work_check(const char *what, enum dtype wire, const struct stage_options *o,
	       const char *optimizer, struct err *e)
{
	if (wire > DT_F16 || o->act > DT_F16)
		return err_set(e, ERR_PROTOCOL,
			       "%s: dtype %d on the wire, %d for activations: not a float format",
			       what, wire, o->act);
	bool good = o->lora.r >= 0 && o->lora.r <= 65536 && o->router_loss >= 0 && o->router_z >= 0;
	for (int i = 0; i < LIN_COUNT; i++)
		good &= o->lora.rank[i] >= 0 && o->lora.rank[i] <= 65536;
	if (!good || !(o->lora.dropout >= 0 && o->lora.dropout < 1) ||
	    !(o->lora.b_rate >= 0 && o->lora.b_rate <= 1e6f) ||
	    !(o->neftune >= 0 && o->neftune <= 1e6f))
		return err_set(e, ERR_PROTOCOL, "%s: rank, dropout, rate, noise or loss", what);
	TRY(prefer_check(what, &o->prefer, e));
	if (optimizer[0] && !optimizer_find(optimizer))
		return err_set(e, ERR_PROTOCOL, "%s: there is no optimizer '%s'", what, optimizer);
	return 0;
}
