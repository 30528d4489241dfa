/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets: every kind with its marks, every form of file, every kind of bad record (file, place,
 * key, reason), cutting, skipping, and what happens when memory runs out. With a tokenizer of
 * bytes, so that examples can be read as text. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "data/dataset.h"
#include "data/fields.h"
#include "support/fake_tokenizer.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const struct tokenizer tok = { 0 };
static const struct chat_template fake = { .name = "fake" }, stanford = { .name = "alpaca" };
static char dir[64];

static struct dataset_options options(void)
{
	return (struct dataset_options){ .tok = &tok, .chat = &fake, .sequence_len = 1 << 20 };
}

static const char *put(const char *name, const char *text, size_t n)
{
	static char path[128];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
	return path;
}

static int load(const char *name, const char *text, const char *type,
		const struct dataset_options *o, struct dataset **d_p, struct err *e)
{
	struct dataset_source src = { .path = put(name, text, strlen(text)), .type = type };
	*e = (struct err){ 0 };
	*d_p = NULL;
	return dataset_load(&src, 1, o, d_p, e);
}

static struct dataset *must(const char *name, const char *text, const char *type,
			    const struct dataset_options *o)
{
	struct dataset *d;
	struct err e;
	if (load(name, text, type, o, &d, &e))
		fail_msg("%s", e.msg);
	return d;
}

/* Writes an example as text: trained parts in [ ], BOS as ^, EOS as $, end of turn as |, the turns
 * as s: u: a: t: */
static void show(const struct dataset *d, size_t i, struct buf *b)
{
	struct example x = dataset_get(d, i);
	uint32_t trained = 0;
	buf_reset(b);
	for (uint32_t k = 0; k < x.n; k++) {
		if (x.train[k] && (!k || !x.train[k - 1]))
			buf_addc(b, '[');
		if (x.id[k] < 256)
			buf_addc(b, (char)x.id[k]);
		else if (x.id[k] >= FAKE_TURN)
			buf_addf(b, "%c:", "suat"[x.id[k] - FAKE_TURN]);
		else
			buf_addc(b, "^$|&"[x.id[k] - FAKE_BOS]);
		if (x.train[k] && (k + 1 == x.n || !x.train[k + 1]))
			buf_addc(b, ']');
		trained += x.train[k];
	}
	assert_int_equal(trained, x.trained);
	assert_false(x.train[0]);
}

