/* SPDX-License-Identifier: Apache-2.0 */
/* chat_jinja.c - see chat_jinja.h and chat_from_jinja() in chat.h. */
#include "data/chat_jinja.h"

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/jinja.h"

#include <stdio.h>
#include <string.h>

enum {
	MESSAGES_MAX = 60000, /* turns of a conversation; each is a source */
	ENDS_MAX = 64,        /* special tokens that the template's text names */
	OTHER = 0xffff,       /* the source of tools */
	ARGS = 0xfffe,        /* the source of further variables */
	ARGS_MAX = 64,        /* of these */
	STARTS_MIN = 4,       /* trained turns from which beginnings are not rendered one by one */
	SPENT_MAX = 10,       /* times JINJA_STEPS, for all renderings of one conversation */
	COMPARED_MAX = 1 << 28, /* bytes, to find where an answer begins */
};

struct own {
	struct chat_template t;
	struct jinja *j;
	char *text;
	const char *end[ENDS_MAX]; /* special tokens of the template, and EOS: end a turn */
	size_t nend;
	char *closing;   /* MAY: the one of them that is no special token */
	bool bare;       /* it writes nothing behind an answer */
	bool *said;      /* that it leaves out a turn */
	bool call_texts; /* it writes arguments of calls only where they are a text (DeepSeek) */
};

struct talk {
	const struct own *own;
	const struct tokenizer *tok;
	json_t *messages; /* all of them */
	const json_t *tools, *args;
	json_t *bos, *eos, *pad;
	struct jinja_starts *starts[2]; /* [open]; NULL: every beginning is rendered */
	size_t like[2];                 /* how much of the whole their text begins like */
	uint64_t *spent;                /* steps; NULL: nobody counts */
};

/* ---- rendering ------------------------------------------------------------------------------ */

/* The keys of a record's turn that have their place elsewhere. */
static bool own_key(const char *key)
{
	static const char *const keys[] = { "role", "from", "content", "value", "train", "weight" };
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (!strcmp(keys[i], key))
			return true;
	return false;
}

/* The arguments of a call as an object, which is what templates expect, also where the record has
 * them as OpenAI does: as a text that holds the object in JSON. */
static int read_arguments(json_t *call, struct err *e)
{
	json_t *f = json_object_get(call, "function"), *v = NULL;
	f = json_is_object(f) ? f : call;
	const json_t *a = json_object_get(f, "arguments");
	if (!json_is_string(a))
		return 0;
	TRY(json_parse_text(json_string_value(a), json_string_length(a), "arguments", &v, e));
	if (!json_is_object(v)) {
		json_decref(v);
		return err_set(e, ERR_INPUT, "arguments: the text must hold an object in JSON");
	}
	return json_object_set_new(f, "arguments", v) < 0
		       ? err_nomem(e, json_string_length(a), "a call")
		       : 0;
}

static int add_calls(const struct own *own, json_t *message, const json_t *calls, struct err *e)
{
	json_t *copy = json_deep_copy(calls), *call;
	size_t i;
	if (json_object_set_new(message, "tool_calls", copy) < 0)
		return err_nomem(e, json_array_size(calls), "a turn's calls");
	json_array_foreach(copy, i, call)
	{
		if (!own->call_texts && read_arguments(call, e) < 0)
			return err_prefix(e, "tool_calls[%zu]", i);
	}
	return 0;
}

/* Data sets and templates have several names for the thought before an answer: as in transformers
 * 5.24 a template finds it under `reasoning_content` and, where the turn has none, `thinking`. */
static int name_thought(json_t *message)
{
	static const char *const names[] = { "reasoning_content", "thinking", "reasoning" };
	json_t *v = NULL;
	for (size_t i = 0; i < ARRAY_LEN(names) && !v; i++)
		v = json_object_get(message, names[i]);
	if (!v)
		return 0;
	int rc = json_object_set(message, names[0], v);
	if (!json_object_get(message, names[1]))
		rc |= json_object_set(message, names[1], v);
	return rc;
}

