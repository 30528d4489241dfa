/* SPDX-License-Identifier: Apache-2.0 */
/* os_linux.c - see os.h: /proc, control groups, processor affinity. */
#include "base/os.h"

#if defined(__linux__) && !defined(HS_OS_OTHER)
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PATH 1024

/* Reads the first number of a small file; false when there is none ("max"). */
static bool read_number(const char *dir, const char *name, uint64_t *v_p)
{
	char path[PATH];
	unsigned long long v;
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	const bool ok = fscanf(f, "%llu", &v) == 1;
	fclose(f);
	if (ok)
		*v_p = v;
	return ok;
}

/* The sum of the lines of a file "NAME NUMBER" whose names are among `names`, which ends
 * with NULL. */
static uint64_t sum_of(const char *dir, const char *file, const char *const *names)
{
	char path[PATH], line[160], name[96];
	unsigned long long v;
	uint64_t sum = 0;
	snprintf(path, sizeof path, "%s/%s", dir, file);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "%95s %llu", name, &v) == 2)
			for (const char *const *n = names; *n; n++)
				if (!strcmp(*n, name))
					sum += v;
	if (f)
		fclose(f);
	return sum;
}

/* ---- control groups ---- */

/* One hierarchy: version 2, or the controllers of version 1 that matter here. */
struct hierarchy {
	bool v2, memory, cpu;
	char group[PATH]; /* of this process, its name in the hierarchy: "/a/b" */
	char mount[PATH]; /* its path below `root`; "" when it is not mounted */
};

/* Whether `word` is in a comma-separated list. */
static bool listed(const char *list, const char *word)
{
	const size_t n = strlen(word);
	for (; *list; list += strcspn(list, ","), list += *list == ',')
		if (!strncmp(list, word, n) && (!list[n] || list[n] == ',' || list[n] == '\n'))
			return true;
	return false;
}

/* Where the hierarchy is mounted, by /proc/self/mountinfo: "id parent dev ROOT MOUNT options ... -
 * TYPE source OPTIONS". A container may see a part of the hierarchy only: ROOT then is the head of
 * the groups' names, and not of their paths. */
static void find_mount(const char *root, struct hierarchy *h)
{
	char path[PATH], line[4096], from[PATH], at[PATH], type[64], options[PATH];
	h->mount[0] = 0;
	snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
	FILE *f = fopen(path, "re");
	while (f && !h->mount[0] && fgets(line, sizeof line, f)) {
		const char *tail = strstr(line, " - ");
		if (!tail || sscanf(line, "%*s %*s %*s %1023s %1023s", from, at) != 2 ||
		    sscanf(tail, " - %63s %*s %1023s", type, options) != 2)
			continue;
		if (h->v2 ? strcmp(type, "cgroup2") != 0
			  : strcmp(type, "cgroup") != 0 ||
				    !listed(options, h->memory ? "memory" : "cpu"))
			continue;
		snprintf(h->mount, sizeof h->mount, "%s", at);
		const size_t n = strlen(from);
		if (n > 1 && !strncmp(h->group, from, n) && (!h->group[n] || h->group[n] == '/'))
			memmove(h->group, h->group + n, strlen(h->group + n) + 1);
	}
	if (f)
		fclose(f);
}

/* Calls `fn` on each of this process's groups, from its own up to the top of what is mounted. */
static void each_group(const char *root,
		       void (*fn)(const struct hierarchy *h, const char *dir, void *ctx), void *ctx)
{
	char path[PATH], line[PATH + 256], dir[3 * PATH];
	snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f)) {
		struct hierarchy h = { 0 };
		line[strcspn(line, "\n")] = 0;
		char *controllers = strchr(line, ':'),
		     *group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = 0;
		controllers++;
		h.v2 = !*controllers;
		h.memory = h.v2 || listed(controllers, "memory");
		h.cpu = h.v2 || listed(controllers, "cpu");
		if (!h.memory && !h.cpu)
			continue;
		snprintf(h.group, sizeof h.group, "%s", group);
		find_mount(root, &h);
		if (!h.mount[0])
			continue;
		for (char *end = h.group + strlen(h.group);;) {
			while (end > h.group && end[-1] == '/')
				*--end = 0;
			snprintf(dir, sizeof dir, "%s%s%s", root, h.mount, h.group);
			fn(&h, dir, ctx);
			if (end == h.group)
				break;
			while (end > h.group && end[-1] != '/')
				*--end = 0;
		}
	}
	if (f)
		fclose(f);
}

struct memory {
	uint64_t total, left;
};

/* Lowers what is left to one group's limit less what it holds and cannot drop. */
static void limit_memory(const struct hierarchy *h, const char *dir, void *ctx)
{
	static const char *const files_v2[] = { "inactive_file", "active_file", "slab_reclaimable",
						NULL };
	static const char *const files_v1[] = { "total_inactive_file", "total_active_file", NULL };
	struct memory *m = ctx;
	uint64_t most, now = 0;
	if (!h->memory || !read_number(dir, h->v2 ? "memory.max" : "memory.limit_in_bytes", &most))
		return;
	read_number(dir, h->v2 ? "memory.current" : "memory.usage_in_bytes", &now);
	const uint64_t cached = sum_of(dir, "memory.stat", h->v2 ? files_v2 : files_v1),
		       kept = now > cached ? now - cached : 0, left = most > kept ? most - kept : 0;
	if (most < m->total)
		m->total = most;
	if (left < m->left)
		m->left = left;
}

