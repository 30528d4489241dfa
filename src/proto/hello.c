/* SPDX-License-Identifier: Apache-2.0 */
/* hello.c - see hello.h. */
#include "proto/hello.h"

#include "base/err.h"
#include "net/address.h"
#include "net/wire.h"

#include <stdio.h>

enum { ROOM = 8192 };

static int send_fields(struct link *l, enum frame_kind kind, const struct wire_writer *w,
		       int64_t deadline, struct err *e)
{
	size_t n;
	TRY(wire_write_end(w, &n, e));
	return link_send_frame(l, &(struct frame){ .kind = kind, .size = n, .payload = w->p },
			       deadline, e);
}

int hello_send(struct link *l, const struct hello *h, int64_t deadline, struct err *e)
{
	unsigned char out[ROOM];
	struct wire_writer w = wire_write(out, sizeof out);
	wire_put_u32(&w, h->protocol);
	wire_put_u8(&w, h->role);
	wire_put_u32(&w, h->member);
	wire_put_u32(&w, h->front);
	wire_put_u64(&w, h->job);
	wire_put_u64(&w, h->epoch);
	wire_put_u64(&w, h->run);
	wire_put_str(&w, h->model);
	wire_put_str(&w, h->to);
	wire_put_str(&w, h->host);
	return send_fields(l, FRAME_HELLO, &w, deadline, e);
}

/* The protocol number comes first, so that programs of different versions can name
 * the difference. */
int hello_read(const struct frame *f, struct hello *h, struct err *e)
{
	if (f->kind != FRAME_HELLO)
		return err_set(e, ERR_PROTOCOL, "%s where HELLO was due", frame_name(f->kind));
	*h = (struct hello){ 0 };
	struct wire_reader r = wire_read(f->payload, f->size);
	h->protocol = wire_get_u32(&r);
	if (!r.failed && h->protocol != HELLO_PROTOCOL)
		return err_set(
			e, ERR_PROTOCOL,
			"the connecting process speaks protocol %u, this one protocol %d: install "
			"the same version on all machines",
			h->protocol, HELLO_PROTOCOL);
	h->role = wire_get_u8(&r);
	h->member = wire_get_u32(&r);
	h->front = wire_get_u32(&r);
	h->job = wire_get_u64(&r);
	h->epoch = wire_get_u64(&r);
	h->run = wire_get_u64(&r);
	wire_get_str(&r, h->model, sizeof h->model);
	wire_get_str(&r, h->to, sizeof h->to);
	wire_get_str(&r, h->host, sizeof h->host);
	TRY(wire_read_end(&r, "HELLO", e));
	if (h->role > HELLO_RELAY)
		return err_set(e, ERR_PROTOCOL, "HELLO: role %d is unknown", h->role);
	return 0;
}

int welcome_send(struct link *l, const struct welcome *c, int64_t deadline, struct err *e)
{
	unsigned char out[ROOM];
	struct wire_writer w = wire_write(out, sizeof out);
	wire_put_str(&w, c->id);
	wire_put_str(&w, c->host);
	wire_put_str(&w, c->backend);
	wire_put_str(&w, c->device);
	wire_put_u64(&w, c->memory);
	wire_put_u8(&w, c->bf16);
	wire_put_u8(&w, c->f16);
	wire_put_u8(&w, c->formats);
	wire_put_str(&w, c->arithmetic);
	wire_put_u64(&w, c->wall);
	wire_put_u8(&w, c->keeps);
	wire_put_u8(&w, c->kept_part);
	wire_put_u32(&w, c->kept_stage);
	wire_put_u64(&w, c->kept_step);
	wire_put_u64(&w, c->kept_origin);
	wire_put_u64(&w, c->kept_plan);
	wire_put_str(&w, c->machine);
	wire_put_u32(&w, c->port);
	wire_put_u32(&w, c->naddress);
	for (uint32_t i = 0; i < c->naddress; i++) {
		wire_put_str(&w, c->address[i].name);
		wire_put_str(&w, c->address[i].address);
		wire_put_str(&w, c->proof[i]);
	}
	return send_fields(l, FRAME_WELCOME, &w, deadline, e);
}

int welcome_read(const struct frame *f, struct welcome *c, struct err *e)
{
	struct wire_reader r = wire_read(f->payload, f->size);
	if (f->kind == FRAME_REFUSE) {
		char why[512];
		wire_get_str(&r, why, sizeof why);
		return err_set(e, ERR_NET, "it refused: %s", r.failed ? "(no reason given)" : why);
	}
	if (f->kind != FRAME_WELCOME)
		return err_set(e, ERR_PROTOCOL, "%s where WELCOME was due", frame_name(f->kind));
	*c = (struct welcome){ 0 };
	wire_get_str(&r, c->id, sizeof c->id);
	wire_get_str(&r, c->host, sizeof c->host);
	wire_get_str(&r, c->backend, sizeof c->backend);
	wire_get_str(&r, c->device, sizeof c->device);
	c->memory = wire_get_u64(&r);
	c->bf16 = wire_get_u8(&r);
	c->f16 = wire_get_u8(&r);
	c->formats = wire_get_u8(&r);
	wire_get_str(&r, c->arithmetic, sizeof c->arithmetic);
	c->wall = wire_get_u64(&r);
	c->keeps = wire_get_u8(&r);
	c->kept_part = wire_get_u8(&r);
	c->kept_stage = wire_get_u32(&r);
	c->kept_step = wire_get_u64(&r);
	c->kept_origin = wire_get_u64(&r);
	c->kept_plan = wire_get_u64(&r);
	wire_get_str(&r, c->machine, sizeof c->machine);
	c->port = wire_get_u32(&r);
	c->naddress = wire_get_count(&r, 12, INTERFACES_MOST);
	for (uint32_t i = 0; i < c->naddress; i++) {
		wire_get_str(&r, c->address[i].name, sizeof c->address[i].name);
		wire_get_str(&r, c->address[i].address, sizeof c->address[i].address);
		wire_get_str(&r, c->proof[i], sizeof c->proof[i]);
	}
	TRY(wire_read_end(&r, "WELCOME", e));
	if (c->keeps > 1 || c->kept_part > 1)
		return err_set(e, ERR_PROTOCOL, "WELCOME: neither 0 nor 1");
	if (c->port > 65535)
		return err_set(e, ERR_PROTOCOL, "WELCOME: port %u", c->port);
	for (uint32_t i = 0; i < c->naddress; i++)
		if (!address_is_number(c->address[i].address))
			return err_set(e, ERR_PROTOCOL, "WELCOME: '%s' is not an address",
				       c->address[i].address);
	return 0;
}

void hello_refuse(struct link *l, const char *why)
{
	unsigned char out[ROOM];
	struct wire_writer w = wire_write(out, sizeof out);
	struct err ignored = { 0 };
	wire_put_str(&w, why);
	send_fields(l, FRAME_REFUSE, &w, net_in(2), &ignored);
}
