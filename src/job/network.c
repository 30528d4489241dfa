/* SPDX-License-Identifier: Apache-2.0 */
/* network.c - see network.h. */
#include "job/network.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/text.h"
#include "net/address.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void network_address(const char *ip, const char *hostname, int64_t port, char out[NET_ADDRESS])
{
	const char *host = ip && ip[0] ? ip : hostname;
	snprintf(out, NET_ADDRESS, strchr(host, ':') ? "[%.250s]:%lld" : "%.250s:%lld", host,
		 (long long)port);
}

static bool is_loopback(const char *ip, const char *hostname)
{
	char text[NET_ADDRESS], number[NET_ADDRESS];
	bool loopback = false;
	struct err unknown = {
		0
	}; /* a name that cannot be resolved gives its error when the connection is made */
	network_address(ip, hostname, 1, text);
	return address_resolve(text, false, number, &loopback, &unknown) < 0 || loopback;
}

int network_check(const struct config *c, struct err *e)
{
	const struct config_coordinator *o = &c->coordinator;
	/* A worker that was started here shares its coordinator's terminal, which has said it. */
	if (o->given && c->insecure && !os_die_with_parent())
		log_warn("%s: insecure is set: %s", c->path,
			 o->public_key ? "it has no effect as long as the machines have keys"
				       : "links are neither encrypted nor authenticated; anyone "
					 "who reaches a port can join the job, read what goes "
					 "over it and give orders");
	if (!o->given || o->public_key || c->insecure)
		return 0;
	const char *ip = o->ip, *name = o->hostname, *far = NULL;
	if (!is_loopback(ip, name) && c->nworkers)
		far = ip && ip[0] ? ip : name;
	for (size_t i = 0; i < c->nworkers && !far; i++) {
		ip = c->workers[i].ip, name = c->workers[i].hostname;
		if (!is_loopback(ip, name))
			far = ip && ip[0] ? ip : name;
	}
	if (!far)
		return 0;
	char path[PATH_MAX];
	bool here = c->key_file ||
		    (key_default_path(path, sizeof path, false, e) >= 0 && access(path, F_OK) == 0);
	err_clear(e);
	return err_set(e, ERR_USAGE,
		       "%s: %.100s is reached over a network, but no entry has a 'public_key': run "
		       "'heteroshard keygen' on each machine (here%s) and write the line that it "
		       "prints into the machine's entry, as public_key: '...'; or allow links "
		       "without encryption with --insecure",
		       c->path, far, here ? " 'heteroshard keygen --show': it has a key" : " too");
}

/* The error when this machine's key file does not exist. */
static int no_key(const struct config *c, const char *path, struct err *e)
{
	char word[PATH_MAX];
	return err_set(e, ERR_USAGE,
		       "%s: this machine has no key%s: 'heteroshard keygen%s%s' makes one; then "
		       "write the line that it prints into the entries of this machine in %s",
		       path, c->key_file ? " there (key_file)" : "", c->key_file ? " " : "",
		       c->key_file ? text_word(path, word, sizeof word) : "", c->path);
}

int network_keys_write(const struct network_keys *k, struct buf *out, struct err *e)
{
	buf_addf(out, "%s\n%s\n%s\n", k->own.sec, k->own.pub, k->coordinator);
	for (size_t i = 0; i < k->n; i++)
		buf_addf(out, "%s\n%s\n", k->peer[i].key, k->peer[i].address);
	return buf_ok(out, e);
}

/* The next line of the text; false: there is none of that length. */
static bool next_line(const char **at, const char *end, char *out, size_t cap)
{
	const char *stop = memchr(*at, '\n', (size_t)(end - *at));
	if (!stop || (size_t)(stop - *at) >= cap)
		return false;
	memcpy(out, *at, (size_t)(stop - *at));
	out[stop - *at] = 0;
	*at = stop + 1;
	return true;
}

