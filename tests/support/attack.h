/* SPDX-License-Identifier: Apache-2.0 */
/* attack.h - programs that attack a listening port as strangers, that is without a key that it
 * knows, until attack_end(). Each is a process of its own, in a control group (attack_limit) or
 * with the lowest priority. */
#ifndef HS_TESTS_SUPPORT_ATTACK_H
#define HS_TESTS_SUPPORT_ATTACK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum attack {
	ATTACK_SILENT,    /* connections that say nothing, as many as there can be */
	ATTACK_ENDLESS,   /* a first message that does not end */
	ATTACK_FLOOD,     /* connections that begin a handshake and close */
	ATTACK_GARBAGE,   /* random bytes */
	ATTACK_DRIP,      /* many handshakes, a byte at a time with long pauses */
	ATTACK_HELLOS,    /* first messages of a handshake, which make the other side compute */
	ATTACK_HANDSHAKE, /* whole handshakes with a key that is not on the list */
	ATTACKS,
	ATTACK_SPIN = ATTACKS, /* no attack: a loop that takes as much of the processor */
};
extern const char *const attack_name[ATTACKS + 1];

/* What the processes of one attack have done so far; shared memory. */
struct attack_count {
	_Atomic uint64_t connections, bytes;
};

struct attacker {
	pid_t pid;
	struct attack_count *count;
};

/* Attacks 127.0.0.`host`:`port`, whose key is `key`. */
struct attacker attack_start(enum attack what, int host, int port, const char *key);
void attack_stop(struct attacker *a);
/* From now on all attackers together get `percent` of a core, in a control group. false: no group
 * can be made here. */
bool attack_limit(int percent);
/* Ends all of them and removes the control group. */
void attack_end(void);

#endif
