/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.h - a whole model on one device, ready to compute; used by generate, eval, merge
 * and bench.
 *
 * Also its parts that training uses separately: choosing the device, the dtype, the tokenizer and
 * the chat template. */
#ifndef HS_RUNTIME_RUNTIME_H
#define HS_RUNTIME_RUNTIME_H

#include "data/chat.h"
#include "data/tokenizer.h"
#include "file/model_file.h"
#include "file/peft.h"
#include "model/stage.h"

struct err;
struct microbatch;

/* Opens "backend[:index]", or the best there is for "auto" or NULL. */
int runtime_device(const char *spec, struct dev **d_p, struct err *e);
/* enum compute_dtype to a dtype this device has; auto is bfloat16 where it is native, else float16
 * where that is, else float32. */
int runtime_dtype(struct dev *d, int compute_dtype, enum dtype *t_p, struct err *e);
/* The model's own tokenizer; it must not be larger than the embedding. */
int runtime_tokenizer(struct model_file *f, const struct model_config *c, struct tokenizer **t_p,
		      struct err *e);
/* By name of a row, the text of a Jinja template or its file NAME.jinja; the model's own where name
 * is NULL or CHAT_JINJA ("..._fallback_ROW": ROW where it has none). With NULL and none of its own:
 * a row that its tokens tell, or NULL in *t_p. End it with chat_free(). */
int runtime_chat(struct model_file *f, const struct tokenizer *tok, const char *name,
		 const struct chat_template **t_p, struct err *e);
/* What PEFT's configuration says of these options: modules, patterns, layers. */
int runtime_describe(const struct lora_options *o, int64_t layers, struct arena *a,
		     struct peft_config *c, struct err *e);
/* Refuses an adapter to begin with whose module has another scale. */
int runtime_same_scale(const struct lora_options *o, const struct peft_pair *p, const char *dir,
		       struct err *e);
void runtime_warn_of_rank(const struct model_config *c, const struct lora_options *o);
/* Where the head is the embedding: it gets a head of its own, as PEFT makes copies of both. */
int runtime_untie(struct model_file *f, struct model_config *c, struct err *e);
/* The lora_options of a stage for an adapter on disk. */
int runtime_lora(const struct peft_adapter *ad, const struct model_config *m,
		 struct lora_options *o_p, struct err *e);
/* Puts an adapter's weights into the stages' parameters; every pair must have its module, and every
 * module of the stage its pair. */
int runtime_load_adapter(struct stage *s, const struct peft_adapter *ad, const char *dir,
			 struct err *e);

/* A microbatch as a stage takes it, without training and preferences. */
struct stage_batch runtime_batch(const struct microbatch *mb, uint64_t index);

struct runtime_options {
	const char *model;   /* folder or .gguf */
	const char *adapter; /* PEFT folder, or NULL */
	const char *device;  /* NULL: auto */
	int compute_dtype;   /* enum compute_dtype */
	bool load_in_4bit, double_quant;
	const char *chat_template; /* NULL: recognised */
	bool need_tokenizer;
	struct prefer_options prefer; /* of evaluate.h */
};

struct runtime {
	struct model_file *file;
	struct model_config cfg;
	struct tokenizer *tok;
	const struct chat_template *chat; /* NULL: not recognised */
	struct dev *dev;
	struct stage stage;
	struct arena arena;
	struct peft_adapter adapter;
	bool has_adapter;
};

int runtime_open(const struct runtime_options *o, struct runtime *r_p, struct err *e);
void runtime_close(struct runtime *r);

#endif
