/* SPDX-License-Identifier: Apache-2.0 */
/* tiny.c - see tiny.h. */
#include "support/tiny.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "file/atomic.h"
#include "file/safetensors.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { C = 32, F = 48, HEADS = 4, KV = 2, D = 8, V = 258 };

static void put(const struct tiny *t, const char *name, const struct buf *b)
{
	char path[512];
	struct err e = { 0 };
	snprintf(path, sizeof path, "%s/%s", t->dir, name);
	if (atomic_write_file(path, b->p, b->n, &e) < 0)
		fail_msg("%s", e.msg);
}

/* GPT-2's printable stand-in for each byte. */
static void byte_token(struct buf *b, int byte)
{
	int c = byte, next = 256;
	for (int i = 0; i < 256; i++) {
		bool plain = (i >= '!' && i <= '~') || (i >= 0xa1 && i <= 0xac) || i >= 0xae;
		if (!plain && i == byte)
			c = next;
		next += !plain;
	}
	char s[8];
	if (c == '"' || c == '\\')
		snprintf(s, sizeof s, "\\%c", c);
	else if (c < 0x80)
		snprintf(s, sizeof s, "%c", c);
	else
		snprintf(s, sizeof s, "%c%c", 0xc0 | c >> 6, 0x80 | (c & 63));
	buf_adds(b, s);
}

