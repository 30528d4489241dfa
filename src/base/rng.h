/* SPDX-License-Identifier: Apache-2.0 */
/* rng.h - counter-based random numbers: the value at a place is a pure function of its key
 * and counter.
 *
 * Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011). Dropout
 * masks, initial weights and the order of the data are all drawn from here, so they do not depend
 * on the worker that computes them, the order, or the number of times. */
#ifndef HS_BASE_RNG_H
#define HS_BASE_RNG_H

#include <math.h>
#include <stdint.h>

struct rng_key {
	uint32_t k[2];
};

static inline uint64_t rng_mix64(uint64_t x) /* SplitMix64's finaliser */
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* A key from any number of parts: fold them in one after the other, beginning with the seed. */
static inline uint64_t rng_fold(uint64_t key, uint64_t part)
{
	return rng_mix64(key ^ rng_mix64(part));
}

static inline struct rng_key rng_key(uint64_t seed)
{
	return (struct rng_key){ { (uint32_t)seed, (uint32_t)(seed >> 32) } };
}

/* Four 32-bit numbers for the 128-bit counter whose low half is `ctr` and whose high half is the
 * words `c2` and `c3`. */
static inline void rng_philox_at(struct rng_key key, uint64_t ctr, uint32_t c2, uint32_t c3,
				 uint32_t out[4])
{
	uint32_t c0 = (uint32_t)ctr, c1 = (uint32_t)(ctr >> 32), k0 = key.k[0], k1 = key.k[1];
	for (int r = 0; r < 10; r++) {
		uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
		uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c1 = (uint32_t)p1;
		c3 = (uint32_t)p0;
		c0 = n0;
		c2 = n2;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

static inline void rng_philox(struct rng_key key, uint64_t ctr, uint32_t out[4])
{
	rng_philox_at(key, ctr, 0, 0, out);
}

/* The i-th 32-bit number of a key at (c2, c3): word i % 4 of counter i / 4. */
static inline uint32_t rng_u32_at(struct rng_key key, uint64_t i, uint32_t c2, uint32_t c3)
{
	uint32_t w[4];
	rng_philox_at(key, i >> 2, c2, c3, w);
	return w[i & 3];
}

static inline uint32_t rng_u32(struct rng_key key, uint64_t i) { return rng_u32_at(key, i, 0, 0); }

/* Uniform in [0, 1) with 24 bits. */
static inline float rng_unit(uint32_t u) { return (float)(u >> 8) * 0x1p-24f; }

static inline float rng_uniform(struct rng_key key, uint64_t i, float lo, float hi)
{
	return lo + (hi - lo) * rng_unit(rng_u32(key, i));
}

/* Normal (0, 1) by Box-Muller. */
static inline float rng_normal(struct rng_key key, uint64_t i)
{
	uint32_t w[4];
	rng_philox(key, i, w);
	double u = ((double)w[0] + 1.0) * 0x1p-32, v = (double)w[1] * 0x1p-32;
	return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

/* Uniform in [0, n), n > 0, with negligible bias (64-bit multiply-shift). */
static inline uint64_t rng_below(struct rng_key key, uint64_t i, uint64_t n)
{
	uint32_t w[4];
	rng_philox(key, i, w);
	uint64_t x = (uint64_t)w[0] << 32 | w[1];
	return (uint64_t)(((unsigned __int128)x * n) >> 64);
}

#endif
