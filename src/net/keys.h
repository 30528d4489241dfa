/* SPDX-License-Identifier: Apache-2.0 */
/* keys.h - who a machine is: an Ed25519 key pair (RFC 8032), as text.
 *
 * A public key is "hs1-" and 56 characters, a private one "hs1-secret-" and 56: base32 (RFC 4648,
 * small letters) of the 32 bytes and of 3 bytes of check, the first ones of SHA-256 over the word
 * in front and the 32 bytes. So a key that was mistyped or cut short, or is of the other kind, is
 * noticed.
 *
 * The private key lies in a file of one line, mode 0600, created with O_EXCL so that an existing
 * key is never overwritten; the public key beside it in FILE.pub. A private key file that group or
 * others can read or write is refused. The public key follows from the private one. A process that
 * loads or makes a private key from then on writes no core file and cannot be traced by others of
 * its user (os_forbid_tracing). */
#ifndef HS_NET_KEYS_H
#define HS_NET_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

#define KEY_TEXT 72 /* holds either kind and a NUL */
#define KEY_BYTES 32

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
/* The file that somebody named; NULL: the one above. */
int key_path(const char *named, char *path_p, size_t cap, struct err *e);
/* The key at the default path. `make`: where there is none, a new one, with its folders. */
int key_own(bool make, struct key_pair *k_p, struct err *e);
void key_pair_wipe(struct key_pair *k);

/* Public keys as they stand in a configuration. `where` heads the message ("train.yaml:12").
 * Surrounding spaces are cut. */
int key_parse(const char *text, const char *where, char out[KEY_TEXT], struct err *e);
bool key_equal(const char *a, const char *b); /* of public keys, in constant time */

/* A machine's signature (Ed25519) of n bytes, which begin with a word that nothing else that is
 * signed with the key begins with. */
#define KEY_SIGNATURE 64
bool key_sign(const struct key_pair *k, const void *p, size_t n, uint8_t out[KEY_SIGNATURE]);
bool key_signed(const uint8_t pub[KEY_BYTES], const void *p, size_t n,
		const uint8_t signature[KEY_SIGNATURE]);

/* A machine's signature of a subject and a text, as hexadecimal digits. Others can pass
 * the text on, and whoever gets it can check who signed it. */
#define KEY_PROOF 129
int key_prove(const struct key_pair *k, const char *subject, const char *text,
	      char proof_p[KEY_PROOF], struct err *e);
bool key_proves(const char *pub, const char *subject, const char *text, const char *proof);

/* For transports: the 32 bytes of a text that key_parse or key_pair_* made, and the way back. */
bool key_public_bytes(const char *pub, uint8_t out[KEY_BYTES]);
bool key_secret_bytes(const char *sec, uint8_t out[KEY_BYTES]);
void key_public_text(const uint8_t pub[KEY_BYTES], char out[KEY_TEXT]);

#endif
