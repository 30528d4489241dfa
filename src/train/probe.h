/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - how long one device takes for each part of a job's model, and how much memory: measured
 * on random weights, no file needed.
 *
 * A middle stage of several layers, one of a single layer, and single layers with the front and
 * with the end of the model run the same code as training. What they differ by is a layer, the
 * front, the end. Layers of a model count as alike. Times are medians of warm runs.
 *
 *   layer      (time of k layers - time of 1) / (k - 1)
 *   front      time of front + 1 layer, less a layer
 *   end        time of 1 layer + norm + head + loss, less a layer
 *   upload     checking and unpacking a message, cast from the wire's dtype, upload; and half of
 *              what a pass costs however many layers it
 *              has (every stage but the ends receives twice)
 *   download   cast, download, checksum
 *
 * Memory is counted, not measured: the bytes of the parameters' buffers and of the stacks that a
 * microbatch lives in. */
#ifndef HS_TRAIN_PROBE_H
#define HS_TRAIN_PROBE_H

#include "train/protocol.h"

struct err;
struct buf;

enum { PROBE_POINTS = 16, PROBE_NAME = 128 };

struct probe_request {
	struct model_config cfg;
	struct stage_options opt; /* first, last and recompute do not count */
	char optimizer[WORK_OPTIMIZER];
	struct optim_config optim;
	enum dtype wire;
	int64_t tokens, sequences; /* of a row of a microbatch */
	double trained;            /* share of the tokens that are learned from */
	/* tokens of the largest microbatch over those of a mean one: memory is counted for it */
	double largest;
	/* so many of the sizes are measured even when time is short */
	int needed;
	int sizes, size[PROBE_POINTS]; /* rows of a microbatch, most wanted first */
	double budget;                 /* seconds after which no further size is begun */
	bool refresh;                  /* measure even what was measured before */
	int sharing;                   /* workers of the machine that measure at the same time */
};

enum probe_time {
	PROBE_FORWARD,
	PROBE_BACKWARD, /* without recomputation */
	PROBE_FRONT_FORWARD,
	PROBE_FRONT_BACKWARD,
	PROBE_END_FORWARD,
	PROBE_END_BACKWARD,
	PROBE_UPLOAD,
	PROBE_DOWNLOAD,
	PROBE_TIMES
};

enum probe_part { PROBE_LAYER, PROBE_FRONT, PROBE_END, PROBE_PARTS };

/* One microbatch size. */
struct probe_point {
	int m, runs;
	double seconds[PROBE_TIMES];
	double spread; /* (p90 - p10) / median of the runs of k layers */
	double drift;  /* last third of them over the first third, less 1 */
	uint64_t kept; /* bytes that a layer keeps from forward to backward */
	uint64_t work; /* most that a layer needs while it runs, with what it keeps */
	uint64_t head; /* most that the end needs beside its layers */
};

struct probe_result {
	char name[PROBE_NAME], driver[PROBE_NAME];
	int units, threads;            /* of the device; of this process */
	bool unified;                  /* its memory is the host's */
	uint64_t memory, used, fixed;  /* bytes: all, held by others, context and kernels */
	double optimizer[PROBE_PARTS]; /* seconds: gradient norm and step */
	uint64_t weights[PROBE_PARTS], state[PROBE_PARTS];
	/* time of a whole small model over what the points say, less 1; 0: not looked at */
	double residual;
	int points;
	struct probe_point point[PROBE_POINTS]; /* by m */
};

/* ERR_NOMEM when not even the first size fits. */
int probe_run(const char *device, const struct probe_request *q, struct probe_result *r_p,
	      struct err *e);

/* PROFILE and PROFILED (probe_wire.c); everything is checked on reading. */
int probe_request_write(const struct probe_request *q, const char *config_json, struct buf *out,
			struct err *e);
int probe_request_read(const void *p, size_t n, struct probe_request *q_p, struct err *e);
int probe_result_write(const struct probe_result *r, void *out, size_t cap, size_t *n_p,
		       struct err *e);
int probe_result_read(const void *p, size_t n, struct probe_result *r_p, struct err *e);

/* A worker's answer to PROFILE: both payloads. What this device, program and job gave before is
 * taken from the cache (`cache_dir` NULL: the default; probe_serve.c says what must be the
 * same). */
int probe_serve(const char *device, const char *cache_dir, const void *p, size_t n, void *out,
		size_t cap, size_t *n_p, struct err *e);

#endif
