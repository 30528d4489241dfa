/* SPDX-License-Identifier: Apache-2.0 */
/* os_other.c - see os.h: systems other than Linux: only what POSIX has. The first part is
 * macOS's too, the rest of which is in os_macos.c. */
#include "base/os.h"

#if !defined(__linux__) || defined(HS_OS_OTHER)
#include <sys/resource.h>
#include <unistd.h>

int os_affinity(void) { return 0; }

int os_processors(int *number, int most)
{
	(void)number;
	(void)most;
	return 0;
}

bool os_keep_to(const int *number, int n)
{
	(void)number;
	(void)n;
	return false;
}

void os_exact_sleeps(void) {}

void os_huge_pages(void *p, size_t n)
{
	(void)p;
	(void)n;
}

/* Of the two only the core file is within POSIX. */
void os_forbid_tracing(void) { setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }); }

#if !defined(__APPLE__) || defined(HS_OS_OTHER)
void os_memory(const char *root, uint64_t *total_p, uint64_t *free_p)
{
	(void)root;
	*total_p = *free_p = 0;
#ifdef _SC_PHYS_PAGES
	const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
	if (pages > 0 && size > 0)
		*total_p = *free_p = (uint64_t)pages * (uint64_t)size;
#endif
}

uint64_t os_machine_memory(const char *root)
{
	uint64_t total, left;
	os_memory(root, &total, &left);
	return total;
}

int os_cores(const char *root, int cores)
{
	(void)root;
	return cores;
}

void os_limit(int cores, uint64_t memory)
{
	(void)cores;
	(void)memory;
}

double os_cores_share(const char *root, double cores) { return os_cores(root, (int)cores); }

void os_processor(char *name, size_t n_name, char *vendor, size_t n_vendor)
{
	(void)name;
	(void)n_name;
	(void)vendor;
	(void)n_vendor;
}

void os_drop_pages(void *p, size_t n)
{
	(void)p;
	(void)n;
}

const char *os_self_exe(void) { return NULL; }

bool os_boot_id(char *out, size_t n)
{
	(void)out;
	(void)n;
	return false;
}

bool os_net_namespace(char *out, size_t n)
{
	(void)out;
	(void)n;
	return false;
}
#endif
#endif