static void kinds(void **state)
{
	(void)state;
	struct dataset_options o = options(), inputs = options(), alpaca = options();
	inputs.train_on_inputs = true;
	alpaca.chat = &stanford;
	const struct {
		const struct dataset_options *o;
		const char *type, *record, *want;
	} row[] = {
		{ &o, "messages",
		  "{'messages':[{'role':'user','content':'hi'},{'role':'assistant','content':'yo'}]"
		  "}",
		  "u:hi|a:[yo|]" },
		{ &o, "messages",
		  "{'messages':[{'role':'developer','content':'S'},{'role':'user','content':[{'"
		  "type':'text','text':'a'},{'type':'"
		  "text','text':'b'}]},"
		  "{'role':'assistant','content':'1','train':false},{'role':'tool','content':'r'},{"
		  "'role':'assistant','content':'2'"
		  "}]}",
		  "s:S|u:ab|a:1|t:r|a:[2|]" },
		{ &o, "messages",
		  "{'messages':[{'role':'user','content':'q','train':true},{'role':'assistant','"
		  "content':'x','weight':0},"
		  "{'role':'assistant','content':'y','weight':1,'train':null}],'tools':[],'id':7}",
		  "u:[q|]a:x|a:[y|]" },
		{ &inputs, "messages",
		  "{'messages':[{'role':'user','content':'hi'},{'role':'assistant','content':'yo'}]"
		  "}",
		  "u:[hi|a:yo|]" },
		{ &inputs, "messages",
		  "{'messages':[{'role':'user','content':'hi'},{'role':'assistant','content':'no','"
		  "train':false},"
		  "{'role':'assistant','content':'yo'}]}",
		  "u:[hi|]a:no|a:[yo|]" },
		{ &o, "messages",
		  "{'messages':[{'role':'user','content':'hi'},{'role':'assistant','content':'yo'}]"
		  ","
		  "'chat_template_kwargs':{'note':'N'}}",
		  "u:Nhi|a:[yo|]" },
		{ &o, "sharegpt",
		  "{'conversations':[{'from':'human','value':'q'},{'from':'function_call','value':'"
		  "f()'},"
		  "{'from':'observation','value':'r'},{'from':'gpt','value':'a'}],'system':'S','"
		  "tools':'[]'}",
		  "s:S|u:q|a:[f()|]t:r|a:[a|]" },
		{ &o, "sharegpt",
		  "{'conversation':[{'from':'system','value':'S'},{'role':'user','content':'q'},{'"
		  "from':'model','value':'a'}]}",
		  "s:S|u:q|a:[a|]" },
		{ &o, "alpaca", "{'instruction':'do','output':'done'}", "u:do|a:[done|]" },
		{ &o, "alpaca", "{'instruction':'do','input':'it','output':'done'}",
		  "u:do\nit|a:[done|]" },
		{ &o, "alpaca", "{'instruction':'','input':'it','output':'done'}",
		  "u:it|a:[done|]" },
		{ &o, "alpaca",
		  "{'instruction':'do','input':null,'output':'done','system':'S','history':[['q','"
		  "a'],['r','b']]}",
		  "s:S|u:q|a:[a|]u:r|a:[b|]u:do|a:[done|]" },
		{ &alpaca, "alpaca", "{'instruction':'do','input':'','output':'done'}",
		  "u:do|a:[done|]" },
		{ &alpaca, "alpaca", "{'instruction':'do','input':'it','output':'done'}",
		  "s:Below is an instruction that describes a task, paired with an input that "
		  "provides further context. Write a "
		  "response that "
		  "appropriately completes the request.|u:do\n\n### Input:\nit|a:[done|]" },
		{ &o, "completion", "{'prompt':'2+2=','completion':'4'}", "^2+2=[4$]" },
		{ &inputs, "completion", "{'prompt':'2+2=','completion':'4'}", "^[2+2=4$]" },
		{ &o, "completion", "{'prompt':'','completion':'4'}", "^[4$]" },
		/* TRL's: two lists of turns, of which the second one is trained */
		{ &o, "completion",
		  "{'prompt':[{'role':'user','content':'q'},{'role':'assistant','content':'a'},{'"
		  "role':'user','content':'r'}],'completion':[{'role':'assistant','content':'b'}]}",
		  "u:q|a:a|u:r|a:[b|]" },
		{ &o, "completion",
		  "{'prompt':[{'role':'user','content':'q','train':true}],'completion':[{'role':'"
		  "assistant','content':'b'}]}",
		  "u:[q|]a:[b|]" },
		{ &inputs, "completion",
		  "{'prompt':[{'role':'user','content':'q'}],'completion':[{'role':'assistant','"
		  "content':'b'}]}",
		  "u:[q|a:b|]" },
		/* axolotl's: a text */
		{ &o, "completion", "{'text':'some text'}", "^[some text$]" },
		{ &o, "text", "{'text':'some text \\u00e4'}", "^[some text \xc3\xa4$]" },
		/* names of special tokens, where no template writes the text */
		{ &o, "text", "{'text':'<^>a<$>b<$>'}", "^[a$b$]" },
		{ &o, "completion", "{'prompt':'<^>q<$>','completion':'a<$>'}", "^q$[a$]" },
		{ &o, "completion", "{'prompt':'q_','completion':'c'}", "^q[&$]" },
		{ &o, "alpaca", "{'instruction':'<^>','output':'<$>'}", "u:<^>|a:[<$>|]" },
	};
	struct buf got = BUF_INIT;
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		for (int how = 0; how < 2; how++) {
			char json[1024];
			snprintf(json, sizeof json, "%s\n", row[i].record);
			for (char *p = json; *p; p++)
				*p = *p == '\'' ? '"' : *p;
			struct dataset *d =
				must("kind.jsonl", json, how ? "auto" : row[i].type, row[i].o);
			assert_int_equal(dataset_count(d), 1);
			show(d, 0, &got);
			assert_string_equal(got.p, row[i].want);
			dataset_free(d);
		}
	}
	buf_release(&got);
}

