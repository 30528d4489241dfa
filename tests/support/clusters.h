/* SPDX-License-Identifier: Apache-2.0 */
/* clusters.h - random profiles for tests of planners: unlike devices on a few hosts, slow and fast
 * links, tight memory at times. */
#ifndef HS_TESTS_CLUSTERS_H
#define HS_TESTS_CLUSTERS_H

#include <stdint.h>

struct profile;

/* Up to `devices` devices and `layers` layers; everything follows from the seed. Release with
 * profile_release(). Returns 0. */
int cluster_make(uint64_t seed, int devices, int layers, struct profile *p);
/* Exactly so many devices and layers; no two devices are alike. */
int cluster_make_sized(uint64_t seed, int devices, int layers, int hosts, int batch,
		       struct profile *p);

#endif
