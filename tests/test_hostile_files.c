/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile files of every kind that the program reads, one row each: it ends with one line on
 * standard error that says what is wrong and where, with a status that is not 0, without a signal,
 * within limits of processor time and memory. The limits are there so that a file cannot take the
 * machine; they say nothing about speed. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "job/checkpoint_check.h"
#include "support/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define MODEL "tests/golden/models/smollm2"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SECONDS = 60, MEMORY_MIB = 1600, SANITIZED = 1 };
#else
enum { SECONDS = 4, MEMORY_MIB = 200, SANITIZED = 0 };
#endif

/* head, `n` times item with commas between, tail */
struct content {
	const char *head;
	size_t nhead; /* 0: strlen */
	const char *item;
	size_t n;
	const char *tail;
};

enum kind {
	SAFETENSORS, /* info x.safetensors; the content is the header, `data` zeros follow */
	GGUF,        /* info x.gguf */
	CONFIG,      /* generate with the model whose config.json it is */
	INDEX,       /* info of a model with this model.safetensors.index.json */
	TOKENIZER,   /* tokenize with a model whose tokenizer.json it is; "some text" */
	ADAPTER,     /* info of a folder with this adapter_config.json and a good file beside it */
	WEIGHTS,     /* info of an adapter with this safetensors header */
	STATE,       /* train with resume_from_checkpoint of this trainer_state.json */
	PROFILE,     /* plan --profile */
	PLAN,        /* plan --profile good --plan */
	DATA,        /* eval MODEL --data */
	KEY,         /* keygen --show, mode 0600 */
	YAML,        /* train */
};

enum special {
	CONTENT,
	PIPE,
	FOLDER,
	DEVICE,
	INPUT,  /* a link to standard input */
	KERNEL, /* one to a file of the kernel's that looks regular and makes its reader wait */
	HOLLOW,
	LONG_HEADER,
	SHORT_HEADER,
	WRONG_MODE,
	WIDE
};

struct row {
	const char *name;
	enum kind kind;
	struct content c;
	const char *want; /* in the line, beside the path of the file */
	size_t data;
	enum special special;
};

#define TEXT(s)                                                                                    \
	{                                                                                          \
		.head = (s)                                                                        \
	}
#define BYTES(s)                                                                                   \
	{                                                                                          \
		.head = (s), .nhead = sizeof(s) - 1                                                \
	}
#define MANY(h, i, count, t)                                                                       \
	{                                                                                          \
		.head = (h), .item = (i), .n = (count), .tail = (t)                                \
	}

/* GGUF, little-endian */
#define U32(a) a "\0\0\0"
#define U64(a) a "\0\0\0\0\0\0\0"
#define HUGE "\377\377\377\377\377\377\377\177"
#define HEAD(tensors, pairs) "GGUF" U32("\3") U64(tensors) U64(pairs)
#define TENSOR(name, dims, type, offset)                                                           \
	U64("\1") name dims U32(type) offset "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
#define DIMS1(a) U32("\1") U64(a)