/* Of a Parquet record; items of lists stay. */
static void nulls(void **state)
{
	(void)state;
	static const char text[] =
		"{\"a\":null,\"l\":[null,{\"b\":null,\"c\":{\"d\":null}}],\"e\":0}";
	json_t *v = json_loads(text, 0, NULL);
	fields_drop_nulls(v);
	char *got = json_dumps(v, JSON_COMPACT);
	assert_string_equal(got, "{\"l\":[null,{\"c\":{}}],\"e\":0}");
	free(got);
	json_decref(v);
}

/* Whose turns are trained, and a mark under another name. */
static void roles(void **state)
{
	(void)state;
	static const struct {
		const char *roles, *train, *want;
	} row[] = {
		{ NULL, NULL, "s:S|u:q|a:[a|]t:r|a:[b|]" },
		{ "assistant,tool", NULL, "s:S|u:q|a:[a|]t:[r|]a:[b|]" },
		{ "system,human", NULL, "s:[S|]u:[q|]a:a|t:r|a:b|" },
		{ "", "learn", "s:S|u:q|a:[a|]t:r|a:b|" },
		{ NULL, "learn", "s:S|u:q|a:[a|]t:r|a:[b|]" },
	};
	struct dataset_options o = options();
	static const char text[] =
		"{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\","
		"\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"a\",\"learn\":true},"
		"{\"role\":\"tool\",\"content\":\"r\"},{\"role\":\"assistant\",\"content\":"
		"\"b\"}]}\n";
	struct buf got = BUF_INIT;
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		struct dataset_source src = { .path = put("roles", text, sizeof text - 1),
					      .roles = row[i].roles };
		struct dataset *d = NULL;
		struct err e = { 0 };
		src.field[FIELD_TRAIN] = row[i].train;
		if (dataset_load(&src, 1, &o, &d, &e) < 0)
			fail_msg("%s", e.msg);
		show(d, 0, &got);
		assert_string_equal(got.p, row[i].want);
		dataset_free(d);
	}
	buf_release(&got);
}

#define ONE "{\"text\":\"one [\\\"{\","
#define TWO "{\"text\":\"two\\\\\","
#define A "{\"text\":\"one [\\\"{\"}"
#define B "{\"text\":\"two\\\\\"}"
#define C "{\"text\":\"three\"}"

/* The same three records in every form of file give the same digest. */
static void forms(void **state)
{
	(void)state;
	static const char *const form[] = {
		A "\n" B "\n" C "\n",
		A "\n" B "\n" C,
		"\n\n" A "\r\n  \r\n" B "\r\n\t" C "\r\n\r\n",
		"\xef\xbb\xbf" A "\n" B "\n" C "\n",
		"[" A "," B "," C "]",
		"\n[\n  " A ",\n  " B ",\n  " C "\n]\n\n",
		"\xef\xbb\xbf [ " A " , " B " , {\n\t\"text\":\n\t\"three\" } ] ",
		"{\"data\":[" A "," B "," C "]}",
		"{ \"version\" : 1.5, \"data\" : [" A "," B "," C
		"] , \"note\": {\"data\":[1]} }\n",
		"{\n  \"info\": {\"data\": [1, 2], \"x\": \"}\"},\n  \"data\": [" A ",\n" B "," C
		"],\n\"end\": null\n}\n",
		/* as Python and pandas write them; a list `data` in each line */
		ONE "\"x\":NaN}\n" TWO "\"x\":[-Infinity,\"NaN\"]}\n" C,
		ONE "\"x\":18446744073709551615}\n" TWO "\"x\":[-12345678901234567890,1]}\n" C,
		ONE "\"data\":[\"a\"]}\n" TWO "\"data\":[]}\n\n" C,
	};
	struct dataset_options o = options();
	uint64_t digest = 0;
	for (size_t i = 0; i < ARRAY_LEN(form); i++) {
		struct dataset *d = must("form", form[i], "auto", &o);
		assert_int_equal(dataset_count(d), 3);
		assert_int_equal(dataset_stats(d)->records, 3);
		if (!i)
			digest = dataset_digest(d);
		assert_int_equal(dataset_digest(d), digest);
		dataset_free(d);
	}
	/* Plain text is one document. It is known by the dataset kind or by the file's ending. */
	struct buf got = BUF_INIT;
	for (int i = 0; i < 2; i++) {
		struct dataset *d = must(i ? "a.txt" : "a", i ? "[verse]\n\nla" : "verse\n\nla",
					 i ? "auto" : "text", &o);
		show(d, 0, &got);
		assert_string_equal(got.p, i ? "^[[verse]\n\nla$]" : "^[verse\n\nla$]");
		dataset_free(d);
	}
	buf_release(&got);
}

