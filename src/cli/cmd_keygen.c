/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_keygen.c - `heteroshard keygen`: a key pair, by which other machines recognise this one. */
#include "cli/cli.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "net/keys.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

int cmd_keygen(int argc, char **argv);

struct args {
	bool show, json;
};

static const struct opt rows[] = {
	{ .key = "show",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, show),
	  .help = "print the public key of a key that exists, make none" },
	{ .key = "json",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, json),
	  .help = "print JSON" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard keygen [--show] [--json] [FILE]",
	.about = "Makes the key pair by which other machines recognise this one, and prints the "
		 "public "
		 "key: it goes into\n"
		 "the configuration as 'public_key' of this machine. The private key stays in FILE "
		 "(readable for you\n"
		 "only, never overwritten), the public one is beside it in FILE.pub. Without "
		 "FILE:\n"
		 "~/.config/heteroshard/key, where the other commands look for it.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard keygen\n"
		   "  heteroshard keygen --show",
};

static int keygen(const struct args *o, const char *file, struct err *e)
{
	char path[PATH_MAX], word[PATH_MAX];
	struct key_pair k;
	TRY(file ? key_path(file, path, sizeof path, e)
		 : key_default_path(path, sizeof path, !o->show, e));
	if (o->show) {
		if (access(path, F_OK) < 0 && errno == ENOENT)
			return err_set(e, ERR_INPUT,
				       "%s: there is no key: 'heteroshard keygen%s%s' makes one",
				       path, file ? " " : "",
				       file ? text_word(file, word, sizeof word) : "");
		TRY(key_pair_load(path, &k, e));
	} else {
		TRY(key_pair_generate(&k, e));
		int rc = key_pair_save(&k, path, e);
		if (rc < 0) {
			key_pair_wipe(&k);
			return rc;
		}
	}
	if (o->json) {
		struct buf b = BUF_INIT;
		buf_adds(&b, "{\"file\": ");
		json_quote(&b, path, strlen(path));
		buf_adds(&b, ", \"public_key\": ");
		json_quote(&b, k.pub, strlen(k.pub));
		buf_adds(&b, "}\n");
		fputs(b.p, cli_out());
		buf_release(&b);
	} else {
		fprintf(cli_out(), "%s\n", k.pub);
		if (!o->show)
			fprintf(cli_err(),
				"The private key is in %s and stays on this machine. In the "
				"configuration:\n"
				"  public_key: '%s'\n",
				path, k.pub);
	}
	key_pair_wipe(&k);
	return 0;
}

int cmd_keygen(int argc, char **argv)
{
	struct args o = { 0 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	int npos, status;
	if (cli_args(&usage, argc, argv, &o, 0, 1, &npos, &a, &status))
		status = keygen(&o, npos ? argv[1] : NULL, &e) < 0 ? cli_fail(&e) : 0;
	arena_release(&a);
	return status;
}
