/* SPDX-License-Identifier: Apache-2.0 */
/* serving.h - a worker that waits for its coordinator in a thread, and who connects to it. Failures
 * end the test. */
#ifndef HS_TESTS_SUPPORT_SERVING_H
#define HS_TESTS_SUPPORT_SERVING_H

#include <pthread.h>

#include "base/err.h"
#include "proto/hello.h"
#include "worker/serve.h"

struct serving {
	struct serve o; /* `net`, `listens` and what else the test wants; the rest is filled in */
	pthread_t thread;
	struct err e; /* why it ended */
	int rc;
};

void serving_start(struct serving *s);
int serving_end(struct serving *s); /* waits for it; its rc */

/* A transport's end with this key (NULL: none). */
struct net *serving_net(const struct key_pair *key);
/* A link from `n` to the worker at `at`, whose public key is `pub` (NULL: none). */
struct link *serving_knock(struct net *n, const char *at, const char *pub);
void serving_hello(struct link *l, enum hello_role role, uint64_t job);
/* Reads WELCOME. */
void serving_welcome(struct link *l, struct welcome *w);

#endif
