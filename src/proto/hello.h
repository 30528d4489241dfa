/* SPDX-License-Identifier: Apache-2.0 */
/* hello.h - the first frames on a link between two processes: who dials says HELLO, who listens
 * answers WELCOME or REFUSE.
 *
 * A connection is told apart by its proven key and by what its HELLO says (the coordinator, or a
 * worker of the stage before), never by the order in which it came. */
#ifndef HS_PROTO_HELLO_H
#define HS_PROTO_HELLO_H

#include "net/frame.h"
#include "net/interfaces.h"
#include "net/net.h"
#include "job/config.h"

struct err;

/* of the frames' fields; a change that an older program cannot read is a new number */
enum { HELLO_PROTOCOL = 5 };
enum hello_role {
	HELLO_COORDINATOR,
	HELLO_STAGE,
	HELLO_PROBE /* measures the link, while the coordinator wants that */
};

struct hello {
	uint32_t protocol;
	uint8_t role;
	uint32_t member; /* HELLO_STAGE: the number of the member that dials */
	uint64_t job;    /* HELLO_STAGE, HELLO_PROBE: must be the job of the listener */
	char model[65];  /* digest of configuration and tensor list, hexadecimal */
	char to[128];    /* the worker that is meant, by id */
	char host[128];  /* of who dials, for messages */
};

struct welcome {
	char id[128], host[128];
	char backend[32], device[128]; /* "cpu", "AMD EPYC ..." */
	uint64_t memory;               /* bytes of the device */
	uint8_t bf16, f16;             /* native matrix products */
	uint8_t formats;               /* bit of each enum dtype that it can compute in at all */
	uint64_t wall;                 /* seconds since 1970, as this machine believes */
	/* Where others may dial it, for choosing the fastest way (session_links.h). Nothing listed:
	 * only where the coordinator did. */
	char machine[MACHINE_TEXT]; /* workers that say the same share a machine */
	uint32_t port;
	uint32_t naddress;
	struct interface address[INTERFACES_MOST];
};

int hello_send(struct link *l, const struct hello *h, int64_t deadline, struct err *e);
int hello_read(const struct frame *f, struct hello *h_p, struct err *e);
int welcome_send(struct link *l, const struct welcome *w, int64_t deadline, struct err *e);
/* Of a WELCOME; a REFUSE becomes ERR_NET with the listener's words. */
int welcome_read(const struct frame *f, struct welcome *w_p, struct err *e);
/* Says why not and leaves the link to the caller, who closes it. */
void hello_refuse(struct link *l, const char *why);

#endif
