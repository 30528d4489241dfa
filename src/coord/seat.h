/* SPDX-License-Identifier: Apache-2.0 */
/* seat.h - how a worker is started: as a thread of this process, as a process of this machine, or
 * by a person on another machine.
 *
 * Starting and ending only; a running worker is reached by its link (session.h). */
#ifndef HS_COORD_SEAT_H
#define HS_COORD_SEAT_H

#include "base/err.h"
#include "model/source.h"
#include "net/net.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* SEAT_INVITED: it connects to the coordinator, and has no address (peers/reception.h). */
enum seat_kind { SEAT_THREAD, SEAT_PROCESS, SEAT_REMOTE, SEAT_INVITED };

struct seat_spec {
	enum seat_kind kind;
	const char *id, *host; /* of the worker; host as the configuration names it */
	const char *device;
	const char *key;    /* public; NULL: a link without keys */
	const char *handed; /* one-time keys for it (network.h); NULL: it has its own, or none */
	/* SEAT_PROCESS: who listens at the TCP port of its address is taken for the worker. Else
	 * only who listens where processes of this machine and user meet */
	bool by_port;
	bool spare;            /* it holds nothing until another one is lost */
	bool late;             /* it is not there when the job begins, and may come */
	const char *cache_dir; /* SEAT_THREAD; NULL: the default */
	uint64_t window;       /* SEAT_THREAD: of links towards it (net.h); 0: the default */
	char address[NET_ADDRESS];
};

struct seat {
	const struct seat_spec *spec;
	const struct weight_source
		*source; /* SEAT_THREAD: the source of its parameters; borrowed */
	pthread_t thread;
	struct net *net; /* the thread's end */
	struct err err;
	bool running;
	atomic_bool called_off; /* of a thread: nobody will connect to it */
	pid_t pid;
	int tie;    /* of a process started here: it ends when this is closed (os.h) */
	int status; /* of a process that ended, as waitpid gives it */
};

/* `program`: argv of a worker process, ended by NULL, its first word the path of the program;
 * "--worker ID" is added. Where a process listens at its address already, none is started and that
 * one is used: its key shows whether it is the right one, or without keys the kernel says that it
 * is of this user. One with one-time keys is always started; its address must be free. */
int seat_start(struct seat *w, char *const *program, struct err *e);
/* Whether a process has ended by itself, and how ("was killed by signal 9"). */
bool seat_ended(struct seat *w, char *how, size_t cap);
/* Whether a worker listens at the address of a seat. */
bool seat_is_taken(const struct seat_spec *s);
/* After seat_ended(): whether another process listens at the worker's address now (it was started
 * by hand at the same moment); then the seat is for that one. */
bool seat_replaced(struct seat *w);
/* Waits for a thread to end; for a process for `patience` seconds, then kills it. `reached` false:
 * the worker waits for a coordinator that never connected; it ends at once. */
void seat_stop(struct seat *w, double patience, bool reached);

#endif