static int add_message(const struct own *own, json_t *list, const struct chat_message *m,
		       struct err *e)
{
	json_t *o = json_object(), *text = json_stringn(m->text ? m->text : "", m->n), *v;
	const char *key;
	if (o && !text) {
		json_decref(o);
		return err_set(e, ERR_INPUT, "a message is not UTF-8");
	}
	int rc = json_object_set_new(o, "role", json_string(chat_role_name(m->role)));
	rc |= json_object_set_new(o, "content", text);
	json_object_foreach((json_t *)m->turn, key, v)
	{
		const bool none = json_is_null(v) || (!strcmp(key, "tool_calls") &&
						      json_is_array(v) && !json_array_size(v));
		if (!own_key(key) && !none)
			rc |= json_object_set(o, key, v);
	}
	rc |= name_thought(o);
	rc |= json_array_append_new(list, o);
	if (rc < 0)
		return err_nomem(e, m->n, "a conversation");
	const json_t *calls = json_object_get(m->turn, "tool_calls");
	return json_array_size(calls) ? add_calls(own, o, calls, e) : 0;
}

static json_t *token_or_null(const struct tokenizer *tok, int32_t id)
{
	const char *s = id >= 0 ? tokenizer_token(tok, id) : NULL;
	return s ? json_string(s) : NULL;
}

static struct talk talk(const struct own *own, const struct tokenizer *tok, const json_t *tools)
{
	return (struct talk){ .own = own,
			      .tok = tok,
			      .messages = json_array(),
			      .tools = tools,
			      .bos = token_or_null(tok, tokenizer_bos(tok)),
			      .eos = token_or_null(tok, tokenizer_eos(tok)),
			      .pad = token_or_null(tok, tokenizer_pad(tok)) };
}

static void talk_end(struct talk *k)
{
	jinja_starts_free(k->starts[0]);
	jinja_starts_free(k->starts[1]);
	json_decref(k->messages);
	json_decref(k->bos);
	json_decref(k->eos);
	json_decref(k->pad);
}

/* The variables of a template, for use() of the messages. */
static int with_vars(const struct talk *k, const json_t *messages, bool open,
		     int (*use)(const struct jinja *j, const struct jinja_var *var, size_t nvar,
				void *to, struct err *e),
		     void *to, struct err *e)
{
	enum { OURS = 7 };
	struct jinja_var var[OURS + ARGS_MAX] = {
		{ .name = "documents", .v = json_null() },
		{ "messages", messages, 1, true, "role" },
		{ .name = "tools", .v = k->tools ? k->tools : json_null(), .source = OTHER },
		{ .name = "add_generation_prompt", .v = json_boolean(open) },
		{ .name = "bos_token", .v = k->bos },
		{ .name = "eos_token", .v = k->eos },
		{ .name = "pad_token", .v = k->pad }
	};
	size_t n = OURS;
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)k->args, key, v)
	{
		size_t i = 0;
		while (i < OURS && strcmp(var[i].name, key))
			i++;
		if ((i && i < OURS) || n == ARRAY_LEN(var))
			return err_set(e, ERR_INPUT, "chat_template_kwargs: %.64s: %s", key,
				       i < OURS ? "is no variable that a record gives"
						: "is one too many");
		var[i ? n++ : 0] = (struct jinja_var){ .name = key, .v = v, .source = ARGS };
	}
	return use(k->own->j, var, n, to, e);
}

static int use_text(const struct jinja *j, const struct jinja_var *var, size_t nvar, void *to,
		    struct err *e)
{
	return jinja_render(j, var, nvar, to, e);
}

static int use_starts(const struct jinja *j, const struct jinja_var *var, size_t nvar, void *to,
		      struct err *e)
{
	return jinja_starts_new(j, var, nvar, to, e);
}

static int spend(const struct talk *k, uint64_t steps, struct err *e)
{
	if (!k->spent || (*k->spent += steps) <= (uint64_t)SPENT_MAX * JINJA_STEPS)
		return 0;
	return err_set(e, ERR_INPUT,
		       "chat template: takes more than %d million steps for the beginnings of a "
		       "conversation of %zu turns",
		       SPENT_MAX * (int)(JINJA_STEPS / 1000000), json_array_size(k->messages));
}

