/* SPDX-License-Identifier: Apache-2.0 */
/* range.c - see range.h. */
#include "net/range.h"

#include "base/mem.h"
#include "net/address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool net_range_read(const char *text, struct net_range *r_p)
{
	struct net_range r = { .v6 = false };
	char host[64], *end = NULL;
	const size_t n = strcspn(text, "/");
	r.v6 = memchr(text, ':', n) != NULL;
	const int most = r.v6 ? 128 : 32;
	long bits = most;
	if (n >= sizeof host)
		return false;
	snprintf(host, sizeof host, "%.*s", (int)n, text);
	if (inet_pton(r.v6 ? AF_INET6 : AF_INET, host, r.base) != 1)
		return false;
	if (text[n])
		bits = isdigit((unsigned char)text[n + 1]) ? strtol(text + n + 1, &end, 10) : -1;
	if (bits < 0 || bits > most || (end && *end))
		return false;
	r.bits = (int)bits;
	*r_p = r;
	return true;
}

bool net_range_meets(const struct net_range *a, const struct net_range *b)
{
	const int bits = a->bits < b->bits ? a->bits : b->bits, rest = bits % 8;
	if (a->v6 != b->v6 || memcmp(a->base, b->base, (size_t)bits / 8) != 0)
		return false;
	return !rest || !((a->base[bits / 8] ^ b->base[bits / 8]) >> (8 - rest));
}

bool net_range_has(const struct net_range *r, size_t n, const char *address)
{
	struct net_range a;
	char host[NET_ADDRESS];
	unsigned port;
	if (!net_range_read(address, &a)) {
		address_parts(address, host, &port);
		if (!net_range_read(host, &a))
			return false;
	}
	for (size_t i = 0; i < n; i++)
		if (net_range_meets(&r[i], &a))
			return true;
	return false;
}

bool net_range_private(const char *address)
{
	static const char *const text[] = { "10.0.0.0/8",    "172.16.0.0/12", "192.168.0.0/16",
					    "100.64.0.0/10", "127.0.0.0/8",   "169.254.0.0/16",
					    "fc00::/7",      "fe80::/10",     "::1" };
	for (size_t i = 0; i < ARRAY_LEN(text); i++) {
		struct net_range r;
		if (net_range_read(text[i], &r) && net_range_has(&r, 1, address))
			return true;
	}
	return false;
}