/* Records larger than the reader's window, and many of them, in both forms; a pipe instead of a
 * file. */
static void large(void **state)
{
	(void)state;
	struct dataset_options o = options();
	o.sequence_len = 2000000;
	uint64_t digest[2];
	for (int list = 0; list < 2; list++) {
		struct buf b = BUF_INIT;
		if (list)
			buf_addc(&b, '[');
		for (int i = 0; i < 40; i++) {
			buf_adds(&b, i ? list ? "," : "\n" : "");
			buf_adds(&b, "{\"text\":\"");
			for (int k = 0; k < (i == 17 ? 1000003 : 9973); k++)
				buf_addc(&b, (char)('a' + (i + k) % 26));
			buf_adds(&b, "\"}");
		}
		if (list)
			buf_addc(&b, ']');
		struct dataset *d = must("large", b.p, "text", &o);
		assert_int_equal(dataset_count(d), 40);
		assert_int_equal(dataset_get(d, 17).n, 1000005);
		assert_int_equal(dataset_stats(d)->tokens, 1000003 + 39 * 9973 + 80);
		digest[list] = dataset_digest(d);
		dataset_free(d);
		buf_release(&b);
	}
	assert_int_equal(digest[0], digest[1]);

	int fd[2];
	assert_int_equal(pipe(fd), 0);
	assert_int_equal(write(fd[1], A "\n" B "\n", strlen(A "\n" B "\n")), strlen(A "\n" B "\n"));
	close(fd[1]);
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd[0]);
	struct dataset_source src = { .path = path };
	struct dataset *d;
	struct err e;
	assert_int_equal(dataset_load(&src, 1, &o, &d, &e), 0);
	assert_int_equal(dataset_count(d), 2);
	dataset_free(d);
	close(fd[0]);
}

#define GOOD "{\"text\":\"ok\"}\n"

