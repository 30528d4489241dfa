/* SPDX-License-Identifier: Apache-2.0 */
/* token.c - see token.h. */
#include "peers/token.h"

#include "base/base32.h"
#include "base/err.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

static const char word[] = "hsi1-";
enum { HEAD = 2 + KEY_BYTES + TOKEN_SECRET + 1, CHECK = 3, RAW = 640, MESH = 128 };

static void check_bytes(const uint8_t *raw, size_t n, uint8_t out[CHECK])
{
	uint8_t all[sizeof word + RAW], sum[SHA256_DIGEST_LENGTH];
	memcpy(all, word, sizeof word);
	memcpy(all + sizeof word, raw, n);
	SHA256(all, sizeof word + n, sum);
	memcpy(out, sum, CHECK);
	OPENSSL_cleanse(all, sizeof all);
}

int invite_write(const struct invite_token *t, char out[TOKEN_TEXT], struct err *e)
{
	uint8_t raw[RAW];
	size_t n = HEAD;
	if (!key_public_bytes(t->key, raw + 2))
		return err_set(e, ERR_INTERNAL, "an invitation without a key");
	raw[0] = (uint8_t)(t->port >> 8);
	raw[1] = (uint8_t)t->port;
	memcpy(raw + 2 + KEY_BYTES, t->secret, TOKEN_SECRET);
	raw[HEAD - 1] = (uint8_t)(t->naddress | (t->mesh ? MESH : 0));
	for (int i = 0; i < t->naddress; i++) {
		size_t len = strlen(t->address[i]);
		raw[n++] = (uint8_t)len;
		memcpy(raw + n, t->address[i], len);
		n += len;
	}
	check_bytes(raw, n, raw + n);
	n += CHECK;
	memcpy(out, word, sizeof word);
	base32_write(raw, n, out + sizeof word - 1);
	OPENSSL_cleanse(raw, sizeof raw);
	return 0;
}

static int wrong(struct err *e)
{
	return err_set(e, ERR_USAGE,
		       "this is no invitation: it begins with 'hsi1-' and is copied whole, as "
		       "'heteroshard invite' printed it");
}

static bool plain_address(const char *s)
{
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr(".:-_", *s))
			return false;
	return true;
}

static bool read_raw(const uint8_t *raw, size_t n, struct invite_token *t)
{
	uint8_t sum[CHECK];
	size_t at = HEAD;
	if (n < HEAD + CHECK)
		return false;
	n -= CHECK;
	check_bytes(raw, n, sum);
	const int count = raw[HEAD - 1] & ~MESH;
	if (memcmp(sum, raw + n, CHECK) || count > TOKEN_ADDRESSES)
		return false;
	t->port = (unsigned)raw[0] << 8 | raw[1];
	key_public_text(raw + 2, t->key);
	memcpy(t->secret, raw + 2 + KEY_BYTES, TOKEN_SECRET);
	t->mesh = raw[HEAD - 1] & MESH;
	for (t->naddress = 0; t->naddress < count; t->naddress++) {
		char *address = t->address[t->naddress];
		size_t k = at < n ? raw[at++] : TOKEN_ADDRESS;
		if (!k || k >= TOKEN_ADDRESS || k > n - at)
			return false;
		memcpy(address, raw + at, k);
		if (strlen(address) != k || !plain_address(address))
			return false;
		at += k;
	}
	return at == n && t->naddress && t->port;
}

int invite_read(const char *text, struct invite_token *t_p, struct err *e)
{
	struct invite_token t = { 0 };
	uint8_t raw[RAW];
	char copy[TOKEN_TEXT];
	size_t len = 0, n;
	for (const char *p = text; *p && len + 1 < sizeof copy; p++)
		if (!isspace((unsigned char)*p))
			copy[len++] = (char)tolower((unsigned char)*p);
	copy[len] = 0;
	bool ok = !strncmp(copy, word, sizeof word - 1);
	if (ok) {
		const char *rest = copy + sizeof word - 1;
		n = strlen(rest) * 5 / 8;
		ok = n <= sizeof raw && base32_read(rest, raw, n) && read_raw(raw, n, &t);
	}
	if (ok)
		*t_p = t;
	OPENSSL_cleanse(raw, sizeof raw);
	OPENSSL_cleanse(copy, sizeof copy);
	OPENSSL_cleanse(&t, sizeof t);
	return ok ? 0 : wrong(e);
}

int invite_secret(uint8_t secret_p[TOKEN_SECRET], struct err *e)
{
	if (RAND_priv_bytes(secret_p, TOKEN_SECRET) == 1)
		return 0;
	return err_set(e, ERR_INTERNAL, "this machine's random generator is missing");
}

/* Bytes only, so nothing lies between the fields. The name ends with its NUL. */
struct what_is_proven {
	char label[25];
	uint8_t binding[LINK_BINDING], own[KEY_BYTES], coordinator[KEY_BYTES];
	char name[PEER_NAME];
};
_Static_assert(sizeof(struct what_is_proven) == 25 + LINK_BINDING + 2 * KEY_BYTES + PEER_NAME,
	       "no gaps");

int invite_prove(const uint8_t secret[TOKEN_SECRET], const uint8_t binding[LINK_BINDING],
		 const char *own, const char *coordinator, const char *name,
		 uint8_t proof_p[TOKEN_PROOF], struct err *e)
{
	struct what_is_proven all = { .label = "heteroshard invitation 1" };
	unsigned n = TOKEN_PROOF;
	size_t len = strlen(name);
	memcpy(all.binding, binding, LINK_BINDING);
	if (len < PEER_NAME && key_public_bytes(own, all.own) &&
	    key_public_bytes(coordinator, all.coordinator)) {
		memcpy(all.name, name, len);
		if (HMAC(EVP_sha256(), secret, TOKEN_SECRET, (const uint8_t *)&all,
			 offsetof(struct what_is_proven, name) + len + 1, proof_p, &n))
			return 0;
	}
	return err_set(e, ERR_INTERNAL, "no proof can be made for these keys");
}

bool invite_proves(const uint8_t secret[TOKEN_SECRET], const uint8_t binding[LINK_BINDING],
		   const char *own, const char *coordinator, const char *name,
		   const uint8_t proof[TOKEN_PROOF])
{
	uint8_t due[TOKEN_PROOF];
	struct err ignored = { 0 };
	return invite_prove(secret, binding, own, coordinator, name, due, &ignored) >= 0 &&
	       CRYPTO_memcmp(due, proof, TOKEN_PROOF) == 0;
}

bool peer_name_ok(const char *name)
{
	size_t n = strlen(name);
	if (!n || n >= PEER_NAME || !isalnum((unsigned char)name[0]) || !strcmp(name, "local") ||
	    !strcmp(name, "all"))
		return false;
	for (const char *p = name; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr(".-_", *p))
			return false;
	return true;
}

bool wg_key_ok(const char *key)
{
	unsigned char raw[32];
	size_t n;
	return strlen(key) == WG_KEY - 1 &&
	       sodium_base642bin(raw, sizeof raw, key, WG_KEY - 1, NULL, &n, NULL,
				 sodium_base64_VARIANT_ORIGINAL) == 0 &&
	       n == sizeof raw;
}
