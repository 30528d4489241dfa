/* SPDX-License-Identifier: Apache-2.0 */
/* api_plugin.c - hs_plugin_load(): kinds of blocks and optimizers from a shared object. */
#include "api/api.h"

#include "base/dl.h"

#include <stdio.h>

struct plugin {
	hs_plugin_fn blocks;
	hs_plugin_optimizers_fn optimizers;
};

int hs_plugin_load(const char *path, hs_error *out)
{
	struct err e = { 0 };
	if (!path)
		return api_refuse(out, ERR_USAGE, "hs_plugin_load: no file");
	static const struct dl_symbol symbols[] = {
		{ "hs_plugin", offsetof(struct plugin, blocks), 1 },
		{ "hs_plugin_optimizers", offsetof(struct plugin, optimizers), 1 },
	};
	struct plugin p = { NULL, NULL };
	void *lib; /* stays open: its functions are blocks and optimizers now */
	if (dl_open((const char *[]){ path, NULL }, symbols, 2, &p, &lib, &e) < 0)
		return api_refuse(out, ERR_INPUT, "plugin %s", e.msg);
	if (!p.blocks && !p.optimizers) {
		dl_close(lib);
		return api_refuse(out, ERR_INPUT,
				  "plugin %s: has no function hs_plugin() or "
				  "hs_plugin_optimizers()",
				  path);
	}
	hs_error own = { 0, "" };
	int rc = p.blocks ? p.blocks(hs_block_register, &own) : 0;
	if (!rc && p.optimizers)
		rc = p.optimizers(hs_optimizer_register, &own);
	return rc ? api_refuse(out, ERR_INPUT, "plugin %s: %.800s", path,
			       own.text[0] ? own.text : "its function failed")
		  : 0;
}
