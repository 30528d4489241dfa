/* SPDX-License-Identifier: Apache-2.0 */
/* session_links.h - which way between two machines is the fastest, measured between JOIN and PLAN.
 *
 * For each pair of machines one worker of the first is told to measure (PROBE), one of the second
 * to answer, over every pair of their addresses, one pair of machines at a time; where nothing
 * gets through, the other way round. Workers of one machine are measured once, at their
 * configured address. The best way is what PLAN then names. Results are kept for a day, by keys
 * and addresses. */
#ifndef HS_COORD_SESSION_LINKS_H
#define HS_COORD_SESSION_LINKS_H

#include "worker/link_probe.h"
#include "coord/session.h"

struct link_row {
	/* workers of the session when it was measured, each speaking for its machine; `from`
	 * dialled and measured */
	int from, to;
	int from_machine, to_machine;
	char from_address[64], from_interface[32]; /* "": the kernel chose */
	char to_address[64], to_interface[32];
	bool configured, best; /* configured: to_address is the one of the configuration */
	struct probe_way way;
};

struct link_table {
	const int *machine; /* [workers, when it was measured]: number of the machine, from 0 */
	int machines;
	/* [machines], as WELCOME has it: workers may be put into another order afterwards */
	char (*name)[MACHINE_TEXT];
	struct link_row *row; /* rows of one pair of machines stand together */
	size_t n, cap;
};

struct links_options {
	bool refresh; /* measure again what the cache has */
	/* bytes of a message that is typical for the job: by it the best way is chosen; 0: 1 MiB */
	uint64_t message;
	double seconds;                    /* for one direction of one address; 0: 1 */
	const volatile sig_atomic_t *stop; /* MAY be NULL */
	void (*part)(void *ctx, const char *what, uint64_t done, uint64_t all); /* MAY be NULL */
	void *ctx;
};

/* After session_join, before session_begin. The table belongs to the session. Machines that cannot
 * reach each other are a row that says so and a warning, not an error: a plan may need no link
 * between them. */
int session_measure_links(struct session *s, const struct links_options *o,
			  const struct link_table **t_p, struct err *e);

/* Bytes per second for messages of that size, there or (back) back: the nearest size that was
 * measured. 0 where nothing was. */
double link_rate(const struct link_row *r, bool back, uint64_t message);
/* The best row between the machines of two workers, NULL when there is none that was reached.
 * *turned_p: its `from` is b's machine. */
const struct link_row *link_best(const struct link_table *t, int a, int b, bool *turned_p);

/* For session.c: what the cache knows, unless something was measured. Then where `from` should
 * dial `to`, workers as they are now; false, and nothing written, without better knowledge than
 * the configuration's. */
void session_recall_links(struct session *s);
bool session_best_address(const struct session *s, int from, int to, char address[NET_ADDRESS]);
void link_table_free(struct link_table *t);

#endif