/* The first `n` messages. */
static int render(const struct talk *k, size_t n, bool open, struct jinja_text *out, struct err *e)
{
	json_t *part = k->messages;
	int rc = spend(k, 0, e);
	if (rc < 0)
		return rc;
	if (n < json_array_size(part)) {
		part = json_array();
		for (size_t i = 0; i < n && rc == 0; i++)
			rc = json_array_append(part, json_array_get(k->messages, i));
	}
	rc = rc < 0 ? err_nomem(e, n * sizeof(void *), "a conversation")
		    : with_vars(k, part, open, use_text, out, e);
	if (part != k->messages)
		json_decref(part);
	return rc < 0 ? rc : spend(k, out->steps, e);
}

static size_t alike(const char *a, size_t na, const char *b, size_t nb)
{
	size_t i = 0;
	while (i < na && i < nb && a[i] == b[i])
		i++;
	return i;
}

static int make_starts(struct talk *k, const struct buf *whole, struct err *e)
{
	for (int open = 0; open < 2; open++) {
		TRY(with_vars(k, k->messages, open, use_starts, &k->starts[open], e));
		const struct buf *all = jinja_starts_whole(k->starts[open]);
		k->like[open] = alike(all->p, all->n, whole->p, whole->n);
	}
	return 0;
}

/* How much of `whole` the rendering of the first n messages begins like; *all_p: it is that whole
 * rendering. */
static int same_start(const struct talk *k, size_t n, bool open, const struct buf *whole,
		      size_t *same_p, bool *all_p, struct err *e)
{
	struct jinja_text part = { .text = BUF_INIT };
	size_t head = 0;
	int rc = k->starts[open] ? jinja_starts_text(k->starts[open], n, &head, &part, e) : 0;
	if (rc > 0 && spend(k, part.steps, e) < 0)
		rc = e->code;
	if (rc == 0) {
		head = 0;
		rc = render(k, n, open, &part, e);
	}
	if (head > k->like[open]) { /* they part in what all messages begin with */
		*same_p = k->like[open];
		*all_p = false;
	} else {
		const size_t i = alike(part.text.p, part.text.n, whole->p + head, whole->n - head);
		*same_p = head + i;
		*all_p = i == part.text.n;
	}
	jinja_text_release(&part);
	return rc < 0 ? rc : 0;
}

/* ---- which part is trained ------------------------------------------------------------------ */

struct place {
	size_t begin,
		end; /* of the message's text in the whole; begin > end: none of it is there */
};

static void find_places(const struct jinja_text *x, struct place *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (struct place){ SIZE_MAX, 0 };
	for (size_t i = 0; i < x->n; i++) {
		size_t m = x->span[i].source - 1u, begin = i ? x->span[i - 1].end : 0;
		if (m >= n)
			continue;
		p[m].begin = begin < p[m].begin ? begin : p[m].begin;
		p[m].end = x->span[i].end;
	}
}

/* A template may write the first turns in another way once there are turns behind them. The place
 * in [lo, hi] before which `whole`, from `from` on at least, is most like the end of these turns
 * alone; the last of several. */
static int like_end(const struct talk *k, size_t n, bool open, const struct buf *whole, size_t from,
		    size_t lo, size_t hi, size_t *place_p, struct err *e)
{
	struct jinja_text part = { .text = BUF_INIT };
	int rc = render(k, n, open, &part, e);
	size_t most = 0, compared = 0;
	*place_p = hi;
	for (size_t at = lo; at <= hi && rc >= 0; at++) {
		size_t same = 0;
		if (compared > COMPARED_MAX) {
			rc = err_set(e, ERR_INPUT,
				     "the chat template writes too much before an answer to find "
				     "where it begins");
			break;
		}
		while (same < at && same < part.text.n &&
		       whole->p[at - same - 1] == part.text.p[part.text.n - same - 1])
			same++;
		compared += same + 1;
		if (same && same >= most && at - same <= from) {
			most = same;
			*place_p = at;
		}
	}
	jinja_text_release(&part);
	return rc;
}

