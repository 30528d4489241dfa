/* SPDX-License-Identifier: Apache-2.0 */
/* data_identity.c - see data_identity.h. */
#include "runtime/data_identity.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/os_calls.h"
#include "file/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

static int add_file(struct buf *b, const char *path, struct err *e)
{
	char hex[HASH_HEX];
	TRY(hash_file(path, hex, NULL, e));
	buf_addf(b, "%s\n", hex);
	return 0;
}

static int add_json(struct buf *b, const json_t *v, struct err *e)
{
	char *text = v ? json_dumps(v, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY) : NULL;
	if (v && !text)
		return err_nomem(e, 0, "the tokenizer's configuration");
	buf_addf(b, "%s\n", text ? text : "-");
	free(text);
	return 0;
}

/* A GGUF is one file, which may be large. */
static int add_times(struct buf *b, const char *path, struct err *e)
{
	struct stat st;
	if (stat(path, &st) < 0)
		return err_sys(e, errno, "%s", path);
	buf_addf(b, "%s %lld %lld.%09ld\n", path, (long long)st.st_size,
		 (long long)os_modified(&st).tv_sec, os_modified(&st).tv_nsec);
	return 0;
}

int data_identity(struct model_file *f, const char *chat_template, struct buf *b, struct err *e)
{
	const char *tokenizer = model_file_tokenizer_path(f), *jinja = model_file_chat_template(f);
	struct stat st;
	TRY(tokenizer ? add_file(b, tokenizer, e) : add_times(b, model_file_path(f), e));
	TRY(add_json(b, model_file_tokenizer_config(f), e));
	buf_addf(b, "%s\n%s\n", jinja ? jinja : "-", chat_template ? chat_template : "-");
	if (chat_template && stat(chat_template, &st) == 0 && S_ISREG(st.st_mode))
		TRY(add_file(b, chat_template, e));
	return buf_ok(b, e);
}
