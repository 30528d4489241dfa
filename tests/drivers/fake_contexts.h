/* SPDX-License-Identifier: Apache-2.0 */
/* fake_contexts.h - a part of fake_rt.c: contexts of CUDA, devices of HIP, and what belongs to
 * which. */
#ifndef HS_TESTS_DRIVERS_FAKE_CONTEXTS_H
#define HS_TESTS_DRIVERS_FAKE_CONTEXTS_H

enum { CUDA, HIP, DEVICES = 16 };
static _Thread_local int api, cuda_device = -1, hip_device;
static int retained[DEVICES], generation[DEVICES];

/* What a handle belongs to. When everybody has given back a context of CUDA, it is gone with its
 * handles. Asking for it again makes a new one. */
struct owner {
	int api, device, generation;
};

static int device_now(void) { return api == CUDA ? cuda_device : hip_device; }
static struct owner owner_now(void)
{
	const int d = device_now();
	return (struct owner){ api, d, d >= 0 ? generation[d] : -1 };
}

/* The driver's answer to a use of something that belongs to `o`, now. */
static int owned(struct owner o)
{
	const struct owner now = owner_now();
	if (now.device < 0 || (api == CUDA && !retained[now.device]))
		return NO_CONTEXT;
	return o.api == now.api && o.device == now.device && o.generation == now.generation
		       ? OK
		       : BAD_HANDLE;
}

#endif
