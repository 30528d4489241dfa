/* SPDX-License-Identifier: Apache-2.0 */
/* os_calls_linux.c - see os_calls.h. */
#include "base/os_calls.h"

#if defined(__linux__) && !defined(HS_OS_OTHER)
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

int os_socket(int family, int type, enum os_waits waits)
{
	return socket(family, type | SOCK_CLOEXEC | (waits == OS_WAITS ? 0 : SOCK_NONBLOCK), 0);
}

int os_accept(int listener, struct sockaddr *from, socklen_t *n, enum os_waits waits)
{
	return accept4(listener, from, n, SOCK_CLOEXEC | (waits == OS_WAITS ? 0 : SOCK_NONBLOCK));
}

int os_pipe(int end[2]) { return pipe2(end, O_CLOEXEC); }

bool os_peer(int fd, uid_t *uid_p, pid_t *pid_p)
{
	struct ucred c;
	socklen_t n = sizeof c;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) < 0 || n != sizeof c)
		return false;
	*uid_p = c.uid;
	*pid_p = c.pid;
	return true;
}

bool os_swap_names(const char *a, const char *b)
{
	return !renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

bool os_is_on_network(int fd)
{
	/* NFS, SMB (three), FUSE, Lustre, Ceph, BeeGFS, 9p */
	static const unsigned kinds[] = { 0x6969,     0x517b,     0xff534d42,
					  0xfe534d42, 0x65735546, 0x0bd00bd0,
					  0x00c36400, 0x19830326, 0x01021997 };
	struct statfs s;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !fstatfs(fd, &s); i++)
		if ((unsigned)s.f_type == kinds[i])
			return true;
	return false;
}

int os_fixed_memory(uint64_t n)
{
	int fd = memfd_create("heteroshard-link", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd >= 0 &&
	    (ftruncate(fd, (off_t)n) < 0 || fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) < 0)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

bool os_is_fixed_memory(int fd, uint64_t n)
{
	const unsigned tmpfs = 0x01021994;
	struct stat st;
	struct statfs fs;
	int seals = fcntl(fd, F_GET_SEALS);
	return seals >= 0 && (seals & SEALS) == SEALS && fstat(fd, &st) == 0 &&
	       S_ISREG(st.st_mode) && st.st_size >= 0 && (uint64_t)st.st_size == n &&
	       fstatfs(fd, &fs) == 0 && (unsigned)fs.f_type == tmpfs;
}

void *os_map_again(void *p, size_t n)
{
	void *again = mremap(p, 0, n, MREMAP_MAYMOVE);
	return again == MAP_FAILED ? NULL : again;
}

void os_name_thread(const char *name) { pthread_setname_np(pthread_self(), name); }

/* HWCAP_CRC32; HWCAP_AES and HWCAP_PMULL */
bool os_arm_has_crc(void) { return (getauxval(AT_HWCAP) & 1 << 7) != 0; }
bool os_arm_has_aes(void) { return (getauxval(AT_HWCAP) & (1 << 3 | 1 << 4)) == (1 << 3 | 1 << 4); }
#endif
