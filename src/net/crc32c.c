/* SPDX-License-Identifier: Apache-2.0 */
/* crc32c.c - CRC-32C: the processor's instruction where it has one, else tables that take eight
 * bytes at a time.
 *
 * The instruction takes 3 cycles but one can begin every cycle, so long inputs run as three streams
 * whose sums are joined with a table that advances a sum over a block of zeros (the method of Gopal
 * et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel 2011).
 * Declared in frame.h. */
#include "net/frame.h"
#include "base/os_calls.h"

#include <pthread.h>
#include <stdbool.h>

#if defined(__aarch64__)
#include <arm_acle.h>
#endif

#define POLY 0x82f63b78u
#define BLOCK 4096 /* bytes of one of the three streams */

static uint32_t table[8][256];
static uint32_t over[4][256]; /* advances a sum over BLOCK zero bytes, by byte of the sum */
static bool has_instruction;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static inline uint64_t load64(const unsigned char *p)
{
	uint64_t v;
	memcpy(&v, p, 8);
	return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? v : __builtin_bswap64(v);
}

static void setup(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;
		for (int k = 0; k < 8; k++)
			c = c & 1 ? c >> 1 ^ POLY : c >> 1;
		table[0][i] = c;
	}
	for (int k = 1; k < 8; k++)
		for (uint32_t i = 0; i < 256; i++)
			table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
	/* Advancing over zeros is linear: the sums of the 32 single bits give all the others. */
	uint32_t bit[32];
	for (int b = 0; b < 32; b++) {
		uint32_t c = 1u << b;
		for (int i = 0; i < BLOCK; i++)
			c = c >> 8 ^ table[0][c & 255];
		bit[b] = c;
	}
	for (int k = 0; k < 4; k++)
		for (uint32_t i = 0; i < 256; i++) {
			uint32_t c = 0;
			for (int b = 0; b < 8; b++)
				if (i >> b & 1)
					c ^= bit[8 * k + b];
			over[k][i] = c;
		}
#if defined(__x86_64__)
	has_instruction = __builtin_cpu_supports("sse4.2");
#elif defined(__aarch64__)
	has_instruction = os_arm_has_crc();
#endif
}

static uint32_t run_table(uint32_t c, const unsigned char *p, size_t n)
{
	for (; n >= 8; n -= 8, p += 8) {
		uint64_t v = load64(p) ^ c;
		c = table[7][v & 255] ^ table[6][v >> 8 & 255] ^ table[5][v >> 16 & 255] ^
		    table[4][v >> 24 & 255] ^ table[3][v >> 32 & 255] ^ table[2][v >> 40 & 255] ^
		    table[1][v >> 48 & 255] ^ table[0][v >> 56];
	}
	while (n--)
		c = c >> 8 ^ table[0][(c ^ *p++) & 255];
	return c;
}

#if defined(__x86_64__) || defined(__aarch64__)
#if defined(__x86_64__)
#define TARGET __attribute__((target("sse4.2")))
#define STEP8(c, v) ((uint32_t)__builtin_ia32_crc32di((c), (v)))
#define STEP1(c, v) __builtin_ia32_crc32qi((c), (v))
#else
#define TARGET __attribute__((target("+crc")))
#define STEP8(c, v) __crc32cd((c), (v))
#define STEP1(c, v) __crc32cb((c), (v))
#endif

static uint32_t over_block(uint32_t c)
{
	return over[0][c & 255] ^ over[1][c >> 8 & 255] ^ over[2][c >> 16 & 255] ^ over[3][c >> 24];
}

TARGET static uint32_t run_instruction(uint32_t c, const unsigned char *p, size_t n)
{
	for (; n >= 3 * BLOCK; n -= 3 * BLOCK, p += 3 * BLOCK) {
		uint32_t c1 = 0, c2 = 0;
		for (size_t i = 0; i < BLOCK; i += 8) {
			c = STEP8(c, load64(p + i));
			c1 = STEP8(c1, load64(p + BLOCK + i));
			c2 = STEP8(c2, load64(p + 2 * BLOCK + i));
		}
		c = over_block(over_block(c) ^ c1) ^ c2;
	}
	for (; n >= 8; n -= 8, p += 8)
		c = STEP8(c, load64(p));
	while (n--)
		c = STEP1(c, *p++);
	return c;
}
#else
static uint32_t run_instruction(uint32_t c, const unsigned char *p, size_t n)
{
	return run_table(c, p, n);
}
#endif

uint32_t crc32c(uint32_t crc, const void *p, size_t n)
{
	pthread_once(&once, setup);
	return ~(has_instruction ? run_instruction(~crc, p, n) : run_table(~crc, p, n));
}

uint32_t crc32c_table(uint32_t crc, const void *p, size_t n)
{
	pthread_once(&once, setup);
	return ~run_table(~crc, p, n);
}
