/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_frame.c - frames: round trip, every field corrupted, truncation at each byte; CRC-32C;
 * structured payloads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "net/frame.h"
#include "net/wire.h"

/* RFC 3720 appendix B.4, and the check value of the algorithm's usual catalogue entry. */
static void crc_vectors(void **state)
{
	(void)state;
	unsigned char z[32] = { 0 }, f[32], up[32], down[32];
	memset(f, 0xff, sizeof f);
	for (int i = 0; i < 32; i++) {
		up[i] = (unsigned char)i;
		down[i] = (unsigned char)(31 - i);
	}
	const struct {
		const void *p;
		size_t n;
		uint32_t crc;
	} v[] = { { z, 32, 0x8a9136aa },    { f, 32, 0x62a8ab43 },          { up, 32, 0x46dd794e },
		  { down, 32, 0x113fdb5c }, { "123456789", 9, 0xe3069283 }, { "", 0, 0 } };
	for (size_t i = 0; i < ARRAY_LEN(v); i++) {
		assert_int_equal(crc32c(0, v[i].p, v[i].n), v[i].crc);
		assert_int_equal(crc32c_table(0, v[i].p, v[i].n), v[i].crc);
	}
}

/* The instruction and the table give the same CRC at every length around the block sizes, at every
 * alignment, and when continued. */
static void crc_ways_agree(void **state)
{
	(void)state;
	enum { N = 40000 };
	static unsigned char p[N + 8];
	for (size_t i = 0; i < sizeof p; i++)
		p[i] = (unsigned char)rng_u32(rng_key(5), i);
	const size_t sizes[] = { 1,     7,     8,     9,     63,    4095,  4096, 12287,
				 12288, 12289, 24576, 36863, 36864, 36865, N };
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		for (size_t off = 0; off < 8; off++) {
			uint32_t whole = crc32c_table(0, p + off, sizes[i]);
			assert_int_equal(crc32c(0, p + off, sizes[i]), whole);
			size_t cut = sizes[i] / 3;
			assert_int_equal(
				crc32c(crc32c(0, p + off, cut), p + off + cut, sizes[i] - cut),
				whole);
		}
}

static const struct frame sample = {
	.kind = FRAME_ACTIVATION,
	.dtype = DT_BF16,
	.job = 0x1122334455667788ull,
	.step = 20000000000ull,
	.epoch = FRAME_EPOCH(3, 9),
	.from = FRAME_COORDINATOR,
	.to = FRAME_MEMBER(4),
	.microbatch = 7,
	.chunk = 3,
	.ndim = 3,
	.dim = { 2, 5, 3 },
};

static size_t make(unsigned char *out, size_t cap, uint16_t *data)
{
	struct frame f = sample;
	struct err e;
	size_t n;
	for (int i = 0; i < 30; i++)
		data[i] = (uint16_t)(i * 77);
	f.payload = data;
	assert_int_equal(frame_encode(&f, out, cap, &n, &e), 0);
	return n;
}

static void round_trip(void **state)
{
	(void)state;
	unsigned char out[256];
	uint16_t data[30];
	struct err e;
	struct frame g;
	size_t n = make(out, sizeof out, data);
	assert_int_equal(n, FRAME_HEADER + 60);
	assert_int_equal(frame_parse(out, n, &g, &e), 0);
	assert_int_equal(g.kind, FRAME_ACTIVATION);
	assert_int_equal(g.dtype, DT_BF16);
	assert_true(g.job == sample.job && g.step == sample.step);
	assert_true(g.epoch == 0x300000009ull && g.epoch < FRAME_EPOCH(4, 0));
	assert_true(g.from == FRAME_COORDINATOR && g.to == 5);
	assert_int_equal(g.microbatch, 7);
	assert_int_equal(g.chunk, 3);
	assert_int_equal(g.ndim, 3);
	assert_true(g.dim[0] == 2 && g.dim[1] == 5 && g.dim[2] == 3 && g.dim[3] == 0);
	assert_int_equal(g.size, 60);
	assert_memory_equal(g.payload, data, 60);
	/* A payload that stands in place already is not copied and gives the same bytes. */
	unsigned char place[256];
	memcpy(place + FRAME_HEADER, data, 60);
	struct frame f = sample;
	f.payload = place + FRAME_HEADER;
	assert_int_equal(frame_encode(&f, place, sizeof place, &n, &e), 0);
	assert_memory_equal(place, out, n);
	/* The first bytes never change: any version must be able to tell that a frame is of another
	 * version. */
	assert_memory_equal(out, "HSF1\2\0\12\1\x88\x77\x66\x55\x44\x33\x22\x11", 16);
	/* Frames without a payload, and with an empty tensor. */
	struct frame h = { .kind = FRAME_FINISH };
	assert_int_equal(frame_encode(&h, out, FRAME_HEADER, &n, &e), 0);
	assert_int_equal(frame_parse(out, n, &g, &e), 0);
	h = (struct frame){ .kind = FRAME_GRADIENT, .ndim = 2, .dim = { 0, 64 } };
	assert_int_equal(frame_encode(&h, out, FRAME_HEADER, &n, &e), 0);
	assert_int_equal(frame_parse(out, n, &g, &e), 0);
	assert_int_equal(g.size, 0);
}

