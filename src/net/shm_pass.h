/* SPDX-License-Identifier: Apache-2.0 */
/* shm_pass.h - bytes over a Unix socket that does not block, with a descriptor among them. The
 * results are those of tls_crypt.h. */
#ifndef HS_NET_SHM_PASS_H
#define HS_NET_SHM_PASS_H

#include "net/tls_crypt.h"

/* The descriptor goes with the first of these bytes; then it is closed, and *fd -1. */
int64_t pass_write(struct crypt_io *io, const void *p, size_t n, int *fd);
/* *fd_p is set when one came along. Several at a time are closed. */
int64_t pass_read(struct crypt_io *io, void *p, size_t n, int *fd_p);

#endif
