/* SPDX-License-Identifier: Apache-2.0 */
/* Data of preferences: every type with its prompt, its answers and its marks; records that lack a
 * column, by file, place and key; sequences that are too long; how rows become microbatches, and
 * which answer KTO compares with. With a tokenizer of bytes. */
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/batch.h"
#include "support/fake_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const struct tokenizer tok = { 0 };
static const struct chat_template fake = { .name = "fake", .tools = true };
static char dir[64];

static int load_as(struct dataset_source src, const char *text, enum prefer_data prefer,
		   int64_t len, struct dataset **d_p, struct err *e)
{
	struct dataset_options o = {
		.tok = &tok, .chat = &fake, .sequence_len = len, .prefer = prefer
	};
	char path[128];
	snprintf(path, sizeof path, "%s/f", dir);
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	for (const char *c = text; *c; c++)
		fputc(*c == '\'' ? '"' : *c, f);
	assert_int_equal(fclose(f), 0);
	src.path = path;
	*e = (struct err){ 0 };
	*d_p = NULL;
	return dataset_load(&src, 1, &o, d_p, e);
}

static void show_ids(struct buf *b, const int32_t *id, uint32_t n, uint32_t answer)
{
	for (uint32_t k = 0; k < n; k++) {
		if (k == answer)
			buf_addc(b, '[');
		if (id[k] < 256)
			buf_addc(b, (char)id[k]);
		else if (id[k] >= FAKE_TURN)
			buf_addf(b, "%c:", "suat"[id[k] - FAKE_TURN]);
		else
			buf_addc(b, "^$|&"[id[k] - FAKE_BOS]);
	}
	buf_addc(b, ']');
}

/* "u:question|a:[chosen|] u:question|a:[rejected|]", of a single one "+" or "-" behind it. */
static void show(const struct dataset *d, size_t i, struct buf *b)
{
	struct example x = dataset_get(d, i);
	buf_reset(b);
	show_ids(b, x.id, x.cut, x.answer[0]);
	if (dataset_prefer(d) == PREFER_SINGLE) {
		assert_int_equal(x.n, x.cut);
		buf_addc(b, x.good ? '+' : '-');
	} else {
		buf_addc(b, ' ');
		show_ids(b, x.id + x.cut, x.n - x.cut, x.answer[1]);
	}
	buf_addc(b, 0);
}

