/* SPDX-License-Identifier: Apache-2.0 */
/* A data file from anywhere, through every kind: it is read or refused with one line; what was read
 * keeps its promises, and skipping bad records reads at least as much as refusing them. The first
 * byte chooses kind and options. */
#include "base/err.h"
#include "data/batch.h"
#include "support/fake_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_examples(const struct dataset *d, int64_t sequence_len)
{
	uint64_t tokens = 0, trained = 0;
	for (size_t i = 0; i < dataset_count(d); i++) {
		struct example x = dataset_get(d, i);
		uint32_t marked = 0;
		for (uint32_t k = 0; k < x.n; k++)
			marked += x.train[k];
		const bool pairs = dataset_prefer(d);
		if (x.n < 2 || x.n > sequence_len * (1 + pairs) || x.train[0] || !marked ||
		    marked != x.trained)
			abort();
		if (pairs && (x.cut > sequence_len || x.n - x.cut > sequence_len || !x.answer[0] ||
			      x.answer[0] >= x.cut || !x.train[x.cut - 1]))
			abort();
		if (dataset_prefer(d) == PREFER_PAIRS &&
		    (!x.answer[1] || x.answer[1] >= x.n - x.cut || !x.train[x.n - 1]))
			abort();
		tokens += x.n;
		trained += x.trained;
	}
	if (tokens != dataset_stats(d)->tokens || trained != dataset_stats(d)->trained)
		abort();
}

static void check_batches(const struct dataset *d, int64_t sequence_len, bool packing)
{
	struct batch_options o = { .sequence_len = sequence_len,
				   .micro_batch_size = 2,
				   .accumulation = 2,
				   .sample_packing = packing };
	struct batches *b;
	struct err e = { 0 };
	if (batches_new(d, &o, &b, &e) < 0)
		abort();
	uint64_t trained = 0;
	for (uint64_t i = 0; i < batches_per_epoch(b, 0); i++) {
		const struct microbatch *m;
		size_t nmb;
		if (batches_get(b, 0, i, &m, &nmb, &e) < 0)
			abort();
		for (size_t k = 0; k < nmb; k++)
			trained += m[k].trained;
	}
	/* those of single answers are compared with others too */
	if (dataset_prefer(d) == PREFER_SINGLE ? trained < dataset_stats(d)->trained
					       : trained != dataset_stats(d)->trained)
		abort();
	batches_free(b);
}

/* Ways in which a configuration describes the file. */
enum { PLAIN, RENAMED, FORMATTED, COMMAS, TABS, PARTS };

/* Kind number `kind`: a key of another one that is renamed would have to be in every record. */
static bool has_key(unsigned kind, int field)
{
	const bool turns = field >= FIELD_ROLE;
	switch (kind) {
	case 1: /* messages, ShareGPT */
	case 2:
		return field == FIELD_MESSAGES || field == FIELD_TOOLS || turns;
	case 3: /* alpaca */
		return field <= FIELD_SYSTEM;
	case 4: /* completion */
		return field == FIELD_PROMPT || field == FIELD_COMPLETION || turns;
	case 5:
		return field == FIELD_TEXT;
	default:
		return turns;
	}
}

static void describe(struct dataset_source *src, unsigned form, unsigned kind)
{
	static const char *const keys[FIELD_COUNT] = { "q", "i", "a", "s", "m", "o", "t", "p",
						       "y", "n", "w", "l", "r", "c", "d" };
	for (int i = 0; form == RENAMED && i < FIELD_COUNT; i++)
		src->field[i] = has_key(kind, i) ? keys[i] : NULL;
	if (form == FORMATTED) {
		src->format = "{system}: {instruction} {input} {";
		src->system_format = "<{system}>";
		src->system_prompt = "short";
	}
	if (form == PARTS) {
		src->weight = 1.5;
		src->split = "train[:50%]";
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char *const kind[] = { "auto",   "messages",   "sharegpt",
					    "alpaca", "completion", "text" };
	static const struct tokenizer tok = { 0 };
	static const struct chat_template chat[] = { { .name = "fake", .tools = true },
						     { .name = "alpaca" } };
	if (!n)
		return 0;
	uint8_t choice = data[0];
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	char path[32];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (fd < 0 || write(fd, data + 1, n - 1) != (ssize_t)(n - 1))
		abort();

	struct dataset_options o = { .tok = &tok,
				     .chat = &chat[choice & 1],
				     .sequence_len = choice & 2 ? 16 : 4096,
				     .train_on_inputs = choice & 4 };
	/* the last eight choices are preferences */
	static const char *const preference[] = { "auto", "fake.default", "fake.argilla",
						  "passthrough.default" };
	const bool prefer = choice >> 3 == 31;
	const unsigned form = prefer ? PLAIN : (choice >> 3) / 6;
	char table[64];
	struct dataset_source src = { .path = path, .type = kind[(choice >> 3) % 6] };
	describe(&src, form, (choice >> 3) % 6);
	if (prefer) {
		o = (struct dataset_options){ .tok = &tok, .chat = &chat[0], .sequence_len = 40 };
		o.prefer = choice & 2 ? PREFER_SINGLE : PREFER_PAIRS;
		src.type = preference[(choice & 1) + (choice & 4) / 2];
		if ((choice & 5) == 5) { /* of passthrough.default */
			src.prompt_format = "{system}: {prompt} ";
			if (choice & 2) {
				src.completion_format = "{completion}.";
			} else {
				src.chosen_format = "{chosen}.";
				src.rejected_format = "{rejected} {prompt}";
			}
		}
	}
	if (form == COMMAS || form == TABS) {
		snprintf(table, sizeof table, "/dev/shm/hs-fuzz-%d.%s", (int)getpid(),
			 form == COMMAS ? "csv" : "tsv");
		unlink(table);
		if (symlink(path, table) == 0)
			src.path = table;
	}
	struct dataset *d;
	struct err e = { 0 };
	int rc = dataset_load(&src, 1, &o, &d, &e);
	if (rc < 0) {
		if (!e.msg[0] || strchr(e.msg, '\n') || rc != e.code || rc == ERR_INTERNAL)
			abort();
	} else {
		check_examples(d, o.sequence_len);
		check_batches(d, o.sequence_len, !prefer && choice & 1);
	}
	o.skip_bad_records = true;
	struct dataset *skipped = NULL;
	int rc_skip = dataset_load(&src, 1, &o, &skipped, &e);
	if (rc == 0 && (rc_skip < 0 || dataset_digest(skipped) != dataset_digest(d)))
		abort();
	if (rc_skip == 0)
		dataset_free(skipped);
	if (rc == 0)
		dataset_free(d);
	if (src.path == table)
		unlink(table);
	close(fd);
	return 0;
}
