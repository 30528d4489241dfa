/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - see run.h. */
#include "cli/hub_names.h"
#include "cli/run.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/text.h"
#include "cli/cli.h"
#include "job/network.h"
#include "peers/invited.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/uio.h>
#include <unistd.h>

static volatile sig_atomic_t stop, mute, trains;

enum { ONE_SIGNAL = 200 }; /* milliseconds */

static int64_t first_signal;

/* The second signal ends the program without waiting for the step. A terminal that is closed may
 * send SIGHUP twice, so SIGHUP only requests the stop; timeout(1) sends SIGTERM to the program and
 * to its process group, so two signals at once are one. */
static void on_signal(int sig)
{
	const int64_t now = clock_now();
	if (stop && (sig == SIGHUP || clock_seconds(now - first_signal) * 1000 < ONE_SIGNAL))
		return;
	first_signal = now;
	const char *text = stop ? "" : cli_stop_text();
	const struct iovec line[] = { { (char *)"\n", 1 },
				      { (char *)text, strlen(text) },
				      { (char *)"\n", 1 } };
	ssize_t n = mute && !stop ? 0 : writev(STDERR_FILENO, line, stop ? 1 : 3);
	(void)n;
	if (stop) {
		signal(sig, SIG_DFL);
		raise(sig);
	}
	stop = 1;
}

void cli_stop_says(bool yes) { mute = !yes; }

void cli_stop_trains(bool yes)
{
	if (!cli_is_inside())
		trains = yes;
}

const char *cli_stop_text(void)
{
	return trains ? "stopping: the step is finished and saved first (Ctrl-C again: end at once)"
		      : "stopping (Ctrl-C again: end at once)";
}

const volatile sig_atomic_t *cli_stop(void)
{
	if (cli_is_inside())
		return cli_is_inside()->stop;
	struct sigaction sa = { .sa_handler = on_signal };
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	struct sigaction was;
	if (!sigaction(SIGHUP, NULL, &was) && was.sa_handler != SIG_IGN) /* nohup */
		sigaction(SIGHUP, &sa, NULL);
	return &stop;
}

int cli_work(const struct config *c, const struct role *r, struct err *e)
{
	return work(c, r, cli_stop(), e);
}

/* Job after job, until the coordinator does not call for `most` seconds, or is gone. */
static int work_on(const struct config *c, const struct role *r, struct err *e)
{
	static const double most = 30;
	struct config again = *c;
	const volatile sig_atomic_t *stopped = cli_stop();
	int rc = cli_work(c, r, e), served = 0;
	again.join_timeout = c->join_timeout < most ? c->join_timeout : most;
	again.coordinator_timeout = 0;
	while (!*stopped && rc != ERR_USAGE && rc != ERR_NET) {
		served++;
		err_clear(e);
		rc = cli_work(&again, r, e);
	}
	return served && rc == ERR_NET ? 0 : rc;
}

/* argv that starts this program as a worker of the same configuration; NULL when memory is out. */
static char **worker_program(int npos, char **pos, bool insecure, struct arena *a)
{
	char **p = arena_alloc(a, (size_t)(npos + 5) * sizeof *p);
	size_t n = 0;
	if (!p)
		return NULL;
	const struct cli_inside *in = cli_is_inside();
	p[n++] = (char *)(in ? in->program : os_self_exe() ? os_self_exe() : "heteroshard");
	p[n++] = (char *)(log_least() == LOG_DEBUG ? "-v" : "-q");
	p[n++] = (char *)"worker";
	if (insecure)
		p[n++] = (char *)"--insecure";
	for (int i = 0; i < npos; i++)
		p[n++] = pos[i];
	p[n] = NULL;
	return p;
}

/* One of several processes that mpirun or srun started: rank 0 coordinates. */
static int one_of_ranks(const struct config *c, const struct cli_role *r, cli_lead_fn lead,
			void *ctx, struct err *e)
{
	struct ranks ranks;
	if (r->role || r->worker)
		return err_set(e, ERR_USAGE,
			       "--role and --worker: under mpirun or srun rank 0 coordinates and "
			       "the others are workers");
	TRY(ranks_begin(c, &ranks, e));
	return ranks.at.rank ? work_rank(c, &ranks, cli_stop(), e) : lead(ctx, c, NULL, &ranks, e);
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);
	return n > m && !strcasecmp(s + n - m, end);
}

static bool exists(const char *path) { return access(path, F_OK) == 0; }