int network_keys_handed(struct network_keys *k_p, struct err *e)
{
	struct network_keys k = { 0 };
	size_t n;
	uint8_t raw[KEY_BYTES];
	const char *at = os_parent_said(&n), *end = at + n;
	*k_p = k;
	if (!at)
		return 0;
	os_forbid_tracing();
	bool good = next_line(&at, end, k.own.sec, KEY_TEXT) &&
		    next_line(&at, end, k.own.pub, KEY_TEXT) &&
		    next_line(&at, end, k.coordinator, KEY_TEXT) &&
		    key_secret_bytes(k.own.sec, raw) && key_public_bytes(k.own.pub, raw) &&
		    key_public_bytes(k.coordinator, raw);
	k.peer = good ? mem_array(NETWORK_KEYS_MOST, sizeof *k.peer) : NULL;
	while (k.peer && k.n < NETWORK_KEYS_MOST && at < end && good) {
		struct network_peer *p = &k.peer[k.n++];
		good = next_line(&at, end, p->key, KEY_TEXT) &&
		       next_line(&at, end, p->address, NET_ADDRESS) &&
		       key_public_bytes(p->key, raw);
	}
	os_parent_forget();
	if (!good || !k.peer || at < end) {
		network_keys_release(&k);
		return err_set(e, ERR_INTERNAL,
			       "what the coordinator handed to this process are no keys");
	}
	*k_p = k;
	return 0;
}

void network_keys_release(struct network_keys *k)
{
	key_pair_wipe(&k->own);
	mem_free(k->peer);
	*k = (struct network_keys){ 0 };
}

/* This machine's key, from its file. */
static int load_key(const struct config *c, const char *listed, struct key_pair *k, struct err *e)
{
	char path[PATH_MAX];
	TRY(key_path(c->key_file, path, sizeof path, e));
	if (access(path, F_OK) < 0 && errno == ENOENT)
		return no_key(c, path, e);
	TRY(key_pair_load(path, k, e));
	if (!listed || key_equal(k->pub, listed))
		return 0;
	int rc = err_set(e, ERR_USAGE,
			 "%s: this machine's public key is '%s', but %s lists '%s' for it: put the "
			 "right key into the configuration on all machines, or name the right file "
			 "(key_file)",
			 path, k->pub, c->path, listed);
	key_pair_wipe(k);
	return rc;
}

static int allow_all(const struct config *c, const struct network_keys *k, struct net *n,
		     struct err *e)
{
	if (!k) {
		TRY(net_allow(n, c->coordinator.public_key, e));
		for (size_t i = 0; i < c->nworkers; i++)
			TRY(net_allow(n, c->workers[i].public_key, e));
		return 0;
	}
	if (k->coordinator[0])
		TRY(net_allow(n, k->coordinator, e));
	for (size_t i = 0; i < k->n; i++)
		TRY(net_allow(n, k->peer[i].key, e));
	return 0;
}

int network_open(const struct config *c, const char *listed, const struct network_keys *k,
		 struct net **n_p, struct err *e)
{
	struct key_pair own;
	const bool handed = k && k->own.sec[0], keys = handed || c->coordinator.public_key;
	const bool any = !strcmp(c->transport, "auto");
	struct net_options o = { .peer_timeout = c->peer_timeout,
				 .insecure = c->insecure,
				 .mesh = c->encrypt == ENCRYPT_MESH,
				 .connections = (unsigned)c->links_per_peer,
				 .near = any,
				 .before_take = NET_BEFORE_TAKE };
	if (handed)
		own = k->own;
	else if (keys)
		TRY(load_key(c, listed, &own, e));
	if (keys)
		o.key = &own;
	struct net *n;
	int rc = net_open(!any                  ? c->transport
			  : keys || c->insecure ? NET_DEFAULT
						: "shm",
			  &o, &n, e);
	if (keys)
		key_pair_wipe(&own);
	if (rc < 0)
		return rc;
	rc = keys ? allow_all(c, handed ? k : NULL, n, e) : 0;
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
