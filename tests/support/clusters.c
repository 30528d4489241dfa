/* SPDX-License-Identifier: Apache-2.0 */
/* clusters.c - see clusters.h. */
#include "support/clusters.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/rng.h"
#include "plan/profile.h"

struct dice {
	struct rng_key key;
	uint64_t at;
};

static int pick(struct dice *d, int lo, int hi)
{
	return lo + (int)rng_below(d->key, d->at++, (uint64_t)(hi - lo + 1));
}
static double real(struct dice *d, double lo, double hi)
{
	return lo + (hi - lo) * (double)rng_uniform(d->key, d->at++, 0, 1);
}

static int make(struct dice *d, int devices, int layers, int hosts, int batch, struct profile *p)
{
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	double per_layer = real(d, 0.02, 0.4), speed_spread = real(d, 1, 8), head = real(d, 0, 4),
	       slow = real(d, 0.01, 1);
	/* memory of all devices, roughly as a multiple of what the model needs */
	double room = real(d, 0.6, 6);
	double need = layers * per_layer * 2;
	bool tables = pick(d, 0, 1), alike = pick(d, 0, 3) == 0, large = pick(d, 0, 2) == 0;
	int sharers = devices < layers ? devices : layers;
	double same_f = real(d, 2, 10);
	int rc;

	buf_addf(&b,
		 "{\"version\": 1, \"model\": {\"name\": \"random\", \"layers\": %d, \"hidden\": "
		 "%d, \"parameters_per_layer\": 1e7, "
		 "\"layer_gib\": %.4f, \"layer_state_gib\": %.4f, \"embedding_gib\": %.4f, "
		 "\"head_gib\": %.4f, "
		 "\"embedding_state_gib\": 0, "
		 "\"head_state_gib\": 0}, \"sequence_len\": 256, \"dtype\": \"float16\", "
		 "\"global_batch\": %d, \"step_ms\": %.3f, "
		 "\"devices\": [",
		 layers, 256 * pick(d, 1, 16), per_layer, per_layer * real(d, 0, 0.5),
		 real(d, 0, 1) * per_layer, head * per_layer, batch, real(d, 0, 2));
	for (int i = 0; i < devices; i++) {
		double f = alike ? same_f : real(d, 1, speed_spread), bw = real(d, 1.2, 2.5);
		buf_addf(&b,
			 "%s{\"id\": \"d%d\", \"kind\": \"k\", \"host\": \"h%d\", \"memory_gib\": "
			 "%.4f, \"reserve_gib\": 0, "
			 "\"optimizer_ms\": %.4f, ",
			 i ? ", " : "", i, pick(d, 0, hosts - 1),
			 (large ? real(d, 4, 24) : 0.05) +
				 need * room / sharers * real(d, 0.4, 1.6),
			 real(d, 0, 0.5));
		if (tables)
			buf_addf(&b, "\"forward_ms\": {\"table\": [%.4f, %.4f]}, ", f * 1.2,
				 f * 2.1);
		else
			buf_addf(&b, "\"forward_ms\": {\"linear\": [%.4f, %.4f]}, ", f,
				 real(d, 0, 1));
		buf_addf(&b,
			 "\"backward_ms\": {\"linear\": [%.4f, %.4f]}, \"head_forward_ms\": "
			 "{\"linear\": [%.4f, 0]}, "
			 "\"head_backward_ms\": {\"linear\": [%.4f, 0]}, \"embedding_forward_ms\": "
			 "{\"linear\": [%.4f, 0]}, "
			 "\"kept_gib\": {\"linear\": [%.5f, 0]}, \"upload_ms\": {\"linear\": "
			 "[%.4f, 0.01]}}",
			 f * bw, real(d, 0, 1), f * head, f * head * 2, f * real(d, 0, 0.2),
			 per_layer * real(d, 0, 0.3), real(d, 0, 0.2));
	}
	buf_adds(&b, "], \"links\": [");
	for (int a = 0; a < hosts; a++)
		for (int c = a; c < hosts; c++)
			buf_addf(&b,
				 "%s{\"hosts\": [\"h%d\", \"h%d\"], \"bandwidth_gbytes_per_s\": "
				 "%.4f, \"latency_ms\": %.4f}",
				 a || c ? ", " : "", a, c,
				 a == c ? real(d, 1, 10) : slow * real(d, 0.3, 1.5),
				 real(d, 0.01, 0.5));
	buf_adds(&b, "]}");
	rc = profile_read_text(p, b.p, b.n, "random cluster", &e);
	if (rc < 0)
		fprintf(stderr, "%s\n", e.msg);
	buf_release(&b);
	return rc;
}

int cluster_make(uint64_t seed, int devices, int layers, struct profile *p)
{
	static const int batches[] = { 1, 2, 4, 6, 8, 12, 16 };
	struct dice d = { rng_key(rng_mix64(seed)), 0 };
	int n = pick(&d, 1, devices);

	return make(&d, n, pick(&d, 1, layers), pick(&d, 1, n < 5 ? n : 5), batches[pick(&d, 0, 6)],
		    p);
}

int cluster_make_sized(uint64_t seed, int devices, int layers, int hosts, int batch,
		       struct profile *p)
{
	struct dice d = { rng_key(rng_mix64(seed)), 0 };

	return make(&d, devices, layers, hosts, batch, p);
}
