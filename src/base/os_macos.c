/* SPDX-License-Identifier: Apache-2.0 */
/* os_macos.c - see os.h: what macOS says through sysctl and Mach; the rest is in os_other.c. There
 * are no control groups and no network namespaces there. Compiled, never run. */
#include "base/os.h"

#if defined(__APPLE__) && !defined(HS_OS_OTHER)
#include <mach-o/dyld.h>
#include <mach/mach.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysctl.h>
#include <unistd.h>

static uint64_t most_memory;
static int most_cores;

static bool text_of(const char *name, char *out, size_t n)
{
	size_t got = n;
	if (sysctlbyname(name, out, &got, NULL, 0) != 0 || !got)
		return false;
	out[got < n ? got : n - 1] = 0;
	return out[0] != 0;
}

uint64_t os_machine_memory(const char *root)
{
	uint64_t bytes = 0;
	size_t n = sizeof bytes;
	(void)root;
	return sysctlbyname("hw.memsize", &bytes, &n, NULL, 0) == 0 ? bytes : 0;
}

/* Pages of files count as free. */
void os_memory(const char *root, uint64_t *total_p, uint64_t *free_p)
{
	vm_statistics64_data_t s;
	mach_msg_type_number_t n = HOST_VM_INFO64_COUNT;
	*total_p = *free_p = os_machine_memory(root);
	if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&s, &n) ==
	    KERN_SUCCESS)
		*free_p = ((uint64_t)s.free_count + s.external_page_count + s.purgeable_count) *
			  (uint64_t)sysconf(_SC_PAGESIZE);
	if (*free_p > *total_p)
		*free_p = *total_p;
	if (most_memory && most_memory < *total_p)
		*total_p = most_memory;
	if (most_memory && most_memory < *free_p)
		*free_p = most_memory;
}

int os_cores(const char *root, int cores)
{
	(void)root;
	return most_cores && most_cores < cores ? most_cores : cores;
}

double os_cores_share(const char *root, double cores)
{
	(void)root;
	return most_cores && most_cores < cores ? most_cores : cores;
}

void os_limit(int cores, uint64_t memory)
{
	most_cores = cores;
	most_memory = memory;
}

void os_processor(char *name, size_t n_name, char *vendor, size_t n_vendor)
{
	char text[128];
	if (!text_of("machdep.cpu.brand_string", text, sizeof text))
		return;
	snprintf(name, n_name, "%s", text);
	snprintf(vendor, n_vendor, "%s", strncmp(text, "Apple", 5) == 0 ? "Apple" : "Intel");
}

void os_drop_pages(void *p, size_t n) { madvise(p, n, MADV_FREE); }

static char *self;

static void find_self(void)
{
	static char path[4096];
	uint32_t n = sizeof path;
	if (_NSGetExecutablePath(path, &n) == 0)
		self = realpath(path, NULL);
}

const char *os_self_exe(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, find_self);
	return self;
}

bool os_boot_id(char *out, size_t n) { return text_of("kern.bootsessionuuid", out, n); }

/* All processes see the same network. */
bool os_net_namespace(char *out, size_t n)
{
	snprintf(out, n, "all");
	return true;
}
#endif
