/* SPDX-License-Identifier: Apache-2.0 */
/* stat.c - see stat.h. */
#include "base/stat.h"

#include <stdlib.h>

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

void stat_sort(double *v, size_t n) { qsort(v, n, sizeof *v, by_size); }

double stat_median(double *v, size_t n)
{
	stat_sort(v, n);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}
