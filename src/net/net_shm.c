/* SPDX-License-Identifier: Apache-2.0 */
/* net_shm.c - links through shared memory, between processes of one machine and one user: the
 * functions behind the calls of net.h.
 *
 * Addresses are those of TCP, but they only name the rendezvous (shm_meet.h): no port is opened.
 * The protocol is that of links over TCP (tls_head.h), run by the same thread (tls_hub.c), without
 * encryption; larger messages lie in memory that both ends map (shm_memory.h).
 *
 * Without keys the peer's user is checked; with them both prove their keys too (shm_proof.h). */
#include <sodium.h>
#include <string.h>

#include "base/err.h"
#include "net/address.h"
#include "net/shm_meet.h"
#include "net/tls_hub.h"

enum { PORT_FIRST = 20000, PORTS = 40000, PORT_TRIES = 50 };

static int elsewhere(const char *address, struct err *e)
{
	return err_set(e, ERR_USAGE,
		       "%s: not an address of this machine, and the transport shm goes nowhere "
		       "else; use the transport tls",
		       address);
}

static int shm_listen(struct net *n, const char *address, char bound_p[NET_ADDRESS], struct err *e)
{
	char number[NET_ADDRESS], host[NET_ADDRESS], path[MEET_PATH] = "";
	unsigned port;
	bool loopback;
	int fd, rc = ERR_NET;
	TRY(address_resolve(address, true, number, &loopback, e));
	if (number[0] != '*' && !meet_is_here(number))
		return elsewhere(address, e);
	address_parts(number, host, &port);
	for (int i = 0; i < (port ? 1 : PORT_TRIES) && rc < 0; i++) {
		address_join(host, port ? port : PORT_FIRST + randombytes_uniform(PORTS), bound_p);
		rc = meet_listen(bound_p, &fd, path, e);
	}
	if (rc >= 0)
		hub_listen(n->priv, -1, fd, path);
	return rc;
}

static int shm_dial(struct link *l, const char *address, const char *peer_key, struct err *e)
{
	const char *semicolon = strchr(address, ';'), *to = semicolon ? semicolon + 1 : address;
	char number[NET_ADDRESS];
	bool loopback;
	(void)peer_key; /* is l->peer */
	TRY(address_resolve(to, false, number, &loopback, e));
	if (!meet_is_here(number))
		return elsewhere(to, e);
	return hub_dial(l->net->priv, l, NULL, 0, "", number, e);
}

const struct net_transport net_shm = {
	.name = "shm",
	.way = "shared memory",
	.trusted = true,
	.open = hub_open,
	.close = hub_close,
	.listen = shm_listen,
	.dial = shm_dial,
	.send = hub_send,
	.taken = hub_taken,
	.waits = hub_waits,
	.shut = hub_shut,
	.take = hub_take,
	.freed = hub_freed,
	.buffer = hub_buffer,
};
