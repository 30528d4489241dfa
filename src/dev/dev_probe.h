/* SPDX-License-Identifier: Apache-2.0 */
/* dev_probe.h - what a device really does, found out by running it: seconds, not minutes, so that
 * every start of a plan can afford it.
 *
 * Rates are the best of a few runs, of square products that grow until one takes long enough to be
 * told from its launch. A number format counts as native where the backend found it so (dev_caps:
 * the hardware names it, and it ran right) and its products run at half the rate of float32 at
 * least: units that are there for compatibility only are 16 to 64 times slower, and a busy machine
 * must not decide. Kernels that the driver has not compiled yet are compiled first; that time is
 * the driver's. */
#ifndef HS_DEV_DEV_PROBE_H
#define HS_DEV_DEV_PROBE_H

#include "dev/dev.h"

struct dev_probe {
	struct {
		bool native;
		double rate; /* FLOP/s of matrix products; 0: the device has no such products */
	} type[DT_F16 + 1];
	double copy;             /* bytes/s inside the device, read plus written */
	double upload, download; /* bytes/s from and to ordinary host memory */
	uint64_t others;         /* bytes of its memory that other programs hold */
	bool others_known;
};

int dev_probe(struct dev *d, struct dev_probe *p_p, struct err *e);

#endif
