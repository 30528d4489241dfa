/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.c - the list of checks. The checks of one machine are in doctor_here.c, those of the
 * network and of other machines in doctor_net.c. */
#include "ops/doctor.h"

#define CHECK(name, help) void check_##name(struct doctor *d);
#include "ops/doctor.def"
#undef CHECK

const struct check doctor_checks[] = {
#define CHECK(name, help) { #name, help, check_##name },
#include "ops/doctor.def"
#undef CHECK
	{ 0 },
};

void doctor_run(struct doctor *d)
{
	for (const struct check *k = doctor_checks; k->name; k++) {
		k->run(d);
		d->checks++;
	}
}
