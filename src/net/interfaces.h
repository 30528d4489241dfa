/* SPDX-License-Identifier: Apache-2.0 */
/* interfaces.h - under which addresses this machine can be reached, and which machine it is. */
#ifndef HS_NET_INTERFACES_H
#define HS_NET_INTERFACES_H

#include <stdbool.h>
#include <stddef.h>

enum { INTERFACES_MOST = 16, MACHINE_TEXT = 80 };

struct interface {
	char name[32];    /* "eth0" */
	char address[64]; /* a number: "10.0.0.2", "fd00::2" */
};

/* Addresses of interfaces that are up and have a carrier, without loopback and without IPv6
 * link-local ones (those need a zone): at most `most`. */
int interfaces_list(struct interface *v, int most);

/* Puts n addresses of `size` bytes each in the order in which they likely answer: those in a
 * network of this machine, the others, its own (another home may use the same numbers). */
void interfaces_sort(char *address, size_t size, int n);

/* Two processes get the same name exactly when they share a kernel and a network namespace, so that
 * one reaches the other over loopback. A host name cannot tell that (containers, network
 * namespaces, machines without a name). */
void machine_name(char out[MACHINE_TEXT]);
/* Whether two of them run on one kernel: they share clock, processors and memory, whatever their
 * networks are. */
bool machine_same_kernel(const char *a, const char *b);

#endif
