/* SPDX-License-Identifier: Apache-2.0 */
/* shm_pass.c - see shm_pass.h. */
#include "net/shm_pass.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MSG_CMSG_CLOEXEC
#define MSG_CMSG_CLOEXEC 0
#endif

int64_t pass_write(struct crypt_io *io, const void *p, size_t n, int *fd)
{
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec v = { .iov_base = (void *)(uintptr_t)p, .iov_len = n };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room
	};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(h), fd, sizeof(int));
	ssize_t k;
	do
		k = sendmsg(io->fd, &m, MSG_NOSIGNAL);
	while (k < 0 && errno == EINTR);
	if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return IO_LATER;
	if (k <= 0) {
		io->errnum = errno;
		return IO_BROKEN;
	}
	io->out += (uint64_t)k;
	close(*fd);
	*fd = -1;
	return k;
}

/* The kernel has opened as many as had room, which can be one more because of alignment. */
static void take(const struct cmsghdr *h, int *fd_p)
{
	const size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	for (size_t i = 0; i < count; i++) {
		int fd;
		memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
		fcntl(fd, F_SETFD, FD_CLOEXEC);
		if (count == 1)
			*fd_p = fd;
		else
			close(fd);
	}
}

int64_t pass_read(struct crypt_io *io, void *p, size_t n, int *fd_p)
{
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))];
	struct iovec v = { .iov_base = p, .iov_len = n };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room
	};
	ssize_t k;
	do
		k = recvmsg(io->fd, &m, MSG_CMSG_CLOEXEC);
	while (k < 0 && errno == EINTR);
	if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return IO_LATER;
	if (k < 0)
		io->errnum = errno;
	if (k <= 0)
		return k ? IO_BROKEN : IO_ENDED;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
		if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS)
			take(h, fd_p);
	io->in += (uint64_t)k;
	return k;
}
