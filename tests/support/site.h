/* SPDX-License-Identifier: Apache-2.0 */
/* site.h - a folder with a tiny model, a key and configurations for jobs over several processes on
 * loopback, and those processes.
 *
 * The program is $HETEROSHARD, or the one beside the test. Every process started here is known by
 * its pid; none is found by name. */
#ifndef HS_TESTS_SUPPORT_SITE_H
#define HS_TESTS_SUPPORT_SITE_H

#include "net/keys.h"
#include "support/tiny.h"

#include <sys/types.h>

struct buf;

enum { SITE_LAYERS = 6, PATIENCE = 180 /* seconds: other programs and a sanitizer make it slow */ };

struct site {
	struct tiny t;
	struct key_pair key;
	int port; /* the coordinator's; worker 'a' has the next one, and so on */
};

struct process {
	pid_t pid;
	char log[512];
};

void site_program(const char *argv0); /* once, from main */
void site_make(struct site *s);
void site_make_tied(struct site *s);                      /* the model's head is its embedding */
void site_make_model(struct site *s, const char *config); /* tiny_make_model() */
/* DIR/NAME */
void site_put(const struct site *s, const char *name, const char *text, mode_t mode);
/* NAME.yaml: workers 'a', 'b', ... at 127.0.0.2, .3, ..., all with the site's key; none: the same
 * job in one process. */
void site_configuration(const struct site *s, const char *name, int workers, const char *extra);
char *site_text(const char *path); /* the text of a file, "" when there is none; mem_free */

/* Arguments end with NULL; "NAME.yaml" is taken from the site's folder. */
struct process site_start(const struct site *s, ...);
/* Processes started from now on live in this network namespace; NULL: in this process's own. */
void site_namespace(const char *name);
void show_log(const struct process *p);
/* -1: it took longer, and was killed */
int finished_or_hangs(const struct process *p, double seconds);
/* exit status, or 1000 + signal; fails the test when it takes longer */
int finished(const struct process *p, double seconds);
void must_succeed(const struct process *p);
/* waits for it; fails the test unless it ends with this status and a line that says `what` */
void must_fail(const struct process *p, int status, const char *what);
bool says(const struct process *p, const char *what);
void until(const struct process *p, const char *what); /* waits until its log says so */

/* Adapters of two runs are equal to the bit; with `curve` also losses and norms. */
void same_result(const struct site *s, const char *a, const char *b, bool curve);
/* Whether a file of the run's folder has this text. */
bool run_says(const struct site *s, const char *run, const char *file, const char *what);
void no_torn_checkpoint(const struct site *s, const char *run);
bool has_checkpoint(const struct site *s, const char *run);

#endif