static void refuses_to_encode(void **state)
{
	(void)state;
	unsigned char out[FRAME_HEADER + 8];
	size_t n = 99;
	struct err e;
	const struct frame bad[] = {
		{ .kind = 0 },
		{ .kind = 200 },
		{ .kind = FRAME_HELLO, .size = 65537, .payload = "x" },
		{ .kind = FRAME_HELLO, .ndim = 1, .dim = { 1 } },
		{ .kind = FRAME_ACTIVATION },
		{ .kind = FRAME_ACTIVATION, .ndim = 5 },
		{ .kind = FRAME_ACTIVATION,
		  .ndim = 1,
		  .dim = { 3 },
		  .size = 8,
		  .payload = "12345678" },
		{ .kind = FRAME_ACTIVATION, .ndim = 3, .dim = { 1ull << 32, 1ull << 32, 4 } },
		{ .kind = FRAME_ACTIVATION, .dtype = DT_COUNT, .ndim = 1, .dim = { 1 } },
		/* 12 bytes, room for 8 */
		{ .kind = FRAME_ACTIVATION, .ndim = 1, .dim = { 3 }, .payload = "123456789012" },
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(frame_encode(&bad[i], out, sizeof out, &n, &e), ERR_INTERNAL);
		assert_int_equal(n, 99);
	}
}

static void every_bit_matters(void **state)
{
	(void)state;
	unsigned char out[256];
	uint16_t data[30];
	struct frame g;
	struct err e;
	size_t n = make(out, sizeof out, data);
	for (size_t at = 0; at < n; at++)
		for (int bit = 0; bit < 8; bit++) {
			out[at] ^= (unsigned char)(1 << bit);
			e.code = 0;
			assert_int_equal(frame_parse(out, n, &g, &e), ERR_PROTOCOL);
			assert_true(e.msg[0] != 0);
			out[at] ^= (unsigned char)(1 << bit);
		}
	assert_int_equal(frame_parse(out, n, &g, &e), 0);
}

static void every_truncation(void **state)
{
	(void)state;
	unsigned char out[256];
	uint16_t data[30];
	struct frame g;
	struct err e;
	size_t n = make(out, sizeof out, data);
	for (size_t k = 0; k < n; k++) {
		/* exact size, so that the address sanitizer sees a read past the end */
		unsigned char *exact = malloc(k ? k : 1);
		memcpy(exact, out, k);
		assert_int_equal(frame_parse(exact, k, &g, &e), ERR_PROTOCOL);
		free(exact);
	}
	assert_int_equal(frame_parse(out, n + 1, &g, &e), ERR_PROTOCOL);
}

