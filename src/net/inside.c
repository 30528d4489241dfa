/* SPDX-License-Identifier: Apache-2.0 */
/* inside.c - see inside.h. */
#include "net/inside.h"

#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/open.h"
#include "net/address.h"
#include "net/range.h"

enum { INSIDE_MOST = 64 << 10 };
const char *inside_file = INSIDE_FILE;

/* The kernel's WireGuard says what it is; another program's (wireguard-go, boringtun) is a tun
 * device. */
static bool is_wireguard(const char *interface)
{
	char path[128], line[64];
	bool is = false;
	snprintf(path, sizeof path, "/sys/class/net/%.15s/tun_flags", interface);
	if (access(path, F_OK) == 0)
		return true;
	snprintf(path, sizeof path, "/sys/class/net/%.15s/uevent", interface);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		is |= !strcmp(line, "DEVTYPE=wireguard\n");
	if (f)
		fclose(f);
	return is;
}

/* The interface of the file, when the address is one of its peers. */
static bool find(char *text, const char *address, char interface_p[IF_NAMESIZE])
{
	bool found = false;
	interface_p[0] = 0;
	for (char *line, *rest = text; (line = buf_line(&rest));) {
		struct net_range r;
		char word[80];
		if (sscanf(line, "interface %15s", word) == 1)
			snprintf(interface_p, IF_NAMESIZE, "%.15s", word);
		else if (sscanf(line, "peer %79s", word) == 1 && !strchr(word, '/'))
			found |= net_range_read(word, &r) && net_range_has(&r, 1, address);
	}
	return found && interface_p[0] && !strchr(interface_p, '/');
}

bool inside_bind(int fd, const struct sockaddr_storage *peer)
{
	char text[INSIDE_MOST + 1], address[NET_ADDRESS], interface[IF_NAMESIZE];
	struct err none = { 0 };
	uint64_t size;
	const char *why;
	int in;
	if (access(inside_file, R_OK) < 0 || !open_only_mine(inside_file, &why) || why ||
	    open_read(inside_file, &in, &size, &none) < 0)
		return false;
	ssize_t n = size <= INSIDE_MOST ? read(in, text, INSIDE_MOST) : -1;
	close(in);
	if (n <= 0)
		return false;
	text[n] = 0;
	address_text(peer, false, address);
	return find(text, address, interface) && is_wireguard(interface) &&
	       setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, interface,
			  (socklen_t)strlen(interface) + 1) == 0;
}
