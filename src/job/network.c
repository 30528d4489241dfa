/* SPDX-License-Identifier: Apache-2.0 */
/* network.c - see network.h. */
#include "job/network.h"

#include "base/err.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

void network_address(const char *ip, const char *hostname, int64_t port, char out[NET_ADDRESS])
{
	const char *host = ip && ip[0] ? ip : hostname;
	snprintf(out, NET_ADDRESS, strchr(host, ':') ? "[%.250s]:%lld" : "%.250s:%lld", host,
		 (long long)port);
}

int network_open(const struct config *c, const char *listed, struct net **n_p, struct err *e)
{
	struct key_pair k;
	bool keys = c->coordinator.public_key != NULL;
	struct net_options o = { .peer_timeout = c->peer_timeout, .insecure = c->insecure };
	if (keys) {
		char path[PATH_MAX];
		if (c->key_file)
			snprintf(path, sizeof path, "%s", c->key_file);
		else
			TRY(key_default_path(path, sizeof path, false, e));
		TRY(key_pair_load(path, &k, e));
		if (listed && !key_equal(k.pub, listed)) {
			int rc = err_set(
				e, ERR_USAGE,
				"%s: this machine's public key is '%s', but %s lists '%s' for it: "
				"put the right key into the "
				"configuration on all machines, or name the right file (key_file)",
				path, k.pub, c->path, listed);
			key_pair_wipe(&k);
			return rc;
		}
		o.key = &k;
	}
	struct net *n;
	int rc = net_open(!strcmp(c->transport, "auto") ? "zmq" : c->transport, &o, &n, e);
	if (keys)
		key_pair_wipe(&k);
	if (rc < 0)
		return rc;
	if (keys)
		rc = net_allow(n, c->coordinator.public_key, e);
	for (size_t i = 0; keys && i < c->nworkers && rc >= 0; i++)
		rc = net_allow(n, c->workers[i].public_key, e);
	if (rc < 0) {
		net_close(n, 0);
		return rc;
	}
	*n_p = n;
	return 0;
}

const char *network_local_device(const struct config *c)
{
	return c->coordinator.device && strcmp(c->coordinator.device, "auto")
		       ? c->coordinator.device
		       : c->device;
}