static void write_tokenizer(const struct tiny *t)
{
	struct buf b = BUF_INIT;
	buf_adds(&b,
		 "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":["
		 "{\"id\":256,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,"
		 "\"rstrip\":false,\"normalized\":false,"
		 "\"special\":true},"
		 "{\"id\":257,\"content\":\"</"
		 "s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":"
		 "false,\"special\":true}],"
		 "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_"
		 "space\":false,\"trim_offsets\":"
		 "true,\"use_regex\":true},"
		 "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
		 "true,\"trim_offsets\":true,"
		 "\"use_regex\":true},"
		 "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_"
		 "subword_prefix\":null,\"end_of_"
		 "word_suffix\":null,"
		 "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{");
	for (int i = 0; i < 256; i++) {
		buf_adds(&b, i ? ",\"" : "\"");
		byte_token(&b, i);
		buf_addf(&b, "\":%d", i);
	}
	buf_adds(&b, ",\"<s>\":256,\"</s>\":257},\"merges\":[]}}");
	put(t, "model/tokenizer.json", &b);
	buf_reset(&b);
	buf_adds(&b, "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
	put(t, "model/tokenizer_config.json", &b);
	buf_release(&b);
}

static int random_weights(void *ctx, const struct st_spec *s, uint64_t off, uint64_t n, void *dst,
			  struct err *e)
{
	(void)ctx;
	(void)e;
	uint64_t seed = 1;
	for (const char *p = s->name; *p; p++)
		seed = rng_fold(seed, (unsigned char)*p);
	float *v = dst, size = s->ndim == 1 ? 0.1f : 1.0f / sqrtf((float)s->shape[1]);
	for (uint64_t i = 0; i < n / 4; i++)
		v[i] = (s->ndim == 1) + size * rng_normal(rng_key(seed), off / 4 + i);
	return 0;
}

static void write_weights(const struct tiny *t)
{
	static const struct {
		const char *name;
		int64_t rows, cols;
	} part[] = { { "input_layernorm", C, 0 },
		     { "post_attention_layernorm", C, 0 },
		     { "self_attn.q_proj", HEADS * D, C },
		     { "self_attn.k_proj", KV * D, C },
		     { "self_attn.v_proj", KV * D, C },
		     { "self_attn.o_proj", C, HEADS * D },
		     { "mlp.gate_proj", F, C },
		     { "mlp.up_proj", F, C },
		     { "mlp.down_proj", C, F } };
	struct st_spec spec[ARRAY_LEN(part) * 16 + 3];
	static char name[ARRAY_LEN(spec)][96];
	size_t n = 0;
	struct err e = { 0 };
	char path[512];
	for (int l = 0; l < t->layers; l++)
		for (size_t i = 0; i < ARRAY_LEN(part); i++, n++) {
			snprintf(name[n], sizeof name[n], "model.layers.%d.%s.weight", l,
				 part[i].name);
			spec[n] = (struct st_spec){ .name = name[n],
						    .ndim = part[i].cols ? 2 : 1,
						    .shape = { part[i].rows * t->width,
							       part[i].cols * t->width } };
		}
	spec[n++] = (struct st_spec){ .name = "model.embed_tokens.weight",
				      .ndim = 2,
				      .shape = { V, C * t->width } };
	if (!t->tied)
		spec[n++] = (struct st_spec){ .name = "lm_head.weight",
					      .ndim = 2,
					      .shape = { V, C * t->width } };
	spec[n++] = (struct st_spec){ .name = "model.norm.weight",
				      .ndim = 1,
				      .shape = { C * t->width } };
	snprintf(path, sizeof path, "%s/model/model.safetensors", t->dir);
	if (st_write(path, spec, n, NULL, random_weights, NULL, &e) < 0)
		fail_msg("%s", e.msg);
}

static void write_data(const struct tiny *t, int records)
{
	struct buf b = BUF_INIT;
	for (int i = 0; i < records; i++) {
		buf_addf(&b,
			 "{\"prompt\": \"Question %d: how many bits has %d?\", \"completion\": \" "
			 "It has",
			 i, i * 37);
		for (int k = 0; k < 1 + i * 7 % 11; k++)
			buf_addf(&b, " %d", (i * 31 + k * 17) % 100);
		buf_adds(&b, ".\"}\n");
	}
	put(t, "data.jsonl", &b);
	buf_release(&b);
}

struct spec_list {
	struct st_spec spec[256];
	char name[256][96];
	size_t n;
};

static void add_spec(struct spec_list *l, int64_t rows, int64_t cols, const char *fmt, ...)
{
	va_list ap;
	assert_true(l->n < ARRAY_LEN(l->spec));
	va_start(ap, fmt);
	vsnprintf(l->name[l->n], sizeof l->name[0], fmt, ap);
	va_end(ap);
	l->spec[l->n] = (struct st_spec){ .name = l->name[l->n],
					  .ndim = cols ? 2 : 1,
					  .shape = { rows, cols } };
	l->n++;
}

/* Random numbers for every tensor that this configuration has. */
static void write_all_weights(const struct tiny *t, const struct model_config *c)
{
	static struct spec_list l;
	struct err e = { 0 };
	char path[512];
	l.n = 0;
	for (int i = 0; i < c->layers; i++) {
		for (enum layer_norm k = 0; k < NORM_COUNT; k++)
			if (layer_norm_name(c, k))
				add_spec(&l, c->hidden, 0, "model.layers.%d.%s.weight", i,
					 layer_norm_name(c, k));
		for (enum linear k = 0; k < LIN_COUNT; k++) {
			int64_t dim[2];
			linear_dims(c, i, k, dim);
			for (int64_t x = 0; x < linear_copies(c, i, k); x++) {
				char module[LINEAR_MODULE];
				linear_module(module, i, k, x);
				add_spec(&l, dim[0], dim[1], "%s.weight", module);
				if (linear_has_bias(c, k))
					add_spec(&l, dim[0], 0, "%s.bias", module);
			}
		}
		const bool row = c->correction == CORRECTION_STATICS;
		if (c->correction && layer_is_mixture(c, i))
			add_spec(&l, row ? 1 : c->experts, row ? c->experts : 0,
				 "model.layers.%d.%s", i, correction_name(c));
		for (enum router_param k = 0; k < ROUTER_PARAMS && c->beside; k++)
			add_spec(&l, router_param_count(c, k), 0, "model.layers.%d.%s", i,
				 router_param_name(k));
		if (c->layer_scalar)
			add_spec(&l, 1, 0, "model.layers.%d." MODEL_LAYER_SCALAR, i);
		if (c->sinks)
			add_spec(&l, c->heads, 0, "model.layers.%d.self_attn.sinks", i);
		for (enum delta_param k = 0;
		     c->delta[i] && k < DELTA_PARAMS && delta_param_name(c, k); k++) {
			add_spec(&l, delta_param_count(c, k), 0, "model.layers.%d.%s", i,
				 delta_param_name(c, k));
			struct st_spec *s = &l.spec[l.n - 1];
			s->ndim = model_file_shape(c, s->name, s->ndim, s->shape);
		}
		for (enum linear k = 0; k < LIN_COUNT; k++) {
			int64_t width;
			const char *norm = linear_norm(c, i, k, &width);
			if (norm && layer_has_linear(c, i, k))
				add_spec(&l, width, 0, "model.layers.%d.%s", i, norm);
		}
	}
	add_spec(&l, c->vocab, c->hidden, "model.embed_tokens.weight");
	add_spec(&l, c->hidden, 0, "%s", final_norm_name(c));
	if (!c->tied)
		add_spec(&l, c->vocab, c->hidden, "lm_head.weight");
	snprintf(path, sizeof path, "%s/model/model.safetensors", t->dir);
	if (st_write(path, l.spec, l.n, NULL, random_weights, NULL, &e) < 0)
		fail_msg("%s", e.msg);
}

static void make_folder(struct tiny *t)
{
	const char *tmp = getenv("TMPDIR");
	struct err e = { 0 };
	char path[512];
	snprintf(t->dir, sizeof t->dir, "%s/hs-tiny-XXXXXX",
		 tmp && strlen(tmp) < 200 ? tmp : "/tmp");
	assert_non_null(mkdtemp(t->dir));
	snprintf(path, sizeof path, "%s/model", t->dir);
	if (dir_make(path, &e) < 0)
		fail_msg("%s", e.msg);
}

void tiny_make_model(struct tiny *t, const char *config, int records)
{
	struct model_config c;
	struct err e = { 0 };
	struct buf b = BUF_INIT;
	*t = (struct tiny){ .width = 1 };
	make_folder(t);
	json_t *j = json_loads(config, 0, NULL);
	assert_non_null(j);
	if (model_config_read(j, "config", &c, &e) < 0)
		fail_msg("%s", e.msg);
	json_decref(j);
	t->layers = (int)c.layers;
	t->tied = c.tied;
	buf_adds(&b, config);
	put(t, "model/config.json", &b);
	buf_release(&b);
	write_tokenizer(t);
	write_all_weights(t, &c);
	write_data(t, records);
}

static void make(struct tiny *t, int layers, int records, bool tied, int width)
{
	*t = (struct tiny){ .layers = layers, .tied = tied, .width = width };
	make_folder(t);
	struct buf b = BUF_INIT;
	buf_addf(&b,
		 "{\"model_type\":\"llama\",\"hidden_size\":%d,\"intermediate_size\":%d,\"num_"
		 "hidden_layers\":%d,\"num_attention_"
		 "heads\":%d,"
		 "\"num_key_value_heads\":%d,\"head_dim\":%d,\"vocab_size\":%d,\"rms_norm_eps\":1e-"
		 "5,\"rope_theta\":10000.0,"
		 "\"max_position_embeddings\":512,\"tie_word_embeddings\":%s,\"hidden_act\":"
		 "\"silu\"}",
		 C * width, F * width, layers, HEADS * width, KV * width, D, V,
		 tied ? "true" : "false");
	put(t, "model/config.json", &b);
	buf_release(&b);
	write_tokenizer(t);
	write_weights(t);
	write_data(t, records);
}

void tiny_make(struct tiny *t, int layers, int records) { make(t, layers, records, false, 1); }

void tiny_make_tied(struct tiny *t, int layers, int records) { make(t, layers, records, true, 1); }

void tiny_make_wide(struct tiny *t, int layers, int records) { make(t, layers, records, false, 3); }

void tiny_remove(struct tiny *t)
{
	struct err e = { 0 };
	if (dir_remove(t->dir, &e) < 0)
		fail_msg("%s", e.msg);
}

struct config *tiny_config(const struct tiny *t, const char *run, const char *const *more)
{
	char text[2048];
	const char *adapter = "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\n";
	for (int i = 0; more && more[i]; i++)
		if (!strcmp(more[i], "adapter=none"))
			adapter = "";
	int n = snprintf(text, sizeof text,
			 "base_model: %s/model\n%scompute_dtype: float32\n"
			 "datasets: [{path: %s/data.jsonl, type: completion}]\nsequence_len: "
			 "128\nmicro_batch_size: 2\n"
			 "gradient_accumulation_steps: 3\nlearning_rate: 0.005\nmax_steps: "
			 "6\nwarmup_steps: 2\nsave_steps: "
			 "3\nval_set_size: 4\n"
			 "visualize: false\ntensorboard: false\ntrace: false\nwire_dtype: "
			 "float32\noutput_dir: %s/%s\n"
			 "cache_dir: %s/cache\n",
			 t->dir, adapter, t->dir, t->dir, run, t->dir);
	char *over[32];
	int count = 0;
	while (more && more[count] && count < 32) {
		over[count] = (char *)more[count];
		count++;
	}
	struct config *c;
	struct err e = { 0 };
	if (config_parse(CONFIG_TRAIN, text, (size_t)n, "tiny", count, over, &c, &e) < 0)
		fail_msg("%s", e.msg);
	return c;
}

char *tiny_read(const struct tiny *t, const char *name, size_t *n_p)
{
	char path[512];
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	snprintf(path, sizeof path, "%s/%s", t->dir, name);
	if (buf_read_file(&b, path, 0, &e) < 0)
		fail_msg("%s", e.msg);
	*n_p = b.n;
	return buf_detach(&b);
}

void tiny_preferences(const struct tiny *t, enum prefer_data kind)
{
	char path[300];
	snprintf(path, sizeof path, "%s/preferences.jsonl", t->dir);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	for (int i = 0; i < 40; i++)
		if (kind == PREFER_SINGLE)
			fprintf(f,
				"{\"prompt\":\"%.*s: \",\"completion\":\"%s %d\",\"label\":%s}\n",
				3 + i % 7, "question", i % 3 ? "yes, it is" : "no", i,
				i % 3 ? "true" : "false");
		else
			fprintf(f,
				"{\"prompt\":\"%.*s: \",\"chosen\":\"yes, %d\",\"rejected\":"
				"\"no %.*s\"}\n",
				3 + i % 7, "question", i, i % 11, "never, ever");
	assert_int_equal(fclose(f), 0);
}

void tiny_poison(const struct tiny *t, int token, float v)
{
	static const char file[] = "model/model.safetensors";
	struct err e = { 0 };
	struct buf b = BUF_INIT;
	json_t *doc;
	uint64_t header;
	size_t n;
	char *all = tiny_read(t, file, &n);
	memcpy(&header, all, 8);
	if (json_parse_text(all + 8, header, file, &doc, &e) < 0)
		fail_msg("%s", e.msg);
	const json_t *at = json_object_get(doc, "model.embed_tokens.weight");
	const size_t width = (size_t)json_integer_value(
			     json_array_get(json_object_get(at, "shape"), 1)),
		     from = 8 + header + 4 * width * (size_t)token +
			    (size_t)json_integer_value(
				    json_array_get(json_object_get(at, "data_offsets"), 0));
	assert_true(from + 4 * width <= n);
	for (size_t i = 0; i < width; i++)
		memcpy(all + from + 4 * i, &v, 4);
	buf_add(&b, all, n);
	put(t, file, &b);
	buf_release(&b);
	json_decref(doc);
	mem_free(all);
}
