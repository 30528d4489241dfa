/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c - see keys.h. */
#include "net/keys.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base32.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/open.h"
#include "base/os.h"
#include "base/text.h"

#define PUBLIC "hs1-"
#define SECRET "hs1-secret-"
enum {
	CHECK_BYTES = 3,
	ALL_BYTES = KEY_BYTES + CHECK_BYTES,
	CHARS = BASE32_CHARS(ALL_BYTES),
	OLD_CHARS = 40
};
_Static_assert(sizeof SECRET + CHARS <= KEY_TEXT, "a key fits its text");

/* ---- text ----------------------------------------------------------------------------------- */

static void check_bytes(const char *word, const uint8_t key[KEY_BYTES], uint8_t out[CHECK_BYTES])
{
	uint8_t all[sizeof SECRET + KEY_BYTES], sum[SHA256_DIGEST_LENGTH];
	size_t n = strlen(word);
	memcpy(all, word, n);
	memcpy(all + n, key, KEY_BYTES);
	SHA256(all, n + KEY_BYTES, sum);
	memcpy(out, sum, CHECK_BYTES);
	OPENSSL_cleanse(all, sizeof all);
}

static void to_text(const char *word, const uint8_t key[KEY_BYTES], char out[KEY_TEXT])
{
	uint8_t all[ALL_BYTES];
	memcpy(all, key, KEY_BYTES);
	check_bytes(word, key, all + KEY_BYTES);
	size_t n = strlen(word);
	memcpy(out, word, n);
	base32_write(all, sizeof all, out + n);
	OPENSSL_cleanse(all, sizeof all);
}

/* Exactly one key of the kind that `word` names; NULL, or what is wrong with it. */
static const char *from_text(const char *word, const char *text, uint8_t out[KEY_BYTES])
{
	uint8_t all[ALL_BYTES] = { 0 }, check[CHECK_BYTES];
	const char *wrong = NULL;
	size_t n = strlen(word);
	if (strncmp(text, word, n) != 0 || strlen(text) != n + CHARS)
		return "is not of the form that heteroshard keygen writes";
	if (!base32_read(text + n, all, sizeof all))
		wrong = "has a character that keys do not have (they have a to z and 2 to 7)";
	check_bytes(word, all, check);
	if (!wrong && memcmp(check, all + KEY_BYTES, CHECK_BYTES) != 0)
		wrong = "is mistyped: its last characters do not fit the others";
	if (!wrong)
		memcpy(out, all, KEY_BYTES);
	OPENSSL_cleanse(all, sizeof all);
	return wrong;
}

bool key_public_bytes(const char *pub, uint8_t out[KEY_BYTES])
{
	return !from_text(PUBLIC, pub, out);
}

bool key_secret_bytes(const char *sec, uint8_t out[KEY_BYTES])
{
	return !from_text(SECRET, sec, out);
}

void key_public_text(const uint8_t pub[KEY_BYTES], char out[KEY_TEXT])
{
	to_text(PUBLIC, pub, out);
}

/* Removes the spaces around a key; NULL when the rest is too long for a key. */
static const char *trimmed(const char *text, char out[KEY_TEXT])
{
	while (isspace((unsigned char)*text))
		text++;
	size_t n = strlen(text);
	while (n && isspace((unsigned char)text[n - 1]))
		n--;
	if (n >= KEY_TEXT)
		return NULL;
	memcpy(out, text, n);
	out[n] = 0;
	return out;
}

/* The error message for a text that is not a key. `word`: the kind of key that was expected. */
static int no_key(const char *text, const char *word, const char *wrong, const char *where,
		  struct err *e)
{
	size_t n = text ? strlen(text) : KEY_TEXT, want = strlen(word) + CHARS;
	if (n == OLD_CHARS)
		return err_set(e, ERR_USAGE,
			       "%s: a key of an older version (40 characters); move the old key "
			       "file away, make a new key on each machine with `heteroshard "
			       "keygen` and put the new public keys into the configuration",
			       where);
	if (text && strcmp(word, PUBLIC) == 0 && strncmp(text, SECRET, strlen(SECRET)) == 0)
		return err_set(e, ERR_USAGE,
			       "%s: this is a private key, which stays in its file; "
			       "`heteroshard keygen --show` prints the public one",
			       where);
	if (n != want || strncmp(text, word, strlen(word)) != 0)
		return err_set(e, ERR_USAGE,
			       "%s: a %s key is %s and %d characters, this text has %zu in all "
			       "(`heteroshard keygen` makes one)",
			       where, strcmp(word, PUBLIC) == 0 ? "public" : "private", word, CHARS,
			       text ? n : (size_t)KEY_TEXT);
	return err_set(e, ERR_USAGE, "%s: the key %s", where, wrong);
}

int key_parse(const char *text, const char *where, char out[KEY_TEXT], struct err *e)
{
	char key[KEY_TEXT];
	uint8_t raw[KEY_BYTES];
	const char *cut = trimmed(text, key), *wrong = cut ? from_text(PUBLIC, cut, raw) : "";
	if (wrong)
		return no_key(cut, PUBLIC, wrong, where, e);
	memcpy(out, key, KEY_TEXT);
	return 0;
}