/* Wrong fields with a right checksum: what a hostile peer sends. */
static void lies_with_a_right_checksum(void **state)
{
	(void)state;
	unsigned char good[256], out[256];
	uint16_t data[30];
	struct frame g;
	struct err e;
	size_t n = make(good, sizeof good, data);
	const struct {
		size_t at;
		unsigned char v;
		const char *says;
	} lie[] = {
		{ 0, 'X', "magic" },       { 4, 3, "version" },       { 6, 0, "kind" },
		{ 6, 21, "kind" },         { 6, 99, "kind" },         { 6, 1, "shape" },
		{ 7, 99, "dtype" },        { 7, 0, "shape needs" },   { 30, 0, "no shape" },
		{ 30, 5, "dimensions" },   { 30, 2, "shape" },        { 31, 1, "zero" },
		{ 48, 3, "shape needs" },  { 55, 0xff, "overflows" }, { 72, 1, "dimension" },
		{ 80, 61, "shape needs" }, { 87, 0x80, "at most" },   { 88, 1, "zero" },
	};
	for (size_t i = 0; i < ARRAY_LEN(lie); i++) {
		memcpy(out, good, n);
		out[lie[i].at] = lie[i].v;
		uint32_t crc = crc32c(crc32c(0, out, FRAME_HEADER - 4), out + FRAME_HEADER,
				      n - FRAME_HEADER);
		memcpy(out + FRAME_HEADER - 4, &crc, 4);
		assert_int_equal(frame_parse(out, n, &g, &e), ERR_PROTOCOL);
		if (!strstr(e.msg, lie[i].says))
			fail_msg("byte %zu = %u: '%s' does not say '%s'", lie[i].at, lie[i].v,
				 e.msg, lie[i].says);
	}
}

static void fields_round_trip(void **state)
{
	(void)state;
	unsigned char mem[200];
	struct err e;
	size_t n, counted;
	for (int pass = 0; pass < 2; pass++) {
		struct wire_writer w = wire_write(pass ? mem : NULL, sizeof mem);
		wire_put_u8(&w, 200);
		wire_put_u32(&w, 4000000000u);
		wire_put_u64(&w, UINT64_MAX - 1);
		wire_put_f64(&w, -0.1);
		wire_put_f64(&w, NAN);
		wire_put_str(&w, "grüße");
		wire_put_str(&w, NULL);
		wire_put_bytes(&w, "\0\1\2", 3);
		void *space = wire_put_space(&w, 4);
		if (pass)
			memcpy(space, "abcd", 4);
		else
			assert_null(space);
		assert_int_equal(wire_write_end(&w, pass ? &n : &counted, &e), 0);
	}
	assert_int_equal(n, counted);
	struct wire_reader r = wire_read(mem, n);
	char text[32];
	size_t len;
	assert_int_equal(wire_get_u8(&r), 200);
	assert_int_equal(wire_get_u32(&r), 4000000000u);
	assert_true(wire_get_u64(&r) == UINT64_MAX - 1);
	assert_true(wire_get_f64(&r) == -0.1);
	assert_true(isnan(wire_get_f64(&r)));
	wire_get_str(&r, text, sizeof text);
	assert_string_equal(text, "grüße");
	wire_get_text(&r, &len);
	assert_int_equal(len, 0);
	assert_memory_equal(wire_get_bytes(&r, &len), "\0\1\2", 3);
	assert_int_equal(len, 3);
	assert_memory_equal(wire_get_bytes(&r, &len), "abcd", 4);
	assert_int_equal(wire_read_end(&r, "x", &e), 0);
	/* Truncated at each byte: fails, and never reads past the end. */
	for (size_t k = 0; k < n; k++) {
		unsigned char *exact = malloc(k ? k : 1);
		memcpy(exact, mem, k);
		r = wire_read(exact, k);
		wire_get_u8(&r), wire_get_u32(&r), wire_get_u64(&r), wire_get_f64(&r),
			wire_get_f64(&r);
		wire_get_str(&r, text, sizeof text), wire_get_text(&r, &len),
			wire_get_bytes(&r, &len), wire_get_bytes(&r, &len);
		assert_int_equal(wire_read_end(&r, "HELLO", &e), ERR_PROTOCOL);
		assert_non_null(strstr(e.msg, "HELLO"));
		free(exact);
	}
	/* Too little room to write. */
	for (size_t k = 0; k < 13; k++) {
		struct wire_writer w = wire_write(mem, k);
		wire_put_u64(&w, 1);
		wire_put_str(&w, "a");
		assert_int_equal(wire_write_end(&w, &n, &e), ERR_INTERNAL);
	}
}

