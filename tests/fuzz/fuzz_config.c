/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration from anywhere: it is read or refused with one line, and what was read survives
 * the way through JSON. The input: the text; the byte 0xff and, line by line, keys as they stand on
 * the command line. A text that begins with '#' is read as what a training needs. */
#include "base/buf.h"
#include "base/err.h"
#include "config/config.h"
#include "fuzz/starve.h"
#include "support/memfile.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void once(const uint8_t *data, size_t n)
{
	struct err e = { 0 };
	struct config *c, *d;
	const uint8_t *mark = n ? memchr(data, 0xff, n) : NULL;
	char words[512] = "", *word[8];
	int nwords = 0;
	if (mark) {
		size_t left = n - (size_t)(mark - data) - 1;
		memcpy(words, mark + 1, left < sizeof words ? left : sizeof words - 1);
		n = (size_t)(mark - data);
		for (char *p = words; *p && nwords < 8; nwords++) {
			word[nwords] = p;
			p += strcspn(p, "\n");
			if (*p)
				*p++ = 0;
		}
	}
	int rc = config_parse(n && *data == '#' ? CONFIG_TRAIN : CONFIG_PART, (const char *)data, n,
			      "fuzz.yaml", nwords, word, &c, &e);
	if (rc < 0) {
		if (!e.msg[0] || strchr(e.msg, '\n') || rc != e.code)
			abort();
		return;
	}
	struct buf json = BUF_INIT, again = BUF_INIT;
	config_to_json(c, &json);
	rc = json.failed ? ERR_NOMEM
			 : config_parse(CONFIG_PART, json.p, json.n, "again.json", 0, NULL, &d, &e);
	if (rc < 0) {
		if (rc != ERR_NOMEM)
			abort();
		buf_release(&json);
		config_free(c);
		return;
	}
	config_to_json(d, &again);
	if (!again.failed && (json.n != again.n || memcmp(json.p, again.p, json.n)))
		abort();
	buf_release(&json);
	buf_release(&again);
	config_free(c);
	config_free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	starve(once, data, n);
	return 0;
}