/* Where the text of answer i begins; those of the messages before it end at `before`. */
static int answer_begin(const struct talk *k, const struct jinja_text *x, const struct place *p,
			const struct chat_message *msg, size_t before, size_t i, size_t *begin_p,
			struct err *e)
{
	size_t same, bare, spoken = 0;
	bool all, bare_all;
	int rc = same_start(k, i, true, &x->text, &same, &all, e);
	while (msg[spoken].role == CHAT_SYSTEM)
		spoken++;
	if (rc < 0 && spoken >= i) { /* many templates need a first question */
		err_clear(e);
		*begin_p = p[i].begin < p[i].end ? p[i].begin : before;
		return 0;
	}
	if (rc >= 0 && !all && !i) { /* nothing is before the answer that tells where it begins */
		same = p[i].begin;
		all = p[i].begin < p[i].end;
	} else if (rc >= 0 && !all) { /* it may open the answer as whole answers do not begin */
		rc = same_start(k, i, false, &x->text, &bare, &bare_all, e);
		all = bare_all;
	}
	if (rc < 0)
		return err_prefix(e, "the conversation up to turn %zu alone", i);
	if (all && same >= before) {
		*begin_p = same < p[i].begin ? same : p[i].begin;
		return 0;
	}
	if (p[i].begin >= p[i].end || p[i].begin < before)
		return err_set(
			e, ERR_INPUT,
			"the chat template writes the turns before turn %zu in another way "
			"once there are turns behind them, so it is not known which text is "
			"the answer; name a template (chat_template), or train only the last "
			"answer ('train: false' in the other turns)",
			i + 1);
	return like_end(k, i, true, &x->text, SIZE_MAX, before, p[i].begin, begin_p, e);
}

static size_t skip_space(const struct buf *text, size_t from, size_t to)
{
	while (from < to && strchr(" \t\r\n", text->p[from]))
		from++;
	return from;
}

static size_t strip(const struct buf *text, size_t from, size_t to)
{
	while (to > from && strchr(" \t\r\n", text->p[to - 1]))
		to--;
	return to;
}

/* The first token that ends turns in [from, to): its end, and where it begins; else `from`. */
static size_t first_end(const struct own *o, const struct buf *text, size_t from, size_t to,
			size_t *at_p)
{
	const char *first = NULL;
	size_t end = from;
	for (size_t i = 0; i < o->nend; i++) {
		size_t n = strlen(o->end[i]);
		const char *at = memmem(text->p + from, to - from, o->end[i], n);
		if (at && (!first || at < first)) {
			first = at;
			end = (size_t)(at - text->p) + n;
		}
	}
	*at_p = first ? (size_t)(first - text->p) : from;
	return end;
}

/* The end of the token that ends the turn, in [from, to); else `from`. Behind the end of a call
 * there may be that of its turn (LFM2: `<|tool_call_end|><|im_end|>`). */
static size_t turn_end(const struct own *o, const struct buf *text, size_t from, size_t to)
{
	const char *stop = o->t.stop[0];
	size_t at, end = first_end(o, text, from, to, &at), n = stop ? strlen(stop) : 0;
	const bool two = n && end > from && n <= to - end && !memcmp(text->p + end, stop, n);
	return two && (n != end - at || memcmp(text->p + at, stop, n)) ? end + n : end;
}

/* The same where the last turn of a conversation ends in another way than an earlier one, and the
 * two ways are alike before `same` (gpt-oss: `<|return|>`, `<|end|>`). The token that ends the
 * earlier one stands right before the token that opens the next turn. */
static size_t other_end(const struct own *o, const struct buf *text, size_t from, size_t same,
			size_t to)
{
	size_t at, end = first_end(o, text, from, to, &at), next;
	if (end <= same || at >= same || first_end(o, text, end, to, &next) == end)
		return from;
	return skip_space(text, end, next) == next ? end : from;
}

