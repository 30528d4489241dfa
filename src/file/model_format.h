/* SPDX-License-Identifier: Apache-2.0 */
/* model_format.h - the functions of a model format, called by model_file.c: one row of format.def,
 * one file format_<name>.c with `const struct model_format format_<name>`.
 *
 * open() fills in the tables of a struct model_file; everything it allocates is in f->mem or is
 * released by close(), which is also called when open() fails. model_file.c has checked rows and
 * tensor before read() is called. */
#ifndef HS_FILE_MODEL_FORMAT_H
#define HS_FILE_MODEL_FORMAT_H

#include "base/arena.h"
#include "file/model_file.h"

struct model_format {
	const char *name;
	/* MUST: whether this path has the format, judged by names and the first bytes only */
	bool (*claims)(const char *path);
	int (*open)(struct model_file *f, struct err *e);
	void (*close)(struct model_file *f);
	int (*read)(struct model_file *f, const struct model_tensor *t, int64_t row0, int64_t rows,
		    float *dst, struct err *e);
	int (*raw)(struct model_file *f, const struct model_tensor *t, const void **p_p,
		   struct err *e);
	void (*drop)(struct model_file *f, const struct model_tensor *t);
	/* MAY: formats that hold NF4 */
	int (*nf4)(struct model_file *f, const struct model_tensor *t, struct nf4_view *v_p,
		   struct err *e);
};

struct model_file {
	const struct model_format *format;
	struct arena mem;
	const char *path;
	json_t *config, *vocab, *tokenizer_config; /* owned references, NULL where there is none */
	const char *tokenizer_path, *chat_template;
	const char *inside; /* TEXT_PART_INSIDE where the model is a part of another one; or NULL */
	/* in order of the data; the names need not be unique until open() is done */
	struct model_tensor *tensor;
	size_t count;
	const struct model_tensor **by_name; /* made by model_file.c */
	void *priv;                          /* of the format */
	/* model_file_untie(): `head` stands for `embed`; NULL: no */
	struct model_tensor *head, own_head;
	const struct model_tensor *embed;
};

/* A scalar is one row. */
static inline uint64_t model_tensor_rows(const struct model_tensor *t)
{
	return t->ndim ? (uint64_t)t->shape[0] : 1;
}

/* Whether `parts` tensors may be made of the `n` of a file, where one holds those of many
 * experts. */
enum { MODEL_PARTS_MOST = 1 << 19 };
int model_parts_check(const struct model_file *f, size_t n, size_t parts, struct err *e);

/* n numbers of a float format to float32, from any address (dtype.h wants aligned ones). */
void model_plain_to_f32(enum dtype t, const void *src, float *dst, uint64_t n);

/* The text of a chat template: a string, or a list of {name, template} of which "default" is taken.
 * NULL: neither. */
const char *chat_template_text(const json_t *v);

#endif