static bool is_model(const char *path)
{
	char inside[PATH_MAX];
	snprintf(inside, sizeof inside, "%.4000s/config.json", path);
	return ends_with(path, ".gguf") || ends_with(path, ".safetensors") || exists(inside);
}

/* A file of this name with the other ending that configurations have; NULL: there is none. */
static const char *other_ending(const char *path, char out[PATH_MAX])
{
	static const char *const ending[] = { ".yaml", ".yml", ".json" };
	const char *dot = strrchr(path, '.');
	size_t stem = dot && !strchr(dot, '/') ? (size_t)(dot - path) : strlen(path);
	for (size_t i = 0; i < ARRAY_LEN(ending); i++) {
		snprintf(out, PATH_MAX, "%.*s%s", (int)(stem < 4000 ? stem : 4000), path,
			 ending[i]);
		if (exists(out))
			return out;
	}
	return NULL;
}

int cli_config(const char *command, enum config_need need, int npos, char **pos,
	       struct config **c_p, struct err *e)
{
	const char *path = pos[0];
	char near[PATH_MAX], word[PATH_MAX];
	if (!exists(path) && strchr(path, '='))
		return err_set(e, ERR_USAGE,
			       "'%.100s' stands where the configuration file was expected: "
			       "heteroshard %s CONFIG %.400s",
			       path, command, text_word(path, word, 400));
	if (exists(path) && is_model(path))
		return err_set(
			e, ERR_USAGE,
			"%s is a model, but a configuration was expected: heteroshard %s "
			"CONFIG base_model=%s (examples/smollm2.yaml is one, 'heteroshard help "
			"config' explains the keys)",
			path, command, text_word(path, word, sizeof word));
	if (exists(path) && (ends_with(path, ".jsonl") || ends_with(path, ".csv")))
		return err_set(
			e, ERR_USAGE,
			"%s is data, but a configuration was expected: heteroshard %s CONFIG "
			"datasets=%s (examples/smollm2.yaml is one)",
			path, command, text_word(path, word, sizeof word));
	if (!exists(path))
		return err_set(e, ERR_IO,
			       "%s: there is no such file; a configuration was expected%s%s%s",
			       path, other_ending(path, near) ? ", did you mean '" : "",
			       other_ending(path, near) ? near : " (examples/smollm2.yaml is one)",
			       other_ending(path, near) ? "'?" : "");
	return config_load_as(need, path, npos - 1, pos + 1, c_p, e);
}

int cli_everywhere(const struct cli_role *r, enum config_need need, int npos, char **pos,
		   cli_lead_fn lead, void *ctx)
{
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	struct role role = { 0 };
	struct config *c = NULL;
	int rc = cli_config(r->command, CONFIG_PART, npos, pos, &c, &e);
	bool launched = rc >= 0 && ranks_launched(c);
	if (rc >= 0)
		cli_level_config(c);
	if (rc >= 0 && !launched) {
		c->insecure |= r->insecure;
		rc = ranks_absent(c, &e);
	}
	if (rc >= 0 && !launched) {
		rc = invited_resolve(c, &e);
	}
	if (rc >= 0 && !launched) {
		rc = role_find(c, r->role, r->worker, &role, &e);
	}
	/* a worker gets what it trains from the coordinator */
	if (rc >= 0 && role.kind != ROLE_WORKER)
		rc = config_complete(c, need, &e);
	if (rc >= 0 && role.kind != ROLE_WORKER && need != CONFIG_PART)
		rc = cli_fetch_config(c, &e);
	if (rc >= 0 && !launched && (role.kind == ROLE_WORKER || need != CONFIG_PART))
		rc = network_check(c, &e);
	if (rc >= 0 && launched)
		rc = one_of_ranks(c, r, lead, ctx, &e);
	else if (rc >= 0)
		rc = role.kind == ROLE_WORKER
			     ? (r->jobs ? work_on : cli_work)(c, &role, &e)
			     : lead(ctx, c, worker_program(npos, pos, r->insecure, &a), NULL, &e);
	config_free(c);
	arena_release(&a);
	if (rc < 0 && ranks_echo(&e)) {
		/* mpirun ends all ranks with the first: rank 0 says it before */
		sleep(2);
		return e.code == ERR_USAGE ? 2 : 1;
	}
	if (rc >= 0)
		return rc;
	const int status = cli_fail(&e);
	ranks_linger();
	return status;
}
