/* SPDX-License-Identifier: Apache-2.0 */
/* hello.h - the first frames on a link between two processes: the connecting process sends HELLO,
 * the listening one answers WELCOME or REFUSE.
 *
 * A connection is identified by its proven key and by its HELLO (the coordinator, or a worker of
 * the previous stage), never by the order of arrival. */
#ifndef HS_PROTO_HELLO_H
#define HS_PROTO_HELLO_H

#include "net/frame.h"
#include "net/interfaces.h"
#include "net/net.h"
#include "config/config.h"

struct err;

/* Version of the frames' fields; a change that an older program cannot read gets a new number.
 * HELLO_AGE: of a program that tests build, to be an older one. */
#ifndef HELLO_AGE
#define HELLO_AGE 0
#endif
enum { HELLO_PROTOCOL = 21 - HELLO_AGE };
enum hello_role {
	HELLO_COORDINATOR,
	HELLO_STAGE,
	HELLO_PROBE,  /* measures the link, on the coordinator's order */
	HELLO_WORKER, /* to the coordinator: a worker that waits for a job */
	/* HELLO_STAGE the other way round: from a member of the next stage, or a later one of the
	 * group, because the listener does not reach it */
	HELLO_BEHIND,
	HELLO_RELAY, /* to the coordinator: pass on what goes to and from the worker `to` */
};

/* In PLAN, in place of the fastest address of a member (crew.h, best), and in PROBE: through the
 * coordinator; the other one connects. */
#define MEMBER_RELAY "relay"
#define MEMBER_WAIT "wait"

struct hello {
	uint32_t protocol;
	uint8_t role;
	uint32_t member; /* HELLO_STAGE, HELLO_RELAY: the number of the connecting member */
	uint32_t front;  /* HELLO_RELAY: the one of the two in front; UINT32_MAX: measured */
	uint64_t job; /* HELLO_STAGE, HELLO_PROBE, HELLO_RELAY: must be the job of the listener */
	/* HELLO_STAGE, HELLO_BEHIND: and that of its plan (net/frame.h); HELLO_COORDINATOR: its
	 * term and 0 */
	uint64_t epoch;
	uint64_t run;   /* HELLO_COORDINATOR: names the run (job/run_folder.h); 0: there is none */
	char model[65]; /* digest of configuration and tensor list, hexadecimal */
	char to[128];   /* the worker that is meant, by id */
	char host[128]; /* of the connecting process, for messages */
};

struct welcome {
	char id[128], host[128];
	char backend[32], device[128]; /* "cpu", "AMD EPYC ..." */
	uint64_t memory;               /* bytes of the device */
	uint8_t bf16, f16;             /* native matrix products */
	uint8_t formats;               /* bit of each enum dtype that it can compute in at all */
	/* what decides the bits of its results: library and instruction set, or card and driver;
	 * equal texts give equal bits */
	char arithmetic[192];
	uint64_t wall; /* seconds since 1970, by this machine's clock */
	/* Of this run it has kept the state after a step, or a part of it (worker/kept.h); of
	 * `kept_stage` in the plan of epoch `kept_plan`, and all of it unless `kept_part`. */
	uint8_t keeps, kept_part;
	uint32_t kept_stage;
	uint64_t kept_step, kept_origin, kept_plan;
	/* The addresses at which it can be reached, for choosing the fastest one (coord/links.h).
	 * None listed: only the address that the coordinator used. */
	char machine[MACHINE_TEXT]; /* equal for workers on one machine */
	uint32_t port;
	uint32_t naddress;
	struct interface address[INTERFACES_MOST];
	/* the machine's signature of "ADDRESS:PORT" (keys.h), with which others believe that it
	 * listens there; "" without keys */
	char proof[INTERFACES_MOST][KEY_PROOF];
};
#define WELCOME_LISTENS "listens at" /* the subject of these signatures */

int hello_send(struct link *l, const struct hello *h, int64_t deadline, struct err *e);
int hello_read(const struct frame *f, struct hello *h_p, struct err *e);
int welcome_send(struct link *l, const struct welcome *w, int64_t deadline, struct err *e);
/* Reads a WELCOME; a REFUSE becomes ERR_NET with the listener's reason. */
int welcome_read(const struct frame *f, struct welcome *w_p, struct err *e);
/* Sends the reason; the caller closes the link. */
void hello_refuse(struct link *l, const char *why);

#endif
