/* SPDX-License-Identifier: Apache-2.0 */
/* How workers of one machine divide its processors, and what ssh is called with. */
#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"
#include "config/config.h"
#include "ops/limits.h"
#include "job/role.h"
#include "ops/ssh.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void threads_are(const char *text, int cores, int local, int a, int b)
{
	struct config *c;
	struct err e = { 0 };
	if (config_parse(CONFIG_PART, text, strlen(text), "test", 0, NULL, &c, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(limits_threads(c, ROLE_LOCAL, cores), local);
	assert_int_equal(limits_threads(c, 0, cores), a);
	assert_int_equal(limits_threads(c, 1, cores), b);
	config_free(c);
}

static void processors_are_divided(void **state)
{
	(void)state;
	threads_are("coordinator: {ip: 127.0.0.1, device: cpu}\n"
		    "workers: [{id: a, ip: 127.0.0.1, port: 1, device: cpu},"
		    " {id: b, ip: 127.0.0.1, port: 2, device: cpu}]\n",
		    16, 6, 5, 5);
	/* who says a number gets it; the others divide the rest */
	threads_are("coordinator: {ip: 127.0.0.1, device: cpu, threads: 2}\n"
		    "workers: [{id: a, ip: 127.0.0.1, port: 1, device: cpu},"
		    " {id: b, ip: 127.0.0.1, port: 2, device: cpu}]\n",
		    16, 2, 7, 7);
	/* cards, other machines, and a coordinator that does not compute take none */
	threads_are("coordinator: {ip: 127.0.0.1, device: none}\n"
		    "workers: [{id: a, ip: 127.0.0.1, port: 1, device: cpu},"
		    " {id: b, ip: 203.0.113.9, port: 2, device: cpu}]\n",
		    16, 0, 0, 0);
	threads_are("coordinator: {ip: 127.0.0.1, device: cuda}\n"
		    "workers: [{id: a, ip: 127.0.0.1, port: 1, device: cpu},"
		    " {id: b, ip: 127.0.0.1, port: 2, device: 'opencl:0'}]\n",
		    16, 0, 0, 0);
	/* more workers than processors */
	threads_are("coordinator: {ip: 127.0.0.1, device: cpu}\n"
		    "workers: [{id: a, ip: 127.0.0.1, port: 1, device: cpu},"
		    " {id: b, ip: 127.0.0.1, port: 2, device: cpu, threads: 9}]\n",
		    2, 1, 1, 2);
}

static void is_place(const char *text, const char *host, unsigned port)
{
	char h[SSH_WHERE];
	unsigned p = 99;
	struct err e = { 0 };
	int rc = ssh_where(text, h, &p, &e);
	if (!host) {
		assert_int_equal(rc, ERR_USAGE);
		return;
	}
	assert_int_equal(rc, 0);
	assert_string_equal(h, host);
	assert_int_equal(p, port);
}

static void places(void **state)
{
	(void)state;
	is_place("box2", "box2", 0);
	is_place("me@box2:2222", "me@box2", 2222);
	is_place("me@[fd00::2]:22", "me@fd00::2", 22);
	is_place("[fd00::2]", "fd00::2", 0);
	is_place("-oProxyCommand=x", NULL, 0);
	is_place("me@-oProxyCommand", NULL, 0);
	is_place("box2; reboot", NULL, 0);
	is_place("box2:", NULL, 0);
	is_place("box2:70000", NULL, 0);
	is_place("", NULL, 0);
	is_place("me@", NULL, 0);
}

static void quotes(void **state)
{
	struct buf b = BUF_INIT;
	(void)state;
	ssh_quote(&b, "it's $HOME `x`");
	assert_string_equal(b.p, "'it'\\''s $HOME `x`'");
	buf_release(&b);
	/* what sh reads is the word, and never a part of it */
	static const char *const word[] = { "plain/a-b_c.yaml",
					    "",
					    "two words",
					    "~",
					    "a*b",
					    "'",
					    "a\nb",
					    "it's",
					    "x'y'z",
					    "$(x);#",
					    "\xc3\xa4" };
	for (size_t i = 0; i < ARRAY_LEN(word); i++) {
		char room[TEXT_WORD(40)], command[200], got[40];
		for (size_t cap = TEXT_WORD(strlen(word[i])); cap > 3; cap--) {
			snprintf(command, sizeof command, "printf %%s %s",
				 text_word(word[i], room, cap));
			assert_true(strlen(room) < cap);
			const bool cut = !strcmp(room, "...");
			assert_false(cut && cap == TEXT_WORD(strlen(word[i])));
			if (cut)
				break;
			FILE *f = popen(command, "r");
			got[fread(got, 1, sizeof got - 1, f)] = 0;
			assert_int_equal(pclose(f), 0);
			assert_string_equal(got, word[i]);
		}
	}
	assert_string_equal(text_word(word[0], (char[40]){ 0 }, 40), word[0]);
}

/* A worker's ssh, threads, memory and nice come back from JSON, and mixtures are refused. */
static void configurations(void **state)
{
	static const char text[] = "workers:\n"
				   " - {id: a, ssh: 'me@a:22', threads: 2, memory: 1.5, nice: 3}\n"
				   " - {id: b, ssh: b}\n";
	static const char *const bad[] = {
		"workers: [{id: a, ssh: a}, {id: b, ip: 10.0.0.2}]\n",
		"workers: [{id: a, ssh: a, num_gpus: 2}]\n",
		"workers: [{id: a, ssh: a, nice: 20}]\n",
		"workers: [{id: a, ssh: a, device: mps}]\n",
	};
	struct config *c, *d;
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	(void)state;
	assert_int_equal(config_parse(CONFIG_PART, text, sizeof text - 1, "test", 0, NULL, &c, &e),
			 0);
	config_to_json(c, &b);
	assert_int_equal(config_parse(CONFIG_PART, b.p, b.n, "json", 0, NULL, &d, &e), 0);
	for (int k = 0; k < 2; k++) {
		const struct config *x = k ? d : c;
		assert_true(x->workers_invited && !x->workers_all && x->nworkers == 2);
		assert_string_equal(x->workers[0].ssh, "me@a:22");
		assert_int_equal(x->workers[0].limits.threads, 2);
		assert_int_equal(x->workers[0].limits.nice, 3);
		assert_true(x->workers[0].limits.memory == 1.5);
		assert_int_equal(x->workers[1].limits.threads, 0);
	}
	config_free(c);
	config_free(d);
	buf_release(&b);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		err_clear(&e);
		assert_int_equal(
			config_parse(CONFIG_PART, bad[i], strlen(bad[i]), "test", 0, NULL, &c, &e),
			ERR_USAGE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(processors_are_divided),
		cmocka_unit_test(places),
		cmocka_unit_test(quotes),
		cmocka_unit_test(configurations),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
