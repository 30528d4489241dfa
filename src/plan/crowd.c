/* SPDX-License-Identifier: Apache-2.0 */
/* crowd.c - see crowd.h. */
#include "plan/crowd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

int profile_cores(const char *text, struct core_set *set)
{
	int n = 0;

	if (set)
		*set = (struct core_set){ { 0 } };
	for (const char *s = text; *s;) {
		char *end;
		if (*s < '0' || *s > '9')
			return 0;
		const long first = strtol(s, &end, 10);
		long last = first;
		if (*end == '-' && end[1] >= '0' && end[1] <= '9')
			last = strtol(end + 1, &end, 10);
		if (first > last || last >= PROFILE_MAX_CORES || (*end && *end != ','))
			return 0;
		for (long k = first; set && k <= last; k++)
			set->bit[k / 8] |= (unsigned char)(1 << k % 8);
		n += (int)(last - first) + 1;
		s = *end ? end + 1 : end;
	}
	return n;
}

/* What device b lays on a core of device a in the mean. */
static double weight(const struct profile *p, int a, int b)
{
	const struct profile_device *x = &p->device[a], *y = &p->device[b];
	struct core_set own, other;
	int both = 0;

	if (x->host != y->host || !x->cores || !y->cores)
		return 0;
	const int n = profile_cores(x->cores, &own), m = profile_cores(y->cores, &other);
	for (int i = 0; i < PROFILE_MAX_CORES; i++)
		both += own.bit[i / 8] & other.bit[i / 8] & 1 << i % 8 ? 1 : 0;
	return n && m ? y->processors * both / ((double)n * m) : 0;
}

/* `beside`: of the time in which `device` computes, the part in which each other one does too;
 * NULL: all of it. */
static double load(const struct profile *p, int device, const double *beside)
{
	double sum = 0;
	for (int i = 0; i < p->devices; i++)
		if (p->device[i].cores && p->device[i].host == p->device[device].host)
			sum += (i == device || !beside ? 1 : beside[i]) * weight(p, device, i);
	return fmax(1, sum);
}

bool crowd_any(const struct profile *p)
{
	for (int i = 0; i < p->devices; i++)
		if (p->device[i].cores && load(p, i, NULL) > 1)
			return true;
	return false;
}

static bool computes(const struct play_span *s)
{
	return s->instr.kind == INSTR_FORWARD || s->instr.kind == INSTR_BACKWARD;
}

static int by_member_and_time(const void *a, const void *b)
{
	const struct play_span *x = a, *y = b;
	if (x->member != y->member)
		return x->member < y->member ? -1 : 1;
	return x->begin_s < y->begin_s ? -1 : x->begin_s > y->begin_s;
}

/* Seconds in which both compute; spans are sorted, those of member i are [first[i], first[i+1]). */
static double together(const struct play_span *s, const size_t *first, int a, int b)
{
	double sum = 0;
	for (size_t i = first[a], k = first[b]; i < first[a + 1] && k < first[b + 1];) {
		sum += fmax(0, fmin(s[i].end_s, s[k].end_s) - fmax(s[i].begin_s, s[k].begin_s));
		*(s[i].end_s < s[k].end_s ? &i : &k) += 1;
	}
	return sum;
}

int crowd_pace(const struct profile *p, const struct play_result *res, const int *device,
	       double *pace_p, struct err *e)
{
	const size_t n = (size_t)p->devices, members = (size_t)res->members;
	struct play_span *s = mem_array(res->spans + 1, sizeof *s);
	size_t *first = mem_array(members + 1, sizeof *first), spans = 0;
	double *beside = mem_array(n, sizeof *beside);
	int rc = s && first && beside ? 0 : err_nomem(e, res->spans * sizeof *s, "a plan's cores");

	for (size_t i = 0; rc >= 0 && i < res->spans; i++)
		if (computes(&res->span[i]))
			s[spans++] = res->span[i];
	if (rc >= 0)
		qsort(s, spans, sizeof *s, by_member_and_time);
	for (size_t i = 0, at = 0; rc >= 0 && i <= members; i++) {
		while (at < spans && (size_t)s[at].member < i)
			at++;
		first[i] = at;
	}
	for (size_t i = 0; i < n; i++)
		pace_p[i] = 1;
	for (int i = 0; rc >= 0 && i < res->members; i++) {
		const int d = device[i];
		if (!p->device[d].cores)
			continue;
		const double own = together(s, first, i, i);
		memset(beside, 0, n * sizeof *beside);
		for (int k = 0; k < res->members && own > 0; k++)
			if (p->device[device[k]].host == p->device[d].host)
				beside[device[k]] = together(s, first, i, k) / own;
		pace_p[d] = load(p, d, beside) / load(p, d, NULL);
	}
	mem_free(s);
	mem_free(first);
	mem_free(beside);
	return rc;
}
