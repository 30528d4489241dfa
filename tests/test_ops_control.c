/* SPDX-License-Identifier: Apache-2.0 */
/* test_ops_control.c - `heteroshard status` beside processes at control sockets that answer
 * anything, or never stop answering; jobs whose socket is removed, or elsewhere. */
#include "base/err.h"
#include "base/mem.h"
#include "ops/control.h"
#include "support/site.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum { DRIPS = 200 };

static struct site site;

struct speaker {
	const char *says; /* NULL: a byte now and then */
	int fd, turns;
	pthread_t thread;
	int dripped;
};

static void *speak(void *ctx)
{
	struct speaker *s = ctx;
	char word[32];
	for (int turn = 0; turn < s->turns; turn++) {
		int c = accept(s->fd, NULL, NULL);
		if (recv(c, word, sizeof word, 0) > 0 && s->says)
			send(c, s->says, strlen(s->says), MSG_NOSIGNAL);
		for (; !s->says && s->dripped < DRIPS; s->dripped++) {
			if (send(c, " ", 1, MSG_NOSIGNAL) < 0)
				break;
			usleep(100000);
		}
		close(c);
	}
	close(s->fd);
	return NULL;
}

static void begin(struct speaker *s, const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	snprintf(a.sun_path, sizeof a.sun_path, "%s/heteroshard/%s.sock", getenv("XDG_RUNTIME_DIR"),
		 name);
	s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(s->fd, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(s->fd, 4), 0);
	assert_int_equal(pthread_create(&s->thread, NULL, speak, s), 0);
}

static void count(void *ctx, const json_t *answer)
{
	(void)answer;
	++*(int *)ctx;
}

/* Before, it was waited for until a mebibyte had come. */
static void an_answer_without_end(void **state)
{
	(void)state;
	struct speaker s = { .turns = 1 };
	struct err e = { 0 };
	int answers = 0;
	begin(&s, "slow-1");
	assert_int_equal(control_ask("status", count, &answers, &e), 0);
	pthread_join(s.thread, NULL);
	assert_int_equal(answers, 0);
	assert_true(s.dripped < DRIPS);
}

static void no_terminal_command(const struct process *p)
{
	char *text = site_text(p->log);
	assert_true(*text);
	assert_null(strchr(text, 033));
	assert_null(strstr(text, "\xc2\x9b"));
	assert_null(strstr(text, "\xe2\x80\xae"));
	mem_free(text);
}

static void an_answer_of_anything(void **state)
{
	(void)state;
	struct speaker s = { .turns = 2,
			     .says = "{\"pid\": 1, \"output_dir\": \"a\\u001b[2J\xc2\x9b"
				     "31m\\u009b\xe2\x80\xae\", \"step\": 3, \"steps\": 9, "
				     "\"eta\": 1e300, \"loss\": 2}" };
	begin(&s, "lies-1");
	struct process p = site_start(&site, "status", NULL);
	must_succeed(&p);
	assert_true(says(&p, "3 of 9"));
	no_terminal_command(&p);
	p = site_start(&site, "status", "--json", NULL);
	must_succeed(&p);
	no_terminal_command(&p);
	pthread_join(s.thread, NULL);
}

/* A step can take minutes, and the job asks between two of them. */
static void two_leave_in_one_step(void **state)
{
	(void)state;
	struct control *c;
	struct err e = { 0 };
	char id[CONTROL_ID];
	assert_int_equal(control_open("run", &c, &e), 0);
	control_state(c, "{\"output_dir\": \"run\", \"workers\": [{\"id\": \"a\"}, {\"id\": "
			 "\"b\"}, {\"id\": \"c\"}]}");
	struct process p = site_start(&site, "leave", "a", NULL);
	must_succeed(&p);
	p = site_start(&site, "leave", "c", NULL);
	must_succeed(&p);
	p = site_start(&site, "leave", "d", NULL);
	must_fail(&p, 2, "no job that runs here has a worker 'd'");
	assert_true(control_leave(c, id));
	assert_string_equal(id, "a");
	assert_true(control_leave(c, id));
	assert_string_equal(id, "c");
	assert_false(control_leave(c, id));
	control_close(c);
}

static void is_our_job(void *ctx, const json_t *answer)
{
	const char *dir = json_string_value(json_object_get(answer, "output_dir"));
	*(int *)ctx += dir && !strcmp(dir, "ours");
}

static bool answers(const char *dir)
{
	struct err e = { 0 };
	for (int i = 0; i < 100; i++, usleep(100000)) {
		int found = 0;
		control_ask("status", is_our_job, &found, &e);
		if (found)
			return true;
	}
	fail_msg("the job in %s does not answer: %s", dir, e.msg);
	return false;
}

/* systemd removes /run/user/UID when the user's last session ends, and nohup's job goes on. */
static void after_a_logout(void **state)
{
	(void)state;
	struct control *c;
	struct err e = { 0 };
	char cmd[700], at[600];
	snprintf(at, sizeof at, "%s/session", site.t.dir);
	mkdir(at, 0700);
	setenv("XDG_RUNTIME_DIR", at, 1);
	assert_int_equal(control_open("run", &c, &e), 0);
	control_state(c, "{\"output_dir\": \"ours\"}");
	assert_true(answers(at));
	snprintf(cmd, sizeof cmd, "rm -rf '%s'", at);
	assert_int_equal(system(cmd), 0);
	usleep(500000);
	mkdir(at, 0700);
	assert_true(answers(at));
	control_close(c);
	setenv("XDG_RUNTIME_DIR", site.t.dir, 1);
}

/* A job that cron or a service began before its user had a session. */
static void before_a_login(void **state)
{
	(void)state;
	struct control *c;
	struct err e = { 0 };
	char session[64];
	snprintf(session, sizeof session, "/run/user/%u", (unsigned)geteuid());
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", "/run", "tmpfs", 0, NULL) < 0)
		skip();
	unsetenv("XDG_RUNTIME_DIR");
	assert_int_equal(control_open("run", &c, &e), 0);
	control_state(c, "{\"output_dir\": \"ours\"}");
	assert_true(answers("/tmp"));
	mkdir("/run/user", 0755);
	mkdir(session, 0700);
	setenv("XDG_RUNTIME_DIR", session, 1);
	assert_true(answers("/tmp"));
	control_close(c);
	setenv("XDG_RUNTIME_DIR", site.t.dir, 1);
}

int main(int argc, char **argv)
{
	char at[600];
	(void)argc;
	site_program(argv[0]);
	site_make(&site);
	setenv("XDG_RUNTIME_DIR", site.t.dir, 1);
	setenv("XDG_CONFIG_HOME", site.t.dir, 1);
	snprintf(at, sizeof at, "%s/heteroshard", site.t.dir);
	mkdir(at, 0700);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_without_end), cmocka_unit_test(an_answer_of_anything),
		cmocka_unit_test(two_leave_in_one_step), cmocka_unit_test(after_a_logout),
		cmocka_unit_test(before_a_login),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	tiny_remove(&site.t);
	return rc;
}
