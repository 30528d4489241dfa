/* SPDX-License-Identifier: Apache-2.0 */
/* raw.c - see raw.h. */
#include "support/raw.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "net/tls_head.h"

void raw_say(int fd, const void *p, size_t n, const int *pass, int count)
{
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(8 * sizeof(int))] = { 0 };
	struct iovec v = { .iov_base = (void *)(uintptr_t)p, .iov_len = n };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	if (count) {
		m.msg_control = room;
		m.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
		memcpy(CMSG_DATA(h), pass, (size_t)count * sizeof(int));
	}
	if (sendmsg(fd, &m, MSG_NOSIGNAL) < 0)
		assert_true(errno == EPIPE || errno == ECONNRESET);
}

void raw_head(int fd, unsigned type, uint64_t a, uint64_t b, int pass)
{
	unsigned char head[HEAD_BYTES];
	head_write(head, (enum head_type)type, a, b);
	raw_say(fd, head, sizeof head, &pass, pass >= 0);
}