/* Where the turn ends that is alone up to `alone` and has text up to `from`, of a template that
 * writes nothing behind answers (GLM-4): behind its calls, and the token that opens the next turn,
 * for that is what the model has to write then. `to`: where the next turn's text begins; 0: there
 * is none, or it is an answer too. */
static size_t bare_end(const struct own *o, const struct buf *text, size_t from, size_t alone,
		       size_t to)
{
	const size_t end = strip(text, from, alone);
	size_t at;
	if (to <= end)
		return end;
	const size_t open = skip_space(text, end, to), after = first_end(o, text, open, to, &at);
	return after > open && at == open ? after : end;
}

/* Where the last text of message i, which begins at `begin`, before `limit` ends; 0: there is none.
 */
static size_t last_before(const struct jinja_text *x, size_t i, size_t begin, size_t limit)
{
	size_t end = 0, s = 0, to = x->n;
	while (s < to) { /* the first span that ends after `begin` */
		const size_t mid = s + (to - s) / 2;
		if (x->span[mid].end <= begin)
			s = mid + 1;
		else
			to = mid;
	}
	for (; s < x->n && begin < limit; begin = x->span[s++].end)
		if (x->span[s].source == i + 1)
			end = x->span[s].end < limit ? x->span[s].end : limit;
	return end;
}

/* Whether a turn may end before the last text of the call i in front of `limit`: a later turn may
 * repeat something of it, the name of the tool that was called. */
static bool ends_before(const struct own *o, const struct jinja_text *x, size_t i, size_t begin,
			size_t limit)
{
	size_t at;
	return first_end(o, &x->text, begin, last_before(x, i, begin, limit), &at) > begin;
}

/* `before`: where the text of the messages before i ends; least_after[m]: where the first text of
 * message m or a later one begins. */
static int trained(const struct talk *k, const struct jinja_text *x, const struct place *p,
		   const struct chat_message *msg, size_t n, size_t i, size_t before,
		   const size_t *least_after, struct place *out, struct err *e)
{
	bool there = p[i].begin < p[i].end, all;
	size_t limit = x->text.n, alone = i + 1 < n ? 0 : limit, same, next;
	out->begin = p[i].begin;
	if (msg[i].role == CHAT_ASSISTANT)
		TRY(answer_begin(k, x, p, msg, before, i, &out->begin, e));
	else if (!there)
		return 0;
	const size_t least = there ? p[i].begin + 1 : out->begin;
	for (size_t m = i + 1; m < n && least_after[m] < limit; m++)
		if (p[m].begin >= least && p[m].begin < limit)
			limit = p[m].begin;
	next = limit;
	if (i + 1 < n) {
		int rc = same_start(k, i + 1, false, &x->text, &same, &all, e);
		if (rc == ERR_NOMEM)
			return rc;
		if (rc < 0) /* a beginning that the template refuses limits nothing */
			err_clear(e);
		else if (same >= least && same < limit)
			limit = same;
		else if (same < least && there && json_object_get(msg[i].turn, "tool_calls") &&
			 ends_before(k->own, x, i, p[i].begin, limit))
			TRY(like_end(k, i + 1, false, &x->text, p[i].begin, least, limit, &limit,
				     e));
		alone = rc >= 0 && all && same >= least ? same : 0;
	}
	out->end = there ? last_before(x, i, p[i].begin, limit) : out->begin;
	same = out->end;
	out->end = turn_end(k->own, &x->text, same, limit);
	if (out->end == same && limit < next)
		out->end = other_end(k->own, &x->text, same, limit, next);
	if (out->end == same && k->own->bare && alone >= same && msg[i].role == CHAT_ASSISTANT)
		out->end = bare_end(k->own, &x->text, same, alone,
				    i + 1 < n && msg[i + 1].role != CHAT_ASSISTANT ? next : 0);
	return 0;
}

/* The rendered text as spans; `train` has the trained parts, in order. */
static void put_all(const struct jinja_text *x, const struct place *train, size_t n,
		    struct chat_text *o)
{
	size_t at = 0, t = 0;
	for (size_t i = 0; i < x->n; i++)
		while (at < x->span[i].end) {
			while (t < n && (train[t].end <= at || train[t].begin >= train[t].end))
				t++;
			size_t end = x->span[i].end;
			bool in = t < n && train[t].begin <= at;
			size_t cut = t == n ? end : in ? train[t].end : train[t].begin;
			end = cut < end ? cut : end;
			chat_put_span(o, x->text.p + at, end - at, x->span[i].source != 0, in);
			at = end;
		}
}