static int most_cores;       /* os_limit() */
static uint64_t most_memory; /* the same */

/* What this process holds that is no page of a file. */
static uint64_t own_memory(void)
{
	static const char *const anonymous[] = { "RssAnon:", "RssShmem:", NULL };
	return sum_of("/proc/self", "status", anonymous) << 10;
}

uint64_t os_machine_memory(const char *root)
{
	static const char *const total[] = { "MemTotal:", NULL };
	char proc[PATH];
	snprintf(proc, sizeof proc, "%s/proc", root);
	return sum_of(proc, "meminfo", total) << 10;
}

void os_memory(const char *root, uint64_t *total_p, uint64_t *free_p)
{
	static const char *const total[] = { "MemTotal:", NULL }, *const left[] = { "MemAvailable:",
										    NULL };
	char proc[PATH];
	snprintf(proc, sizeof proc, "%s/proc", root);
	struct memory m = { sum_of(proc, "meminfo", total) << 10, sum_of(proc, "meminfo", left)
									  << 10 };
	each_group(root, limit_memory, &m);
	if (!root[0] && most_memory) {
		const uint64_t own = own_memory(), rest = most_memory > own ? most_memory - own : 0;
		m.total = most_memory < m.total ? most_memory : m.total;
		m.left = rest < m.left ? rest : m.left;
	}
	*total_p = m.total;
	*free_p = m.left;
}

static void limit_share(const struct hierarchy *h, const char *dir, void *ctx)
{
	char path[PATH];
	long long quota = -1;
	uint64_t period = 0, v;
	double *cores = ctx;
	if (!h->cpu)
		return;
	if (h->v2) {
		unsigned long long p = 0;
		snprintf(path, sizeof path, "%s/cpu.max", dir);
		FILE *f = fopen(path, "re");
		if (f && fscanf(f, "%lld %llu", &quota, &p) != 2)
			quota = -1;
		if (f)
			fclose(f);
		period = p;
	} else if (read_number(dir, "cpu.cfs_quota_us", &v) &&
		   read_number(dir, "cpu.cfs_period_us", &period) && v < INT64_MAX) {
		quota = (long long)v;
	}
	if (quota <= 0 || !period)
		return;
	const double pays = (double)quota / (double)period;
	if (pays < *cores)
		*cores = pays;
}

double os_cores_share(const char *root, double cores)
{
	each_group(root, limit_share, &cores);
	return !root[0] && most_cores && most_cores < cores ? most_cores : cores;
}

int os_cores(const char *root, int cores)
{
	double share = cores;
	each_group(root, limit_share, &share);
	cores = (int)ceil(share);
	return !root[0] && most_cores && most_cores < cores ? most_cores : cores;
}

void os_limit(int cores, uint64_t memory)
{
	most_cores = cores;
	most_memory = memory;
}

/* ---- this process, this machine ---- */

int os_affinity(void)
{
	cpu_set_t set;
	return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

int os_processors(int *number, int most)
{
	cpu_set_t set;
	int n = 0;
	if (sched_getaffinity(0, sizeof set, &set) < 0)
		return 0;
	for (int i = 0; i < CPU_SETSIZE && n < most; i++)
		if (CPU_ISSET(i, &set))
			number[n++] = i;
	return n;
}

bool os_keep_to(const int *number, int n)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	for (int i = 0; i < n; i++)
		CPU_SET(number[i], &set);
	return n > 0 && sched_setaffinity(0, sizeof set, &set) == 0;
}

void os_processor(char *name, size_t n_name, char *vendor, size_t n_vendor)
{
	char line[256];
	FILE *f = fopen("/proc/cpuinfo", "re");
	while (f && fgets(line, sizeof line, f) && line[0] != '\n') {
		/* the first processor is enough */
		char *v = strchr(line, ':');
		if (!v)
			continue;
		v += v[1] == ' ' ? 2 : 1;
		v[strcspn(v, "\n")] = 0;
		if (!strncmp(line, "model name", 10))
			snprintf(name, n_name, "%s", v);
		else if (!strncmp(line, "vendor_id", 9))
			snprintf(vendor, n_vendor, "%s",
				 !strcmp(v, "AuthenticAMD")   ? "AMD"
				 : !strcmp(v, "GenuineIntel") ? "Intel"
							      : v);
	}
	if (f)
		fclose(f);
}

void os_exact_sleeps(void) { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }
void os_huge_pages(void *p, size_t n) { madvise(p, n, MADV_HUGEPAGE); }
void os_drop_pages(void *p, size_t n) { madvise(p, n, MADV_DONTNEED); }
void os_forbid_tracing(void) { prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

static char self[4096];

static void find_self(void)
{
	const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	self[n > 0 ? n : 0] = 0;
}

const char *os_self_exe(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, find_self);
	return self[0] ? self : NULL;
}

bool os_boot_id(char *out, size_t n)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	const bool ok = f && fgets(out, (int)n, f);
	if (f)
		fclose(f);
	if (ok)
		out[strcspn(out, "\n")] = 0;
	return ok && out[0];
}

bool os_net_namespace(char *out, size_t n)
{
	const ssize_t got = readlink("/proc/self/ns/net", out, n - 1);
	out[got > 0 ? got : 0] = 0;
	return got > 0;
}
#endif
