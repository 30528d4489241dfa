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
static void write_job(const struct site *s, const char *name, const char *keys)
{
	char text[900];
	snprintf(text, sizeof text,
		 "adapter: none\n%s\n"
		 "coordinator: {hostname: c, ip: 127.0.0.1, port: %d, device: none}\n"
		 "workers:\n- {id: a, hostname: a, ip: 127.0.0.2, port: %d, device: 'cuda:0'}\n"
		 "- {id: b, hostname: b, ip: 127.0.0.3, port: %d, device: 'cuda:1'}\n"
		 "shard_plan: [{id: [a, b], share: [2, 1], start: 0, end: %d}]\n",
		 keys, s->port, s->port + 1, s->port + 2, SITE_LAYERS);
	site_configuration(s, name, 0, text);
}

/* Workers started by hand say more. */
static void run(const struct site *s, const char *name, const char *keys, const char *faults,
		struct process w[2])
{
	char file[64];
	setenv("FAKE_RT", faults, 1);
	write_job(s, name, keys);
	snprintf(file, sizeof file, "%s.yaml", name);
	for (int i = 0; i < 2; i++) {
		w[i] = site_start(s, "worker", "--worker", i ? "b" : "a", file, NULL);
		until(&w[i], "listens");
	}
	struct process p = site_start(s, "train", file, STEPS, NULL);
	must_succeed(&p);
	for (int i = 0; i < 2; i++)
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
	for (int i = 0; i < 2; i++)
		if (says(&w[i], "went directly between it and cards of other processes") != is) {
			show_log(&w[i]);
			fail_msg("%s from card to card", is ? "nothing went" : "bytes went");
		}
}

static void sums_go_from_card_to_card(void **state)
{
	static const char exact[] = "reduce_order: exact", fast[] = "reduce_order: fast";
	struct site s;
	struct process w[2];
	(void)state;
	site_make(&s);
	run(&s, "exact", exact, good, w);
	directly_as_told(w, true);
	run_one(&s, "one", exact);
	same(&s, "one", "exact");
	/* as in a container: through the memory of the host, with the same bits */
	run(&s, "fast", fast, good, w);
	directly_as_told(w, true);
	run(&s, "refused", fast, "devices=2 memory=2048 ipcrefused", w);
	directly_as_told(w, false);
	for (int i = 0; i < 2; i++)
		assert_true(says(&w[i], "may not open") && says(&w[i], "--ipc=host"));
	same(&s, "fast", "refused");
	/* each owns a part; its gradients and its optimizer are in the host's memory */
	run(&s, "shared", "reduce_order: exact\nshard: optimizer\noffload: [optimizer]", good, w);
	directly_as_told(w, true);
	run_one(&s, "hosted", "reduce_order: exact\noffload: [optimizer]");
	same(&s, "hosted", "shared");
	tiny_remove(&s.t);
}

static void no_card(void **state)
{
	(void)state;
	skip();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(sums_go_from_card_to_card) };
	const struct CMUnitTest none[] = { cmocka_unit_test(no_card) };
	(void)argc;
	site_program(argv[0]);
	return fake_cards("fake_rt.so", true) ? cmocka_run_group_tests(tests, NULL, NULL)
					      : cmocka_run_group_tests(none, NULL, NULL);
}
