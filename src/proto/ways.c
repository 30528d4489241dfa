/* SPDX-License-Identifier: Apache-2.0 */
/* ways.c - see ways.h. */
#include "proto/ways.h"

#include "base/err.h"
#include "net/address.h"
#include "proto/hello.h"

#include <stdio.h>
#include <string.h>

/* Whether it is the address of an entry of the configuration, or the number that this machine finds
 * for its name. */
static bool is_entry(const struct way *v, const char *to)
{
	char number[NET_ADDRESS], host[NET_ADDRESS];
	unsigned port;
	bool loopback;
	struct err unknown = { 0 };
	if (!strcmp(v->address, to))
		return true;
	address_parts(to, host, &port);
	return address_is_number(host) &&
	       address_resolve(v->address, false, number, &loopback, &unknown) >= 0 &&
	       !strcmp(number, to);
}

static bool may_dial(const struct ways *w, const char *key, const char *to, const char *proof)
{
	bool known = false;
	for (int i = 0; i < w->n; i++) {
		const struct way *v = &w->way[i];
		if (key ? !v->key || !key_equal(v->key, key) : v->key != NULL)
			continue;
		known = true;
		if (is_entry(v, to))
			return true;
	}
	return known && key && key_proves(key, WELCOME_LISTENS, to, proof);
}

/* Without a configuration: an address that the machine itself has named, of a network. */
static bool own_word(const char *key, const char *to, const char *hash)
{
	char number[NET_ADDRESS];
	bool loopback = true;
	struct err unknown = { 0 };
	return key && hash && key_proves(key, WELCOME_LISTENS, to, hash + 1) &&
	       address_resolve(to, false, number, &loopback, &unknown) >= 0 && !loopback;
}

int ways_check(const struct ways *w, const char *key, const char *text, char dial_p[NET_ADDRESS],
	       struct err *e)
{
	char own[NET_ADDRESS] = "", to[NET_ADDRESS];
	const char *hash = strchr(text, '#'), *semicolon = strchr(text, ';');
	size_t n = hash ? (size_t)(hash - text) : strlen(text), skip = 0;
	if (semicolon && semicolon < text + n) {
		skip = (size_t)(semicolon - text) + 1;
		snprintf(own, sizeof own, "%.*s", (int)(skip - 1), text);
	}
	snprintf(to, sizeof to, "%.*s", (int)(n - skip), text + skip);
	snprintf(dial_p, NET_ADDRESS, "%.*s", (int)n, text);
	if (w->signed_only ? own_word(key, to, hash) && (!own[0] || address_is_number(own)) : !w->n)
		return 0;
	if (!w->signed_only &&
	    ((!own[0] || address_is_number(own)) && may_dial(w, key, to, hash ? hash + 1 : "")))
		return 0;
	return err_set(
		e, ERR_PROTOCOL,
		"the coordinator says to connect to %.100s, which is not an address of that "
		"machine: it is not in this machine's configuration, and the machine has not "
		"signed it; copy the same configuration to all machines",
		to);
}