static void kinds(void **state)
{
	(void)state;
	const struct dataset_source none = { 0 };
	const struct {
		struct dataset_source src;
		enum prefer_data prefer;
		const char *record, *want;
	} row[] = {
		{ { .type = "chat_template.default" },
		  PREFER_PAIRS,
		  "{'messages':[{'role':'system','content':'S'},{'role':'user','content':'q'}],"
		  "'chosen':{'role':'assistant','content':'yes'},'rejected':'no'}",
		  "s:S|u:q|a:[yes|] s:S|u:q|a:[no|]" },
		{ { .type = "chat_template.argilla_chat" },
		  PREFER_PAIRS,
		  "{'chosen':[{'role':'user','content':'q'},{'role':'assistant','content':'y'}],"
		  "'rejected':[{'role':'user','content':'q'},{'role':'assistant','content':'n'}]}",
		  "u:q|a:[y|] u:q|a:[n|]" },
		/* what an answer has beside its text */
		{ { .type = "chat_template.default" },
		  PREFER_PAIRS,
		  "{'messages':'q','chosen':[{'role':'assistant','content':'y','reasoning_content'"
		  ":'why, '}],'rejected':{'role':'assistant','tool_calls':[{'name':'f'}]}}",
		  "u:q|a:[why, y|] u:q|a:[f|]" },
		/* answers of several turns behind a prompt */
		{ { .type = "auto" },
		  PREFER_PAIRS,
		  "{'prompt':[{'role':'user','content':'q'}],'chosen':[{'role':'assistant',"
		  "'tool_calls':[{'name':'f'}]},{'role':'tool','content':'2'},{'role':'assistant',"
		  "'content':'y'}],'rejected':[{'role':'assistant','content':'n'}]}",
		  "u:q|a:[f|t:2|a:y|] u:q|a:[n|]" },
		{ { .type = "fake.ultra" },
		  PREFER_PAIRS,
		  "{'prompt':'q','chosen':[{'role':'assistant','content':'y'}],'rejected':[{'role':"
		  "'assistant','content':'n'},{'role':'user','content':'?'},{'from':'gpt','value':"
		  "'m'}]}",
		  "u:q|a:[y|] u:q|a:[n|u:?|a:m|]" },
		/* without a prompt of their own: what both lists begin with */
		{ { .type = "auto" },
		  PREFER_PAIRS,
		  "{'chosen':[{'role':'user','content':'q','score':1},{'role':'assistant',"
		  "'tool_calls':[{'name':'f'}]},{'role':'tool','content':'2'},{'role':'assistant',"
		  "'content':'y'}],'rejected':[{'role':'user','content':'q','score':2},{'role':"
		  "'assistant','content':'n'}]}",
		  "u:q|a:[f|t:2|a:y|] u:q|a:[n|]" },
		{ { .type = "auto" },
		  PREFER_PAIRS,
		  "{'prompt':'z','chosen':[{'role':'user','content':'q'},{'role':'assistant',"
		  "'content':'y'},{'role':'user','content':'?'},{'role':'assistant','content':"
		  "'Y'}],'rejected':[{'role':'user','content':'q'},{'role':'assistant','content':"
		  "'n'},{'role':'user','content':'?'},{'role':'assistant','content':'N'}]}",
		  "u:q|a:[y|u:?|a:Y|] u:q|a:[n|u:?|a:N|]" },
		{ { .type = "fake.intel" },
		  PREFER_PAIRS,
		  "{'system':'S','question':'q','chosen':'y','rejected':'n'}",
		  "s:S|u:q|a:[y|] s:S|u:q|a:[n|]" },
		{ { .type = "fake.icr" },
		  PREFER_PAIRS,
		  "{'system':'','input':'q','chosen':'y','rejected':'n','question':'x'}",
		  "u:q|a:[y|] u:q|a:[n|]" },
		{ { .type = "fake.argilla" },
		  PREFER_PAIRS,
		  "{'instruction':'q','chosen_response':'y','rejected_response':'n'}",
		  "u:q|a:[y|] u:q|a:[n|]" },
		{ { .type = "fake.ultra" },
		  PREFER_PAIRS,
		  "{'prompt':'q','chosen':[{'role':'user','content':'z'},{'role':'assistant',"
		  "'content':'y'}],'rejected':[{'content':'n'}]}",
		  "u:q|a:[y|] u:q|a:[n|]" },
		{ { .type = "chat_template.argilla" },
		  PREFER_PAIRS,
		  "{'prompt':'z','chosen':[{'role':'user','content':'q'},{'role':'assistant',"
		  "'content':'y'}],'rejected':[{'content':'n'}]}",
		  "u:q|a:[y|] u:q|a:[n|]" },
		{ { .type = "passthrough.default" },
		  PREFER_PAIRS,
		  "{'prompt':'Q: ','chosen':'y','rejected':'n'}",
		  "^Q: [y$] ^Q: [n$]" },
		{ { .type = "passthrough.default" },
		  PREFER_PAIRS,
		  "{'prompt':'<^>Q<$>','chosen':'y<$>','rejected':'n'}",
		  "^Q$[y$] ^Q$[n$]" },
		/* a token spans the border to one of them */
		{ { .type = "passthrough.default" },
		  PREFER_PAIRS,
		  "{'prompt':'Q_','chosen':'c','rejected':'n'}",
		  "^Q[&$] ^Q[_n$]" },
		{ { .type = "user_defined.default",
		    .field[FIELD_PROMPT] = "ask",
		    .prompt_format = "<{system}>{prompt}>",
		    .chosen_format = "={chosen}" },
		  PREFER_PAIRS,
		  "{'ask':'q','system':'S','chosen':'y','rejected':'n'}",
		  "^<S>q>[=y$] ^<S>q>[n$]" },
		{ none, PREFER_PAIRS, "{'prompt':'q','chosen':'y','rejected':'n'}",
		  "u:q|a:[y|] u:q|a:[n|]" },
		{ { .type = "fake.argilla" },
		  PREFER_SINGLE,
		  "{'instruction':'q','completion':'y','label':true}",
		  "u:q|a:[y|]+" },
		{ { .type = "fake.argilla_chat" },
		  PREFER_SINGLE,
		  "{'completion':[{'role':'user','content':'q'},{'role':'assistant','content':"
		  "'y'}],'label':'False'}",
		  "u:q|a:[y|]-" },
		{ { .type = "fake.ultra", .field[FIELD_LABEL] = "ok" },
		  PREFER_SINGLE,
		  "{'prompt':'q','completion':'y','ok':0.0}",
		  "u:q|a:[y|]-" },
	};
	struct buf b = BUF_INIT;
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		struct dataset *d;
		struct err e;
		if (load_as(row[i].src, row[i].record, row[i].prefer, 100, &d, &e))
			fail_msg("row %zu: %s", i, e.msg);
		show(d, 0, &b);
		assert_string_equal(b.p, row[i].want);
		dataset_free(d);
	}
	buf_release(&b);
}

