/* SPDX-License-Identifier: Apache-2.0 */
/* map.c - see map.h. */
#include "file/map.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int map_open(const char *path, struct file_map *m_p, struct err *e)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "%s", path);
	struct stat st;
	struct file_map m = { NULL, 0 };
	int rc = 0;
	if (fstat(fd, &st) < 0) {
		rc = err_sys(e, errno, "%s", path);
	} else if (!S_ISREG(st.st_mode)) {
		rc = err_set(e, ERR_INPUT, "%s: is %s, a regular file was expected", path,
			     S_ISDIR(st.st_mode) ? "a folder" : "a special file");
	} else if (st.st_size > 0) {
		m.size = (uint64_t)st.st_size;
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
