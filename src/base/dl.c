/* SPDX-License-Identifier: Apache-2.0 */
/* dl.c - see dl.h. */
#include "base/dl.h"

#include "base/err.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

int dl_open(const char *const *names, const struct dl_symbol *symbols, size_t n, void *table,
	    void **handle_p, struct err *e)
{
	void *h = NULL;
	const char *tried = names[0];
	bool broken = false;
	err_clear(e);
	for (size_t i = 0; names[i] && !h; i++) {
		h = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
		if (h) {
			tried = names[i];
		} else if (!broken) {
			const char *why = dlerror();
#ifdef __APPLE__ /* names all places in which it looked */
			broken = why && !strstr(why, "no such file");
#else
			broken = why && (strncmp(why, names[i], strlen(names[i])) ||
					 !strstr(why, "No such file"));
#endif
			if (broken)
				err_set(e, ERR_DEVICE, "%s cannot be opened: %s", names[i], why);
		}
	}
	if (!h)
		return broken ? e->code : err_set(e, ERR_UNSUPPORTED, "%s is not installed", tried);
	err_clear(e);
	for (size_t i = 0; i < n; i++) {
		void *f = dlsym(h, symbols[i].name);
		if (!f && !symbols[i].optional) {
			dlclose(h);
			return err_set(e, ERR_DEVICE,
				       "%s has no function %s: the driver is too old or damaged",
				       tried, symbols[i].name);
		}
		memcpy((char *)table + symbols[i].offset, &f, sizeof f);
	}
	*handle_p = h;
	return 0;
}

void dl_close(void *handle)
{
	if (handle)
		dlclose(handle);
}
