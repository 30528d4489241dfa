/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_train.c - `heteroshard train CONFIG [key=value ...]`: the run, its lines, its folder. */
#include "cli/cli.h"
#include "cli/run.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/train_view.h"
#include "hub/http.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cmd_train(int argc, char **argv);

struct args {
	struct cli_role role;
	bool allow_changes, overwrites;
	char again[2048]; /* the command that continues the run */
};

static const struct opt rows[] = {
	{ .key = "allow_changes",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, allow_changes),
	  .help = "resume although the base model, the data or a setting has changed; each "
		  "change is said" },
	CLI_ROLE_ROWS(offsetof(struct args, role)),
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard train [--role ROLE] [--worker ID] [--allow-changes] CONFIG "
		    "[key=value ...]",
	.config = true,
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.about = "Trains as CONFIG says (YAML or JSON; 'heteroshard help config' lists the keys). "
		 "key=value overrides a key of the "
		 "file.\n"
		 "With 'coordinator' and 'workers' in CONFIG it is run on every machine, which "
		 "finds its role by its addresses.\n"
		 "Ctrl-C finishes the step, saves and ends with status 1; "
		 "resume_from_checkpoint=latest goes on from there.",
	.example = "  heteroshard train examples/smollm2.yaml\n"
		   "  heteroshard train examples/smollm2.yaml max_steps=100 output_dir=run2\n"
		   "  heteroshard train examples/smollm2.yaml resume_from_checkpoint=latest",
};

/* With -v: the configuration as it is understood, defaults included. */
static void tell_config(const struct config *c)
{
	struct buf b = BUF_INIT;
	if (log_least() > LOG_DEBUG)
		return;
	config_to_json(c, &b);
	for (char *line = b.failed ? NULL : b.p; line && *line;) {
		size_t n = strcspn(line, "\n");
		bool more = line[n] != 0;
		line[n] = 0;
		if (n > 1)
			log_debug("%s", line);
		line += n + more;
	}
	buf_release(&b);
}

static void put_number(json_t *o, const char *key, double v)
{
	if (isfinite(v))
		json_object_set_new(o, key, json_real(v));
}

/* A run that nobody is told of has still ended: what goes wrong here is a warning. */
static void tell_end(const struct config *c, const struct train_result *r, const struct err *why)
{
	const char *status = why ? "failed" : r->interrupted ? "interrupted" : "done";
	char text[600];
	struct err e;
	if (!c->notify)
		return;
	if (why)
		snprintf(text, sizeof text, "heteroshard: %.100s failed: %.400s", c->output_dir,
			 why->msg);
	else
		snprintf(text, sizeof text, "heteroshard: %.200s %s after step %llu, loss %.4f",
			 c->output_dir, status, (unsigned long long)r->step, r->last_loss);
	json_t *o = json_object();
	json_object_set_new(o, "text", json_string(text));
	json_object_set_new(o, "content", json_string(text));
	json_object_set_new(o, "status", json_string(status));
	json_object_set_new(o, "run", json_string(c->output_dir));
	if (why) {
		json_object_set_new(o, "error", json_string(why->msg));
	} else {
		json_object_set_new(o, "step", json_integer((json_int_t)r->step));
		put_number(o, "loss", r->last_loss);
		put_number(o, "val_loss", r->val_after);
		put_number(o, "seconds", r->seconds);
	}
	char *body = json_dumps(o, JSON_COMPACT);
	if (body && http_post(c->notify, body, &e) < 0)
		log_warn("notify: %s", e.msg);
	free(body);
	json_decref(o);
}

static int run_as_coordinator(void *ctx, const struct config *c, char *const *program,
			      const struct ranks *ranks, struct err *e)
{
	const struct args *a = ctx;
	struct train_view *v;
	struct train_result r;
	const struct train_options o = { .stop = cli_stop(),
					 .trace = c->trace,
					 .allow_changes = a->allow_changes,
					 .program = program,
					 .ranks = ranks };
	tell_config(c);
	char again[sizeof a->again + 40];
	snprintf(again, sizeof again, "%s%s", a->again,
		 c->overwrite_output_dir && !a->overwrites ? " overwrite_output_dir=false" : "");
	TRY(train_view_new(c, again, &v, e));
	const struct train_sink sink = train_view_sink(v);
	int rc = train_run(c, &o, &sink, &r, e);
	if (rc < 0)
		train_view_failed(v);
	else
		train_view_finish(v, &r);
	train_view_free(v);
	tell_end(c, &r, rc < 0 ? e : NULL);
	return rc < 0 ? rc : r.interrupted ? 1 : 0;
}

static void add_word(char *out, size_t cap, const char *word)
{
	size_t n = strlen(out);
	bool plain = !strpbrk(word, " \t\n'\"\\$`!*?[]{}()<>|&;#~");
	/* a quote inside quotes: ends the quotes, is escaped, and begins them again */
	n += (size_t)snprintf(out + n, cap - n, plain ? " " : " '");
	for (const char *p = word; *p && n + 8 < cap; p++)
		n += (size_t)snprintf(out + n, cap - n, *p == '\'' && !plain ? "'\\''" : "%c", *p);
	if (!plain)
		snprintf(out + n, cap - n, "'");
}

static void make_again(struct args *a, int npos, char **pos)
{
	snprintf(a->again, sizeof a->again, "heteroshard train");
	for (int i = 0; i < npos; i++) {
		if (!strncmp(pos[i], "overwrite_output_dir=", 21))
			a->overwrites = true;
		else if (strncmp(pos[i], "resume_from_checkpoint=", 23))
			add_word(a->again, sizeof a->again, pos[i]);
	}
	if (a->overwrites)
		add_word(a->again, sizeof a->again, "overwrite_output_dir=false");
	add_word(a->again, sizeof a->again, "resume_from_checkpoint=latest");
	if (a->allow_changes)
		add_word(a->again, sizeof a->again, "--allow-changes");
}

int cmd_train(int argc, char **argv)
{
	struct arena a = ARENA_INIT;
	struct args o = { 0 };
	int npos, status;
	o.role.command = argv[0];
	if (cli_args(&usage, argc, argv, &o, 1, -1, &npos, &a, &status)) {
		make_again(&o, npos, argv + 1);
		status = cli_everywhere(&o.role, CONFIG_TRAIN, npos, argv + 1, run_as_coordinator,
					&o);
	}
	arena_release(&a);
	return status;
}
