/* SPDX-License-Identifier: Apache-2.0 */
/* stepped.c - what a worker says at the end of a round: STEPPED, CLOCK (protocol.h). */
#include "proto/protocol.h"

#include "base/err.h"

enum { SPAN_BYTES = 30 };
/* so that sums and differences of times do not overflow */
static const int64_t time_most = INT64_MAX / 4;

static void put_stepped(struct wire_writer *w, const struct stepped_message *m)
{
	wire_put_u64(w, (uint64_t)m->busy);
	wire_put_u64(w, (uint64_t)m->copy);
	wire_put_u64(w, (uint64_t)m->wait);
	wire_put_u64(w, m->mem_peak);
	wire_put_u64(w, m->host_peak);
	wire_put_u64(w, m->expert_hits);
	wire_put_u64(w, m->expert_misses);
	wire_put_u64(w, (uint64_t)m->heard);
	wire_put_u64(w, (uint64_t)m->said);
	for (int k = 0; k < FLOWS; k++) {
		wire_put_u64(w, m->flow[k].bytes);
		wire_put_u64(w, m->flow[k].messages);
		wire_put_u32(w, m->flow[k].times);
		for (uint32_t i = 0; i < m->flow[k].times; i++)
			wire_put_u64(w, (uint64_t)m->flow[k].at[i]);
	}
}

size_t stepped_size(const struct stepped_message *m, size_t spans)
{
	struct wire_writer w = wire_write(NULL, 0);
	put_stepped(&w, m);
	return w.n + 4 + spans * SPAN_BYTES;
}

int stepped_write(const struct stepped_message *m, const struct span *v, size_t count, void *out,
		  size_t cap, size_t *n_p, struct err *e)
{
	struct wire_writer w = wire_write(out, cap);
	put_stepped(&w, m);
	wire_put_u32(&w, (uint32_t)count);
	for (size_t i = 0; i < count; i++) {
		wire_put_u64(&w, (uint64_t)v[i].begin);
		wire_put_u64(&w, (uint64_t)v[i].ready);
		wire_put_u64(&w, (uint64_t)v[i].end);
		wire_put_u32(&w, v[i].microbatch);
		wire_put_u8(&w, v[i].kind);
		wire_put_u8(&w, v[i].chunk);
	}
	return wire_write_end(&w, n_p, e);
}

static int64_t get_time(struct wire_reader *r, bool *odd)
{
	uint64_t t = wire_get_u64(r);
	*odd |= t > (uint64_t)time_most;
	return t > (uint64_t)time_most ? 0 : (int64_t)t;
}

static void get_flow(struct wire_reader *r, struct flow *f, bool *odd)
{
	f->bytes = wire_get_u64(r);
	f->messages = wire_get_u64(r);
	f->times = (uint32_t)wire_get_count(r, 8, FLOW_TIMES);
	*odd |= f->times > f->messages || f->bytes > (uint64_t)time_most;
	for (uint32_t i = 0; i < f->times; i++)
		f->at[i] = get_time(r, odd);
}

int stepped_read(const void *p, size_t n, struct stepped_message *m, struct span *v, size_t most,
		 size_t *count_p, struct err *e)
{
	struct wire_reader r = wire_read(p, n);
	bool odd = false;
	m->busy = get_time(&r, &odd);
	m->copy = get_time(&r, &odd);
	m->wait = get_time(&r, &odd);
	m->mem_peak = wire_get_u64(&r);
	m->host_peak = wire_get_u64(&r);
	m->expert_hits = wire_get_u64(&r);
	m->expert_misses = wire_get_u64(&r);
	odd |= m->expert_hits > UINT32_MAX || m->expert_misses > UINT32_MAX;
	m->heard = get_time(&r, &odd);
	m->said = get_time(&r, &odd);
	for (int k = 0; k < FLOWS; k++)
		get_flow(&r, &m->flow[k], &odd);
	size_t count = wire_get_count(&r, SPAN_BYTES, 1u << 16), kept = 0;
	for (size_t i = 0; i < count; i++) {
		struct span s;
		s.begin = get_time(&r, &odd);
		s.ready = get_time(&r, &odd);
		s.end = get_time(&r, &odd);
		s.microbatch = wire_get_u32(&r);
		s.kind = wire_get_u8(&r);
		s.chunk = wire_get_u8(&r);
		odd |= s.ready < s.begin || s.end < s.ready;
		if (kept < most)
			v[kept++] = s;
	}
	TRY(wire_read_end(&r, "STEPPED", e));
	if (odd)
		return err_set(e, ERR_PROTOCOL, "STEPPED: impossible times or counts");
	*count_p = kept;
	return 0;
}

int clock_write(const struct clock_message *m, void *out, size_t cap, size_t *n_p, struct err *e)
{
	struct wire_writer w = wire_write(out, cap);
	wire_put_u64(&w, (uint64_t)m->heard);
	wire_put_u64(&w, (uint64_t)m->said);
	return wire_write_end(&w, n_p, e);
}

int clock_read(const void *p, size_t n, struct clock_message *m, struct err *e)
{
	struct wire_reader r = wire_read(p, n);
	bool odd = false;
	m->heard = get_time(&r, &odd);
	m->said = get_time(&r, &odd);
	TRY(wire_read_end(&r, "CLOCK", e));
	return odd ? err_set(e, ERR_PROTOCOL, "CLOCK: an impossible time") : 0;
}
