/* SPDX-License-Identifier: Apache-2.0 */
/* profile.h - what was measured: per device times and memory, per link latency and bandwidth.
 * A planner knows nothing else.
 *
 * The file (profile.json, version 1). Times in milliseconds, memory in GiB (2^30 bytes), bandwidth
 * in GB/s (1e9 bytes), all per layer and per microbatch of m sequences of `sequence_len` tokens:
 *
 *   { "version": 1, "source": "...", "program", version of the program that measured
 *     "training", what is trained: "full", "lora r 16 on q_proj, ..."
 *     "model": {"name", "digest", "tied", "layers", "hidden", "parameters", "parameters_per_layer",
 *               "embedding_parameters", "head_parameters", default: half each of what is not in the
 *                 layers
 *               "layer_gib", "embedding_gib", "head_gib", weights; default: parameters in `dtype`
 *               "layer_state_gib", "embedding_state_gib", "head_state_gib"} what is trained:
 *                 gradient, moments, master copy;
 *                                                                       default: 12 bytes per
 *                                                                         parameter
 *               "gradient_share", of the state that is gradient; default 1/3
 *               "experts", "top_k", "expert_parameters": of a mixture: experts of a layer, those
 *                 that a token has, numbers of one
 *               "routing": [[row, ...], ...]} for each layer how many rows each of its experts got
 *                 from measured tokens; an empty list: not known; default: equally many
 *     "sequence_len", "dtype", "global_batch", "wire_bytes", wire_bytes: per number sent; default 2
 *     "fullest": CURVE, how many times the mean length the rows of a microbatch of m can have:
 *       memory must do for those; default 1. Memory in CURVEs of devices counts them already
 *     "devices": [{"id", "kind", "host", "memory_gib",
 *                  "forward_ms": CURVE, "backward_ms": CURVE, one layer; backward without
 *                    recomputing the forward
 *                  "embedding_forward_ms", "embedding_backward_ms",     CURVES; default 0
 *                  "head_forward_ms", "head_backward_ms", CURVES, norm + head + loss; default: a
 *                    layer's, by parameters
 *                  "optimizer_ms", "embedding_optimizer_ms", "head_optimizer_ms", a layer's step;
 *                    default 0
 *                  "experts_forward_ms", "experts_backward_ms", CURVES, what of forward_ms and
 *                    backward_ms the products of experts take; default: not known
 *                  "upload_ms", "download_ms", CURVES, one boundary message of m; default 0
 *                  "copy_ms", CURVE, of upload_ms what the bytes take; default: all of it
 *                  "warm_forward_ms", "warm_backward_ms", CURVES, a layer directly behind the same
 *                    layer's pass; default: forward_ms, backward_ms
 *                  "activation_gib": CURVE, the most one layer needs while it runs; default: as
 *                    kept_gib
 *                  "kept_gib": CURVE, what a layer keeps from forward to backward; default 34 T C m
 *                    bytes
 *                  "head_gib": CURVE, the most norm + head + loss need while they run; default 0
 *                  "head_kept_gib": CURVE, of that, what they keep from forward to backward;
 *                    default 0
 *                  "measured": {"driver", "units", "threads", "residual", "samples": [{"m", "runs",
 *                    "spread", "drift",
 *                               "forward_ms", ...}]}, what the curves come from; no planner needs
 *                                 it
 *                  "estimated", its times come from a data sheet, not from this device
 *                  "watts", at work; default: of the card of this kind, if it is known
 *                  "host_memory_gib", free on its host, for what is offloaded; default: no limit
 *                  "host_update_s", in which its host updates a GiB of training state that is
 *                    offloaded; default: PROFILE_HOST_UPDATE_S, assumed
 *                  "rounding", what the driver takes beyond the bytes of parameters and state, as
 *                    a share of them: it gives memory in pieces; default 0
 *                  "cores", "processors", which cores of its host a processor computes on
 *                    ("0-3,8"), and with how many at once; default: it shares them with no other
 *                    device
 *                  "fixed_gib", "used_gib", "reserve_gib"}, ...], context and kernels; held by
 *                    others; default reserve
 *                                                                       5 % of the memory
 *     "links": [{"hosts": [a, b], "bandwidth_gbytes_per_s", "latency_ms",
 *                "reverse_bandwidth_gbytes_per_s", "reverse_latency_ms",
 *                "relay", the host that passes on what they say, where they do not reach each other
 *                "ways": [{"addresses": [a's, b's], "used", "unreachable", "latency_ms", "samples":
 *                  [{"bytes", "gbytes_per_s",
 *                          "spread", "reverse_gbytes_per_s", "reverse_spread"}]}]}, ...], every
 *                            pair of addresses that was tried
 *     "hosts": [{"name", "card_gbytes_per_s"}, ...], network card shared by all flows of a host,
 *       each direction
 *     "collective": {"all_gather_ms", "reduce_scatter_ms"}, one layer over all devices; default:
 *       from the links
 *     "step_ms" } fixed time of a step (global norm round); default 0
 *
 *   CURVE = {"table": [m = 1, 2, ...], "linear": [slope, intercept], "residual"}: the table inside
 *     its range, the line beyond it (which
 *   misses what was measured by at most the share `residual`). Without a line, the one through the
 *     table's last up to five points; without a table, the line everywhere.
 *
 * Unknown keys are left alone (a planner ignores what it does not know). A link holds for both
 * directions unless reverse_* says otherwise; of several for the same two hosts (one per pair of
 * addresses) the one with the highest bandwidth counts. "*" as both hosts stands for all pairs not
 * named. Two different hosts without any link are an error; two devices of one host without one get
 * PROFILE_LOCAL_*. The default of card_gbytes_per_s is the fastest link of the host.
 *
 * 34 T C m bytes: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
 * Models" (2022), equation 1 without its attention-matrix term, which is never stored here. */
