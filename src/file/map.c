/* SPDX-License-Identifier: Apache-2.0 */
/* map.c - see map.h. */
#include "file/map.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/open.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is mapped, so that a handler of SIGBUS can look it up. Files beyond this number have no name
 * there. */
enum { KNOWN_MOST = 4096 };
static struct known {
	_Atomic(const uint8_t *) p; /* NULL: free; set last and cleared first */
	uint64_t size;
	char *path;
} known[KNOWN_MOST];
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

static int add_known(const struct file_map *m, const char *path, struct err *e)
{
	int rc = 0;
	size_t i = 0;
	pthread_mutex_lock(&known_lock);
	while (i < KNOWN_MOST && atomic_load(&known[i].p))
		i++;
	if (i < KNOWN_MOST) {
		known[i].path = mem_strdup(path);
		known[i].size = m->size;
		if (known[i].path)
			atomic_store(&known[i].p, m->p);
		else
			rc = err_nomem(e, strlen(path), "a path");
	}
	pthread_mutex_unlock(&known_lock);
	return rc;
}

static void remove_known(const struct file_map *m)
{
	pthread_mutex_lock(&known_lock);
	for (size_t i = 0; i < KNOWN_MOST; i++)
		if (atomic_load(&known[i].p) == m->p) {
			atomic_store(&known[i].p, NULL);
			mem_free(known[i].path);
			break;
		}
	pthread_mutex_unlock(&known_lock);
}

const char *map_path_at(const void *address)
{
	for (size_t i = 0; i < KNOWN_MOST; i++) {
		const uint8_t *p = atomic_load(&known[i].p), *a = address;
		if (p && a >= p && (uint64_t)(a - p) < known[i].size)
			return known[i].path;
	}
	return NULL;
}

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
	if (m.p && (rc = add_known(&m, path, e)) < 0) {
		munmap((void *)m.p, m.size);
		return rc;
	}
	*m_p = m;
	return 0;
}

void map_close(struct file_map *m)
{
	if (m->p)
		remove_known(m);
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
