/* address.h - "host:port" as people write it, resolved to numbers. */
#ifndef HS_NET_ADDRESS_H
#define HS_NET_ADDRESS_H

#include <stdbool.h>

#include "net/net.h"

/* Resolves `text` ("host:port", "[v6]:port", for a listener also "*:port") to "1.2.3.4:5" or "[v6]:5" in out_p, and says whether it is a
 * loopback address. `for_listen`: port 0 is allowed. May ask the name service, which can take seconds. */
int address_resolve(const char *text, bool for_listen, char out_p[NET_ADDRESS], bool *loopback_p, struct err *e);

#endif
