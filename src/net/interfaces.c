/* SPDX-License-Identifier: Apache-2.0 */
/* interfaces.c - see interfaces.h. */
#include "net/interfaces.h"

#include "base/os.h"
#include "net/net.h"
#include "net/range.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* IFF_LOWER_UP of linux/if.h, which cannot be included together with net/if.h. IFF_RUNNING
 * can follow a second later. */
#define CARRIER 0x10000u

static bool usable(const struct ifaddrs *i)
{
	if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || !(i->ifa_flags & CARRIER) ||
	    (i->ifa_flags & IFF_LOOPBACK))
		return false;
	if (i->ifa_addr->sa_family == AF_INET)
		return true;
	if (i->ifa_addr->sa_family != AF_INET6)
		return false;
	const struct in6_addr *a =
		&((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr;
	return !IN6_IS_ADDR_LINKLOCAL(a) && !IN6_IS_ADDR_MULTICAST(a) && !IN6_IS_ADDR_LOOPBACK(a);
}

int interfaces_list(struct interface *v, int most)
{
	struct ifaddrs *all;
	int n = 0;
	if (getifaddrs(&all) < 0)
		return 0;
	for (const struct ifaddrs *i = all; i && n < most; i = i->ifa_next) {
		if (!usable(i))
			continue;
		socklen_t len = i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
								  : sizeof(struct sockaddr_in6);
		snprintf(v[n].name, sizeof v[n].name, "%.31s", i->ifa_name);
		n += getnameinfo(i->ifa_addr, len, v[n].address, sizeof v[n].address, NULL, 0,
				 NI_NUMERICHOST) == 0;
	}
	freeifaddrs(all);
	return n;
}

/* 0: in a network of this machine, 1: elsewhere or a name, 2: this machine's own. */
static int rank_of(const struct ifaddrs *all, const char *address)
{
	struct net_range a, own;
	int rank = 1;
	if (!net_range_read(address, &a))
		return 1;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		char text[64];
		const int f = usable(i) && i->ifa_netmask ? i->ifa_addr->sa_family : 0;
		const unsigned char *mask =
			f == AF_INET
				? (const void *)&(
					  (const struct sockaddr_in *)(const void *)i->ifa_netmask)
					  ->sin_addr
			: f ? (const void *)&(
				      (const struct sockaddr_in6 *)(const void *)i->ifa_netmask)
					->sin6_addr
			    : NULL;
		const socklen_t len =
			f == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
		if (!f ||
		    getnameinfo(i->ifa_addr, len, text, sizeof text, NULL, 0, NI_NUMERICHOST) != 0)
			continue;
		if (!strcmp(text, address))
			return 2;
		if (!net_range_read(text, &own))
			continue;
		int bits = 0;
		while (bits < own.bits && (mask[bits / 8] >> (7 - bits % 8) & 1))
			bits++;
		own.bits = bits;
		if (bits && net_range_meets(&own, &a))
			rank = 0;
	}
	return rank;
}

void interfaces_sort(char *address, size_t size, int n)
{
	struct ifaddrs *all;
	char kept[NET_ADDRESS];
	if (size > sizeof kept || getifaddrs(&all) < 0)
		return;
	for (int i = 1; i < n; i++)
		for (int k = i; k > 0; k--) {
			char *a = address + (size_t)(k - 1) * size, *b = a + size;
			if (rank_of(all, a) <= rank_of(all, b))
				break;
			memcpy(kept, a, size);
			memcpy(a, b, size);
			memcpy(b, kept, size);
		}
	freeifaddrs(all);
}

void machine_name(char out[MACHINE_TEXT])
{
	char boot[40] = "", space[32] = "";
	if (!os_boot_id(boot, sizeof boot))
		gethostname(boot, sizeof boot - 1);
	os_net_namespace(space, sizeof space);
	snprintf(out, MACHINE_TEXT, "%s %s", boot, space);
}

bool machine_same_kernel(const char *a, const char *b)
{
	size_t n = strcspn(a, " ");
	return n == strcspn(b, " ") && !strncmp(a, b, n);
}