/* Whether the last answer is trained and nothing tells where it ends; then EOS does, as behind a
 * completion. */
static bool lacks_end(const struct own *o, const struct jinja_text *x, const struct place *last)
{
	bool ends = !o->bare || last->begin >= last->end ||
		    skip_space(&x->text, last->end, x->text.n) < x->text.n;
	for (size_t i = 0; i < o->nend && !ends; i++) {
		const size_t n = strlen(o->end[i]);
		ends = n <= last->end - last->begin &&
		       !memcmp(x->text.p + last->end - n, o->end[i], n);
	}
	return !ends;
}

/* Whether the calls of some turns change the text. */
static int calls_show(struct talk k, const struct jinja_text *x, bool *show_p, struct err *e)
{
	struct jinja_text bare = { .text = BUF_INIT };
	json_t *m;
	size_t i, calls = 0;
	*show_p = true;
	json_array_foreach(k.messages, i, m) calls += json_object_get(m, "tool_calls") != NULL;
	if (!calls)
		return 0;
	k.messages = json_deep_copy(k.messages);
	json_array_foreach(k.messages, i, m) json_object_del(m, "tool_calls");
	int rc = k.messages ? render(&k, json_array_size(k.messages), false, &bare, e)
			    : err_nomem(e, x->text.n, "a conversation");
	if (rc >= 0)
		*show_p = bare.text.n != x->text.n || memcmp(bare.text.p, x->text.p, x->text.n);
	else if (rc != ERR_NOMEM) { /* a template that refuses turns without them shows them */
		err_clear(e);
		rc = 0;
	}
	json_decref(k.messages);
	jinja_text_release(&bare);
	return rc;
}

/* Mistral v0.3's shows the system message only where a question is last: never in training. */
static void check_turns(const struct own *o, const struct chat_message *msg, const struct place *p,
			size_t n)
{
	for (size_t i = 0; i < n && !*o->said; i++) {
		const struct buf text = { .p = (char *)msg[i].text, .n = msg[i].n };
		if (msg[i].role == CHAT_ASSISTANT || p[i].begin < p[i].end ||
		    skip_space(&text, 0, text.n) == text.n)
			continue;
		*o->said = true;
		log_warn("the chat template leaves out turn %zu (%s) of a conversation: nothing of "
			 "it is trained on",
			 i + 1, chat_role_name(msg[i].role));
	}
}

/* What a record has and the template leaves out would be missing in what is learned. */
static int check_tools(const struct talk *k, const struct jinja_text *x, struct err *e)
{
	static const char say[] = "the chat template does not show them; name one that does "
				  "(chat_template: qwen_25), or write them into the text";
	bool shown = !json_array_size(k->tools), calls;
	for (size_t i = 0; i < x->n && !shown; i++)
		shown = x->span[i].source == OTHER;
	TRY(calls_show(*k, x, &calls, e));
	return !shown   ? err_set(e, ERR_UNSUPPORTED, "tools: %s", say)
	       : !calls ? err_set(e, ERR_UNSUPPORTED, "tool_calls: %s", say)
			: 0;
}

