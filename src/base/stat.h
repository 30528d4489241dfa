/* SPDX-License-Identifier: Apache-2.0 */
/* stat.h - the median of measurements. */
#ifndef HS_BASE_STAT_H
#define HS_BASE_STAT_H

#include <stddef.h>

void stat_sort(double *v, size_t n); /* ascending */
/* Of n > 0 numbers; the mean of the middle two where n is even. Sorts v. */
double stat_median(double *v, size_t n);

#endif
