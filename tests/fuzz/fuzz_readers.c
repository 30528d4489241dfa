/* SPDX-License-Identifier: Apache-2.0 */
/* A data file that is no JSON, from anywhere: Parquet and packed files through records.h, tables
 * through csv.h. It is read, row for row as valid JSON, or refused with one line. The first byte
 * chooses. */
#include "base/err.h"
#include "data/csv.h"
#include "data/records.h"
#include "starve.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const struct err *e, int rc)
{
	if (rc < 0 && (!e->msg[0] || strchr(e->msg, '\n') || rc == ERR_INTERNAL || rc != e->code))
		abort();
}

static void row(const char *p, size_t n)
{
	json_t *v = json_loadb(p, n, JSON_ALLOW_NUL, NULL);
	if (!v && n < 1 << 16 && strlen(p) < (1 << 16) && !memmem(p, n, "\\u0000", 6))
		abort();
	json_decref(v);
}

static void table(const char *p, size_t n, char separator)
{
	struct csv c = { .separator = separator, .names = BUF_INIT, .record = BUF_INIT };
	struct err e = { 0 };
	int rc = 1;
	while (n && rc > 0) {
		struct csv_scan s = { 0 };
		size_t len = 0, part = n / 2;
		rc = csv_length(&c, &s, p, part, false, &len, &e);
		if (!rc)
			rc = csv_length(&c, &s, p, n, true, &len, &e);
		check(&e, rc);
		if (rc <= 0 || len > n)
			break;
		rc = csv_row(&c, p, len, &e) < 0 ? -1 : 1;
		if (rc < 0)
			check(&e, e.code);
		else if (c.record.n)
			row(c.record.p, c.record.n);
		p += len;
		n -= len;
	}
	csv_release(&c);
}

static void file(const uint8_t *data, size_t n)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	char path[32];
	struct records *r;
	struct record rec;
	struct err e = { 0 };
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (fd < 0 || write(fd, data, n) != (ssize_t)n)
		abort();
	int rc = records_open(path, false, &r, &e);
	check(&e, rc);
	if (rc >= 0) {
		uint64_t rows = 0;
		while ((rc = records_next(r, &rec, &e)) > 0 && rows++ < 2000)
			if (records_form(r) == RECORDS_PARQUET)
				row(rec.text, rec.n);
		check(&e, rc < 0 ? rc : 0);
		records_close(r);
	}
	close(fd);
}

static void once(const uint8_t *data, size_t n)
{
	if (data[0] == ',' || data[0] == '\t')
		table((const char *)data + 1, n - 1, (char)data[0]);
	else
		file(data + 1, n - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n)
		starve(once, data, n);
	return 0;
}
