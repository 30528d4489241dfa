/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_here.c - checks of this machine (doctor.def): devices, key, clock, disk, memory,
 * processor. */
#include "ops/doctor_rows.h"

#include "base/err.h"
#include "base/os.h"
#include "base/text.h"
#include "net/keys.h"

#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { NAMES = 256, LOCKED_MIB = 8, ROOM_MIB = 2048 };

void doctor_found(struct doctor *d, const char *check, const char *where, const char *text,
		  const char *mend)
{
	if (d->n == FINDINGS_MOST)
		return;
	struct finding *f = &d->v[d->n++];
	snprintf(f->check, sizeof f->check, "%s", check);
	snprintf(f->where, sizeof f->where, "%.127s", where);
	snprintf(f->text, sizeof f->text, "%.399s", text);
	if (strlen(mend) < sizeof f->mend) /* a part of a command may be another command */
		snprintf(f->mend, sizeof f->mend, "%s", mend);
}

static bool exists(const struct doctor *d, const char *path)
{
	char full[PATH_MAX];
	snprintf(full, sizeof full, "%.2000s%.2000s", d->root, path);
	return access(full, F_OK) == 0;
}

/* ---- cards ---------------------------------------------------------------------------------- */

/* Whether a display controller of a maker is there (PCI class 03). */
static bool has_card(const struct doctor *d, const char *vendor, char name_p[OS_NAME])
{
	static char name[NAMES][OS_NAME];
	size_t n = os_names(d->root, "/sys/bus/pci/devices", "", name, NAMES);
	for (size_t i = 0; i < n; i++) {
		char path[200], text[32];
		snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/vendor", name[i]);
		if (!os_line(d->root, path, text, sizeof text) || strcmp(text, vendor))
			continue;
		snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/class", name[i]);
		if (os_line(d->root, path, text, sizeof text) && !strncmp(text, "0x03", 4)) {
			memcpy(name_p, name[i], OS_NAME);
			return true;
		}
	}
	return false;
}

void check_nvidia(struct doctor *d)
{
	char card[OS_NAME], text[300];
	if (!has_card(d, "0x10de", card) || exists(d, "/proc/driver/nvidia/version"))
		return;
	snprintf(text, sizeof text, "the NVIDIA card at %s has no driver of NVIDIA's", card);
	doctor_found(d, "nvidia", "", text,
		     os_line_with(d->root, "/etc/os-release", "ID=ubuntu", NULL, 0)
			     ? "sudo ubuntu-drivers install"
			     : "sudo apt-get install -y nvidia-driver");
}

void check_amd(struct doctor *d)
{
	char card[OS_NAME], text[300];
	if (!has_card(d, "0x1002", card) || exists(d, "/dev/kfd"))
		return;
	snprintf(text, sizeof text, "the AMD card at %s has no /dev/kfd: its driver is not loaded",
		 card);
	doctor_found(d, "amd", "", text, "sudo modprobe amdgpu");
}

void check_intel(struct doctor *d)
{
	char card[OS_NAME], text[300];
	static char icd[8][OS_NAME];
	if (!has_card(d, "0x8086", card) || os_names(d->root, "/etc/OpenCL/vendors", "", icd, 8))
		return;
	snprintf(text, sizeof text, "the Intel card at %s has no OpenCL driver", card);
	doctor_found(d, "intel", "", text, "sudo apt-get install -y intel-opencl-icd");
}

static void check_device(struct doctor *d, const char *path)
{
	char full[PATH_MAX], text[400], mend[300];
	struct stat s;
	snprintf(full, sizeof full, "%.2000s%.2000s", d->root, path);
	if (stat(full, &s) < 0 || access(full, R_OK | W_OK) == 0)
		return;
	const struct group *g = getgrgid(s.st_gid);
	const char *group = g && s.st_gid && (s.st_mode & 060) == 060 ? g->gr_name : NULL;
	char named[64];
	snprintf(named, sizeof named, "%.60s", group ? group : "");
	const struct passwd *p = getpwuid(geteuid());
	snprintf(text, sizeof text, "%.200s: this user may not open it%s", path,
		 named[0] ? " (effective at the next login)" : "");
	if (named[0])
		snprintf(mend, sizeof mend, "sudo usermod -aG %s %.60s", named,
			 p ? p->pw_name : "USER");
	else
		snprintf(mend, sizeof mend, "sudo chmod a+rw %.200s", full);
	doctor_found(d, "access", "", text, mend);
}

void check_access(struct doctor *d)
{
	static char name[NAMES][OS_NAME];
	static const char *const folder[] = { "/dev/dri", "/dev" }, *const begin[] = { "renderD",
										       "nvidia" };
	char path[200];
	check_device(d, "/dev/kfd");
	for (size_t k = 0; k < 2; k++) {
		size_t n = os_names(d->root, folder[k], begin[k], name, NAMES);
		for (size_t i = 0; i < n; i++) {
			snprintf(path, sizeof path, "%s/%.63s", folder[k], name[i]);
			if (k && strspn(name[i] + 6, "0123456789") != strlen(name[i] + 6))
				continue; /* a folder */
			check_device(d, path);
		}
	}
}

