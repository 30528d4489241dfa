/* SPDX-License-Identifier: Apache-2.0 */
/* token.c - see token.h. */
#include "peers/token.h"

#include "base/base32.h"
#include "base/err.h"

#include <ctype.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

static const char word[] = "hsi1-";
enum { HEAD = 2 + KEY_BYTES + TOKEN_SECRET + 1, CHECK = 3, RAW = 640 };

static void check_bytes(const uint8_t *raw, size_t n, uint8_t out[CHECK])
{
	uint8_t sum[32];
	crypto_generichash(sum, sizeof sum, raw, n, (const uint8_t *)word, sizeof word - 1);
	memcpy(out, sum, CHECK);
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
	raw[HEAD - 1] = (uint8_t)t->naddress;
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
	sodium_memzero(raw, sizeof raw);
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
	if (memcmp(sum, raw + n, CHECK) || raw[HEAD - 1] > TOKEN_ADDRESSES)
		return false;
	t->port = (unsigned)raw[0] << 8 | raw[1];
	key_public_text(raw + 2, t->key);
	memcpy(t->secret, raw + 2 + KEY_BYTES, TOKEN_SECRET);
	for (t->naddress = 0; t->naddress < raw[HEAD - 1]; t->naddress++) {
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
	sodium_memzero(raw, sizeof raw);
	sodium_memzero(copy, sizeof copy);
	sodium_memzero(&t, sizeof t);
	return ok ? 0 : wrong(e);
}

int invite_prove(const uint8_t secret[TOKEN_SECRET], const uint8_t binding[LINK_BINDING],
		 const char *own, const char *coordinator, const char *name,
		 uint8_t proof_p[TOKEN_PROOF], struct err *e)
{
	static const char label[] = "heteroshard invitation 1";
	uint8_t keys[2][KEY_BYTES];
	crypto_auth_hmacsha256_state s;
	if (sodium_init() < 0 || !key_public_bytes(own, keys[0]) ||
	    !key_public_bytes(coordinator, keys[1]))
		return err_set(e, ERR_INTERNAL, "no proof can be made for these keys");
	crypto_auth_hmacsha256_init(&s, secret, TOKEN_SECRET);
	crypto_auth_hmacsha256_update(&s, (const uint8_t *)label, sizeof label);
	crypto_auth_hmacsha256_update(&s, binding, LINK_BINDING);
	crypto_auth_hmacsha256_update(&s, keys[0], sizeof keys);
	crypto_auth_hmacsha256_update(&s, (const uint8_t *)name, strlen(name) + 1);
	crypto_auth_hmacsha256_final(&s, proof_p);
	sodium_memzero(&s, sizeof s);
	return 0;
}

bool invite_proves(const uint8_t secret[TOKEN_SECRET], const uint8_t binding[LINK_BINDING],
		   const char *own, const char *coordinator, const char *name,
		   const uint8_t proof[TOKEN_PROOF])
{
	uint8_t due[TOKEN_PROOF];
	struct err ignored = { 0 };
	return invite_prove(secret, binding, own, coordinator, name, due, &ignored) >= 0 &&
	       sodium_memcmp(due, proof, TOKEN_PROOF) == 0;
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
