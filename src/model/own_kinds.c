/* SPDX-License-Identifier: Apache-2.0 */
/* own_kinds.c - the list of kinds of blocks: the rows of own.def, then those that were added. */
#include "model/own.h"

#include "base/err.h"
#include "base/mem.h"

#include <pthread.h>
#include <string.h>

#define OWN(name) extern const struct own_kind own_##name;
#include "model/own.def"
#undef OWN

static const struct own_kind *const rows[] = {
#define OWN(name) &own_##name,
#include "model/own.def"
#undef OWN
};

enum { ADDED_MOST = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct own_kind *added[ADDED_MOST];
static size_t nadded;

const struct own_kind *own_kind_at(size_t i)
{
	const struct own_kind *k = NULL;
	if (i < ARRAY_LEN(rows))
		return rows[i];
	pthread_mutex_lock(&lock);
	if (i - ARRAY_LEN(rows) < nadded)
		k = added[i - ARRAY_LEN(rows)];
	pthread_mutex_unlock(&lock);
	return k;
}

const struct own_kind *own_kind_find(const char *name, size_t n)
{
	const struct own_kind *k;
	for (size_t i = 0; (k = own_kind_at(i)); i++)
		if (strlen(k->name) == n && !memcmp(k->name, name, n))
			return k;
	return NULL;
}

int own_kind_register(const struct own_kind *k, struct err *e)
{
	const struct own_kind *there = own_kind_find(k->name, strlen(k->name));
	int rc = 0;
	if (there == k)
		return 0;
	if (there)
		return err_set(e, ERR_USAGE, "there is a kind of block '%s' already", k->name);
	pthread_mutex_lock(&lock);
	if (nadded < ADDED_MOST)
		added[nadded++] = k;
	else
		rc = err_set(e, ERR_USAGE, "more than %d kinds of blocks were added", ADDED_MOST);
	pthread_mutex_unlock(&lock);
	return rc;
}