bool key_equal(const char *a, const char *b)
{
	const size_t n = strlen(PUBLIC) + CHARS;
	return strlen(a) == n && strlen(b) == n && CRYPTO_memcmp(a, b, n) == 0;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

static bool pair_of(const uint8_t sec[KEY_BYTES], struct key_pair *k_p)
{
	uint8_t pub[KEY_BYTES];
	size_t n = sizeof pub;
	EVP_PKEY *k = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, sec, KEY_BYTES);
	bool ok = k && EVP_PKEY_get_raw_public_key(k, pub, &n) == 1 && n == sizeof pub;
	EVP_PKEY_free(k);
	if (!ok)
		return false;
	*k_p = (struct key_pair){ 0 };
	to_text(PUBLIC, pub, k_p->pub);
	to_text(SECRET, sec, k_p->sec);
	return true;
}

int key_pair_generate(struct key_pair *k_p, struct err *e)
{
	uint8_t sec[KEY_BYTES];
	os_forbid_tracing();
	bool ok = RAND_priv_bytes(sec, sizeof sec) == 1 && pair_of(sec, k_p);
	OPENSSL_cleanse(sec, sizeof sec);
	return ok ? 0
		  : err_set(e, ERR_INTERNAL,
			    "cannot make a key pair: this machine's random generator or OpenSSL's "
			    "Ed25519 is missing");
}

/* ---- signatures ----------------------------------------------------------------------------- */

enum { STATEMENT = 512 };
_Static_assert(KEY_PROOF == 2 * KEY_SIGNATURE + 1, "a signature fits its text");

bool key_sign(const struct key_pair *k, const void *p, size_t n, uint8_t out[KEY_SIGNATURE])
{
	uint8_t sec[KEY_BYTES];
	size_t len = KEY_SIGNATURE;
	if (!key_secret_bytes(k->sec, sec))
		return false;
	EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, sec, sizeof sec);
	EVP_MD_CTX *c = EVP_MD_CTX_new();
	OPENSSL_cleanse(sec, sizeof sec);
	bool ok = key && c && EVP_DigestSignInit(c, NULL, NULL, NULL, key) == 1 &&
		  EVP_DigestSign(c, out, &len, p, n) == 1 && len == KEY_SIGNATURE;
	EVP_MD_CTX_free(c);
	EVP_PKEY_free(key);
	ERR_clear_error();
	return ok;
}

bool key_signed(const uint8_t pub[KEY_BYTES], const void *p, size_t n,
		const uint8_t signature[KEY_SIGNATURE])
{
	EVP_PKEY *k = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, pub, KEY_BYTES);
	EVP_MD_CTX *c = EVP_MD_CTX_new();
	bool ok = k && c && EVP_DigestVerifyInit(c, NULL, NULL, NULL, k) == 1 &&
		  EVP_DigestVerify(c, signature, KEY_SIGNATURE, p, n) == 1;
	EVP_MD_CTX_free(c);
	EVP_PKEY_free(k);
	ERR_clear_error();
	return ok;
}

/* What is signed. It cannot be taken for what TLS signs with the same key, which begins with 64
 * spaces. 0: it is too long. */
static size_t statement(const char *subject, const char *text, char out[STATEMENT])
{
	int n = snprintf(out, STATEMENT, "heteroshard %s\n%s", subject, text);
	return n > 0 && n < STATEMENT ? (size_t)n : 0;
}

int key_prove(const struct key_pair *k, const char *subject, const char *text,
	      char proof_p[KEY_PROOF], struct err *e)
{
	char all[STATEMENT];
	uint8_t raw[KEY_SIGNATURE];
	size_t n = statement(subject, text, all);
	if (!n || !key_sign(k, all, n, raw))
		return err_set(e, ERR_INTERNAL, "OpenSSL cannot sign with this machine's key");
	for (int i = 0; i < KEY_SIGNATURE; i++)
		snprintf(proof_p + 2 * i, 3, "%02x", raw[i]);
	return 0;
}

bool key_proves(const char *pub, const char *subject, const char *text, const char *proof)
{
	char all[STATEMENT];
	uint8_t key[KEY_BYTES], raw[KEY_SIGNATURE];
	size_t n = statement(subject, text, all);
	if (!n || strlen(proof) != KEY_PROOF - 1 || !key_public_bytes(pub, key))
		return false;
	for (int i = 0; i < KEY_SIGNATURE; i++) {
		static const char digits[] = "0123456789abcdef";
		const char *high = strchr(digits, proof[2 * i]),
			   *low = strchr(digits, proof[2 * i + 1]);
		if (!high || !low)
			return false;
		raw[i] = (uint8_t)((high - digits) << 4 | (low - digits));
	}
	return key_signed(key, all, n, raw);
}

void key_pair_wipe(struct key_pair *k) { OPENSSL_cleanse(k, sizeof *k); }

/* ---- files ---------------------------------------------------------------------------------- */

