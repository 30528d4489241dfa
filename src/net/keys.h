/* SPDX-License-Identifier: Apache-2.0 */
/* keys.h - who a machine is: a CURVE key pair (Curve25519), as text in Z85 (ZeroMQ RFC 32), 40
 * characters each.
 *
 * The secret key lies in a file of one line, mode 0600, created with O_EXCL so that an existing key
 * is never overwritten; the public key beside it in FILE.pub. A secret key file that group or
 * others can read or write is refused. The public key follows from the secret one. */
#ifndef HS_NET_KEYS_H
#define HS_NET_KEYS_H

#include <stdbool.h>
#include <stddef.h>

struct err;

#define KEY_TEXT 41 /* 40 characters and a NUL */

struct key_pair {
	char pub[KEY_TEXT];
	char sec[KEY_TEXT];
};

int key_pair_generate(struct key_pair *k_p, struct err *e);
/* Writes PATH (0600) and PATH.pub (0644); fails when either exists, and then leaves nothing
 * behind. */
int key_pair_save(const struct key_pair *k, const char *path, struct err *e);
int key_pair_load(const char *path, struct key_pair *k_p, struct err *e);
/* Where a key lies when nobody says where: $XDG_CONFIG_HOME/heteroshard/key, else
 * ~/.config/heteroshard/key. `make_folder`: creates the folders that are missing (0700). */
int key_default_path(char *path_p, size_t cap, bool make_folder, struct err *e);
void key_pair_wipe(struct key_pair *k);

/* Public keys as they stand in a configuration. `where` heads the message ("train.yaml:12").
 * Surrounding spaces are cut. */
int key_parse(const char *text, const char *where, char out[KEY_TEXT], struct err *e);
bool key_equal(const char *a, const char *b); /* in constant time */

#endif
