/* SPDX-License-Identifier: Apache-2.0 */
/* cards.c - see cards.h. */
#include "support/cards.h"

#include "base/mem.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether this machine's own driver has a card. It is asked here, not by the backend, which opens a
 * library once for a process. */
static bool has_card(const char *const *names, const char *init, const char *count)
{
	void *h = NULL;
	int n = 0;
	if (!strncmp(init, "hip", 3) && access("/dev/kfd", F_OK) < 0 &&
	    access("/dev/dxg", F_OK) < 0)
		return false;
	for (; *names && !h; names++)
		h = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
	if (!h)
		return false;
	int (*f)(unsigned) = (int (*)(unsigned))(uintptr_t)dlsym(h, init);
	int (*g)(int *) = (int (*)(int *))(uintptr_t)dlsym(h, count);
	return f && g && f(0) == 0 && g(&n) == 0 && n > 0;
}

/* The path of a stand-in; false, with a line that says why: there is none. */
static bool path_of(const char *library, char path[4096])
{
	const char *bin = getenv("HS_BIN");
	ssize_t n = bin ? snprintf(path, 4096, "%s", bin) : readlink("/proc/self/exe", path, 4095);
	if (n <= 0 || n >= 4000)
		return false;
	path[n] = 0;
	char *slash = strrchr(path, '/');
	if (!slash)
		return false;
	snprintf(slash, 90, "%s/drivers/%s", bin ? "/tests" : "", library);
	if (access(path, R_OK) == 0)
		return true;
	printf("no stand-in: %s is not built\n", path);
	return false;
}

bool fake_opencl(void)
{
	char path[4096];
	return path_of("fake_opencl.so", path) && setenv("HS_OPENCL_LIBRARY", path, 1) == 0;
}

bool fake_cards(const char *library, bool always)
{
	static const char *const cuda[] = { "libcuda.so.1", NULL };
	static const char *const hip[] = { "libamdhip64.so.7", "libamdhip64.so.6",
					   "libamdhip64.so.5", NULL };
	static const char *const envs[2][3] = {
		{ "HS_CUDA_LIBRARY", "HS_NVRTC_LIBRARY", "HS_CUBLASLT_LIBRARY" },
		{ "HS_HIP_LIBRARY", "HS_HIPRTC_LIBRARY", "HS_ROCBLAS_LIBRARY" }
	};
#ifdef __SANITIZE_THREAD__
	printf("no stand-in for cards: its fibers are threads to the sanitizer\n");
	return false;
#endif
	char path[4096];
	if (!path_of(library, path))
		return false;
	for (int i = 0; i < 2; i++)
		if (always || !(i ? has_card(hip, "hipInit", "hipGetDeviceCount")
				  : has_card(cuda, "cuInit", "cuDeviceGetCount")))
			for (int k = 0; k < 3; k++)
				setenv(envs[i][k], path, 1);
	return true;
}