static int jinja_chat(const struct chat_template *t, const struct tokenizer *tok,
		      const struct chat_message *msg, size_t n, bool open, struct chat_text *o,
		      struct err *e)
{
	struct talk k = talk((const struct own *)t, tok, n ? msg[0].tools : NULL);
	k.args = n ? msg[0].args : NULL;
	struct jinja_text x = { .text = BUF_INIT };
	struct place *p = NULL;
	size_t *least_after = NULL, before = 0, ntrain = 0;
	uint64_t spent = 0;
	int rc = 0;
	k.spent = &spent;
	if (n > MESSAGES_MAX) {
		rc = err_set(e, ERR_INPUT, "a conversation of more than %d turns", MESSAGES_MAX);
		goto out;
	}
	p = mem_array(2 * n + 1, sizeof *p);
	least_after = mem_array(n + 1, sizeof *least_after);
	if (!k.messages || !p || !least_after) {
		rc = err_nomem(e, n * sizeof *p, "a conversation");
		goto out;
	}
	for (size_t i = 0; i < n && rc >= 0; i++)
		if ((rc = add_message(k.own, k.messages, &msg[i], e)) < 0)
			err_prefix(e, "turn %zu", i + 1);
	if (rc < 0)
		goto out;
	TRYOUT(render(&k, n, open, &x, e));
	find_places(&x, p, n);
	if (!open) {
		TRYOUT(check_tools(&k, &x, e));
		check_turns(k.own, msg, p, n);
	}
	least_after[n] = SIZE_MAX;
	for (size_t i = n; i-- > 0;) {
		ntrain += msg[i].train;
		least_after[i] = p[i].begin < least_after[i + 1] ? p[i].begin : least_after[i + 1];
	}
	if (ntrain >= STARTS_MIN)
		TRYOUT(make_starts(&k, &x.text, e));
	for (size_t i = 0; i < n; i++) {
		if (msg[i].train)
			TRYOUT(trained(&k, &x, p, msg, n, i, before, least_after, &p[n + i], e));
		TRYOUT(spend(&k, 0, e)); /* nothing was left out because of it */
		if (p[i].begin < p[i].end && p[i].end > before)
			before = p[i].end;
	}
	const bool eos = !open && n && msg[n - 1].train && msg[n - 1].role == CHAT_ASSISTANT &&
			 lacks_end(k.own, &x, &p[2 * n - 1]);
	if (eos)
		p[2 * n - 1].end = x.text.n;
	put_all(&x, p + n, n, o);
	if (eos)
		chat_put_end(o, chat_eos(tok), true);
out:
	mem_free(least_after);
	mem_free(p);
	talk_end(&k);
	jinja_text_release(&x);
	return rc;
}

/* ---- the template --------------------------------------------------------------------------- */

static void release(const struct chat_template *t)
{
	struct own *o = (struct own *)t;
	jinja_free(o->j);
	mem_free(o->text);
	mem_free(o->closing);
	mem_free(o->said);
	mem_free(o);
}

static const struct chat_template *no_detect(const char *jinja, const struct tokenizer *tok)
{
	(void)jinja;
	(void)tok;
	return NULL;
}

/* The special tokens that the template's text names. Tokens that begin a turn are among them: they
 * never stand between an answer and its end. */
static int find_ends(struct own *o, const struct tokenizer *tok, struct err *e)
{
	int32_t eos = tokenizer_eos(tok);
	const size_t n = strlen(o->text);
	uint64_t compared = 0;
	if (eos >= 0)
		o->end[o->nend++] = tokenizer_token(tok, eos);
	for (size_t id = 0; id < tokenizer_vocab_size(tok) && o->nend < ENDS_MAX; id++) {
		const char *s = tokenizer_is_special(tok, (int32_t)id)
					? tokenizer_token(tok, (int32_t)id)
					: NULL;
		compared += s ? n : 0;
		if (compared > 4ull * COMPARED_MAX)
			return err_set(e, ERR_INPUT,
				       "chat template: is too long for a tokenizer of so many "
				       "special tokens");
		if (s && *s && (int32_t)id != eos && strstr(o->text, s))
			o->end[o->nend++] = s;
	}
	return 0;
}

/* What ends an answer where no special token does: the text that a template writes behind it, in
 * front of a question too; if there is none, the token that opens the question. */
