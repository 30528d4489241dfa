/* SPDX-License-Identifier: Apache-2.0 */
/* player.h - a worker that a test plays over the loop transport: it listens, hears HELLO, answers
 * WELCOME, and says what the test wants. */
#ifndef HS_TESTS_SUPPORT_PLAYER_H
#define HS_TESTS_SUPPORT_PLAYER_H

#include "coord/seat.h"
#include "net/frame.h"
#include "net/net.h"
#include "proto/hello.h"

#include <pthread.h>

enum { PLAYERS_MOST = 6 };

struct player {
	struct net *net;
	struct link *link; /* to the coordinator; NULL: none */
	pthread_t thread;
	int number;          /* as a member */
	uint64_t job, epoch; /* of its frames; job: as in HELLO */
	uint64_t window;     /* of its link; 0: the default */
	int goes;            /* so many connections are closed when HELLO has come */
};

/* Seats of workers "a", "b", ..., which listen at addresses that begin with `name`. */
void players_seats(struct seat_spec *seat, int n, const char *name);
/* Begins to listen at its seat's address, and plays in a thread: play(ctx). Fails the test
 * otherwise. */
void player_begin(struct player *w, const struct seat_spec *seat, int number,
		  void *(*play)(void *ctx), void *ctx);
/* Waits for the thread; closes link and net. */
void player_end(struct player *w);
/* Hears HELLO and answers with *c, whose id is filled in. False: nobody came. */
bool player_meet(struct player *w, struct welcome *c);
void player_say(struct player *w, enum frame_kind kind, uint64_t step, uint32_t microbatch,
		const void *payload, size_t n);

#endif