#ifndef HS_PLAN_PROFILE_H
#define HS_PLAN_PROFILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"

struct err;
struct buf;

#define PROFILE_VERSION 1
#define PROFILE_LOCAL_GBYTES_PER_S 4.0
#define PROFILE_LOCAL_LATENCY_MS 0.05
/* read and written at 10 GB/s */
#define PROFILE_HOST_UPDATE_S 0.2

enum {
	PROFILE_MAX_DEVICES = 1024,
	PROFILE_MAX_LAYERS = 10000,
	PROFILE_MAX_BATCH = 65536,
	PROFILE_MAX_WORK = 1 << 20, /* devices times global_batch, and devices times layers */
	PROFILE_MAX_TABLE = 4096,
	PROFILE_MAX_CORES = 1024,
	PROFILE_MAX_EXPERTS = 1024
};

struct curve {
	const double *table; /* table[m - 1] */
	int n;
	bool line, given;
	double slope, intercept, residual;
};

/* The value at microbatch size m >= 1; never negative. */
double curve_at(const struct curve *c, int m);

/* The times of one microbatch size; seconds[] in the order of profile_times. */
enum { PROFILE_TIMES = 13, PROFILE_SAMPLES = 16 };
/* "forward_ms", ...: as in the device's curves */
extern const char *const profile_times[PROFILE_TIMES];

struct profile_sample {
	int m, runs;
	double ms[PROFILE_TIMES];
	/* (p90 - p10) / median; last third of the runs over the first, less 1 */
	double spread, drift;
};

struct profile_measured {
	const char *driver; /* NULL: none of this is known */
	int units, threads; /* of the device; of the process */
	/* time of a small model over the sum of its parts, less 1; 0: not checked */
	double residual;
	int samples;
	struct profile_sample sample[PROFILE_SAMPLES];
};

struct profile_device {
	const char *id, *kind;
	int host;       /* index into profile.host */
	bool on_host;   /* its memory is the host's: nothing can be offloaded */
	bool estimated; /* its times were not measured on it */
	double memory_gib, fixed_gib, used_gib, reserve_gib;
	double rounding;        /* what the driver takes for parameters beyond their bytes */
	const char *cores;      /* as in the file; NULL: its own */
	double processors;      /* how many it computes with at once */
	double watts;           /* at work; 0: as the library of cards says, if it knows the kind */
	double host_memory_gib; /* free memory of the host, for what is offloaded; 0: not known */
	double host_update_s;   /* a GiB of training state; 0: not measured */
	struct curve forward_ms, backward_ms, embedding_forward_ms, embedding_backward_ms,
		head_forward_ms, head_backward_ms;
	/* of these forward_ms and backward_ms, what the experts take; not given: not known */
	struct curve experts_forward_ms, experts_backward_ms;
	struct curve copy_ms, warm_forward_ms, warm_backward_ms;
	struct curve upload_ms, download_ms, activation_gib, kept_gib, head_gib, head_kept_gib;
	double optimizer_ms, embedding_optimizer_ms, head_optimizer_ms;
	struct profile_measured measured;
};

/* What was measured between one address of either host. */
enum { PROFILE_WAY_SAMPLES = 3 };
struct profile_way_sample {
	double bytes;                  /* of a message */
	double rate, reverse_rate;     /* GB/s; 0: not measured */
	double spread, reverse_spread; /* between quartiles, as a share */
};
struct profile_way {
	const char *from, *to;   /* "": the kernel chose, or no number */
	bool used;               /* a run uses this one */
	const char *unreachable; /* why; NULL: reached */
	double latency_ms;
	int samples;
	struct profile_way_sample sample[PROFILE_WAY_SAMPLES];
};

