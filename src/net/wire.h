/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h - small structured payloads: fields one behind the other, read in the order they were
 * written.
 *
 * Integers and floats are little-endian and fixed size; str and bytes are a u32 (str) or u64
 * (bytes) length and the bytes. Neither end allocates. After a failure every later call of a writer
 * or reader does nothing, so check once, at the end (wire_write_end, wire_read_end), as with struct
 * buf. A reader that failed returns zeros, "" and NULL with length 0.
 *
 *     struct wire_writer w = wire_write(mem, sizeof(mem));
 *     wire_put_str(&w, name);
 *     wire_put_u32(&w, count);
 *     TRY(wire_write_end(&w, &n, e));
 *
 * Counts from a peer are checked with wire_get_count() before they size anything. */
#ifndef HS_NET_WIRE_H
#define HS_NET_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

struct wire_writer {
	unsigned char *p; /* NULL: nothing is written, `n` counts what would be */
	size_t n, cap;
	bool failed; /* cap was too small */
};

/* Writes to p[0..cap). With p NULL it only counts, for those who want to allocate exactly. */
struct wire_writer wire_write(void *p, size_t cap);
void wire_put_u8(struct wire_writer *w, uint8_t v);
void wire_put_u32(struct wire_writer *w, uint32_t v);
void wire_put_u64(struct wire_writer *w, uint64_t v);
/* its 64 bits, also of NaN and infinities */
void wire_put_f64(struct wire_writer *w, double v);
void wire_put_str(struct wire_writer *w, const char *s); /* NULL is written as "" */
void wire_put_bytes(struct wire_writer *w, const void *p, size_t n);
/* The length of a bytes field whose bytes the caller fills in: where they go (NULL when there is no
 * room, or when counting). */
void *wire_put_space(struct wire_writer *w, size_t n);
int wire_write_end(const struct wire_writer *w, size_t *n_p, struct err *e); /* 0 or ERR_INTERNAL */

struct wire_reader {
	const unsigned char *p;
	size_t n, at;
	const char *failed; /* what was wrong, NULL while all is well */
	uint64_t is, most;  /* of what failed: the number that was said, the largest allowed */
};

struct wire_reader wire_read(const void *p, size_t n);
uint8_t wire_get_u8(struct wire_reader *r);
uint32_t wire_get_u32(struct wire_reader *r);
uint64_t wire_get_u64(struct wire_reader *r);
double wire_get_f64(struct wire_reader *r);
/* A u32 that says how many items of at least `item_bytes` encoded bytes follow: fails when that
 * many cannot, or are over `limit`. */
uint32_t wire_get_count(struct wire_reader *r, size_t item_bytes, uint32_t limit);
/* Copies at most cap - 1 bytes and a NUL; a string with a NUL inside, or one that does not fit,
 * fails. Control characters become '?' or a space (base/text.h); up to the length that was sent,
 * the bytes behind the NUL are zeros. */
void wire_get_str(struct wire_reader *r, char *out, size_t cap);
/* The same without a copy: points into the payload, NOT terminated, length in *n_p. */
const char *wire_get_text(struct wire_reader *r, size_t *n_p);
/* points into the payload, not aligned */
const void *wire_get_bytes(struct wire_reader *r, size_t *n_p);
/* 0 when every field was there and nothing is left over; otherwise ERR_PROTOCOL; `what` heads the
 * message ("PLAN from worker 2"). */
int wire_read_end(const struct wire_reader *r, const char *what, struct err *e);

#endif
