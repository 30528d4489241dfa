/* SPDX-License-Identifier: Apache-2.0 */
/* map.c - see map.h. */
#include "file/map.h"

#include "base/err.h"
#include "base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int map_open(const char *path, struct file_map *m_p, struct err *e)
{
	int fd, rc = 0;
	struct file_map m = { NULL, 0 };
	TRY(open_read(path, &fd, &m.size, e));
	if (m.size > 0) {
		void *p = mmap(NULL, m.size, PROT_READ, MAP_SHARED, fd, 0);
		if (p == MAP_FAILED)
			rc = err_sys(e, errno, "%s: mapping %llu bytes", path,
				     (unsigned long long)m.size);
		m.p = p;
	}
	close(fd);
	if (rc < 0)
		return rc;
	*m_p = m;
	return 0;
}

void map_close(struct file_map *m)
{
	if (m->p)
		munmap((void *)m->p, m->size);
	*m = (struct file_map){ NULL, 0 };
}

void map_drop(const struct file_map *m, const void *p, uint64_t n)
{
	if (!n || !m->p)
		return;
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)p & ~(page - 1),
		  end = (uintptr_t)p + n;
	madvise((void *)from, end - from, MADV_DONTNEED);
}
