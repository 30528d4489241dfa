/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_cards.c - a group of two cards of one machine, each in a process of its own: sums of
 * gradients go from card to card, with the bits that they have through the host's memory; where the
 * driver refuses that they go there, and a line says so. The cards are stand-ins
 * (support/cards.h). */
#include "base/mem.h"
#include "support/cards.h"
#include "support/record.h"
#include "support/site.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define STEPS "max_steps=4"
enum { CARDS = 2, MOST = 3 /* members; the third one's device is the processor */ };

/* Small messages do not go from card to card (RT_DIRECT): so the matrices are wide, and the
 * gradients of all layers are one array. */
static const char model[] =
	"{\"model_type\":\"llama\",\"hidden_size\":32,\"intermediate_size\":1024,"
	"\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
	"\"vocab_size\":258,\"max_position_embeddings\":512}";

static void write_job(const struct site *s, const char *name, const char *keys, int members)
{
	char text[900];
	snprintf(text, sizeof text,
		 "adapter: none\nreduce_parts: 1\n%s\n"
		 "coordinator: {hostname: c, ip: 127.0.0.1, port: %d, device: none}\n"
		 "workers:\n- {id: a, hostname: a, ip: 127.0.0.2, port: %d, device: 'cuda:0'}\n"
		 "- {id: b, hostname: b, ip: 127.0.0.3, port: %d, device: 'cuda:1'}\n"
		 "- {id: c, hostname: d, ip: 127.0.0.4, port: %d, device: cpu}\n"
		 "shard_plan: [{id: [a, b%s], share: [2, 1%s], start: 0, end: 3}]\n",
		 keys, s->port, s->port + 1, s->port + 2, s->port + 3, members > CARDS ? ", c" : "",
		 members > CARDS ? ", 1" : "");
	site_configuration(s, name, 0, text);
}

/* Workers started by hand say more. `last`: the faults of the last one. */
static struct process start(const struct site *s, const char *name, const char *keys,
			    const char *faults, const char *last, int members, struct process *w)
{
	static const char *const id[MOST] = { "a", "b", "c" };
	char file[64];
	write_job(s, name, keys, members);
	snprintf(file, sizeof file, "%s.yaml", name);
	for (int i = 0; i < members; i++) {
		setenv("FAKE_RT", i + 1 < members ? faults : last, 1);
		w[i] = site_start(s, "worker", "--worker", id[i], file, NULL);
		until(&w[i], "listens");
	}
	return site_start(s, "train", file, STEPS, NULL);
}

static void run(const struct site *s, const char *name, const char *keys, const char *faults,
		int members, struct process *w)
{
	struct process p = start(s, name, keys, faults, faults, members, w);
	must_succeed(&p);
	for (int i = 0; i < members; i++)
		must_succeed(&w[i]);
}

static const char good[] = "devices=2 memory=2048";

static void same(const struct site *s, const char *a, const char *b)
{
	char x[64], y[64];
	snprintf(x, sizeof x, "%s/model.safetensors", a);
	snprintf(y, sizeof y, "%s/model.safetensors", b);
	record_same_file(&s->t, x, y);
}

/* The order `exact` has the bits of one card. */
static void run_one(const struct site *s, const char *name, const char *keys)
{
	char text[200];
	setenv("FAKE_RT", good, 1);
	snprintf(text, sizeof text, "adapter: none\n%s\ndevice: 'cuda:0'\n", keys);
	site_configuration(s, name, 0, text);
	snprintf(text, sizeof text, "%s.yaml", name);
	struct process p = site_start(s, "train", text, STEPS, NULL);
	must_succeed(&p);
}

static void directly_as_told(const struct process *w, bool is)
{
	for (int i = 0; i < CARDS; i++)
		if (says(&w[i], "went directly between it and cards of other processes") != is) {
			show_log(&w[i]);
			fail_msg("%s from card to card", is ? "nothing went" : "bytes went");
		}
}

static const char exact[] = "reduce_order: exact", fast[] = "reduce_order: fast",
		  refused[] = "devices=2 memory=2048 ipcrefused";

static void sums_go_from_card_to_card(void **state)
{
	struct site s;
	struct process w[MOST];
	(void)state;
	site_make_model(&s, model);
	run(&s, "exact", exact, good, CARDS, w);
	directly_as_told(w, true);
	run_one(&s, "one", exact);
	same(&s, "one", "exact");
	/* as in a container: through the memory of the host, with the same bits */
	run(&s, "fast", fast, good, CARDS, w);
	directly_as_told(w, true);
	run(&s, "refused", fast, refused, CARDS, w);
	directly_as_told(w, false);
	for (int i = 0; i < CARDS; i++)
		assert_true(says(&w[i], "may not open") && says(&w[i], "--ipc=host"));
	same(&s, "fast", "refused");
	/* of two terms every way makes the same sum */
	run(&s, "ring", "reduce_order: fast\nreduce: ring", good, CARDS, w);
	directly_as_told(w, true);
	same(&s, "fast", "ring");
	run(&s, "tree", "reduce_order: fast\nreduce: tree", good, CARDS, w);
	directly_as_told(w, true);
	same(&s, "fast", "tree");
	/* each owns a part; its gradients and its optimizer are in the host's memory */
	run(&s, "shared", "reduce_order: exact\nshard: optimizer\noffload: [optimizer]", good,
	    CARDS, w);
	directly_as_told(w, true);
	run_one(&s, "hosted", "reduce_order: exact\noffload: [optimizer]");
	same(&s, "hosted", "shared");
	tiny_remove(&s.t);
}

/* Between the two cards sums go directly, to and from the processor through its memory. */
static void cards_and_a_processor(void **state)
{
	static const char *const way[] = { "ring", "tree" };
	struct site s;
	struct process w[MOST];
	(void)state;
	site_make_model(&s, model);
	for (int i = 0; i < 2; i++) {
		char keys[100], host[32];
		snprintf(keys, sizeof keys, "reduce_order: fast\nreduce: %s", way[i]);
		snprintf(host, sizeof host, "%s-host", way[i]);
		run(&s, way[i], keys, good, MOST, w);
		directly_as_told(w, true);
		run(&s, host, keys, refused, MOST, w);
		directly_as_told(w, false);
		same(&s, way[i], host);
	}
	tiny_remove(&s.t);
}

/* Long after the trial of a way: that card is lost, and the job goes on without it. */
static void a_copy_that_fails(void **state)
{
	struct site s;
	struct process w[MOST];
	(void)state;
	site_make_model(&s, model);
	struct process p = start(&s, "lost", "reduce_order: fast\nreduce: ring", good,
				 "devices=2 memory=2048 ipclost=20", CARDS, w);
	must_succeed(&p);
	assert_true(says(&p, "(Fake card 1): waiting for it: ILLEGAL_ADDRESS"));
	assert_true(says(&p, "the job goes on without it"));
	must_succeed(&w[0]);
	must_fail(&w[1], 1, "ILLEGAL_ADDRESS");
	tiny_remove(&s.t);
}

static void no_card(void **state)
{
	(void)state;
	skip();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_go_from_card_to_card),
		cmocka_unit_test(cards_and_a_processor),
		cmocka_unit_test(a_copy_that_fails),
	};
	const struct CMUnitTest none[] = { cmocka_unit_test(no_card) };
	(void)argc;
	site_program(argv[0]);
	return fake_cards("fake_rt.so", true) ? cmocka_run_group_tests(tests, NULL, NULL)
					      : cmocka_run_group_tests(none, NULL, NULL);
}