static void find_closing(struct own *o, const struct talk *k, const struct jinja_text *x,
			 size_t from)
{
	struct jinja_text more = { .text = BUF_INIT };
	struct place p[3];
	struct err e = { 0 };
	if (render(k, 3, false, &more, &e) >= 0 &&
	    alike(x->text.p, x->text.n, more.text.p, more.text.n) == x->text.n) {
		const size_t end = strip(&x->text, from, x->text.n);
		find_places(&more, p, 3);
		o->bare = end == from;
		o->closing = o->bare ? NULL : mem_strndup(x->text.p + from, end - from);
		if (o->closing && o->nend < ENDS_MAX)
			o->end[o->nend++] = o->t.stop[0] = o->closing;
		const size_t open = skip_space(&more.text, end, more.text.n);
		for (size_t i = 0; i < o->nend && o->bare && p[2].begin < p[2].end; i++) {
			const size_t n = strlen(o->end[i]);
			if (open + n <= p[2].begin && !memcmp(more.text.p + open, o->end[i], n))
				o->t.stop[0] = o->end[i];
		}
	}
	jinja_text_release(&more);
}

/* What ends an answer, from conversations of two and three turns. */
static void find_stop(struct own *o, const struct tokenizer *tok)
{
	static const struct chat_message m[] = { { .role = CHAT_USER, .text = "a", .n = 1 },
						 { .role = CHAT_ASSISTANT, .text = "b", .n = 1 },
						 { .role = CHAT_USER, .text = "c", .n = 1 } };
	struct talk k = talk(o, tok, NULL);
	struct jinja_text x = { .text = BUF_INIT };
	struct err e = { 0 };
	struct place p[2];
	int rc = k.messages ? 0 : ERR_NOMEM;
	for (size_t i = 0; i < ARRAY_LEN(m) && rc >= 0; i++)
		rc = add_message(o, k.messages, &m[i], &e);
	if (rc >= 0 && render(&k, 2, false, &x, &e) >= 0) {
		find_places(&x, p, 2);
		const bool there = p[1].begin < p[1].end;
		size_t end = there ? turn_end(o, &x.text, p[1].end, x.text.n) : 0;
		for (size_t i = 0; i < o->nend && end; i++) {
			size_t n = strlen(o->end[i]);
			if (n <= end - p[1].end && !memcmp(x.text.p + end - n, o->end[i], n))
				o->t.stop[0] = o->end[i];
		}
		if (there && !o->t.stop[0])
			find_closing(o, &k, &x, p[1].end);
	}
	talk_end(&k);
	jinja_text_release(&x);
}

/* Whether a conversation with a call can be written. */
static bool can_call(struct own *o, const struct tokenizer *tok, json_t *arguments)
{
	struct jinja_text x = { .text = BUF_INIT };
	struct err e = { 0 };
	struct talk k = talk(o, tok, NULL);
	json_decref(k.messages);
	k.messages = json_pack("[{s:s,s:s},{s:s,s:s,s:[{s:s,s:s,s:{s:s,s:o}}]}]", "role", "user",
			       "content", "a", "role", "assistant", "content", "", "tool_calls",
			       "id", "call00001", "type", "function", "function", "name", "f",
			       "arguments", arguments);
	const bool good = k.messages && render(&k, 2, false, &x, &e) >= 0;
	talk_end(&k);
	jinja_text_release(&x);
	return good;
}

int chat_from_jinja(const char *text, const struct tokenizer *tok, const struct chat_template **t_p,
		    struct err *e)
{
	struct own *o = mem_zalloc(sizeof *o);
	if (!o)
		return err_nomem(e, sizeof *o, "a chat template");
	o->t = (struct chat_template){ .name = CHAT_JINJA,
				       .tools = true,
				       .release = release,
				       .detect = no_detect,
				       .render = jinja_chat };
	o->text = mem_strdup(text);
	o->said = mem_zalloc(sizeof *o->said);
	int rc = o->text && o->said ? jinja_parse(text, strlen(text), &o->j, e)
				    : err_nomem(e, strlen(text), "a chat template");
	if (rc >= 0)
		rc = find_ends(o, tok, e);
	if (rc < 0) {
		release(&o->t);
		return rc;
	}
	find_stop(o, tok);
	o->call_texts = !can_call(o, tok, json_pack("{s:s}", "k", "v")) &&
			can_call(o, tok, json_string("{\"k\": \"v\"}"));
	*t_p = &o->t;
	return 0;
}
