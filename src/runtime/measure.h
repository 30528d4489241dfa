/* SPDX-License-Identifier: Apache-2.0 */
/* measure.h - the time and memory that one device needs for each part of a job's model, measured on
 * random weights: no file is needed.
 *
 * A middle stage of several layers, one of a single layer, and single layers with the front and
 * with the end of the model run the same code as training. Their differences are the times of a
 * layer, the front, the end. All layers of a model count as equal. Times are medians of warm runs.
 *
 *   layer      (time of k layers - time of 1) / (k - 1)
 *   front      time of front + 1 layer, less a layer
 *   end        time of 1 layer + norm + head + loss, less a layer
 *   upload     checking and unpacking a message, cast from the wire's dtype, upload; and half of
 *              what a pass costs however many layers it
 *              has (every stage but the ends receives twice)
 *   download   cast, download, checksum
 *   copy       checking and unpacking, cast, upload alone. On a processor instead what a message
 *              costs of its time, one way, with the copy that the link makes: by the processor's
 *              clock, at the share of a core that the process has
 *   warm       a layer directly behind the same layer's pass: what it reads may still be in a cache
 *
 * Memory is counted, not measured: the bytes of the parameters' buffers and of the stacks that a
 * microbatch lives in. */
#ifndef HS_RUNTIME_MEASURE_H
#define HS_RUNTIME_MEASURE_H

#include "base/dtype.h"
#include "model/stage.h"
#include "optim/optim.h"

struct err;
struct buf;

enum { MEASURE_POINTS = 16, MEASURE_NAME = 128 };

struct measure_request {
	struct model_config cfg;
	struct stage_options opt; /* first, last and recompute do not count */
	char optimizer[OPTIM_NAME];
	struct optim_config optim;
	enum dtype wire;
	int64_t tokens, sequences; /* of a row of a microbatch */
	double trained;            /* share of the tokens that are trained */
	/* this many of the sizes are measured even when time is short */
	int needed;
	int sizes, size[MEASURE_POINTS]; /* rows of a microbatch, the most important first */
	double budget;                   /* seconds after which no further size is begun */
	bool refresh;                    /* measure again what the cache has */
	int sharing;                     /* workers of the machine that measure at the same time */
};

enum measure_time {
	MEASURE_FORWARD,
	MEASURE_BACKWARD, /* without recomputation */
	MEASURE_FRONT_FORWARD,
	MEASURE_FRONT_BACKWARD,
	MEASURE_END_FORWARD,
	MEASURE_END_BACKWARD,
	MEASURE_UPLOAD,
	MEASURE_DOWNLOAD,
	MEASURE_COPY,
	MEASURE_WARM_FORWARD,
	MEASURE_WARM_BACKWARD,
	/* of the first two, what the experts of a mixture take */
	MEASURE_EXPERTS_FORWARD,
	MEASURE_EXPERTS_BACKWARD,
	MEASURE_TIMES
};

enum measure_part { MEASURE_LAYER, MEASURE_FRONT, MEASURE_END, MEASURE_PARTS };

/* One microbatch size. */
struct measure_point {
	int m, runs;
	double seconds[MEASURE_TIMES];
	double spread; /* (p90 - p10) / median of the runs of k layers */
	double drift;  /* last third of them over the first third, less 1 */
	uint64_t kept; /* bytes that a layer keeps from forward to backward */
	uint64_t work; /* most that a layer needs while it runs, with what it keeps */
	uint64_t head; /* most that the end needs beside its layers */
	uint64_t end;  /* of that, what it keeps from forward to backward */
};

struct measure_result {
	char name[MEASURE_NAME], driver[MEASURE_NAME];
	int units, threads; /* of the device; of this process */
	bool unified;       /* its memory is the host's */
	/* unified: `memory` is less than the host's, by a limit of this process that it need not
	 * share */
	bool limited;
	uint64_t memory, used, fixed; /* bytes: all, used by other programs, context and kernels */
	double rounding; /* of parameters: what the driver takes beyond their bytes, as a share */
	/* what a device that is a processor computes on: a list like "0-3,8", and with how many at
	 * once; "": something else */
	char cores[MEASURE_NAME];
	double processors;
	uint64_t host_free; /* bytes of the machine's own memory that are free; 0: not known */
	double optimizer[MEASURE_PARTS]; /* seconds: gradient norm and step */
	/* seconds in which the host's processor updates a GiB of training state; 0: not measured,
	 * since the device has no other memory than the host's */
	double host_update;
	uint64_t weights[MEASURE_PARTS], state[MEASURE_PARTS];
	/* time of a small model over the sum of its parts, less 1; 0: not checked */
	double residual;
	int points;
	struct measure_point point[MEASURE_POINTS]; /* by m */
};

/* Others on this machine that measure at the same time. A device begins when all are ready, and
 * computes on after its last measurement until all have finished: nobody measures with a larger
 * part of the processor and the memory than it has in training. */
struct measure_others {
	void *ctx;
	int (*begin)(void *ctx, struct err *e); /* returns when all are ready */
	/* This device has its result. */
	int (*end)(void *ctx, const struct measure_result *r, struct err *e);
	/* 1: some still measure; 0: none does. */
	int (*busy)(void *ctx, struct err *e);
	/* Whether nobody waits for the result any more: asked between runs. MAY be NULL */
	bool (*gone)(void *ctx);
};

/* Layers that are measured with `free` bytes free (0: not known). As many as no cache holds, if the
 * model has so many: in training the weights come from memory in every pass. But from the fourth on
 * they and their state take at most half of the free memory. */
int64_t measure_layers(const struct measure_request *q, uint64_t free);

/* `others` NULL, or without `begin`: none. ERR_NOMEM when not even the first size fits. */
int measure_run(const char *device, const struct measure_request *q,
		const struct measure_others *others, struct measure_result *r_p, struct err *e);

#endif