static void complaints(void **state)
{
	(void)state;
	static const struct {
		const char *text, *type, *want; /* want: the message without the folder */
	} row[] = {
		{ GOOD "{\"text\":\n", "auto", "f:2: not valid JSON: " },
		{ "{\"text\": oops}\n", "auto", "f:1: not valid JSON: " },
		{ GOOD "\n{\"text\":\"a\"} {\"text\":\"b\"}\n", "auto",
		  "f:3: not valid JSON: end of file expected" },
		{ GOOD "{\"text\":\"a\",\"text\":\"b\"}\n", "auto",
		  "f:2: not valid JSON: duplicate object key" },
		{ GOOD "{\"text\":\"\xff\"}\n", "auto",
		  "f:2: not UTF-8: byte 0xff at byte 10 of the record" },
		{ "[{\"text\":\"ok\"},\n{\"text\":\"ok\",\n \"x\": nope}]", "auto",
		  "f: record 2 (line 3): not valid JSON: " },
		{ "[{\"text\":\"ok\"},\n{\"text\":\"ok\",\n \"x\": \"\xc3(\"}]", "auto",
		  "f: record 2 (line 3): not UTF-8: byte 0xc3" },
		{ "[{\"text\":\"ok\"}\n\n{\"text\":\"ok\"}]", "auto",
		  "f:3: not valid JSON: a ',' or a ']' after a record was expected" },
		{ "[{\"text\":\"ok\"},]", "auto", "f:1: not valid JSON: a record was expected" },
		{ "[{\"text\":\"ok\"},", "auto",
		  "f:1: the file ends where a record was expected (is it cut off?)" },
		{ "[{\"text\":\"ok\"}\n", "auto",
		  "f:2: the file ends where a ',' or a ']' after a record was expected (is it cut "
		  "off?)" },
		{ "[{\"text\":\"ok\"},\n{\"text\":\"o", "auto",
		  "f:2: the value that begins here does not end (is the file cut off?)" },
		{ "[{\"text\":\"ok\"}] x", "auto",
		  "f:1: not valid JSON: the end of the file was expected" },
		{ "{\"data\":[{\"text\":\"ok\"}]", "auto",
		  "f:1: the file ends where a '}' was expected (is it cut off?)" },
		{ "{\n\"text\": \"x\"\n}\n", "auto",
		  "f: holds one object without a list 'data'; " },
		{ "", "auto", "f: is empty; a dataset needs at least one record" },
		{ " \n\n", "auto", "f: is empty; a dataset needs at least one record" },
		{ "[]", "auto", "f: holds no records; a dataset needs at least one" },
		{ "{\"data\": []}", "auto", "f: holds no records; a dataset needs at least one" },
		{ "[3]", "auto", "f: record 1 (line 1): a record must be an object, not a number" },
		{ "hello", "auto",
		  "f:1: neither JSON, JSONL, CSV nor Parquet (plain text is read with 'type: "
		  "text')" },
		{ "\x1f\x8b..", "auto", "f: damaged gzip data: unknown compression method" },
		{ "PAR1....", "text", "f: damaged Parquet file: it is too short" },
		{ GOOD, "alpacca",
		  "f: unknown dataset type 'alpacca'; known: auto, messages, sharegpt, alpaca, "
		  "completion, text" },
		{ "{\"mesages\":[],\"id\":3}", "auto",
		  "f:1: a record of no known kind, its keys: mesages, id; known kinds: messages "
		  "(messages), sharegpt "
		  "(conversations), alpaca "
		  "(instruction, output), completion (prompt, completion), text (text)" },
		{ "{}", "auto", "f:1: a record of no known kind, its keys: none; known kinds: " },
		{ "{\"prompt\":\"x\",\"chosen\":\"a\",\"rejected\":\"b\"}", "auto",
		  "f:1: preference data (chosen and rejected) needs 'rl: dpo' or another loss "
		  "of " },
		{ "{\"prompt\":\"x\",\"chosen\":\"a\",\"score\":\"b\"}", "auto",
		  "f:1: a record of no known kind, its keys: prompt, chosen, score" },
		{ "{\"instruction\":\"x\"}", "auto",
		  "f:1: output: is missing; a string was expected" },
		{ "{\"instruction\":\"x\",\"output\":\" \\n\"}", "auto",
		  "f:1: output: the answer is empty" },
		{ "{\"instruction\":\"x\",\"output\":5}", "auto",
		  "f:1: output: must be a string, not a number" },
		{ "{\"instruction\":\"x\",\"output\":null}", "auto",
		  "f:1: output: is null; a string was expected" },
		{ "{\"instruction\":\" \",\"input\":\"\",\"output\":\"y\"}", "auto",
		  "f:1: instruction: is empty, and so is the input" },
		{ "{\"instruction\":\"x\",\"output\":\"y\",\"history\":[[\"a\"]]}", "auto",
		  "f:1: history[0]: must be a pair of strings, [question, answer]" },
		{ "{\"instruction\":\"x\",\"output\":\"y\",\"history\":[[\"a\",\"b\"],[\"a\",\"\"]]"
		  "}",
		  "auto", "f:1: history[1]: the answer is empty" },
		{ "{\"text\":\"x\"}", "alpaca",
		  "f:1: instruction: is missing; a string was expected" },
		{ "{\"messages\":[]}", "auto",
		  "f:1: messages: the record has no answer (no turn of the assistant)" },
		{ "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}", "auto",
		  "f:1: messages: the record has no answer" },
		{ "{\"messages\":{}}", "messages",
		  "f:1: messages: must be a list of turns, not an object" },
		{ "{\"text\":\"x\"}", "messages",
		  "f:1: messages: must be a list of turns, not missing" },
		{ "{\"messages\":[4]}", "auto",
		  "f:1: messages[0]: must be an object with a role and a text, not a number" },
		{ "{\"messages\":[{\"content\":\"q\"}]}", "auto",
		  "f:1: messages[0]: role: is missing; a string was expected" },
		{ "{\"messages\":[{\"role\":\"user\"}]}", "auto",
		  "f:1: messages[0]: content: is missing; a string was expected" },
		{ "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"asistant\","
		  "\"content\":\"q\"}]}",
		  "auto",
		  "f:1: messages[1]: role: unknown role 'asistant'; known: system, user, "
		  "assistant, tool" },
		{ "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\"}]}", "auto",
		  "f:1: messages[0]: content: the answer is empty" },
		{ "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
		  "auto",
		  "f:1: messages[0]: content[0]: only parts {\"type\": \"text\", \"text\": ...} "
		  "are read, this one is of type "
		  "'image_url'" },
		{ "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"train\":\"no\"}]}",
		  "auto", "f:1: messages[0]: train: must be true or false, not a string" },
		{ "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0.5}]}",
		  "auto", "f:1: messages[0]: weight: must be 0 or 1" },
		{ "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{}]}]}",
		  "auto",
		  "f:1: messages[0]: tool_calls: the chat template 'fake' does not show them; use "
		  "the "
		  "model's own template" },
		{ "{\"messages\":[{\"role\":\"system\",\"content\":\"a\"}],\"system\":\"b\"}",
		  "auto",
		  "f:1: system: the record has a system turn in 'messages' too; keep one of them" },
		{ "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"}],\"tools\":[{\"name\":"
		  "\"f\"}]}",
		  "auto", "f:1: tools: the chat template 'fake' does not show them" },
		{ "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"}],"
		  "\"chat_template_kwargs\":[]}",
		  "auto", "f:1: chat_template_kwargs: must be an object, not a list" },
		{ "{\"conversations\":[{\"from\":\"human\",\"value\":3}]}", "auto",
		  "f:1: conversations[0]: value: must be a string, not a number" },
		{ "{\"conversations\":[{\"from\":\"bing\",\"value\":\"x\"}]}", "auto",
		  "f:1: conversations[0]: from: unknown role 'bing'" },
		{ "{\"prompt\":\"p\"}", "auto",
		  "f:1: completion: is missing; a string was expected" },
		{ "{\"prompt\":\"p\",\"completion\":\" \"}", "auto",
		  "f:1: completion: the answer is empty" },
		{ "{\"text\":\"\"}", "auto", "f:1: text: is empty" },
	};
	struct dataset_options o = options();
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		struct dataset *d;
		struct err e;
		int rc = load("f", row[i].text, row[i].type, &o, &d, &e);
		if (rc >= 0 || rc != e.code || d)
			fail_msg("row %zu (%s) was not refused", i, row[i].want);
		size_t head = strlen(dir) + 1;
		if (strncmp(e.msg, dir, head - 1) ||
		    strncmp(e.msg + head, row[i].want, strlen(row[i].want)))
			fail_msg("row %zu: '%s', expected '%s'", i, e.msg, row[i].want);
	}

	struct dataset *d = NULL;
	struct err e = { 0 };
	struct dataset_source src = { .path = "/nonexistent/x.jsonl", .type = "auto" };
	assert_int_equal(dataset_load(&src, 1, &o, &d, &e), ERR_IO);
	assert_non_null(strstr(e.msg, "/nonexistent/x.jsonl"));
	src.path = "src/base";
	assert_int_equal(dataset_load(&src, 1, &o, &d, &e), ERR_INPUT);
	assert_non_null(strstr(e.msg, "src/base: the folder has no data files"));
	assert_int_equal(dataset_load(&src, 0, &o, &d, &e), ERR_USAGE);
	o.sequence_len = 1;
	assert_int_equal(load("f", GOOD, "auto", &o, &d, &e), ERR_USAGE);
	o = options();
	o.chat = NULL;
	assert_int_equal(load("f", "{\"instruction\":\"x\",\"output\":\"y\"}", "auto", &o, &d, &e),
			 ERR_USAGE);
	assert_non_null(strstr(e.msg, "set chat_template to one of: fake, alpaca, gemma,"));
	dataset_free(must("f", GOOD, "auto", &o));
	assert_null(d);
}

