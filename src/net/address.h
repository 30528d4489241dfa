/* SPDX-License-Identifier: Apache-2.0 */
/* address.h - "host:port" as people write it, resolved to numbers. */
#ifndef HS_NET_ADDRESS_H
#define HS_NET_ADDRESS_H

#include <stdbool.h>

#include "net/net.h"

/* Resolves `text` ("host:port", "[v6]:port", for a listener also "*:port") to "1.2.3.4:5" or
 * "[v6]:5" in out_p, and says whether it is a loopback address. `for_listen`: port 0 is allowed.
 * May ask the name service, which can take seconds. */
int address_resolve(const char *text, bool for_listen, char out_p[NET_ADDRESS], bool *loopback_p,
		    struct err *e);
/* The same, to dial: all addresses that a name has, in the order in which they are tried. */
enum { ADDRESS_MOST = 4 };
struct address {
	char text[NET_ADDRESS];
	bool loopback;
};
int address_all(const char *text, struct address v[ADDRESS_MOST], int *n_p, struct err *e);

struct sockaddr_storage;
/* Turns an address from address_resolve into a socket address; returns its length. "*" means every
 * IPv4 and IPv6 address. */
unsigned address_socket(const char *number, struct sockaddr_storage *a_p);
/* The text of a socket address: "1.2.3.4:5". IPv4 mapped into IPv6 becomes IPv4. `port`: with the
 * port. */
void address_text(const struct sockaddr_storage *a, bool port, char out[NET_ADDRESS]);

bool address_is_number(const char *host); /* "10.0.0.2", "fd00::2" */
/* "host:port" or "[v6]:port" into its two parts, and back. A text without a port has port 0. */
void address_parts(const char *text, char host[NET_ADDRESS], unsigned *port_p);
void address_join(const char *host, unsigned port, char out[NET_ADDRESS]);

#endif
