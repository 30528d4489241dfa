/* SPDX-License-Identifier: Apache-2.0 */
/* meet.c - see meet.h. */
#include "support/meet.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "support/scratch.h"

int mappings(void)
{
	char line[512];
	int n = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	assert_non_null(f);
	while (fgets(line, sizeof line, f))
		n += strstr(line, "memfd:heteroshard-link") != NULL;
	fclose(f);
	return n;
}

int open_files(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/fd");
	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

const char *meet_in(const char *name)
{
	const char *dir = scratch("%s", name);
	mkdir(dir, 0700);
	setenv("XDG_RUNTIME_DIR", dir, 1);
	return scratch("%s/heteroshard", name);
}

int names(const char *dir, char last[MEET_PATH])
{
	int n = 0;
	DIR *d = opendir(dir);
	for (struct dirent *x; d && (x = readdir(d));)
		if (strlen(x->d_name) == 32) {
			snprintf(last, MEET_PATH, "%.60s/%.40s", dir, x->d_name);
			n++;
		}
	if (d)
		closedir(d);
	return n;
}