#define FIELD(dtype, shape, offsets)                                                               \
	"{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define ONE(dtype, shape, offsets) "{\"a\":" FIELD(dtype, shape, offsets) "}"
#define LORA "\"peft_type\":\"LORA\",\"lora_alpha\":8,\"target_modules\":[\"q_proj\"]"
#define LLAMA(more)                                                                                \
	"{\"model_type\":\"llama\",\"vocab_size\":269,\"hidden_size\":48,\"intermediate_size\":40" \
	",\"num_hidden_layers\":3,\"num_attention_heads\":6,\"num_key_value_heads\":2,"            \
	"\"rms_norm_eps\":1e-5,\"rope_theta\":1e5,\"tie_word_embeddings\":true," more "}"
#define BPE(more) "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}," more "}"
#define PROFILE_HEAD                                                                               \
	"{\"version\":1,\"model\":{\"layers\":6,\"hidden\":64,\"parameters_per_layer\":1e6},"      \
	"\"sequence_len\":128,\"global_batch\":8,"
#define DEVICE_OF(id, more)                                                                        \
	"{\"id\":\"" id "\",\"host\":\"x\",\"memory_gib\":8,\"forward_ms\":{\"linear\":[2,0]},"    \
	"\"backward_ms\":{\"linear\":[4,0]}" more "}"
#define GOOD_PROFILE PROFILE_HEAD "\"devices\":[" DEVICE_OF("a", "") "],\"links\":[]}"
#define GOOD_WEIGHTS                                                                               \
	"{\"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\":" FIELD(              \
		"F32", "[1,2]", "[0,8]") ",\"base_model.model.model.layers.0.self_attn.q_proj."    \
					 "lora_B.weight\":" FIELD("F32", "[2,1]", "[8,16]") "}"

/* what a row does not say is 0 */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
static const struct row rows[] = {
	/* ---- safetensors ---- */
	{ "no header", SAFETENSORS, TEXT(""), "short", 0, SHORT_HEADER },
	{ "a length beyond 2^62", SAFETENSORS, TEXT("{}"), "not a safetensors", 0, LONG_HEADER },
	{ "not JSON", SAFETENSORS, TEXT("{\"a\":"), "not valid JSON" },
	{ "not an object", SAFETENSORS, TEXT("[]"), "an object" },
	{ "an open string", SAFETENSORS, TEXT("{\"a\":\"{{{{"), "does not end" },
	{ "nested too deep", SAFETENSORS, MANY("{\"a\":[", "[[[[[[[[[[", 10000, ""), "not valid" },
	{ "many lists", SAFETENSORS, MANY("{\"a\":[", "[]", 5000000, "]}"), "too many JSON" },
	{ "an escape", SAFETENSORS, TEXT("{\"\\u001b]0;x\\u0007\":7}"), "no dtype" },
	{ "a NUL in a name", SAFETENSORS, TEXT("{\"a\\u0000b\":7}"), "NUL" },
	{ "a name that is not UTF-8", SAFETENSORS, TEXT("{\"a\xff\":7}"), "not valid JSON" },
	{ "a name twice", SAFETENSORS,
	  TEXT("{\"a\":" FIELD("U8", "[1]", "[0,1]") ",\"a\":" FIELD("U8", "[1]", "[1,2]") "}"),
	  "duplicate", 2 },
	{ "a shape beyond 2^64", SAFETENSORS, TEXT(ONE("F32", "[4294967296,4294967296]", "[0,8]")),
	  "too large", 8 },
	{ "a negative shape", SAFETENSORS, TEXT(ONE("F32", "[-1]", "[0,4]")), "whole", 4 },
	{ "a negative offset", SAFETENSORS, TEXT(ONE("F32", "[1]", "[-4,0]")), "not a range", 4 },
	{ "offsets beyond 2^63", SAFETENSORS,
	  TEXT(ONE("U8", "[1]", "[9223372036854775806,9223372036854775807]")), "gap", 1 },
	{ "tensors that overlap", SAFETENSORS,
	  TEXT("{\"a\":" FIELD("U8", "[4]", "[0,4]") ",\"b\":" FIELD("U8", "[4]", "[2,6]") "}"),
	  "inside another", 6 },
	{ "a truncated tensor", SAFETENSORS, TEXT(ONE("F32", "[1000]", "[0,4000]")), "truncated" },
	{ "metadata of lists", SAFETENSORS, TEXT("{\"__metadata__\":{\"a\":[]}}"), "metadata" },
	{ "a pipe for weights", SAFETENSORS, TEXT(""), "is a pipe", 0, PIPE },
	{ "a folder for weights", SAFETENSORS, TEXT(""), "nothing known", 0, FOLDER },
	/* ---- GGUF ---- */
	{ "nothing", GGUF, TEXT(""), "empty" },
	{ "only a magic", GGUF, TEXT("GGUF"), "truncated" },
	{ "an old version", GGUF, BYTES("GGUF" U32("\1") U64("\0") U64("\0")), "version 1" },
	{ "big-endian", GGUF, BYTES("GGUF\0\0\0\3" U64("\0") U64("\0")), "big-endian" },
	{ "2^63 pairs", GGUF, BYTES("GGUF" U32("\3") U64("\0") HUGE), "do not fit" },
	{ "2^63 tensors", GGUF, BYTES("GGUF" U32("\3") HUGE U64("\0")), "do not fit" },
	{ "a key of 2^63 bytes", GGUF, BYTES(HEAD("\0", "\1") HUGE "aaaaaaaaaaaaaa"), "truncated" },
	{ "a text of 2^63 bytes", GGUF,
	  BYTES(HEAD("\0", "\1") U64("\1") "a" U32("\10") HUGE "aaaaaaaa"), "truncated" },
	{ "2^63 numbers", GGUF,
	  BYTES(HEAD("\0", "\1") U64("\1") "a" U32("\11") U32("\12") HUGE "aaaaaaaa"),
	  "truncated" },
	{ "a list of lists", GGUF,
	  BYTES(HEAD("\0", "\1") U64("\1") "a" U32("\11") U32("\11") U64("\1") "aaaaaaaa"),
	  "unknown kind" },
	{ "an unknown kind", GGUF, BYTES(HEAD("\0", "\1") U64("\1") "a" U32("\77") "aaaaaaaaaa"),
	  "unknown kind" },
	{ "a key twice", GGUF,
	  BYTES(HEAD("\0", "\2") U64("\1") "a" U32("\7") "\1" U64("\1") "a" U32("\7") "\1"),
	  "duplicate" },
	{ "no dimensions", GGUF, BYTES(HEAD("\1", "\0") TENSOR("t", U32("\0"), "\0", U64("\0"))),
	  "dimensions" },
	{ "nine dimensions", GGUF, BYTES(HEAD("\1", "\0") TENSOR("t", U32("\11"), "\0", U64("\0"))),
	  "dimensions" },
	{ "2^63 numbers in a tensor", GGUF,
	  BYTES(HEAD("\1", "\0") TENSOR("t", U32("\1") HUGE, "\0", U64("\0"))), "shape" },
	{ "an unknown block", GGUF, BYTES(HEAD("\1", "\0") TENSOR("t", DIMS1("\1"), "\143", HUGE)),
	  "ggml type 99" },
	{ "half a block", GGUF, BYTES(HEAD("\1", "\0") TENSOR("t", DIMS1("\5"), "\2", U64("\0"))),
	  "multiple" },
	{ "an offset beyond the end", GGUF,
	  BYTES(HEAD("\1", "\0") TENSOR("t", DIMS1("\1"), "\0", "\0\377\377\377\377\377\377\177")),
	  "truncated" },
	{ "no architecture", GGUF, BYTES(HEAD("\0", "\0")), "general.architecture" },
	{ "16 million numbers for a word",
	  GGUF,
	  { .head = HEAD("\0", "\1") U64("\24") "general.architecture" U32("\11")
		    U32("\0") "\0\44\364\0\0\0\0\0",
	    .nhead = 24 + 28 + 8 + 8,
	    .item = "aaaaaaaaaaaaaaaa",
	    .n = 1000000 },
	  "must be one value" },
	{ "a pipe for a GGUF", GGUF, TEXT(""), "is a pipe", 0, PIPE },
	/* ---- config.json ---- */
	{ "a pipe for config.json", CONFIG, TEXT(""), "is a pipe", 0, PIPE },
	{ "a folder for config.json", CONFIG, TEXT(""), "is a folder", 0, FOLDER },
	{ "a list", CONFIG, TEXT("[]"), "object" },
	{ "not even text", CONFIG, BYTES("\0\1\2\377"), "not valid JSON" },
	{ "much of nothing", CONFIG, MANY("{\"x\":[", "{}", 2000000, "]}"), "too many JSON" },
	{ "17 MiB", CONFIG, MANY("{\"x\":\"", "aaaaaaaaaaaaaaaa", 1100000, "\"}"), "larger than" },
	{ "2^40 layers", CONFIG,
	  TEXT(LLAMA("\"num_layers\":1,\"num_hidden_layers\":1099511627776")), "config.json" },
	{ "negative layers", CONFIG,
	  TEXT("{\"model_type\":\"llama\",\"hidden_size\":48,\"intermediate_size\":40,\"num_hidden_"
	       "layers\":-1}"),
	  "num_hidden_layers" },
	{ "a wide model", CONFIG,
	  TEXT("{\"model_type\":\"llama\",\"vocab_size\":269,\"hidden_size\":1048576,"
	       "\"intermediate_size\":40,\"num_hidden_layers\":3,\"num_attention_heads\":6,"
	       "\"rms_norm_eps\":1e-5}"),
	  "" },
	{ "not a number", CONFIG, TEXT(LLAMA("\"rope_scaling\":{\"rope_type\":\"yarn\"}")), "" },
	{ "a new key", CONFIG, TEXT(LLAMA("\"value_scale\":2")), "'value_scale' is not known" },
	{ "another model", CONFIG, TEXT("{\"model_type\":\"\\u001b[2J\"}"), "" },
	/* ---- model.safetensors.index.json ---- */
	{ "a way out", INDEX, TEXT("{\"weight_map\":{\"a\":\"../../x.safetensors\"}}"), "outside" },
	{ "an absent file", INDEX, TEXT("{\"weight_map\":{\"a\":\"x.safetensors\"}}"), "No such" },
	{ "no map", INDEX, TEXT("{\"weight_map\":[]}"), "weight_map" },
	{ "a file without a name", INDEX, TEXT("{\"weight_map\":{\"a\":7}}"), "names no file" },
	/* ---- tokenizer.json ---- */
	{ "120 MB of values", TOKENIZER, MANY("{\"x\":[", "{}", 40000000, "]}"), "too many JSON" },
	{ "a list of ids", TOKENIZER,
	  TEXT("{\"model\":{\"type\":\"BPE\",\"vocab\":[],"
	       "\"merges\":[]}}"),
	  "" },
	{ "an id of 2^31", TOKENIZER,
	  TEXT("{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"ByteLevel\"},"
	       "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":2147483648},\"merges\":[]}}"),
	  "must be an integer" },
	{ "no model", TOKENIZER, TEXT("{}"), "no 'model'" },
	{ "another kind", TOKENIZER, TEXT("{\"model\":{\"type\":\"\\u009b31m\"}}"),
	  "not supported" },
	{ "processors in processors", TOKENIZER,
	  MANY("{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]},\"post_processor\":",
	       "{\"type\":\"Sequence\",\"processors\":[", 1500, ""),
	  "not valid JSON" },
	{ "64 GiB of nothing", TOKENIZER, TEXT(""), "larger than", 0, HOLLOW },
	{ "a pipe for a tokenizer", TOKENIZER, TEXT(""), "is a pipe", 0, PIPE },
	/* ---- adapters ---- */
	{ "not JSON", ADAPTER, TEXT("{"), "not valid JSON" },
	{ "another method", ADAPTER, TEXT("{\"peft_type\":\"IA3\"}"), "" },
	{ "rank 0", ADAPTER, TEXT("{" LORA ",\"r\":0}"), "'r'" },
	{ "rank 10^9", ADAPTER, TEXT("{" LORA ",\"r\":1000000000}"), "" },
	{ "half a rank", ADAPTER, TEXT("{" LORA ",\"r\":1,\"rank_pattern\":{\"q_proj\":0.5}}"),
	  "whole number" },
	{ "weights that are not there", ADAPTER,
	  TEXT("{" LORA ",\"r\":1,\"modules_to_save\":[\"lm_head\"]}"), "has no weights of" },
	{ "a head that is tied again", ADAPTER,
	  TEXT("{" LORA ",\"r\":1,\"modules_to_save\":[\"q\"],\"ensure_weight_tying\":true}"),
	  "ensure_weight_tying" },
	{ "no number for alpha", ADAPTER,
	  TEXT("{\"peft_type\":\"LORA\",\"lora_alpha\":\"x\",\"r\":1,\"target_modules\":[\"q\"]}"),
	  "lora_alpha" },
	{ "one half of a pair", WEIGHTS,
	  TEXT("{\"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\":" FIELD(
		  "F32", "[1,2]", "[0,8]") "}"),
	  "", 8 },
	{ "another rank", WEIGHTS,
	  TEXT("{\"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\":" FIELD(
		  "F32", "[2,2]", "[0,16]") ",\"base_model.model.model.layers.0.self_attn.q_proj."
					    "lora_B.weight\":" FIELD("F32", "[2,1]",
								     "[16,24]") "}"),
	  "", 24 },
	{ "a pipe for an adapter", WEIGHTS, TEXT(""), "is a pipe", 0, PIPE },
	/* ---- checkpoints ---- */
	{ "not JSON", STATE, TEXT("{"), "not valid JSON" },
	{ "a list", STATE, TEXT("[]"), "" },
	{ "nothing in it", STATE, TEXT("{}"), "" },
	{ "a negative step", STATE, TEXT("{\"version\":1,\"step\":-5}"), "" },
	{ "more than 1 MiB", STATE, MANY("{\"a\":[", "1111111111", 200000, "]}"), "larger than" },
	{ "a pipe for a state", STATE, TEXT(""), "is a pipe", 0, PIPE },
	/* ---- profiles and plans ---- */
	{ "not JSON", PROFILE, TEXT("{"), "not valid JSON" },
	{ "a newer version", PROFILE, TEXT("{\"version\":9223372036854775807}"), "version" },
	{ "much of nothing", PROFILE, MANY("[", "{}", 3000000, "]"), "too many JSON" },
	{ "10^9 layers", PROFILE,
	  TEXT("{\"version\":1,\"model\":{\"layers\":1000000000,\"hidden\":64,"
	       "\"parameters_per_layer\":1e6},\"sequence_len\":8,\"global_batch\":8}"),
	  "layers" },
	{ "a device twice", PROFILE,
	  TEXT(PROFILE_HEAD
	       "\"devices\":[" DEVICE_OF("a", "") "," DEVICE_OF("a", "") "],"
									 "\"links\":[]}"),
	  "a" },
	{ "a negative time", PROFILE,
	  TEXT(PROFILE_HEAD "\"devices\":[{\"id\":\"a\",\"host\":\"x\",\"memory_gib\":8,"
			    "\"forward_ms\":{\"linear\":[-2,0]},"
			    "\"backward_ms\":{\"linear\":[4,0]}}],\"links\":[]}"),
	  "" },
	{ "a negative bandwidth", PROFILE,
	  TEXT(PROFILE_HEAD "\"devices\":[" DEVICE_OF(
		  "a", "") "],\"links\":[{\"hosts\":"
			   "[\"x\",\"\\u001b[31m\"],\"bandwidth_gbytes_per_s\":-1}]}"),
	  "bandwidth" },
	{ "30,000 devices", PROFILE,
	  MANY(PROFILE_HEAD "\"devices\":[", DEVICE_OF("a", ""), 30000, "],\"links\":[]}"), "" },
	{ "settings of an adapter", PROFILE, TEXT("{\"r\":8}"), "this is no profile" },
	{ "not JSON", PLAN, TEXT("nonsense"), "not valid JSON" },
	{ "no stages", PLAN, TEXT("{\"stages\":7}"), "stages" },
	{ "a device of nobody", PLAN,
	  TEXT("{\"stages\":[{\"layers\":[0,6],\"devices\":[{\"id\":\"z\"}]}]}"), "z" },
	{ "layers backwards", PLAN,
	  TEXT("{\"stages\":[{\"layers\":[6,0],\"devices\":[{\"id\":\"a\"}]}]}"), "" },
	{ "100,000 stages", PLAN,
	  MANY("{\"stages\":[", "{\"layers\":[0,6],\"devices\":[{\"id\":\"a\"}]}", 100000, "]}"),
	  "" },
	/* ---- data ---- */
	{ "nothing", DATA, TEXT(""), "empty" },
	{ "a zip archive", DATA, BYTES("PK\3\4\0\0\0\0"), "zip" },
	{ "a stream of Arrow", DATA, BYTES("\377\377\377\377\20\0\0\0"), "an Arrow file" },
	{ "UTF-16", DATA, BYTES("\377\376{\0}\0"), "UTF-16" },
	{ "not UTF-8", DATA, TEXT("{\"text\":\"a\xff\"}\n"), "not UTF-8" },
	{ "an escape for a key", DATA, TEXT("{\"\\u001b[31m\":1}\n"), "no known kind" },
	{ "15 MB of values", DATA, MANY("{\"x\":[", "{}", 5000000, "]}"), "too many JSON" },
	{ "nested too deep", DATA, MANY("{\"text\":[", "[[[[[[[[[[", 5000, ""), "" },
	{ "an open string", DATA, MANY("[{\"text\":\"", "aaaaaaaaaaaaaaaa", 300000, ""),
	  "cut off" },
	{ "numbers", DATA, TEXT("[1,2,3]"), "must be an object" },
	/* Parquet of less than 200 bytes: runs that stand for 64 Mi numbers, 13 Mi texts of 40
	 * bytes, a row with a list of 6 Mi structures */
	{ "many numbers", DATA,
	  BYTES("PAR1\025\004\025\020\025\020L\025\002\025\000\000\000\000\000\000\000\000\000\000"
		"\000\025\000\025\012\025\012,"
		"\025\200\200\200@\025\020\025\006\025\006\000\000\000\200\200\200@\025\002\031,"
		"H\001r\025\002\000\025\004%\000\030\004text\000\026\200\200\200@\031\034\031\034&"
		"\010\034\025\004\031\025\000\031\010\025\000\026\200\200\200@\026\134\026\134&"
		"\010\000\000\026\134\026\200\200\200@\000\000@\000\000\000PAR1"),
	  "too large when it is unpacked" },
	{ "many texts", DATA,
	  BYTES("PAR1\025\004\025X\025XL\025\002\025\000\000\000(\000\000\000xxxxxxxxxx"
		"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\025\000\025\012\025\012,"
		"\025\200\200\200\015\025\020\025\006\025\006\000\000\000\200\200\200\015\025\002"
		"\031,"
		"H\001r\025\002\000\025\014%\000\030\004text%"
		"\000\000\026\200\200\200\015\031\034\031\034&"
		"\010\034\025\014\031\025\000\031\010\025\000\026\200\200\200\015\026\244\001\026"
		"\244\001&"
		"\010\000\000\026\244\001\026\200\200\200\015\000\000E\000\000\000PAR1"),
	  "too large when it is unpacked" },
	{ "a long row", DATA,
	  BYTES("PAR1\025\000\025(\025(,"
		"\025\200\200\200\006\025\000\025\006\025\006\000\000\007\000\000\000\002\000\376"
		"\377\377\005\001\005\000\000\000\200\200\200\006\001\025\002\031<"
		"H\001r\025\002\0005\004\030\004text\025\002\000\025\004%\002\0304a nam"
		"e of fifty letters, which stands for each value\000\026\002\031\034\031\034&"
		"\010\034\025\004\031\025\000\031\010\025\000\026\200\200\200\006\026P\026P"
		"&\010\000\000\026P\026\002\000\000u\000\000\000PAR1"),
	  "a row of more than 64 MiB" },
	{ "9,000 columns that are not read, and the same bytes twice", DATA, TEXT(""),
	  "columns overlap", 0, WIDE },
	{ "a pipe of nobody", DATA, TEXT(""), "empty", 0, PIPE },
	{ "a device for data", DATA, TEXT(""), "is a device", 0, DEVICE },
	/* ---- keys ---- */
	{ "nothing", KEY, TEXT(""), "key" },
	{ "too long", KEY, MANY("hs1-secret-", "aaaaaaaa", 100000, ""), "key" },
	{ "bytes", KEY, BYTES("\0\0\0\0\0\0\0\0\0\0\0\0"), "key" },
	{ "an escape", KEY, TEXT("\033[2J\xc2\x9b"), "key" },
	{ "for everybody", KEY, TEXT("hs1-secret-a"), "mode 0644", 0, WRONG_MODE },
	{ "a pipe for a key", KEY, TEXT(""), "is a pipe", 0, PIPE },
	/* ---- YAML ---- */
	{ "an anchor", YAML, TEXT("a: &x [1]\nb: *x\n"), "anchors" },
	{ "an alias", YAML, TEXT("a: *x\n"), "aliases" },
	{ "a tag", YAML, TEXT("a: !!python/object/apply:os.system [ls]\n"), "tags" },
	{ "nested too deep", YAML, MANY("a: ", "[[[[[[[[[[", 10000, ""), "" },
	{ "2 MiB", YAML, MANY("a: '", "aaaaaaaaaaaaaaaa", 130000, "'\n"), "larger than" },
	{ "200,000 values", YAML, MANY("a: [", "1", 200000, "]\n"), "too many" },
	{ "a key twice", YAML, TEXT("seed: 1\nseed: 2\n"), "twice" },
	{ "an unknown key", YAML, TEXT("\"\\e[31m\": 1\n"), "unknown" },
	{ "bytes", YAML, BYTES("\0\1\2\3\377"), "not a text file" },
	{ "two documents", YAML, TEXT("a: 1\n---\nb: 2\n"), "second YAML document" },
	{ "a pipe for a configuration", YAML, TEXT(""), "is a pipe", 0, PIPE },
};