struct profile_link {
	int from, to; /* hosts; both -1: all pairs not named */
	double bandwidth, latency_ms, reverse_bandwidth, reverse_latency_ms;
	/* [ways] in the profile's arena: the measurements behind the figures; no planner
	 * needs them */
	const struct profile_way *way;
	int ways;
	int relay; /* 1 + the host that passes on what these two say; 0: they reach each other */
};

struct profile_host {
	const char *name;
	double card; /* GB/s */
	bool card_given;
};

struct profile {
	struct arena mem;
	const char *source, *model, *dtype;
	const char *program, *training, *digest; /* NULL: not stated */
	/* the head is the embedding: a stage that has both holds it once, but where it is trained
	 * with two gradients */
	bool tied;
	int layers, hidden, sequence_len, global_batch;
	/* of a mixture of experts: how many, how many a token has, numbers of one; else 0 */
	int experts, top_k;
	double expert_parameters;
	double *routing; /* [layers * experts] the share of a layer's rows; NULL: not measured */
	double parameters, parameters_per_layer, embedding_parameters, head_parameters;
	double layer_gib, embedding_gib, head_gib, layer_state_gib, embedding_state_gib,
		head_state_gib;
	double expert_gib;     /* of layer_gib: frozen matrices of experts; 0: none */
	double gradient_share; /* of the state; 0: a third (profile_gradients) */
	struct curve fullest;  /* without any: 1 (profile_fullest) */
	double wire_bytes, step_ms;
	bool collective;
	double all_gather_ms, reduce_scatter_ms;
	struct profile_device *device;
	int devices;
	struct profile_host *host;
	int hosts;
	struct profile_link *link;
	int links;
	/* made by profile_finish(): [hosts * hosts], from the row to the column */
	double *bandwidth, *latency_ms;
	int *relay;  /* likewise: 1 + the host between them, 0: none */
	bool relays; /* there is one */
};

int profile_read_file(struct profile *p, const char *path, struct err *e);
int profile_read_text(struct profile *p, const char *text, size_t n, const char *where,
		      struct err *e);
void profile_write(const struct profile *p, struct buf *out);
void profile_release(struct profile *p);

/* The index of a device, or -1. */
int profile_find(const struct profile *p, const char *id);
/* Removes a device; ERR_USAGE when there is none of that name, or it is the last one. */
int profile_remove(struct profile *p, const char *id, struct err *e);
/* For programs that fill a profile by hand (tests, the profiler, what-if): defaults and checks as
 * after reading, link matrix. */
int profile_finish(struct profile *p, const char *where, struct err *e);

/* Of the rows of a layer of a mixture, those of expert x. */
static inline double profile_expert_load(const struct profile *p, int layer, int x)
{
	return p->routing ? p->routing[layer * p->experts + x] : 1.0 / p->experts;
}
/* `picks`: [layers * experts] how many tokens chose each; layers of which nothing is known have
 * zeros, and equal shares then. */
int profile_set_routing(struct profile *p, const double *picks, struct err *e);
double profile_bandwidth(const struct profile *p, int from_device, int to_device); /* GB/s */
double profile_latency_ms(const struct profile *p, int from_device, int to_device);
/* The host that passes on what they say, or -1. */
int profile_relay(const struct profile *p, int from_device, int to_device);
/* `from` times `factor`; its table goes into the profile's arena. */
int profile_scale_curve(struct profile *p, struct curve *to, const struct curve *from,
			double factor, struct err *e);
/* A device computes `factor` times as long. */
int profile_slow_device(struct profile *p, int device, double factor, struct err *e);
/* A byte takes `factor` times as long from one host to another. */
void profile_slow_link(struct profile *p, int from_device, int to_device, double factor);
/* How many cores a list like "0-3,8" names, and which (MAY be NULL); 0: it is no list. */
struct core_set {
	unsigned char bit[PROFILE_MAX_CORES / 8];
};
int profile_cores(const char *text, struct core_set *set);
double profile_gradients(const struct profile *p);
/* The longest rows of a microbatch of m over the mean ones; at least 1. */
double profile_fullest(const struct profile *p, int m);
/* Bytes of a number in `dtype`. */
double profile_dtype_bytes(const struct profile *p);
/* Whether a device of it was estimated. */
bool profile_estimated(const struct profile *p);
/* Whether the head is the embedding and trained. */
bool profile_trains_tied(const struct profile *p);
/* Memory a plan may use on a device. `reserve_gib` < 0: the profile's own. */
double profile_limit_gib(const struct profile *p, int device, double reserve_gib);

#endif
