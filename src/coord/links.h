/* SPDX-License-Identifier: Apache-2.0 */
/* links.h - the ways (pairs of addresses) between the machines of a job, their measured speed, and
 * the best of them. links_measure.h measures, links_cache.h keeps the results. Pure, except for
 * looking up host names and log lines. */
#ifndef HS_COORD_LINKS_H
#define HS_COORD_LINKS_H

#include "coord/seat.h"
#include "net/range.h"
#include "proto/hello.h"
#include "proto/link_probe_wire.h"

struct err;

/* The workers that links are between, by number; all borrowed. */
struct link_ends {
	const struct seat_spec *spec;
	const struct welcome *caps;
	int n;
	/* whether worker i is there; NULL: all are */
	bool (*there)(const void *ctx, int i);
	const void *ctx;
	bool relays;           /* the coordinator passes on what two of them say */
	const char *cache_dir; /* NULL: the default */
	/* addresses of a mesh (docs/mesh.md): between two machines of it they and those of their
	 * own networks are used, and no public ones */
	struct net_range mesh[2];
	size_t nmesh;
};

struct link_row {
	/* members that measured, one for each machine; `from` connected and measured */
	int from, to;
	int from_machine, to_machine;
	char from_address[64], from_interface[32]; /* "": the kernel chose */
	char to_address[64], to_interface[32];
	bool configured, best; /* configured: to_address is the one of the configuration */
	struct probe_way way;
};

struct link_table {
	/* [workers, when it was measured]: number of the machine, from 0; -1: not there */
	const int *machine;
	int machines;
	/* [machines], from WELCOME */
	char (*name)[MACHINE_TEXT];
	struct link_row *row; /* rows of one pair of machines stand together */
	size_t n, cap;
};

/* Bytes per second for messages of that size, in one direction or (back) the other: of the nearest
 * size that was measured. 0: none was. */
double link_rate(const struct link_row *r, bool back, uint64_t message);
/* The best row between the machines of two workers, NULL when there is none that was reached.
 * *turned_p: the row is from b's machine to a's. */
const struct link_row *link_best(const struct link_table *t, int a, int b, bool *turned_p);

/* A table without rows. */
int links_new(const struct link_ends *s, struct link_table **t_p, struct err *e);
void links_free(struct link_table *t); /* NULL is allowed */
/* Adds a row for every way from worker a to worker b, the likeliest first. */
int links_ways(const struct link_ends *s, struct link_table *t, int a, int b, struct err *e);
/* Adds the row of going through the coordinator. */
int links_relay(struct link_table *t, int a, int b, struct err *e);
/* Marks the best of rows [first, n), all of one pair; false: none of them was reached. */
bool links_choose(const struct link_ends *s, struct link_table *t, size_t first, uint64_t message);
/* The first worker of machine `m` that is not `not_this`; -1: none. */
int links_speaker(const struct link_ends *s, const struct link_table *t, int m, int not_this);
/* The address of a row, as a worker checks it (proto/ways.h). */
void links_dial_text(const struct link_ends *s, const struct link_row *r, char out[NET_ADDRESS]);
/* An address of an invited worker, signed by it: one in the mesh, else the one it connected from
 * (`from`), else the first that it names; "" when it names none. */
void links_own_address(const struct link_ends *s, const struct welcome *w, const char *from,
		       char out[NET_ADDRESS]);
/* How `self` reaches `other`, for PLAN: the best measured address, MEMBER_WAIT or MEMBER_RELAY
 * (crew.h); nothing is written when only the configured one is known (t NULL: nothing was
 * measured), and for the side that waits as usual. `front`: self usually connects to other. */
void links_address(const struct link_ends *s, const struct link_table *t, int self, int other,
		   bool front, char address[NET_ADDRESS]);

#endif