static void skipping(void **state)
{
	(void)state;
	struct dataset_options o = options();
	o.skip_bad_records = true;
	struct dataset *d = must("skip", GOOD "{\"text\":3}\nbroken\n" GOOD "{\"text\":\"\xff\"}\n",
				 "auto", &o);
	const struct dataset_stats *s = dataset_stats(d);
	assert_int_equal(dataset_count(d), 2);
	assert_int_equal(s->records, 5);
	assert_int_equal(s->skipped, 3);
	assert_non_null(strstr(s->first_skipped, "skip:2: text: must be a string, not a number"));
	dataset_free(d);

	struct err e;
	assert_int_equal(load("skip", "{\"text\":3}\n{}\n", "auto", &o, &d, &e), ERR_INPUT);
	assert_non_null(strstr(
		e.msg, "skip: not one of its 2 records can be used; the first one skipped was "));
	/* A file that ends in the middle is not a bad record. */
	assert_int_equal(load("skip", "[{\"text\":\"ok\"},{\"te", "auto", &o, &d, &e), ERR_INPUT);
	assert_non_null(strstr(e.msg, "is the file cut off?"));
}

static void cutting(void **state)
{
	(void)state;
	struct dataset_options o = options();
	struct buf got = BUF_INIT;
	o.sequence_len = 10;
	struct dataset *d = must("cut",
				 "{\"prompt\":\"0123\",\"completion\":\"abcdefgh\"}\n"
				 "{\"prompt\":\"0123\",\"completion\":\"abcd\"}\n"
				 "{\"prompt\":\"0123456789\",\"completion\":\"a\"}\n"
				 "{\"text\":\"abcdefghijklmnopq\"}\n{\"text\":"
				 "\"abcdefghijklmnopqr\"}\n{\"text\":\"abcdefgh\"}\n",
				 "auto", &o);
	static const char *const want[] = { "^0123[abcde]", "^0123[abcd$]", "^[abcdefghi]",
					    "i[jklmnopq$]", "^[abcdefghi]", "i[jklmnopqr]",
					    "r[$]",         "^[abcdefgh$]" };
	assert_int_equal(dataset_count(d), ARRAY_LEN(want));
	uint64_t trained = 0, tokens = 0;
	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		show(d, i, &got);
		assert_string_equal(got.p, want[i]);
		trained += dataset_get(d, i).trained;
		tokens += dataset_get(d, i).n;
	}
	const struct dataset_stats *s = dataset_stats(d);
	assert_int_equal(s->truncated, 2);
	assert_int_equal(s->untrained, 1);
	assert_int_equal(s->trained, trained);
	assert_int_equal(s->tokens, tokens);
	dataset_free(d);

	/* left out, or an error; texts are divided in any case */
	static const char two[] = "{\"prompt\":\"0123\",\"completion\":\"abcd\"}\n"
				  "{\"text\":\"abcdefghijklmnopq\"}\n"
				  "{\"prompt\":\"0123\",\"completion\":\"abcdefgh\"}\n";
	struct err e;
	o.excess = EXCESS_DROP;
	d = must("cut", two, "auto", &o);
	assert_int_equal(dataset_count(d), 3);
	assert_int_equal(dataset_stats(d)->truncated, 0);
	assert_int_equal(dataset_stats(d)->untrained, 1);
	dataset_free(d);
	assert_int_equal(load("cut", strrchr(two, '{'), "auto", &o, &d, &e), ERR_INPUT);
	assert_non_null(strstr(e.msg, "of 1 records 1 were longer than sequence_len 10"));
	o.excess = EXCESS_RAISE;
	assert_int_equal(load("cut", two, "auto", &o, &d, &e), ERR_INPUT);
	assert_non_null(
		strstr(e.msg, "cut:3: the record has 14 tokens, more than sequence_len 10"));
	o.excess = EXCESS_TRUNCATE;

	assert_int_equal(load("cut", "{\"prompt\":\"0123456789\",\"completion\":\"a\"}\n", "auto",
			      &o, &d, &e),
			 ERR_INPUT);
	assert_non_null(strstr(
		e.msg, "no tokens are left to train: of 1 records 1 were cut at sequence_len 10"));
	assert_int_equal(load("none",
			      "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":"
			      "\"assistant\",\"content\":\"b\",\"train\":false}]}\n",
			      "auto", &o, &d, &e),
			 ERR_INPUT);
	assert_non_null(strstr(e.msg, "in none of 1 records a turn is trained"));
	buf_release(&got);
}

