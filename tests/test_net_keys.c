/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_keys.c - key files: modes, never overwritten, what is refused. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "job/network.h"
#include "net/keys.h"

static char dir[] = "/tmp/hs-keys-XXXXXX";
static char path[64], beside[64];

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof path, "%s/key", dir);
	snprintf(beside, sizeof beside, "%s/key.pub", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	unlink(beside);
	return rmdir(dir);
}

static unsigned mode_of(const char *p)
{
	struct stat st;
	assert_int_equal(stat(p, &st), 0);
	return (unsigned)st.st_mode & 07777;
}

static void write_file(const char *p, const char *text)
{
	FILE *f = fopen(p, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void save_and_load(void **state)
{
	(void)state;
	struct key_pair k, other, back;
	struct err e;
	mode_t old = umask(0);
	assert_int_equal(key_pair_generate(&k, &e), 0);
	assert_int_equal(key_pair_generate(&other, &e), 0);
	assert_false(key_equal(k.pub, other.pub));
	assert_int_equal(key_pair_save(&k, path, &e), 0);
	umask(old);
	assert_int_equal(mode_of(path), 0600);
	assert_int_equal(mode_of(beside), 0644);
	assert_int_equal(key_pair_load(path, &back, &e), 0);
	assert_string_equal(back.sec, k.sec);
	assert_string_equal(back.pub, k.pub);
	/* Never overwritten, also when only one of the two is there. */
	assert_int_equal(key_pair_save(&other, path, &e), ERR_USAGE);
	assert_int_equal(key_pair_load(path, &back, &e), 0);
	assert_string_equal(back.sec, k.sec);
	unlink(path);
	assert_int_equal(key_pair_save(&other, path, &e), ERR_USAGE);
	assert_int_equal(access(path, F_OK), -1);
	unlink(beside);
	/* A symbolic link at the path is not followed. */
	assert_int_equal(symlink("/tmp/hs-keys-nowhere", path), 0);
	assert_true(key_pair_save(&other, path, &e) < 0);
	unlink(path);
	key_pair_wipe(&k);
	assert_int_equal(k.sec[0], 0);
}

static void modes(void **state)
{
	(void)state;
	struct key_pair k, back;
	struct err e;
	assert_int_equal(key_pair_generate(&k, &e), 0);
	assert_int_equal(key_pair_save(&k, path, &e), 0);
	const unsigned open_modes[] = { 0640, 0604, 0620, 0601, 0644, 0666, 0610 };
	for (size_t i = 0; i < sizeof open_modes / sizeof *open_modes; i++) {
		assert_int_equal(chmod(path, open_modes[i]), 0);
		assert_int_equal(key_pair_load(path, &back, &e), ERR_USAGE);
		assert_non_null(strstr(e.msg, "chmod 600"));
	}
	assert_int_equal(chmod(path, 0400), 0);
	assert_int_equal(key_pair_load(path, &back, &e), 0);
	unlink(path);
	unlink(beside);
}

static void bad_files(void **state)
{
	(void)state;
	struct key_pair back;
	struct err e;
	struct key_pair k;
	char mistyped[KEY_TEXT], long_one[KEY_TEXT + 2];
	assert_int_equal(key_pair_generate(&k, &e), 0);
	memcpy(mistyped, k.sec, KEY_TEXT);
	mistyped[30] = mistyped[30] == 'a' ? 'b' : 'a';
	snprintf(long_one, sizeof long_one, "%sa", k.sec);
	const char *bad[] = {
		"",
		"\n",
		"too short\n",
		"0123456789012345678901234567890123456789\n",
		"hs1-secret-00000000000000000000000000000000000000000000000000000000\n",
		k.pub,
		mistyped,
		long_one
	};
	const char *says[] = { "private key is",   "private key is", "private key is",
			       "an older version", "a to z",         "private key is",
			       "mistyped",         "private key is" };
	assert_int_equal(key_pair_load("/tmp/hs-keys-not-there", &back, &e), ERR_IO);
	assert_true(key_pair_load(dir, &back, &e) < 0);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		write_file(path, bad[i]);
		chmod(path, 0600);
		assert_int_equal(key_pair_load(path, &back, &e), ERR_USAGE);
		if (!strstr(e.msg, says[i]) || strstr(e.msg, "hs1-secret-0"))
			fail_msg("'%s' is answered '%s'", bad[i], e.msg);
	}
	unlink(path);
}

/* RFC 8032 section 7.1, tests 1 and 2, in this form. */
static void known_keys(void **state)
{
	(void)state;
	static const uint8_t sec[2][4] = { { 0x9d, 0x61, 0xb1, 0x9d }, { 0x4c, 0xcd, 0x08, 0x9b } },
			     pub[2][4] = { { 0xd7, 0x5a, 0x98, 0x01 }, { 0x3d, 0x40, 0x17, 0xc3 } };
	static const char *const text[2] = {
		"hs1-secret-tvq3dhpp7vngbouejl2jf3bmyrcetrljpmzgsglqhowaghfop5qka2ww\n",
		"hs1-secret-jtgqrgzi76lnvhnwyndoyekob5nyumm7gwv2mjg2rt3o2t5yu3563kmv\n",
	};
	struct key_pair k;
	struct err e;
	uint8_t raw[KEY_BYTES];
	for (int i = 0; i < 2; i++) {
		char again[KEY_TEXT];
		write_file(path, text[i]);
		chmod(path, 0600);
		if (key_pair_load(path, &k, &e) < 0)
			fail_msg("%s", e.msg);
		assert_true(key_secret_bytes(k.sec, raw));
		assert_memory_equal(raw, sec[i], 4);
		assert_true(key_public_bytes(k.pub, raw));
		assert_memory_equal(raw, pub[i], 4);
		key_public_text(raw, again);
		assert_string_equal(again, k.pub);
		assert_false(key_secret_bytes(k.pub, raw) || key_public_bytes(k.sec, raw));
		unlink(path);
	}
}

/* The process writes no core file and cannot be traced. */
static void not_dumpable(void **state)
{
	(void)state;
	struct key_pair k;
	struct err e;
	int status;
	assert_int_equal(key_pair_generate(&k, &e), 0);
	assert_int_equal(key_pair_save(&k, path, &e), 0);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_DUMPABLE, 1);
		_exit(key_pair_load(path, &k, &e) < 0 || prctl(PR_GET_DUMPABLE) != 0);
	}
	assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_DUMPABLE, 1);
		_exit(key_pair_generate(&k, &e) < 0 || prctl(PR_GET_DUMPABLE) != 0);
	}
	assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	unlink(path);
	unlink(beside);
}