/* ---- the files ---- */

static void write_content(const char *path, const struct row *r)
{
	const struct content *c = &r->c;
	size_t nhead = c->nhead ? c->nhead : strlen(c->head), item = c->item ? strlen(c->item) : 0;
	bool header = r->kind == SAFETENSORS || r->kind == WEIGHTS;
	bool commas = c->item && strchr("{[\"1", c->item[0]) && !strstr(c->item, "[[");
	uint64_t n = nhead + item * c->n + (commas && c->n ? c->n - 1 : 0) +
		     (c->tail ? strlen(c->tail) : 0);
	commas = commas && !strstr(c->item, "processors");
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	n = r->special == LONG_HEADER ? UINT64_MAX / 3 : n;
	if (header && r->special != SHORT_HEADER)
		fwrite(&n, 1, 8, f);
	fwrite(c->head, 1, nhead, f);
	for (size_t i = 0; i < c->n; i++) {
		if (i && commas)
			putc(',', f);
		fwrite(c->item, 1, item, f);
	}
	fputs(c->tail ? c->tail : "", f);
	for (size_t i = 0; i < r->data; i++)
		putc(0, f);
	assert_int_equal(fclose(f), 0);
}

/* ---- Parquet: a text and a deep number, beside the number columns that are not read ---- */

