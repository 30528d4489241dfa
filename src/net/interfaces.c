/* SPDX-License-Identifier: Apache-2.0 */
/* interfaces.c - see interfaces.h. */
#include "net/interfaces.h"

#include "base/os.h"

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
