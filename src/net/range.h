/* SPDX-License-Identifier: Apache-2.0 */
/* range.h - ranges of addresses: "10.77.0.0/24", "fd77::/64". Pure. */
#ifndef HS_NET_RANGE_H
#define HS_NET_RANGE_H

#include <stdbool.h>
#include <stddef.h>

struct net_range {
	bool v6;
	unsigned char base[16]; /* as written: bits behind the length are kept */
	int bits;
};

/* Without a length: one address. false: it is no range. */
bool net_range_read(const char *text, struct net_range *r_p);
/* Whether the two have an address in common. */
bool net_range_meets(const struct net_range *a, const struct net_range *b);
/* Whether an address ("10.77.0.3", also as "10.77.0.3:9999") lies in one of n ranges. */
bool net_range_has(const struct net_range *r, size_t n, const char *address);
/* An address that the networks of homes and offices use among themselves (RFC 1918, RFC 6598, RFC
 * 4193, link-local, loopback). */
bool net_range_private(const char *address);

#endif
