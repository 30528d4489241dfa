/* SPDX-License-Identifier: Apache-2.0 */
/* link_probe_wire.c - see link_probe_wire.h. */
#include "proto/link_probe_wire.h"

#include "base/buf.h"
#include "base/err.h"
#include "net/wire.h"

#include <math.h>
#include <string.h>

const uint64_t probe_size[PROBE_SIZES] = { 64 << 10, 1 << 20, 8 << 20 };

/* ---- payloads ---- */

static void put_order(struct wire_writer *w, const struct probe_order *o)
{
	wire_put_u8(w, o->mode);
	wire_put_u32(w, o->member);
	wire_put_u8(w, o->relayed);
	wire_put_str(w, o->id);
	wire_put_str(w, o->key);
	wire_put_f64(w, o->seconds);
	wire_put_u32(w, o->n);
	for (uint32_t i = 0; i < o->n; i++)
		wire_put_str(w, o->address[i]);
}

int probe_order_write(const struct probe_order *o, struct buf *out, struct err *e)
{
	struct wire_writer count = wire_write(NULL, 0);
	put_order(&count, o);
	buf_reset(out);
	buf_reserve(out, count.n);
	TRY(buf_ok(out, e));
	struct wire_writer w = wire_write(out->p, count.n);
	put_order(&w, o);
	return wire_write_end(&w, &out->n, e);
}

int probe_order_read(const struct frame *f, struct probe_order *o, struct err *e)
{
	struct wire_reader r = wire_read(f->payload, f->size);
	memset(o, 0, sizeof *o);
	o->mode = wire_get_u8(&r);
	o->member = wire_get_u32(&r);
	uint8_t relayed = wire_get_u8(&r);
	wire_get_str(&r, o->id, sizeof o->id);
	wire_get_str(&r, o->key, sizeof o->key);
	o->seconds = wire_get_f64(&r);
	o->n = wire_get_count(&r, 4, PROBE_WAYS_MOST);
	for (uint32_t i = 0; i < o->n; i++)
		wire_get_str(&r, o->address[i], sizeof o->address[i]);
	TRY(wire_read_end(&r, "PROBE", e));
	o->relayed = relayed == 1;
	if (relayed > 1 || o->mode > PROBE_STOP || !(o->seconds >= 0.001 && o->seconds <= 60))
		return err_set(e, ERR_PROTOCOL, "PROBE: order %u for %g s", o->mode, o->seconds);
	return 0;
}

static void put_rates(struct wire_writer *w, const struct probe_rate *v)
{
	for (int i = 0; i < PROBE_SIZES; i++) {
		wire_put_u32(w, v[i].rounds);
		wire_put_f64(w, v[i].rate);
		wire_put_f64(w, v[i].spread);
	}
}

static void put_ways(struct wire_writer *w, const struct probe_way *v, uint32_t n)
{
	wire_put_u32(w, n);
	for (uint32_t i = 0; i < n; i++) {
		wire_put_u8(w, v[i].reached);
		wire_put_str(w, v[i].why);
		wire_put_f64(w, v[i].latency);
		put_rates(w, v[i].out);
		put_rates(w, v[i].in);
	}
}

int probe_ways_write(const struct probe_way *v, uint32_t n, struct buf *out, struct err *e)
{
	struct wire_writer count = wire_write(NULL, 0);
	put_ways(&count, v, n);
	buf_reset(out);
	buf_reserve(out, count.n);
	TRY(buf_ok(out, e));
	struct wire_writer w = wire_write(out->p, count.n);
	put_ways(&w, v, n);
	return wire_write_end(&w, &out->n, e);
}

static bool get_rates(struct wire_reader *r, struct probe_rate *v)
{
	bool good = true;
	for (int i = 0; i < PROBE_SIZES; i++) {
		v[i].rounds = wire_get_u32(r);
		v[i].rate = wire_get_f64(r);
		v[i].spread = wire_get_f64(r);
		good &= v[i].rounds ? v[i].rate > 0 && v[i].rate < 1e15 && v[i].spread >= 0 &&
					      v[i].spread < 1e9
				    : v[i].rate == 0;
	}
	return good;
}

int probe_ways_read(const struct frame *f, uint32_t n, struct probe_way *v, struct err *e)
{
	struct wire_reader r = wire_read(f->payload, f->size);
	uint32_t count = wire_get_count(&r, 1, PROBE_WAYS_MOST);
	bool good = count == n;
	for (uint32_t i = 0; good && i < n; i++) {
		v[i] = (struct probe_way){ .reached = wire_get_u8(&r) != 0 };
		wire_get_str(&r, v[i].why, sizeof v[i].why);
		v[i].latency = wire_get_f64(&r);
		good = get_rates(&r, v[i].out) && get_rates(&r, v[i].in) && v[i].latency >= 0 &&
		       v[i].latency < 1e4;
		good &= !v[i].reached ||
			(v[i].latency > 0 && v[i].out[0].rounds && v[i].in[0].rounds);
	}
	if (!good && !r.failed)
		return err_set(e, ERR_PROTOCOL,
			       "PROBED: %u ways where %u were requested, or impossible figures",
			       count, n);
	return wire_read_end(&r, "PROBED", e);
}