enum { ROWS = 20000, HIDDEN = 9000, DEPTH = 25, GROUPS = 2 };

static void varint(struct buf *b, uint64_t v)
{
	for (; v > 127; v >>= 7)
		buf_addc(b, (char)(v | 128));
	buf_addc(b, (char)v);
}

static void put(struct buf *b, const char *bytes, size_t n) { buf_add(b, bytes, n); }
#define PUT(b, bytes) put(b, bytes, sizeof(bytes) - 1)

/* A field of a number, which is not negative. */
static void number(struct buf *b, const char *field, uint64_t v)
{
	buf_adds(b, field);
	varint(b, v << 1);
}

static void list_of(struct buf *b, size_t n)
{
	PUT(b, "\x19\xfc");
	varint(b, n);
}

/* A column of one value; its bytes. */
static size_t column(struct buf *b, const char *value, size_t n)
{
	const size_t at = b->n;
	struct buf page = BUF_INIT;
	buf_addc(&page, 0);
	varint(&page, ROWS << 1);
	number(b, "\x15", 2);
	number(b, "\x15", n);
	number(b, "\x15", n);
	PUT(b, "\x4c\x15\x02\x15\0\0\0");
	put(b, value, n);
	number(b, "\x15", 0);
	number(b, "\x15", page.n);
	number(b, "\x15", page.n);
	number(b, "\x2c\x15", ROWS);
	PUT(b, "\x15\x10\x15\x06\x15\x06\0\0");
	put(b, page.p, page.n);
	buf_release(&page);
	return b->n - at;
}