/* ---- files ---------------------------------------------------------------------------------- */

void check_key(struct doctor *d)
{
	char path[PATH_MAX], text[400], mend[400], word[300];
	struct stat s;
	struct err ignored = { 0 };
	if (key_path(d->c ? d->c->key_file : NULL, path, sizeof path, &ignored) < 0 ||
	    stat(path, &s) < 0 || !(s.st_mode & 077))
		return;
	snprintf(text, sizeof text, "%.300s: others can read this machine's private key", path);
	snprintf(mend, sizeof mend, "chmod 600 %s", text_word(path, word, sizeof word));
	doctor_found(d, "key", "", text, mend);
}

void check_clock(struct doctor *d)
{
	if (!exists(d, "/run/systemd/timesync") || exists(d, "/run/systemd/timesync/synchronized"))
		return;
	doctor_found(d, "clock", "", "the clock is not set from the network: times in logs differ",
		     "sudo timedatectl set-ntp true");
}

void check_disk(struct doctor *d)
{
	char dir[PATH_MAX], text[400], mend[400], word[300];
	const char *home = getenv("HOME"), *cache = getenv("XDG_CACHE_HOME");
	const double limit = d->c ? d->c->cache_limit_gib * 1024 : 0;
	const double room = limit > 0 && limit < ROOM_MIB ? limit : ROOM_MIB; /* MiB */
	struct statvfs s;
	if (d->c && d->c->cache_dir)
		snprintf(dir, sizeof dir, "%.3000s", d->c->cache_dir);
	else if (cache && cache[0])
		snprintf(dir, sizeof dir, "%.3000s/heteroshard", cache);
	else
		snprintf(dir, sizeof dir, "%.3000s/.cache/heteroshard", home ? home : "");
	char at[PATH_MAX];
	snprintf(at, sizeof at, "%s", dir);
	while (at[0] && at[1] && statvfs(at, &s) < 0) { /* the part of it that is there */
		char *slash = strrchr(at, '/');
		*(slash && slash > at ? slash : at + 1) = 0;
	}
	if (statvfs(at, &s) < 0)
		return;
	const double left = (double)s.f_bavail * (double)s.f_frsize / (1 << 20);
	if (left >= room)
		return;
	snprintf(text, sizeof text, "%.0f MiB are free for the layers in %.250s, %.0f are wanted",
		 left, dir, room);
	snprintf(mend, sizeof mend, "rm -rf %s/weights", text_word(dir, word, sizeof word));
	doctor_found(d, "disk", "", text, mend);
}

/* ---- memory and processor ------------------------------------------------------------------- */

void check_locked(struct doctor *d)
{
	struct rlimit r;
	char text[300], mend[200];
	const rlim_t want = (rlim_t)LOCKED_MIB << 20;
	if (getrlimit(RLIMIT_MEMLOCK, &r) < 0 || r.rlim_cur >= want)
		return;
	snprintf(text, sizeof text,
		 "%llu KiB of memory may be locked, and drivers of cards lock up to %d MiB for "
		 "transfers",
		 (unsigned long long)r.rlim_cur >> 10, LOCKED_MIB);
	if (r.rlim_max >= want)
		snprintf(mend, sizeof mend, "ulimit -S -l %d", LOCKED_MIB << 10);
	else
		snprintf(mend, sizeof mend, "sudo prlimit --pid $$ --memlock=%llu:%llu",
			 (unsigned long long)want, (unsigned long long)want);
	doctor_found(d, "locked", "", text, mend);
}

void check_governor(struct doctor *d)
{
	static char cpu[NAMES][OS_NAME];
	size_t n = os_names(d->root, "/sys/devices/system/cpu", "cpu", cpu, NAMES);
	for (size_t i = 0; i < n; i++) {
		char path[200], text[64], driver[64] = "", mend[400];
		snprintf(path, sizeof path, "/sys/devices/system/cpu/%s/cpufreq/scaling_governor",
			 cpu[i]);
		if (!os_line(d->root, path, text, sizeof text) || strcmp(text, "powersave"))
			continue;
		snprintf(path, sizeof path, "/sys/devices/system/cpu/%s/cpufreq/scaling_driver",
			 cpu[i]);
		os_line(d->root, path, driver, sizeof driver);
		/* these two choose the clock themselves, whatever the word says */
		if (!strcmp(driver, "intel_pstate") || !strcmp(driver, "amd-pstate-epp"))
			continue;
		snprintf(mend, sizeof mend,
			 "echo performance | sudo tee %.150s/sys/devices/system/cpu/cpu*/cpufreq/"
			 "scaling_governor",
			 d->root);
		doctor_found(d, "governor", "",
			     "the processor is kept at its lowest clock (governor powersave)",
			     mend);
		return;
	}
}
