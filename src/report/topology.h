/* SPDX-License-Identifier: Apache-2.0 */
/* topology.h - the picture of a job on one machine or several: machines, devices with their
 * layers, links.
 *
 * The caller, who knows the plan, fills the struct (all texts are borrowed). From it are made
 * Graphviz text (.dot), Mermaid text (.mmd) and, by the Graphviz library, .png and .svg. The texts
 * are pure functions of the struct. */
#ifndef HS_REPORT_TOPOLOGY_H
#define HS_REPORT_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct buf;

struct topology_machine {
	const char *name;    /* host name */
	const char *address; /* NULL: not shown */
	bool coordinator;
};

struct topology_device {
	const char *id;               /* "local", "1"; "": not shown */
	size_t machine;               /* index */
	const char *backend;          /* "cuda:0" */
	const char *name;             /* "NVIDIA RTX 3060" */
	int stage;                    /* -1: left out */
	int64_t first, last;          /* layers [first, last) */
	bool front, end;              /* holds the embedding; holds norm, head and loss */
	double share;                 /* of its group's microbatches, 0 to 1; NaN: not shown */
	uint64_t mem_need, mem_total; /* bytes; 0: not known */
	/* predicted or measured share of the step it computes; NaN: not known */
	double busy;
	/* several ranges ("0-7, 16-23"), in place of first and last; NULL: first and last hold */
	const char *layers;
};

struct topology_link {
	size_t from, to;       /* devices; activations go from -> to, gradients back */
	double bandwidth;      /* bytes per second; NaN: not known */
	double latency;        /* seconds; NaN: not known */
	const char *transport; /* "tls", "loop"; NULL: not shown */
	bool encrypted;
};

struct topology {
	const char *title; /* "SmolLM2-135M-Instruct on 3 devices" */
	/* "30 layers, 1f1b, 8 microbatches of 1: 812 ms a step"; NULL: none */
	const char *subtitle;
	const struct topology_machine *machine;
	size_t nmachine;
	const struct topology_device *device;
	size_t ndevice;
	const struct topology_link *link;
	size_t nlink;
};

void topology_dot(const struct topology *t, struct buf *out);
void topology_mermaid(const struct topology *t, struct buf *out);
/* Writes dir/architecture.dot, .mmd, .svg and .png, each atomically; and .pdf when `extra` is "pdf"
 * (`extra` may be NULL). When Graphviz has no renderer on this machine, the texts are written and
 * ERR_UNSUPPORTED says what is missing; the caller may continue with a warning. */
int topology_write(const struct topology *t, const char *dir, const char *extra, struct err *e);

#endif
