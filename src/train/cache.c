/* cache.c - see cache.h. */
#include "train/cache.h"

#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>

int cache_folder(const char *given, const char *part, char *out, size_t cap, struct err *e)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int n = given           ? snprintf(out, cap, "%s/%s", given, part)
		: xdg && *xdg   ? snprintf(out, cap, "%s/heteroshard/%s", xdg, part)
		: home && *home ? snprintf(out, cap, "%s/.cache/heteroshard/%s", home, part)
				: -1;
	if (n < 0)
		return err_set(e, ERR_USAGE, "there is no HOME to keep %s in: give 'cache_dir'", part);
	if ((size_t)n >= cap)
		return err_set(e, ERR_USAGE, "cache_dir: the path is too long");
	return 0;
}