/* Several sources are one dataset in order; another order, another mark or another border is
 * another digest. */
static void digests(void **state)
{
	(void)state;
	struct dataset_options o = options();
	static const char *const other[] = { A "\n" B "\n",
					     B "\n" A "\n",
					     "{\"text\":\"ab\"}\n{\"text\":\"c\"}\n",
					     "{\"text\":\"a\"}\n{\"text\":\"bc\"}\n",
					     "{\"prompt\":\"ab\",\"completion\":\"c\"}",
					     "{\"prompt\":\"a\",\"completion\":\"bc\"}" };
	uint64_t seen[ARRAY_LEN(other)];
	for (size_t i = 0; i < ARRAY_LEN(other); i++) {
		struct dataset *d = must("digest", other[i], "auto", &o);
		seen[i] = dataset_digest(d);
		for (size_t k = 0; k < i; k++)
			assert_true(seen[k] != seen[i]);
		dataset_free(d);
	}
	char first[128];
	snprintf(first, sizeof first, "%s", put("first", A, strlen(A)));
	struct dataset_source src[] = { { .path = first, .type = "text" },
					{ .path = put("second", B, strlen(B)), .type = "auto" } };
	struct dataset *d;
	struct err e;
	assert_int_equal(dataset_load(src, 2, &o, &d, &e), 0);
	assert_int_equal(dataset_digest(d), seen[0]);
	dataset_free(d);
}