#define GOOD "{'question':'q','chosen':'y','rejected':'n'}\n"

static void complaints(void **state)
{
	(void)state;
	const struct {
		const char *type;
		enum prefer_data prefer;
		const char *text, *want; /* behind the folder */
	} row[] = {
		{ "fake.intel", PREFER_PAIRS, GOOD "{'question':'q','chosen':'y'}",
		  "f:2: rejected: is missing; a string was expected" },
		{ "fake.intel", PREFER_PAIRS, GOOD "{'question':'q','rejected':'y'}",
		  "f:2: chosen: is missing; a string was expected" },
		{ "fake.intel", PREFER_PAIRS, GOOD "{'chosen':'y','rejected':'n'}",
		  "f:2: question: is missing; a string was expected" },
		{ "fake.intel", PREFER_PAIRS, "{'question':'q','chosen':' ','rejected':'n'}",
		  "f:1: chosen: the answer is empty" },
		{ "fake.ultra", PREFER_PAIRS,
		  "{'prompt':'q','chosen':{'content':'y','tool_calls':[{'name':'f'}]},'rejected':"
		  "'n'}",
		  "f:1: chosen: tool_calls: the chat template 'fake' does not show them" },
		{ "fake.intel", PREFER_PAIRS, "{'question':'q','chosen':[],'rejected':'n'}",
		  "f:1: chosen: must be a text or a list of turns" },
		{ "fake.ultra", PREFER_PAIRS, "{'prompt':'q','chosen':[{'role':'x'}]}",
		  "f:1: chosen: content: is missing; a string was expected" },
		{ "fake.ultra", PREFER_PAIRS, "{'prompt':3,'chosen':'y','rejected':'n'}",
		  "f:1: prompt: must be a string, not a number" },
		{ "auto", PREFER_PAIRS,
		  "{'chosen':[{'role':'user','content':'q'},{'role':'user','content':'y'}],"
		  "'rejected':[{'role':'user','content':'q'},{'role':'user','content':'n'}]}",
		  "f:1: chosen: the answer is a turn of 'user'; one of the assistant was " },
		{ "auto", PREFER_PAIRS,
		  "{'chosen':[{'role':'user','content':'q'},{'role':'assistant','content':'y'}],"
		  "'rejected':[{'role':'user','content':'r'},{'role':'assistant','content':'n'}]}",
		  "f:1: rejected[0]: is not as in 'chosen'; a pair has one prompt, and only " },
		{ "passthrough.default", PREFER_PAIRS, "{'chosen':'y','rejected':'n'}",
		  "f:1: prompt: is missing; a string was expected" },
		{ "auto", PREFER_PAIRS, "{'text':'plain'}",
		  "f:1: chosen: is missing; a string was expected" },
		{ "fake.argilla", PREFER_SINGLE, "{'instruction':'q','completion':'y'}",
		  "f:1: label: is missing; true or false was expected" },
		{ "fake.argilla", PREFER_SINGLE, "{'instruction':'q','label':true}",
		  "f:1: completion: is missing; a string was expected" },
		{ "alpaca", PREFER_PAIRS, GOOD,
		  "f: 'alpaca' is no type of preference data (rl): auto, passthrough.default, " },
		{ "fake.nectar", PREFER_PAIRS, GOOD, "f: 'fake.nectar' is no type of preference" },
		{ "nowhere.intel", PREFER_PAIRS, GOOD, "f: 'nowhere.intel' is no type of " },
		{ "fake.intel", PREFER_PAIRS,
		  "{'question':'a question that does not fit','chosen':'y','rejected':'n'}",
		  "f: no tokens are left to train: of 1 records 1 were longer than " },
	};
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		struct dataset *d;
		struct err e;
		const struct dataset_source src = { .type = row[i].type };
		const size_t head = strlen(dir) + 1;
		if (load_as(src, row[i].text, row[i].prefer, 20, &d, &e) >= 0)
			fail_msg("row %zu (%s) was not refused", i, row[i].want);
		if (strncmp(e.msg, dir, head - 1) ||
		    strncmp(e.msg + head, row[i].want, strlen(row[i].want)))
			fail_msg("row %zu: '%s', expected '%s'", i, e.msg, row[i].want);
	}
}

