/* SPDX-License-Identifier: Apache-2.0 */
/* token_pattern.c - the published patterns of byte-level BPE, by the names that
 * tokenizer.ggml.pre of a GGUF has for them. */
#include "data/token.h"

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

const char token_gpt2_pattern[] =
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

#define LLAMA3                                                                                     \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "                 \
	"?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN2                                                                                      \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "                      \
	"?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN35                                                                                     \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "              \
	"?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SEED                                                                                       \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| "                   \
	"?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TEKKEN                                                                                     \
	"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]" \
	"+|"                                                                                       \
	"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]" \
	"*|"                                                                                       \
	"\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define GPT4O                                                                                      \
	"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]" \
	"+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"                                                          \
	"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]" \
	"*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"                                                          \
	"\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Patterns: src/llama-vocab.cpp of llama.cpp, in the form of the models' own tokenizer.json where
 * it quotes that. */
static const struct token_pre pres[] = {
	{ "smollm starcoder refact codeshell",
	  { "\\p{N}", token_gpt2_pattern },
	  false,
	  false,
	  false },
	{ "llama-bpe llama3 llama-v3 lfm2", { LLAMA3 }, true, true, false },
	{ "dbrx smaug-bpe glm4", { LLAMA3 }, false, false, false },
	{ "gpt-4o", { GPT4O }, false, false, false },
	{ "qwen2", { QWEN2 }, false, false, true },
	{ "qwen35", { QWEN35 }, false, false, true },
	{ "seed-coder", { SEED }, false, false, false },
	{ "gpt-2 phi-2 exaone4", { token_gpt2_pattern }, false, false, false },
	{ "olmo", { token_gpt2_pattern }, false, false, true }, /* GPT-NeoX's normaliser */
	{ "tekken", { TEKKEN }, true, true, false },
	{ "default",
	  { "[\\p{P}\\$\\+<=>\\^~\\|]+", token_gpt2_pattern, "\\p{N}+", "[0-9][0-9][0-9]" },
	  false,
	  false,
	  false },
};

bool token_pattern_known(const char *pattern)
{
	for (size_t i = 0; i < ARRAY_LEN(pres); i++)
		for (size_t k = 0; k < ARRAY_LEN(pres->pattern) && pres[i].pattern[k]; k++)
			if (!strcmp(pres[i].pattern[k], pattern))
				return true;
	return false;
}

static bool has_word(const char *words, const char *word)
{
	size_t n = strlen(word);
	for (const char *p = words; n && (p = strstr(p, word)); p += n)
		if ((p == words || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
			return true;
	return false;
}

int token_pre_find(const json_t *kv, const char *where, const struct token_pre **pre_p,
		   struct err *e)
{
	const char *name = NULL;
	TRY(json_opt_str(kv, where, "tokenizer.ggml.pre", &name, e));
	if (!name) {
		log_warn("%s: the file does not name its pre-tokenizer (tokenizer.ggml.pre), "
			 "'default' is used",
			 where);
		name = "default";
	}
	for (size_t i = 0; i < ARRAY_LEN(pres); i++)
		if (has_word(pres[i].names, name)) {
			*pre_p = &pres[i];
			return 0;
		}
	return err_set(e, ERR_UNSUPPORTED,
		       "%s: the pre-tokenizer '%.64s' (tokenizer.ggml.pre) is not supported", where,
		       name);
}