static void out_of_memory(void **state)
{
	(void)state;
	struct dataset_options o = options();
	const char *text = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
			   "\"text\":\"ab\"}]},{\"role\":\"assistant\","
			   "\"content\":\"1\"}]}\n"
			   "{\"instruction\":\"do\",\"input\":\"it\",\"output\":\"done\"}\n{"
			   "\"prompt\":\"2+2=\",\"completion\":\"4\"}\n";
	uint64_t n = 1;
	for (;; n++) {
		struct dataset *d;
		struct err e;
		mem_fail_after(n);
		int rc = load("oom", text, "auto", &o, &d, &e);
		mem_fail_after(0);
		if (rc < 0) {
			assert_int_equal(rc, ERR_NOMEM);
			assert_null(d);
			continue;
		}
		/* Shrinking a buffer may fail without harm; nothing else was refused. */
		assert_int_equal(dataset_count(d), 3);
		dataset_free(d);
		if (n > 40)
			break;
	}
	print_message("allocations made to fail one at a time: %d\n", (int)n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kinds),    cmocka_unit_test(roles),
		cmocka_unit_test(nulls),    cmocka_unit_test(forms),
		cmocka_unit_test(large),    cmocka_unit_test(complaints),
		cmocka_unit_test(skipping), cmocka_unit_test(cutting),
		cmocka_unit_test(digests),  cmocka_unit_test(out_of_memory),
	};
	snprintf(dir, sizeof dir, "/tmp/hs-data-XXXXXX");
	if (!mkdtemp(dir))
		return 1;
	int rc = cmocka_run_group_tests_name("data_dataset", tests, NULL, NULL);
	char command[96];
	snprintf(command, sizeof command, "rm -r %s", dir);
	return system(command) || rc;
}