static char warning[300];

static void keep_warning(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	snprintf(warning, sizeof warning, "%s", line);
}

static void same_answers(void **state)
{
	(void)state;
	const struct dataset_source src = { .type = "fake.intel" };
	struct dataset *d;
	struct err e;
	log_set_sink(keep_warning, NULL, LOG_WARN);
	assert_int_equal(load_as(src, GOOD, PREFER_PAIRS, 20, &d, &e), 0);
	dataset_free(d);
	assert_string_equal(warning, "");
	assert_int_equal(load_as(src,
				 GOOD "{'question':'q','chosen':'y','rejected':'y'}\n"
				      "{'question':'r','chosen':'n','rejected':'n'}",
				 PREFER_PAIRS, 20, &d, &e),
			 0);
	dataset_free(d);
	log_set_sink(NULL, NULL, LOG_WARN);
	assert_string_equal(warning + strlen(dir),
			    "/f:2: rejected: is the same text as 'chosen', which teaches no "
			    "preference (so it is in 2 of 3 records)");
}

/* ---- microbatches ---- */

static void show_rows(const struct microbatch *m, struct buf *b)
{
	buf_reset(b);
	assert_int_equal(m->nseq, 2 * m->nrows);
	uint32_t trained = 0;
	for (uint32_t i = 0; i < m->n; i++)
		trained += m->label[i] >= 0;
	assert_int_equal(trained, m->trained);
	for (uint32_t s = 0; s < m->nseq; s++) {
		const int32_t from = m->start[s], n = m->start[s + 1] - from,
			      answer = m->pairs->answer[s] - from + 1;
		if (s % 2 == 0)
			assert_int_equal(m->row[s / 2], from);
		for (int32_t i = 0; i < n; i++) {
			assert_int_equal(m->pos[from + i], i);
			if (i + 1 < n && i + 1 >= answer)
				assert_int_equal(m->label[from + i], m->id[from + i + 1]);
		}
		assert_int_equal(m->label[from + n - 1], -100);
		show_ids(b, m->id + from, (uint32_t)n, (uint32_t)answer);
		buf_addc(b, ' ');
	}
	buf_addc(b, 0);
}

static struct batches *make(const struct dataset *d, int64_t rows, bool prompts)
{
	const struct batch_options o = { .sequence_len = 20,
					 .micro_batch_size = rows,
					 .accumulation = 1,
					 .prompt_labels = prompts };
	struct batches *b;
	struct err e = { 0 };
	if (batches_new(d, &o, &b, &e))
		fail_msg("%s", e.msg);
	return b;
}

