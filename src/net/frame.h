/* SPDX-License-Identifier: Apache-2.0 */
/* frame.h - a frame, the form of every message over a link: a fixed header of 96 bytes and a
 * payload.
 *
 * Works on the caller's memory only, uses no socket. All numbers little-endian. Layout (offset,
 * bytes):
 *
 *      0  4  magic "HSF1"                 32  8  epoch
 *      4  2  protocol version             40  4  from, a member number
 *      6  1  kind (frame.def)             44  4  to, a member number
 *      7  1  dtype (base/dtype.h)         48 32  dim[4], u64 each, zero behind ndim
 *      8  8  job id                       80  8  payload length
 *     16  8  step                         88  4  zero
 *     24  4  microbatch                   92  4  CRC-32C over bytes 0..91 and the payload
 *     28  2  chunk (which of a worker's   96  .  payload
 *            stages, interleaved schedule)
 *     30  1  ndim
 *     31  1  zero
 *
 * Sender, receiver and epoch: `epoch` counts the changes of the job's members (a term of the
 * coordinator, then a number within it, compared as one number); the first plan of a job has 0.
 * Members are numbered from 1, worker i of the job is member i + 1, the coordinator has a number of
 * its own, and 0 means that there is no number yet. Whether a number fits the link is for the
 * reader of the frame to check: this file only carries it.
 *
 * Parsing checks every field against hard limits (known kind and dtype, the kind's form and size in
 * frame.def, shape x dtype equal to the payload, unused fields zero, exactly the bytes announced)
 * before any field is used, and allocates nothing. A frame that fails closes the link: ERR_PROTOCOL
 * with a message that names the field and its value. */
#ifndef HS_NET_FRAME_H
#define HS_NET_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

struct err;

#define FRAME_MAGIC 0x31465348u /* "HSF1" */
#define FRAME_VERSION 2
#define FRAME_HEADER 96 /* bytes */
#define FRAME_MAX_DIM 4

#define FRAME_EPOCH(term, n) ((uint64_t)(term) << 32 | (uint32_t)(n))
/* member numbers in `from` and `to` */
#define FRAME_NOBODY 0u
#define FRAME_COORDINATOR UINT32_MAX
#define FRAME_MEMBER(worker) ((uint32_t)(worker) + 1)

enum frame_kind {
#define FRAME(name, number, form, max) FRAME_##name = number,
#include "net/frame.def"
#undef FRAME
};

enum frame_form { FRAME_FORM_FIELDS, FRAME_FORM_TENSOR };

struct frame {
	enum frame_kind kind;
	enum dtype dtype; /* TENSOR kinds; otherwise 0 */
	uint64_t job, step, epoch;
	uint32_t from, to;
	uint32_t microbatch;
	uint16_t chunk;
	unsigned ndim; /* TENSOR kinds: 1 to FRAME_MAX_DIM; otherwise 0 */
	uint64_t dim[FRAME_MAX_DIM];
	uint64_t size; /* bytes of payload; for a TENSOR 0 means: from the shape */
	/* not owned. After frame_parse: inside the parsed bytes, not aligned to anything */
	const void *payload;
};

const char *frame_name(enum frame_kind kind); /* "ACTIVATION"; "?" for an unknown one */
bool frame_is_tensor(enum frame_kind kind);   /* its payload is numbers and nothing else */

/* Writes header and payload to `out`, which holds at least FRAME_HEADER + payload bytes; *n_p = how
 * many were written. The payload is copied unless it already stands at out + FRAME_HEADER (how an
 * activation is sent without a copy). */
int frame_encode(const struct frame *f, void *out, size_t cap, size_t *n_p, struct err *e);

/* A view of the frame in p[0..n). */
int frame_parse(const void *p, size_t n, struct frame *f_p, struct err *e);

/* The same without checking the CRC, for bytes that never left this machine: only the header is
 * read. */
int frame_parse_trusted(const void *p, size_t n, struct frame *f_p, struct err *e);

/* CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) of p[0..n) continued from `crc` (begin with
 * 0): RFC 3720 appendix B.4. With the processor's instruction where there is one; crc32c_table() is
 * the portable form, for tests. */
uint32_t crc32c(uint32_t crc, const void *p, size_t n);
uint32_t crc32c_table(uint32_t crc, const void *p, size_t n);

#endif
