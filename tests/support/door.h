/* SPDX-License-Identifier: Apache-2.0 */
/* door.h - a coordinator that takes invited workers (peers/reception.h), for tests in one process,
 * and files of peers in a folder of their own. Each function fails the test on an error. */
#ifndef HS_TESTS_SUPPORT_DOOR_H
#define HS_TESTS_SUPPORT_DOOR_H

#include "net/keys.h"
#include "net/net.h"
#include "peers/reception.h"

#include <stdbool.h>

struct door {
	struct key_pair key;
	struct net *net;
	struct reception *r;
	char at[NET_ADDRESS];
};

/* For cmocka_run_group_tests(): XDG_CONFIG_HOME and XDG_RUNTIME_DIR in a new folder, door_dir(). */
int door_setup(void **state);
int door_teardown(void **state);
const char *door_dir(void);

struct key_pair door_key(void); /* a new one */
/* It knows the keys of n peers. */
void door_open(struct door *d, const struct key_pair *known, int n);
void door_close(struct door *d);
struct net *door_client(const struct key_pair *k);
/* What happens to a link: true when it is lost within so many seconds. */
bool door_ends(struct link *l, double seconds);

#endif
