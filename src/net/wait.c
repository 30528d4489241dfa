/* SPDX-License-Identifier: Apache-2.0 */
/* wait.c - what links and transports need of their net: waiting under its lock (wait.h), waking,
 * deadlines, and who may connect (net_priv.h). It calls neither links nor transports. */
#include "net/wait.h"

#include "base/clock.h"
#include "base/os_calls.h"
#include "net/keys.h"

#include <pthread.h>
#include <time.h>

int64_t net_in(double seconds)
{
	if (!(seconds < 1e9))
		return NET_FOREVER;
	return clock_now() + (int64_t)(seconds > 0 ? seconds * 1e9 : 0);
}

void net_want_connections(struct net *n, unsigned count)
{
	pthread_mutex_lock(&n->lock);
	n->connections = count < 1 ? 1 : count < NET_CONNECTIONS ? count : NET_CONNECTIONS;
	pthread_mutex_unlock(&n->lock);
}

unsigned net_wanted_connections(struct net *n)
{
	pthread_mutex_lock(&n->lock);
	unsigned count = n->connections;
	pthread_mutex_unlock(&n->lock);
	return count;
}

bool net_admits(struct net *n)
{
	pthread_mutex_lock(&n->lock);
	bool yes = n->admits;
	pthread_mutex_unlock(&n->lock);
	return yes;
}

bool net_is_allowed(struct net *n, const char *public_key)
{
	bool found = false;
	pthread_mutex_lock(&n->lock);
	for (size_t i = 0; i < n->nallowed; i++)
		found |= key_equal(n->allowed[i], public_key);
	pthread_mutex_unlock(&n->lock);
	return found;
}

unsigned net_waiting(struct net *n)
{
	unsigned count = 0;
	pthread_mutex_lock(&n->lock);
	for (struct link *l = n->accepted; l; l = l->next_accepted)
		count++;
	pthread_mutex_unlock(&n->lock);
	return count;
}

bool net_wait(struct net *n, int64_t deadline, int64_t next)
{
	if (deadline <= clock_now())
		return false;
	int64_t until = deadline < next ? deadline : next;
	if (until == NET_FOREVER) {
		pthread_cond_wait(&n->cond, &n->lock);
		return true;
	}
	os_cond_wait(&n->cond, &n->lock, until);
	return true; /* a wait that ran out looks once more before it gives up */
}

void net_wake(struct net *n)
{
	pthread_mutex_lock(&n->lock);
	n->wake = true;
	pthread_cond_broadcast(&n->cond);
	pthread_mutex_unlock(&n->lock);
}
