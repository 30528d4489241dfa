/* SPDX-License-Identifier: Apache-2.0 */
/* raw.h - the other end of a link, played by hand over a socket. A peer that has closed is no
 * failure; others end the test. */
#ifndef HS_TESTS_SUPPORT_RAW_H
#define HS_TESTS_SUPPORT_RAW_H

#include <stddef.h>
#include <stdint.h>

/* Bytes, with `count` descriptors (Unix sockets; at most 8). */
void raw_say(int fd, const void *p, size_t n, const int *pass, int count);
/* A head (net/tls_head.h), with a descriptor unless `pass` is -1. */
void raw_head(int fd, unsigned type, uint64_t a, uint64_t b, int pass);

#endif