/* Neither can one that has its key from the process that started it. */
static void not_dumpable_with_a_key_that_was_handed_over(void **state)
{
	(void)state;
	struct network_keys k = { 0 };
	struct buf text = BUF_INIT;
	struct err e;
	char number[16];
	int status, p[2];
	assert_int_equal(key_pair_generate(&k.own, &e), 0);
	memcpy(k.coordinator, k.own.pub, sizeof k.coordinator);
	assert_int_equal(network_keys_write(&k, &text, &e), 0);
	const uint32_t n = (uint32_t)text.n;
	assert_int_equal(pipe(p), 0);
	assert_int_equal(write(p[1], &n, sizeof n), sizeof n);
	assert_int_equal(write(p[1], text.p, n), n);
	buf_release(&text);
	pid_t pid = fork();
	if (pid == 0) {
		struct network_keys got;
		snprintf(number, sizeof number, "%d", p[0]);
		setenv("HS_PARENT_PIPE", number, 1);
		prctl(PR_SET_DUMPABLE, 1);
		_exit(network_keys_handed(&got, &e) < 0 || strcmp(got.own.sec, k.own.sec) != 0 ||
		      prctl(PR_GET_DUMPABLE) != 0);
	}
	assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	close(p[0]);
	close(p[1]);
}

