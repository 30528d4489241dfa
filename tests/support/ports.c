/* SPDX-License-Identifier: Apache-2.0 */
/* ports.c - see ports.h. The claim is a UDP socket that is bound to the block's first port and
 * stays open: the kernel gives the port to one program and takes it back when that one ends. */
#include "support/ports.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { FIRST = 24000, BLOCKS = 599 };

/* A socket of this type at this port, or -1. */
static int bound(int type, int port, in_addr_t address)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(address) };
	int fd = socket(AF_INET, type, 0);
	if (fd < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		fail_msg("no socket");
	if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Whether nobody has a TCP socket at a port of the block. */
static bool is_free(int first)
{
	for (int port = first; port < first + PORTS_BLOCK; port++) {
		int fd = bound(SOCK_STREAM, port, INADDR_ANY);
		if (fd < 0)
			return false;
		close(fd);
	}
	return true;
}

int ports_claim(void)
{
	for (int i = 0; i < BLOCKS; i++) {
		int first = FIRST + (int)((getpid() + i) % BLOCKS) * PORTS_BLOCK;
		int claim = bound(SOCK_DGRAM, first, INADDR_LOOPBACK);
		if (claim < 0)
			continue;
		if (is_free(first))
			return first;
		close(claim);
	}
	fail_msg("all blocks of ports are taken");
	return -1;
}
