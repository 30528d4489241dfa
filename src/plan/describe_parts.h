/* SPDX-License-Identifier: Apache-2.0 */
/* describe_parts.h - what a description says, as it stands in the file (describe.c reads it), and
 * its model half (describe_model.c). */
#ifndef HS_PLAN_DESCRIBE_PARTS_H
#define HS_PLAN_DESCRIBE_PARTS_H

#include <stdint.h>

#include "base/dtype.h"
#include "base/opt.h"
#include "model/model.h"
#include "plan/describe.h"
#include "plan/profile.h"

struct described_model {
	const char *name;
	int64_t layers, hidden, intermediate, heads, kv_heads, head_dim, vocab;
	bool tied;
};

struct described_device {
	const char *card, *host, *id;
	int64_t count, cores;
	double memory, tflops, watts; /* 0: not given */
	int line;
};

struct described_link {
	int from, to; /* indices into the hosts of the profile; -1: all */
	double bandwidth, latency_ms;
	int line;
};

enum { ADAPTER_NONE, ADAPTER_LORA, ADAPTER_QLORA };

struct description {
	const char *path, *base_model;
	struct described_model shape;
	bool has_shape;
	int adapter, compute_dtype; /* enum compute_dtype */
	int64_t lora_r, sequence_len, batch;
	struct opt_list lora_target_modules;
	struct described_device *device;
	size_t devices;
	const struct yaml_node *link_list; /* NULL: none */
	const struct equal_cards *equal;   /* instead of devices and links; NULL: no */
	struct arena mem;
};

/* Fills what the profile says of model and training, dtype included; *c_p for describe_memory(). */
int describe_model(const struct description *d, struct profile *p, struct model_config *c_p,
		   struct err *e);
/* The memory curves of a device: the same for all. */
void describe_memory(const struct description *d, const struct profile *p,
		     const struct model_config *c, struct profile_device *x);

#endif
