/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_rows.h - the functions of the rows of doctor.def. */
#ifndef HS_OPS_DOCTOR_ROWS_H
#define HS_OPS_DOCTOR_ROWS_H

#include "ops/doctor.h"

#define CHECK(name, help) void check_##name(struct doctor *d);
#include "ops/doctor.def"
#undef CHECK

#endif