static int path_beside(const char *path, char out[PATH_MAX], struct err *e)
{
	if (snprintf(out, PATH_MAX, "%s.pub", path) >= PATH_MAX)
		return err_set(e, ERR_USAGE, "%s: the path is too long", path);
	return 0;
}

/* One line into a file that must not exist yet. Synced: without its key a machine cannot join. */
static int write_new(const char *path, const char *line, mode_t mode, struct err *e)
{
	int fd = open_write(path, OPEN_NEW, mode);
	if (fd < 0 && errno == EEXIST)
		return err_set(e, ERR_USAGE,
			       "%s: already exists and is not overwritten; move it away or name "
			       "another file",
			       path);
	if (fd < 0)
		return err_sys(e, errno, "%s: cannot create", path);
	char text[KEY_TEXT + 1];
	int n = snprintf(text, sizeof text, "%s\n", line);
	/* The umask may have taken bits away; it cannot have added any. */
	bool ok = write(fd, text, (size_t)n) == n && fsync(fd) == 0;
	int errnum = errno;
	OPENSSL_cleanse(text, sizeof text);
	ok = close(fd) == 0 && ok;
	if (ok)
		return 0;
	unlink(path);
	return err_sys(e, errnum, "%s: cannot write", path);
}

int key_pair_save(const struct key_pair *k, const char *path, struct err *e)
{
	char beside[PATH_MAX];
	TRY(path_beside(path, beside, e));
	TRY(write_new(path, k->sec, 0600, e));
	int rc = write_new(beside, k->pub, 0644, e);
	if (rc < 0)
		unlink(path);
	return rc;
}

int key_default_path(char *path_p, size_t cap, bool make_folder, struct err *e)
{
	const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	bool own = xdg && *xdg == '/';
	if (!own && !(home && *home == '/'))
		return err_set(e, ERR_USAGE, "no place for a key: HOME is not set; name a file");
	int n = snprintf(path_p, cap, "%s%s/heteroshard/key", own ? xdg : home,
			 own ? "" : "/.config");
	if (n < 0 || (size_t)n >= cap)
		return err_set(e, ERR_USAGE,
			       "no place for a key: the path of the home folder is too long");
	for (char *p = path_p + 1; make_folder && (p = strchr(p, '/')); p++) {
		*p = 0;
		int rc = mkdir(path_p, 0700) < 0 && errno != EEXIST
				 ? err_sys(e, errno, "%s: cannot create", path_p)
				 : 0;
		*p = '/';
		if (rc < 0)
			return rc;
	}
	return 0;
}

int key_pair_load(const char *path, struct key_pair *k_p, struct err *e)
{
	int fd, rc = open_read(path, &fd, NULL, e);
	if (rc < 0)
		return err_prefix(e, "the secret key");
	os_forbid_tracing(); /* before the key is in this process's memory */
	struct stat st;
	char text[128], word[PATH_MAX];
	ssize_t n = -1;
	/* Asked of the open file, so that nobody can swap it between the question and the
	 * reading. */
	if (fstat(fd, &st) < 0)
		rc = err_sys(e, errno, "%s: cannot ask for its mode", path);
	else if (st.st_uid != geteuid() && geteuid() != 0)
		rc = err_set(e, ERR_USAGE, "%s: the secret key belongs to another user", path);
	else if (st.st_mode & 077)
		rc = err_set(e, ERR_USAGE,
			     "%s: mode %04o lets others at the secret key; use `chmod 600 %s`",
			     path, (unsigned)st.st_mode & 07777,
			     text_word(path, word, sizeof word));
	else if ((n = read(fd, text, sizeof text - 1)) < 0)
		rc = err_sys(e, errno, "%s: cannot read", path);
	close(fd);
	if (rc < 0)
		return rc;
	text[n] = 0;
	char key[KEY_TEXT];
	uint8_t raw[KEY_BYTES];
	const char *cut = trimmed(text, key), *wrong = cut ? from_text(SECRET, cut, raw) : "";
	if (wrong)
		rc = no_key(cut, SECRET, wrong, path, e);
	else if (!pair_of(raw, k_p))
		rc = err_set(e, ERR_INTERNAL, "%s: OpenSSL refuses the key", path);
	OPENSSL_cleanse(text, sizeof text);
	OPENSSL_cleanse(key, sizeof key);
	OPENSSL_cleanse(raw, sizeof raw);
	return rc;
}

int key_path(const char *named, char *path_p, size_t cap, struct err *e)
{
	if (!named)
		return key_default_path(path_p, cap, false, e);
	if ((size_t)snprintf(path_p, cap, "%s", named) >= cap)
		return err_set(e, ERR_USAGE, "%s: the path is too long", named);
	return 0;
}

int key_own(bool make, struct key_pair *k_p, struct err *e)
{
	char path[PATH_MAX];
	TRY(key_default_path(path, sizeof path, make, e));
	if (!make || access(path, F_OK) == 0 || errno != ENOENT)
		return key_pair_load(path, k_p, e);
	TRY(key_pair_generate(k_p, e));
	int rc = key_pair_save(k_p, path, e);
	if (rc < 0)
		key_pair_wipe(k_p);
	return rc;
}
