/* SPDX-License-Identifier: Apache-2.0 */
/* deal.c - the microbatches of a stage, dealt to the members of its group (sched.h). */
#include "sched/sched.h"

#include "base/err.h"

#include <limits.h>
#include <stdio.h>

static int share_of(const int *share, int k) { return share ? share[k] : 1; }

static int64_t sum_of(const int *share, int n)
{
	int64_t sum = 0;
	for (int k = 0; k < n; k++)
		sum += share_of(share, k);
	return sum > 0 ? sum : 1;
}

/* Who runs microbatch i, after those before it: had[k] of them by member k. */
static int turn_of(const int *share, int n, int64_t sum, const int64_t *had, int i)
{
	int64_t most = INT64_MIN;
	int who = 0;
	for (int k = 0; k < n; k++) { /* times `sum`: exact in integers */
		int64_t due = (int64_t)share_of(share, k) * (i + 1) - had[k] * sum;
		if (share_of(share, k) > 0 && due > most) {
			most = due;
			who = k;
		}
	}
	return who;
}

/* After so many microbatches everybody has had a whole number of shares, and the turns repeat: the
 * sum of the shares over their greatest common divisor. */
static int64_t turns_of(const int *share, int n, int64_t sum)
{
	int64_t common = 0;
	for (int k = 0; k < n; k++)
		for (int64_t b = share_of(share, k); b;) {
			const int64_t rest = common % b;
			common = b;
			b = rest;
		}
	return common > 0 ? sum / common : INT_MAX;
}

void sched_deal(const int *share, int n, int microbatches, int *place_p)
{
	const int64_t sum = sum_of(share, n), turns = turns_of(share, n, sum);
	int64_t had[SCHED_MAX_GROUP] = { 0 };
	for (int i = 0; i < microbatches; i++)
		if (i < turns) {
			place_p[i] = turn_of(share, n, sum, had, i);
			had[place_p[i]]++;
		} else {
			place_p[i] = place_p[i - turns];
		}
}

void sched_dealt(const int *share, int n, int microbatches, int *count_p)
{
	const int64_t sum = sum_of(share, n), turns = turns_of(share, n, sum);
	int64_t had[SCHED_MAX_GROUP] = { 0 };
	for (int i = 0; i < microbatches % turns; i++)
		had[turn_of(share, n, sum, had, i)]++;
	for (int k = 0; k < n; k++)
		count_p[k] =
			(int)(had[k] + microbatches / turns * (share_of(share, k) * turns / sum));
}

void sched_passes_text(const int *pass, size_t n, char *out, size_t cap)
{
	size_t at = (size_t)snprintf(out, cap, "["), i = 0;
	for (; i < n && at + 20 < cap; i++)
		at += (size_t)snprintf(out + at, cap - at, "%s%d", i ? ", " : "", pass[i]);
	snprintf(out + at, cap - at, i < n ? ", ...]" : "]");
}

int sched_depth(const int *share, int n)
{
	int64_t least = 0, depth;
	for (int k = 0; k < n; k++)
		if (share_of(share, k) > 0 && (!least || share_of(share, k) < least))
			least = share_of(share, k);
	if (!least)
		return 1;
	depth = (sum_of(share, n) + least - 1) / least;
	return (int)(depth < 2 * (int64_t)n ? depth : 2 * (int64_t)n);
}
