/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration from anywhere: it is read or refused with one line, and what was read survives
 * the way through JSON. */
#include "base/buf.h"
#include "base/err.h"
#include "config/config.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct err e = { 0 };
	struct config *c, *d;
	int rc = config_parse(CONFIG_PART, (const char *)data, n, "fuzz.yaml", 0, NULL, &c, &e);
	if (rc < 0) {
		if (!e.msg[0] || strchr(e.msg, '\n') || rc != e.code)
			abort();
		return 0;
	}
	struct buf json = BUF_INIT, again = BUF_INIT;
	config_to_json(c, &json);
	if (config_parse(CONFIG_PART, json.p, json.n, "again.json", 0, NULL, &d, &e) < 0)
		abort();
	config_to_json(d, &again);
	if (json.n != again.n || memcmp(json.p, again.p, json.n))
		abort();
	buf_release(&json);
	buf_release(&again);
	config_free(c);
	config_free(d);
	return 0;
}