static void parse(void **state)
{
	(void)state;
	struct key_pair k;
	struct err e;
	char text[80], out[KEY_TEXT];
	assert_int_equal(key_pair_generate(&k, &e), 0);
	snprintf(text, sizeof text, " \t%s\n", k.pub);
	assert_int_equal(key_parse(text, "x.yaml:3", out, &e), 0);
	assert_string_equal(out, k.pub);
	assert_true(key_equal(out, k.pub));
	assert_false(key_equal(out, ""));
	assert_int_equal(key_parse("abc", "x.yaml:3", out, &e), ERR_USAGE);
	assert_non_null(strstr(e.msg, "x.yaml:3"));
	/* a key of the older format */
	assert_int_equal(key_parse("Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID", "x.yaml:3", out, &e),
			 ERR_USAGE);
	assert_non_null(strstr(e.msg, "heteroshard keygen"));
	assert_int_equal(key_parse(k.sec, "x.yaml:3", out, &e), ERR_USAGE);
	assert_non_null(strstr(e.msg, "private"));
	assert_null(strstr(e.msg, k.sec));
	/* Every single wrong character is noticed. */
	for (size_t i = 0; k.pub[i]; i++) {
		snprintf(text, sizeof text, "%s", k.pub);
		text[i] = text[i] == 'x' ? 'y' : 'x';
		assert_int_equal(key_parse(text, "x.yaml:3", out, &e), ERR_USAGE);
	}
}

static void default_place(void **state)
{
	(void)state;
	char got[256], want[256], home[64];
	struct err e;
	snprintf(home, sizeof home, "%s/home", dir);
	setenv("HOME", home, 1);
	unsetenv("XDG_CONFIG_HOME");
	snprintf(want, sizeof want, "%s/.config/heteroshard/key", home);
	assert_int_equal(key_default_path(got, sizeof got, false, &e), 0);
	assert_string_equal(got, want);
	assert_int_equal(access(home, F_OK), -1);
	assert_int_equal(key_default_path(got, sizeof got, true, &e), 0);
	*strrchr(want, '/') = 0;
	assert_int_equal(mode_of(want), 0700);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(rmdir(want), 0);
		*strrchr(want, '/') = 0;
	}
	setenv("XDG_CONFIG_HOME", "/x", 1);
	assert_int_equal(key_default_path(got, sizeof got, false, &e), 0);
	assert_string_equal(got, "/x/heteroshard/key");
	assert_int_equal(key_default_path(got, 10, false, &e), ERR_USAGE);
	setenv("XDG_CONFIG_HOME", "relative", 1);
	unsetenv("HOME");
	assert_int_equal(key_default_path(got, sizeof got, false, &e), ERR_USAGE);
}

/* The key at the default path: made where it may be, once, and never in the place of a file that
 * cannot be read as one. */
static void own_key(void **state)
{
	(void)state;
	char home[64], file[128], got[256];
	struct key_pair a, b;
	struct err e;
	snprintf(home, sizeof home, "%s/own", dir);
	setenv("XDG_CONFIG_HOME", home, 1);
	snprintf(file, sizeof file, "%s/heteroshard/key", home);
	assert_true(key_own(false, &a, &e) < 0);
	assert_int_equal(access(home, F_OK), -1);
	assert_int_equal(key_own(true, &a, &e), 0);
	assert_int_equal(mode_of(file), 0600);
	assert_int_equal(key_own(true, &b, &e), 0);
	assert_string_equal(a.pub, b.pub);
	assert_int_equal(key_own(false, &b, &e), 0);
	assert_string_equal(a.sec, b.sec);
	write_file(file, "nonsense\n");
	assert_int_equal(key_own(true, &b, &e), ERR_USAGE);
	char beside_it[140];
	snprintf(beside_it, sizeof beside_it, "%s.pub", file);
	unlink(file);
	unlink(beside_it);
	*strrchr(file, '/') = 0;
	assert_int_equal(rmdir(file), 0);
	assert_int_equal(rmdir(home), 0);
	strcat(file, "/key");
	assert_int_equal(key_path(NULL, got, sizeof got, &e), 0);
	assert_string_equal(got, file);
	assert_int_equal(key_path("named", got, sizeof got, &e), 0);
	assert_string_equal(got, "named");
	assert_int_equal(key_path("named", got, 5, &e), ERR_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(save_and_load),
		cmocka_unit_test(modes),
		cmocka_unit_test(bad_files),
		cmocka_unit_test(parse),
		cmocka_unit_test(default_place),
		cmocka_unit_test(known_keys),
		cmocka_unit_test(not_dumpable),
		cmocka_unit_test(own_key),
		cmocka_unit_test(not_dumpable_with_a_key_that_was_handed_over),
	};
	return cmocka_run_group_tests_name("net_keys", tests, setup, teardown);
}
