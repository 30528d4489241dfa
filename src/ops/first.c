/* SPDX-License-Identifier: Apache-2.0 */
/* first.c - see first.h. */
#include "ops/first.h"

#include "base/buf.h"
#include "base/err.h"
#include "config/config.h"
#include "file/model_file.h"
#include "model/model.h"
#include "ops/ssh.h"
#include "peers/peer_list.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A word of YAML in single quotes. */
static void word(struct buf *b, const char *text)
{
	buf_addc(b, '\'');
	for (const char *p = text; *p; p++) {
		if (*p == '\'')
			buf_addc(b, '\'');
		buf_addc(b, *p);
	}
	buf_addc(b, '\'');
}

/* "OWNER/NAME", as a hub has it. */
static bool is_hub_name(const char *s)
{
	const char *slash = strchr(s, '/');
	return slash && slash > s && slash[1] && !strchr(slash + 1, '/') && s[0] != '.' &&
	       s[0] != '~';
}

static int check_there(const char *what, const char *path, struct err *e)
{
	if (!path[0])
		return err_set(e, ERR_USAGE,
			       "init: %s is missing: give --%s PATH, or answer on a terminal", what,
			       what + strlen("the "));
	if (strpbrk(path, "\n\r"))
		return err_set(e, ERR_USAGE, "init: %s has a line break", what);
	if (access(path, F_OK) == 0 || is_hub_name(path))
		return 0;
	return err_set(e, ERR_USAGE,
		       "init: %s: there is no file or folder %.300s (a name on a hub is "
		       "OWNER/NAME)",
		       what, path);
}

/* The name of a file without folder and ending, in letters that a folder may have. */
static void name_of(const char *path, char out[64])
{
	size_t n = strlen(path), from;
	while (n && path[n - 1] == '/')
		n--;
	for (from = n; from && path[from - 1] != '/'; from--)
		;
	snprintf(out, 64, "%.*s", (int)(n - from < 60 ? n - from : 60), path + from);
	char *dot = strrchr(out, '.');
	if (dot && dot > out)
		*dot = 0;
	for (char *p = out; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("-_.", *p))
			*p = '-';
}

/* The length that examples are cut at: 1024, less where the model has fewer positions. A model that
 * is on a hub is not there yet. */
static int length_of(const char *path, int *length_p, struct err *e)
{
	struct model_file *f;
	struct model_config c;
	*length_p = 1024;
	if (access(path, F_OK) < 0)
		return 0;
	TRY(model_file_open(path, &f, e));
	int rc = model_config_read(model_file_config(f), path, &c, e);
	if (rc >= 0 && c.max_positions && c.max_positions < *length_p)
		*length_p = (int)c.max_positions;
	model_file_close(f);
	return rc;
}

static bool is_place(const char *s) { return strpbrk(s, "@:") != NULL; }

static int add_worker(const char *w, const struct peer_list *l, struct buf *out, struct err *e)
{
	char host[SSH_WHERE], id[64];
	unsigned port;
	if (!is_place(w)) {
		if (!peer_list_find(l, w))
			return err_set(e, ERR_USAGE,
				       "init: no peer has the name '%.60s': 'heteroshard peers' "
				       "lists them; user@host is a machine to be started over ssh",
				       w);
		buf_addf(out, "  - {id: %s}\n", w);
		return 0;
	}
	TRY(ssh_where(w, host, &port, e));
	const char *at = strrchr(host, '@');
	snprintf(id, sizeof id, "%.60s", at ? at + 1 : host);
	for (char *p = id; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("-_.", *p))
			*p = '-';
	buf_addf(out, "  - {id: %s, ssh: ", id);
	word(out, w);
	buf_adds(out, ", device: auto}\n");
	return 0;
}

static int add_machines(const struct first *f, struct buf *out, struct err *e)
{
	struct peer_list l;
	size_t places = 0;
	int rc = 0;
	if (!f->nworkers) {
		buf_adds(out, "# Other machines: 'heteroshard invite' here, then 'workers: all' in "
			      "this file.\n"
			      "device: auto              # 'heteroshard devices' lists them\n");
		return 0;
	}
	buf_adds(out, "# Layers are divided by the measured speed of devices and links.\n");
	if (f->nworkers == 1 && !strcmp(f->worker[0], "all")) {
		buf_adds(out, "workers: all              # every invited machine that is there\n");
		return 0;
	}
	TRY(peer_list_read(&l, e));
	for (size_t i = 0; i < f->nworkers; i++)
		places += is_place(f->worker[i]);
	if (places && places < f->nworkers)
		rc = err_set(e, ERR_USAGE,
			     "init: names of peers and user@host: give one kind, or invite the "
			     "others too");
	if (rc >= 0)
		buf_adds(out,
			 places ? "# 'heteroshard up FILE' starts them: they need ssh by key.\n"
				  "workers:\n"
				: "workers: [");
	for (size_t i = 0; i < f->nworkers && rc >= 0; i++) {
		struct buf entry = BUF_INIT;
		rc = add_worker(f->worker[i], &l, &entry, e);
		if (places)
			buf_adds(out, entry.p);
		else
			buf_addf(out, "%s%s", i ? ", " : "", f->worker[i]);
		buf_release(&entry);
	}
	buf_adds(out, places ? "" : "]\n");
	peer_list_release(&l);
	return rc;
}

int first_write(const struct first *f, struct buf *out, struct err *e)
{
	char name[64];
	int length;
	struct config *c;
	TRY(check_there("the model", f->model, e));
	TRY(check_there("the data", f->data, e));
	TRY(length_of(f->model, &length, e));
	name_of(f->data, name);
	buf_adds(out, "# Written by 'heteroshard init'. 'heteroshard help config' lists all keys,\n"
		      "# 'heteroshard help config KEY' explains one.\n\n");
	buf_adds(out, "base_model: ");
	word(out, f->model);
	buf_adds(out, "\nadapter: qlora            # LoRA on weights in 4 bits; lora: in full, 4 "
		      "times the memory\n"
		      "lora_r: 16\n"
		      "lora_alpha: 32\n"
		      "lora_target_linear: true  # all linear layers\n\n"
		      "datasets:\n"
		      "  - path: ");
	word(out, f->data);
	buf_adds(out, "    # its form is recognised by its keys\n"
		      "val_set_size: 0.05        # held out, to see whether it learns or only "
		      "remembers\n");
	buf_addf(out, "sequence_len: %-4d        # longer examples are cut\n", length);
	buf_adds(out, "sample_packing: true      # several examples in one sequence, kept apart\n\n"
		      "micro_batch_size: 1\n"
		      "gradient_accumulation_steps: 8   # sequences of a step\n"
		      "num_epochs: 3\n");
	if (f->minutes > 0)
		buf_addf(out, "max_minutes: %g           # then it saves and ends\n", f->minutes);
	buf_adds(out, "learning_rate: 2e-4\n"
		      "lr_scheduler: cosine\n"
		      "warmup_ratio: 0.05\n"
		      "seed: 42\n\n"
		      "output_dir: ");
	char dir[100];
	snprintf(dir, sizeof dir, "runs/%s", name);
	word(out, f->output ? f->output : dir);
	buf_adds(out, "\n\n");
	for (const char *p = f->devices; *p;) {
		size_t n = strcspn(p, "\n");
		buf_addf(out, "# this machine has %.*s\n", (int)n, p);
		p += n + (p[n] == '\n');
	}
	TRY(add_machines(f, out, e));
	TRY(buf_ok(out, e));
	TRY(config_parse(CONFIG_TRAIN, out->p, out->n, "init", 0, NULL, &c, e));
	config_free(c);
	return 0;
}