static void chunk(struct buf *b, size_t at, size_t n)
{
	PUT(b, "\x3c\x45\0");
	number(b, "\x16", ROWS);
	number(b, "\x26", n);
	number(b, "\x26", at);
	PUT(b, "\0\0");
}

static void write_wide(const char *path)
{
	struct buf b = BUF_INIT;
	PUT(&b, "PAR1");
	const size_t text = column(&b, "\1\0\0\0x", 5), n = column(&b, "\7\0\0\0", 4), meta = b.n;
	PUT(&b, "\x15\x02");
	list_of(&b, 2 + DEPTH + HIDDEN + 1);
	PUT(&b, "\x48\1r\x15\x04\0\x15\x0c\x25\0\x18\4text\x25\0\0");
	for (int i = 0; i < DEPTH; i++) {
		PUT(&b, "\x35\0\x18\1s");
		number(&b, "\x15", i + 1 < DEPTH ? 1 : HIDDEN + 1);
		buf_addc(&b, 0);
	}
	for (int i = 0; i < HIDDEN; i++)
		PUT(&b, "\x15\x0e\x25\0\x18\1a\0");
	PUT(&b, "\x15\x02\x25\0\x18\1n\0");
	number(&b, "\x16", ROWS * GROUPS);
	list_of(&b, GROUPS);
	for (int g = 0; g < GROUPS; g++) {
		list_of(&b, 1 + HIDDEN + 1);
		chunk(&b, 4, text);
		for (int i = 0; i < HIDDEN; i++)
			buf_addc(&b, 0);
		chunk(&b, 4 + text, n);
		number(&b, "\x26", ROWS);
		buf_addc(&b, 0);
	}
	buf_addc(&b, 0);
	const uint32_t size = (uint32_t)(b.n - meta);
	put(&b, (const char *)&size, 4);
	PUT(&b, "PAR1");
	scratch_write(path, b.p, b.n);
	buf_release(&b);
}