static void fields_that_lie(void **state)
{
	(void)state;
	unsigned char mem[64];
	struct err e;
	size_t n;
	char text[4];
	struct wire_writer w = wire_write(mem, sizeof mem);
	wire_put_u32(&w, 1000);
	wire_put_u64(&w, 0);
	assert_int_equal(wire_write_end(&w, &n, &e), 0);
	struct wire_reader r = wire_read(mem, n);
	/* one item's bytes, a thousand announced */
	assert_int_equal(wire_get_count(&r, 8, 1 << 20), 0);
	assert_int_equal(wire_read_end(&r, "x", &e), ERR_PROTOCOL);
	r = wire_read(mem, n);
	assert_int_equal(wire_get_count(&r, 0, 999), 0);
	assert_int_equal(wire_read_end(&r, "x", &e), ERR_PROTOCOL);
	w = wire_write(mem, sizeof mem);
	wire_put_u64(&w, UINT64_MAX); /* the length of a bytes field */
	r = wire_read(mem, 8);
	assert_null(wire_get_bytes(&r, &n));
	assert_int_equal(wire_read_end(&r, "x", &e), ERR_PROTOCOL);
	w = wire_write(mem, sizeof mem);
	wire_put_str(&w, "abcd");
	r = wire_read(mem, w.n);
	wire_get_str(&r, text, sizeof text);
	assert_string_equal(text, "");
	assert_int_equal(wire_read_end(&r, "x", &e), ERR_PROTOCOL);
	mem[5] = 0;
	r = wire_read(mem, w.n);
	wire_get_text(&r, &n);
	assert_int_equal(wire_read_end(&r, "x", &e), ERR_PROTOCOL);
	r = wire_read(mem, w.n);
	wire_get_u32(&r);
	assert_int_equal(wire_read_end(&r, "x", &e), ERR_PROTOCOL); /* left over */
}

/* docs/wire.md lists every kind with its number. Skipped where the source is not at hand
 * (scripts/run-tests.sh says where it is). */
static void kinds_are_documented(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		int number;
	} rows[] = {
#define FRAME(name, number, form, max) { #name, number },
#include "net/frame.def"
#undef FRAME
	};
	char path[512], line[512];
	bool found[ARRAY_LEN(rows)] = { false };
	snprintf(path, sizeof path, "%s/docs/wire.md",
		 getenv("HS_SOURCE") ? getenv("HS_SOURCE") : ".");
	FILE *f = fopen(path, "r");
	if (!f)
		skip();
	while (fgets(line, sizeof line, f))
		for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
			char head[64];
			snprintf(head, sizeof head, "| %d | %s | ", rows[i].number, rows[i].name);
			found[i] |= strncmp(line, head, strlen(head)) == 0;
		}
	fclose(f);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (!found[i])
			fail_msg("%s: kind %d, %s, is missing", path, rows[i].number, rows[i].name);
		assert_string_equal(frame_name(rows[i].number), rows[i].name);
	}
	assert_string_equal(frame_name(0), "?");
}

/* What a peer says in words is one line that any terminal can show. */
static void words_are_shown_safely(void **state)
{
	(void)state;
	static const char said[] = "a\033[2J\xc2\x9b\xe2\x80\xae\xff\nb";
	unsigned char bytes[64];
	char got[32];
	size_t n;
	struct err e = { 0 };
	struct wire_writer w = wire_write(bytes, sizeof bytes);
	wire_put_str(&w, said);
	assert_int_equal(wire_write_end(&w, &n, &e), 0);
	struct wire_reader r = wire_read(bytes, n);
	wire_get_str(&r, got, sizeof got);
	assert_int_equal(wire_read_end(&r, "words", &e), 0);
	assert_string_equal(got, "a?[2J??? b");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crc_vectors),
		cmocka_unit_test(crc_ways_agree),
		cmocka_unit_test(round_trip),
		cmocka_unit_test(refuses_to_encode),
		cmocka_unit_test(every_bit_matters),
		cmocka_unit_test(every_truncation),
		cmocka_unit_test(lies_with_a_right_checksum),
		cmocka_unit_test(fields_round_trip),
		cmocka_unit_test(fields_that_lie),
		cmocka_unit_test(words_are_shown_safely),
		cmocka_unit_test(kinds_are_documented),
	};
	return cmocka_run_group_tests_name("net_frame", tests, NULL, NULL);
}
