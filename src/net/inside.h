/* SPDX-License-Identifier: Apache-2.0 */
/* inside.h - what root has written down about the mesh of this machine: which interface is
 * WireGuard's, and which addresses are reached through it without another machine in between, so
 * that WireGuard alone keeps everybody but the two ends from reading or changing what they say
 * (`heteroshard mesh`, with `encrypt: mesh`). Lines "interface NAME" and "peer ADDRESS". */
#ifndef HS_NET_INSIDE_H
#define HS_NET_INSIDE_H

#include <stdbool.h>
#include <sys/socket.h>

#define INSIDE_FILE "/etc/heteroshard/mesh"
extern const char *inside_file; /* that one; tests change it */

/* Whether a socket to or from this address is in the mesh. Then it is bound to the interface:
 * nothing that comes in by another one reaches it, and nothing leaves by another one, whatever the
 * machine's routes are. false: this peer is not in the file, others may change the file, the
 * interface is not there or not WireGuard's, or the kernel refuses (Linux before 5.7). */
bool inside_bind(int fd, const struct sockaddr_storage *peer);

#endif