/* A file that takes no room on the disk. */
static void write_hollow(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)1 << 36), 0);
	close(fd);
}

static void make_file(const char *path, const struct row *r)
{
	struct err e;
	if (r->special == PIPE)
		assert_int_equal(mkfifo(path, 0600), 0);
	else if (r->special == FOLDER)
		assert_true(dir_make(path, &e) >= 0);
	else if (r->special == DEVICE)
		assert_int_equal(symlink("/dev/zero", path), 0);
	else if (r->special == INPUT)
		assert_int_equal(symlink("/dev/stdin", path), 0);
	else if (r->special == KERNEL)
		assert_int_equal(symlink("/proc/kmsg", path), 0);
	else if (r->special == WIDE)
		write_wide(path);
	else if (r->special == HOLLOW)
		write_hollow(path);
	else
		write_content(path, r);
	if (r->special == CONTENT || r->special == WRONG_MODE)
		assert_int_equal(chmod(path, r->special == WRONG_MODE ? 0644 : 0600), 0);
}

/* A folder with the files of a good model, but for one. */
static void model_without(const char *dir, const char *name)
{
	char to[600];
	struct dirent *f;
	DIR *d = opendir(repository(MODEL));
	assert_non_null(d);
	while ((f = readdir(d))) {
		bool weights = strstr(f->d_name, "safetensors") && strstr(name, "safetensors");
		if (f->d_name[0] == '.' || !strcmp(f->d_name, name) || weights)
			continue;
		snprintf(to, sizeof to, "%s/%.100s", dir, f->d_name);
		assert_int_equal(symlink(repository(MODEL "/%s", f->d_name), to), 0);
	}
	closedir(d);
}

/* ---- the program ---- */

struct end {
	int status;     /* -1: ended by a signal */
	int signal;     /* 0: none */
	double seconds; /* of processor time */
	long mib;
	struct buf out, err;
};

/* Reads the beginning of a file only: this program must stay small, since a child's memory starts
 * from its parent's. */
static void read_back(const char *path, struct buf *b)
{
	char text[4096];
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	buf_init(b);
	buf_add(b, text, fread(text, 1, sizeof text, f));
	fclose(f);
}

