/* SPDX-License-Identifier: Apache-2.0 */
/* door.c - see door.h. */
#include "support/door.h"

#include "base/clock.h"
#include "base/err.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[128];

static void must(int rc, const struct err *e)
{
	if (rc < 0)
		fail_msg("%s", e->msg);
}

int door_setup(void **state)
{
	(void)state;
	char cmd[200];
	snprintf(dir, sizeof dir, "%s/hs-peers-XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(dir))
		return -1;
	snprintf(cmd, sizeof cmd, "%s/config", dir);
	mkdir(cmd, 0700);
	setenv("XDG_CONFIG_HOME", cmd, 1);
	setenv("XDG_RUNTIME_DIR", dir, 1);
	return sodium_init() < 0 ? -1 : 0;
}

int door_teardown(void **state)
{
	(void)state;
	char cmd[300];
	snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
	return system(cmd) ? -1 : 0;
}

const char *door_dir(void) { return dir; }

struct key_pair door_key(void)
{
	struct key_pair k;
	struct err e = { 0 };
	must(key_pair_generate(&k, &e), &e);
	return k;
}

void door_open(struct door *d, const struct key_pair *known, int n)
{
	struct err e = { 0 };
	*d = (struct door){ .key = door_key() };
	must(net_open("tls", &(struct net_options){ .key = &d->key }, &d->net, &e), &e);
	for (int i = 0; i < n; i++)
		must(net_allow(d->net, known[i].pub, &e), &e);
	must(net_listen(d->net, "127.0.0.1:0", d->at, &e), &e);
	must(reception_open(d->net, d->key.pub, &d->r, &e), &e);
}

void door_close(struct door *d)
{
	reception_close(d->r);
	net_close(d->net, 0);
}

struct net *door_client(const struct key_pair *k)
{
	struct net *n;
	struct err e = { 0 };
	must(net_open("tls", &(struct net_options){ .key = k }, &n, &e), &e);
	return n;
}

bool door_ends(struct link *l, double seconds)
{
	for (int64_t until = net_in(seconds); clock_now() < until; usleep(10000))
		if (link_state(l) == LINK_LOST)
			return true;
	return false;
}