static const struct microbatch *get(struct batches *b, uint64_t i)
{
	const struct microbatch *m;
	size_t n;
	struct err e = { 0 };
	assert_int_equal(batches_get(b, 0, i, &m, &n, &e), 0);
	assert_int_equal(n, 1);
	return m;
}

static void pairs_in_rows(void **state)
{
	(void)state;
	struct dataset *d;
	struct err e;
	struct buf b = BUF_INIT;
	const struct dataset_source src = { .type = "fake.intel" };
	assert_int_equal(load_as(src, GOOD GOOD GOOD, PREFER_PAIRS, 20, &d, &e), 0);
	struct batches *x = make(d, 2, false), *prompts = make(d, 2, true);
	const struct microbatch *m = get(x, 0);
	show_rows(m, &b);
	assert_string_equal(b.p, "u:q|a:[y|] u:q|a:[n|] u:q|a:[y|] u:q|a:[n|] ");
	assert_int_equal(m->trained, 8);
	m = get(x, 1); /* the rest */
	show_rows(m, &b);
	assert_string_equal(b.p, "u:q|a:[y|] u:q|a:[n|] ");
	/* only the prompt of the chosen one */
	m = get(prompts, 1);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(m->label[i], m->id[i + 1]);
		assert_int_equal(m->label[m->start[1] + i], -100);
	}
	batches_free(x);
	batches_free(prompts);
	dataset_free(d);
	buf_release(&b);
}

/* The second sequence has the answer of the row before; that of the first row is the last one's. */
static void answers_of_others(void **state)
{
	(void)state;
	struct dataset *d;
	struct err e;
	struct buf b = BUF_INIT;
	const struct dataset_source src = { .type = "fake.prompt_pairs" };
	const char *text = "{'prompt':'p1','completion':'a1','label':true}\n"
			   "{'prompt':'p2','completion':'a2','label':false}\n"
			   "{'prompt':'p3','completion':'a3','label':true}\n";
	assert_int_equal(load_as(src, text, PREFER_SINGLE, 20, &d, &e), 0);
	struct batches *x = make(d, 3, false);
	const struct microbatch *m = get(x, 0);
	show_rows(m, &b);
	for (uint32_t r = 0; r < 3; r++) {
		const char own = (char)m->id[m->start[2 * r] + 2],
			   before = (char)m->id[m->start[2 * ((r + 2) % 3)] + 2];
		const int32_t *other = m->id + m->pairs->answer[2 * r + 1] + 1;
		assert_int_equal(m->id[m->start[2 * r + 1] + 2], own);
		assert_int_equal(other[0], 'a');
		assert_int_equal(other[1], before);
		assert_int_equal(m->pairs->good[r], own != '2');
	}
	batches_free(x);
	dataset_free(d);
	buf_release(&b);
}

static void refuses_packing(void **state)
{
	(void)state;
	struct dataset *d;
	struct batches *b;
	struct err e;
	const struct dataset_source src = { .type = "fake.intel" };
	const struct batch_options o = {
		.sequence_len = 20, .micro_batch_size = 1, .accumulation = 1, .sample_packing = true
	};
	assert_int_equal(load_as(src, GOOD, PREFER_PAIRS, 20, &d, &e), 0);
	assert_true(batches_new(d, &o, &b, &e) < 0);
	assert_string_equal(e.msg, "sample_packing is not possible with preferences");
	dataset_free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kinds),           cmocka_unit_test(complaints),
		cmocka_unit_test(pairs_in_rows),   cmocka_unit_test(answers_of_others),
		cmocka_unit_test(refuses_packing), cmocka_unit_test(same_answers),
	};
	strcpy(dir, "/tmp/hs-prefer-XXXXXX");
	if (!mkdtemp(dir))
		return 1;
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	char path[128];
	snprintf(path, sizeof path, "%s/f", dir);
	unlink(path);
	rmdir(dir);
	return rc;
}