/* Whether all threads of a process wait. One that only gets no processor time does not. */
static bool all_wait(pid_t pid)
{
	char path[300];
	struct dirent *t;
	bool all = true;
	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	DIR *d = opendir(path);
	while (d && (t = readdir(d))) {
		char line[400] = "";
		snprintf(path, sizeof path, "/proc/%d/task/%.20s/stat", (int)pid, t->d_name);
		FILE *f = t->d_name[0] == '.' ? NULL : fopen(path, "r");
		const char *state = f && fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
		all &= !state || state[1] != ' ' || state[2] == 'S';
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return all;
}

static struct end call(const char *const *words)
{
	const char *bin = getenv("HS_BIN"), *argv[16] = { bin };
	char name[2][300];
	struct end r = { .status = -1 };
	struct rusage use;
	int st;
	for (size_t i = 0; words[i]; i++)
		argv[i + 1] = words[i];
	snprintf(name[0], sizeof name[0], "%s", scratch("out"));
	snprintf(name[1], sizeof name[1], "%s", scratch("err"));
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		const struct rlimit cpu = { SECONDS, SECONDS }, as = { 4ull << 30, 4ull << 30 };
		setrlimit(RLIMIT_CPU, &cpu);
		if (!SANITIZED)
			setrlimit(RLIMIT_AS, &as);
		int in = open("/dev/null", O_RDONLY),
		    out = open(name[0], O_RDWR | O_CREAT | O_TRUNC, 0600),
		    err = open(name[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
		dup2(in, 0);
		dup2(out, 1);
		dup2(err, 2);
		setenv("OMP_NUM_THREADS", "1", 1);
		if (bin)
			execv(bin, (char *const *)argv);
		_exit(127);
	}
	for (int idle = 0, k = 1; wait4(pid, &st, WNOHANG, &use) != pid; k++) {
		usleep(2000);
		if (k % 10 == 0)
			idle = all_wait(pid) ? idle + 1 : 0;
		if (idle == 1000) /* for 20 s, every time it was looked at */
			kill(pid, SIGALRM);
	}
	r.status = WIFEXITED(st) ? WEXITSTATUS(st) : -1;
	r.signal = WIFSIGNALED(st) ? WTERMSIG(st) : 0;
	r.mib = use.ru_maxrss >> 10;
	r.seconds = (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
		    (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
	read_back(name[0], &r.out);
	read_back(name[1], &r.err);
	return r;
}

static long most_mib;
static double most_seconds;

static bool check_end(const struct row *r, const char *path, struct end *x)
{
	const char *nl = x->err.n ? strchr(x->err.p, '\n') : NULL;
	const char *last = strrchr(path, '/') + 1;
	const char *wrong = x->status == -1                        ? "it was killed"
			    : !x->status                           ? "it succeeded"
			    : x->status == 127 || x->status > 2    ? "another status"
			    : x->out.n                             ? "something on standard output"
			    : !nl || nl != x->err.p + x->err.n - 1 ? "not exactly one line"
			    : strncmp(x->err.p, "error: ", 7)      ? "no error line"
			    : !strstr(x->err.p, r->want)           ? "it does not say what is wrong"
			    : !strstr(x->err.p, last) && !strstr(x->err.p, "/row:")
				    ? "it does not name the file"
			    : x->mib > MEMORY_MIB ? "too much memory"
						  : NULL;
	for (size_t i = 0; !wrong && i + 1 < x->err.n; i++)
		if ((unsigned char)x->err.p[i] < 0x20 || (unsigned char)x->err.p[i] == 0x9b)
			wrong = "a control character";
	if (wrong)
		print_error("%d '%s': %s: status %d, signal %d, %.2f s, %ld MiB, '%s'\n%.2000s",
			    (int)r->kind, r->name, wrong, x->status, x->signal, x->seconds, x->mib,
			    r->want, x->err.n ? x->err.p : "(nothing)\n");
	most_mib = x->mib > most_mib ? x->mib : most_mib;
	most_seconds = x->seconds > most_seconds ? x->seconds : most_seconds;
	buf_release(&x->out);
	buf_release(&x->err);
	return !wrong;
}

#define RUN(...) call((const char *const[]){ __VA_ARGS__, NULL })

static bool one(const struct row *r, const char *dir)
{
	static const char *const names[] = { [SAFETENSORS] = "x.safetensors",
					     [GGUF] = "x.gguf",
					     [CONFIG] = "config.json",
					     [INDEX] = "model.safetensors.index.json",
					     [TOKENIZER] = "tokenizer.json",
					     [ADAPTER] = "adapter_config.json",
					     [WEIGHTS] = "adapter_model.safetensors",
					     [STATE] = "trainer_state.json",
					     [PROFILE] = "profile.json",
					     [PLAN] = "plan.json",
					     [DATA] = "data.jsonl",
					     [KEY] = "key",
					     [YAML] = "config.yaml" };
	char path[400], other[400], model[400];
	struct end x;
	snprintf(path, sizeof path, "%s/%s", dir, names[r->kind]);
	snprintf(other, sizeof other, "%s/other", dir);
	snprintf(model, sizeof model, "%s", repository(MODEL));
	if (r->kind == CONFIG || r->kind == INDEX || r->kind == TOKENIZER)
		model_without(dir, names[r->kind]);
	make_file(path, r);
	switch (r->kind) {
	case CONFIG:
		x = RUN("generate", dir, "--raw", "--prompt", "x", "--device", "cpu");
		break;
	case TOKENIZER:
		x = RUN("tokenize", dir);
		break;
	case ADAPTER:
		snprintf(other, sizeof other, "%s/adapter_model.safetensors", dir);
		write_content(
			other,
			&(struct row){ .kind = WEIGHTS, .c = TEXT(GOOD_WEIGHTS), .data = 16 });
		x = RUN("info", dir);
		break;
	case WEIGHTS:
		snprintf(other, sizeof other, "%s/adapter_config.json", dir);
		scratch_text(other, "{" LORA ",\"r\":1}");
		x = RUN("info", dir);
		break;
	case INDEX:
		x = RUN("info", dir);
		break;
	case STATE:
		snprintf(other, sizeof other, "%s/job.yaml", dir);
		scratch_text(
			other,
			"base_model: %s\ndatasets: %s/data.jsonl\nadapter: lora\nsequence_len: 64\n"
			"profile: none\noutput_dir: %s/run\nresume_from_checkpoint: %s\n",
			model, dir, dir, dir);
		snprintf(path, sizeof path, "%s/data.jsonl", dir);
		scratch_text(path, "{\"text\": \"some text\"}\n");
		snprintf(path, sizeof path, "%s/trainer_state.json", dir);
		x = RUN("train", "-q", other);
		break;
	case PLAN:
		scratch_text(other, "%s", GOOD_PROFILE);
		x = RUN("plan", "--profile", other, "--plan", path);
		break;
	case PROFILE:
		x = RUN("plan", "--profile", path);
		break;
	case DATA:
		x = RUN("eval", model, "--data", path, "--device", "cpu");
		break;
	case KEY:
		x = RUN("keygen", "--show", path);
		break;
	case YAML:
		x = RUN("train", path);
		break;
	default:
		x = RUN("info", path);
	}
	return check_end(r, path, &x);
}

static void every_row(void **state)
{
	(void)state;
	struct err e;
	char dir[256];
	size_t bad = 0;
	snprintf(dir, sizeof dir, "%s", scratch("row"));
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_true(dir_remove(dir, &e) >= 0 && dir_make(dir, &e) >= 0);
		bad += !one(&rows[i], dir);
	}
	print_message("# %zu hostile files: at most %.2f s, %ld MiB\n", ARRAY_LEN(rows),
		      most_seconds, most_mib);
	assert_int_equal(bad, 0);
}

/* ---- one file of an adapter or a checkpoint is no file ---- */

enum use { INFO, GENERATE, MERGE, RESUME, USES };

/* An adapter, or a checkpoint whose trainer_state.json names this file. */
static void write_folder(const char *dir, enum use use, const char *name)
{
	char path[400];
	struct buf b = BUF_INIT;
	if (use == RESUME) {
		buf_addf(&b,
			 "{\"version\": 2, \"step\": 1, \"files\": {\"%s\": {\"bytes\": 1000, "
			 "\"hash\": \"%064d\"}}",
			 name, 0);
		checkpoint_seal(&b);
		snprintf(path, sizeof path, "%s/trainer_state.json", dir);
		scratch_write(path, b.p, b.n);
		buf_release(&b);
		snprintf(path, sizeof path, "%s/data.jsonl", dir);
		scratch_text(path, "{\"text\": \"some text\"}\n");
		snprintf(path, sizeof path, "%s/job.yaml", dir);
		scratch_text(path,
			     "base_model: %s\ndatasets: %s/data.jsonl\nadapter: lora\n"
			     "sequence_len: 64\nprofile: none\noutput_dir: %s/run\n"
			     "resume_from_checkpoint: %s\n",
			     repository(MODEL), dir, dir, dir);
		return;
	}
	snprintf(path, sizeof path, "%s/adapter_config.json", dir);
	scratch_text(path, "{" LORA ",\"r\":1}");
	snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
	write_content(path, &(struct row){ .kind = WEIGHTS, .c = TEXT(GOOD_WEIGHTS), .data = 16 });
}

static struct end use_folder(const char *dir, enum use use)
{
	char model[400], other[400];
	snprintf(model, sizeof model, "%s", repository(MODEL));
	snprintf(other, sizeof other, "%s/%s", dir, use == RESUME ? "job.yaml" : "merged");
	switch (use) {
	case INFO:
		return RUN("info", dir);
	case GENERATE:
		return RUN("generate", model, "--adapter", dir, "--raw", "--prompt", "x",
			   "--device", "cpu");
	case MERGE:
		return RUN("merge", "-q", model, dir, other);
	default:
		return RUN("train", "-q", other);
	}
}

static void no_file_in_a_folder(void **state)
{
	(void)state;
	static const char *const name[][2] = {
		[INFO] = { "adapter_config.json", "adapter_model.safetensors" },
		[GENERATE] = { "adapter_config.json", "adapter_model.safetensors" },
		[MERGE] = { "adapter_config.json", "adapter_model.safetensors" },
		[RESUME] = { "optimizer.safetensors", "adapter_model.safetensors" },
	};
	struct err e;
	char dir[256], path[400], text[100];
	size_t bad = 0;
	snprintf(dir, sizeof dir, "%s", scratch("folder"));
	for (enum special what = PIPE; what <= HOLLOW; what++)
		for (int k = 0; k < 2 * USES; k++) {
			const enum use use = (enum use)(k / 2);
			assert_true(dir_remove(dir, &e) >= 0 && dir_make(dir, &e) >= 0);
			write_folder(dir, use, name[use][k % 2]);
			snprintf(path, sizeof path, "%s/%s", dir, name[use][k % 2]);
			snprintf(text, sizeof text, "%s, special %d, use %d", name[use][k % 2],
				 what, use);
			const struct row r = { .name = text, .want = "", .special = what };
			unlink(path);
			make_file(path, &r);
			struct end x = use_folder(dir, use);
			bad += !check_end(&r, path, &x);
		}
	assert_int_equal(bad, 0);
}

/* What says of which model pissa's base was made is a pipe. */
static void a_pipe_for_a_mark(void **state)
{
	(void)state;
	const struct row r = { .name = "pissa.json", .want = "is not whole", .special = PIPE };
	struct err e;
	char dir[256], made[300], path[400];
	snprintf(dir, sizeof dir, "%s", scratch("row"));
	snprintf(made, sizeof made, "%s/run-pissa", dir);
	assert_true(dir_remove(dir, &e) >= 0 && dir_make(made, &e) >= 0);
	snprintf(path, sizeof path, "%s/pissa.json", made);
	make_file(path, &r);
	snprintf(path, sizeof path, "%s/data.jsonl", dir);
	scratch_text(path, "{\"text\": \"some text\"}\n");
	snprintf(path, sizeof path, "%s/job.yaml", dir);
	scratch_text(path,
		     "base_model: %s\ndatasets: %s/data.jsonl\nadapter: lora\nsequence_len: 64\n"
		     "profile: none\noutput_dir: %s/run\npeft_init_lora_weights: pissa\n",
		     repository(MODEL), dir, dir);
	struct end x = RUN("train", "-q", path);
	assert_true(check_end(&r, made, &x));
}

/* A large but valid file is shown within the same limits: 300,000 tensors, row by row. */
static void a_long_list(void **state)
{
	(void)state;
	enum { TENSORS = 300000 };
	char path[300];
	snprintf(path, sizeof path, "%s", scratch("long.safetensors"));
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	uint64_t n = 0;
	fwrite(&n, 1, 8, f);
	putc('{', f);
	for (int i = 0; i < TENSORS; i++)
		fprintf(f, "%s\"layers.%d.weight\":" FIELD("F32", "[1,1]", "[%d,%d]"), i ? "," : "",
			i, 4 * i, 4 * i + 4);
	putc('}', f);
	n = (uint64_t)ftell(f) - 8;
	assert_int_equal(ftruncate(fileno(f), (off_t)(8 + n + 4 * TENSORS)), 0);
	rewind(f);
	fwrite(&n, 1, 8, f);
	assert_int_equal(fclose(f), 0);
	for (int json = 0; json < 2; json++) {
		struct end x = json ? RUN("info", "--tensors", "--json", path)
				    : RUN("info", "--tensors", path);
		if (x.status || x.mib > MEMORY_MIB)
			fail_msg("status %d, %ld MiB: %s", x.status, x.mib, x.err.p);
		buf_release(&x.out);
		buf_release(&x.err);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row),
		cmocka_unit_test(no_file_in_a_folder),
		cmocka_unit_test(a_pipe_for_a_mark),
		cmocka_unit_test(a_long_list),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
