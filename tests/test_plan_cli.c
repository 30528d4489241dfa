/* SPDX-License-Identifier: Apache-2.0 */
/* `heteroshard plan` as people call it: works from a profile alone, prints what a plan holds, says
 * in one line what is wrong. HS_BIN names the program (scripts/run-tests.sh sets it). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CEPHALO "tests/golden/plan/cephalo-gpt2.7b-fp16-4gpu.profile.json"
#define ZORSE "tests/golden/plan/zorse-llama1.3b-fp16-4gpu.profile.json"

#define HOMELAB "examples/homelab-plan.yaml"

static char out[1 << 16];

/* Runs `heteroshard plan ARGS` and keeps what it printed (both streams). */
static int plan(const char *args)
{
	const char *bin = getenv("HS_BIN");
	char command[1024];
	FILE *f;
	size_t n;
	int rc;

	snprintf(command, sizeof command, "%s plan %s 2>&1", bin ? bin : "build/heteroshard", args);
	f = popen(command, "r");
	assert_non_null(f);
	n = fread(out, 1, sizeof out - 1, f);
	out[n] = 0;
	rc = pclose(f);
	assert_true(WIFEXITED(rc));
	return WEXITSTATUS(rc);
}

static void test_json(void **state)
{
	json_t *doc, *d;

	(void)state;
	assert_int_equal(plan("--profile " ZORSE " --planner zorse --json"), 0);
	doc = json_loads(out, 0, NULL);
	assert_non_null(doc);
	assert_string_equal(json_string_value(json_object_get(doc, "planner")), "zorse");
	assert_true(fabs(json_number_value(json_object_get(doc, "predicted_ms")) - 7721.375) <=
		    0.0005);
	d = json_object_get(json_array_get(json_object_get(doc, "stages"), 0), "devices");
	assert_int_equal(json_array_size(d), 4);
	assert_int_equal(json_integer_value(json_object_get(json_array_get(d, 2), "microbatches")),
			 28);
	assert_true(json_is_array(json_object_get(doc, "left_out")) &&
		    json_is_number(json_object_get(doc, "search_ms")));
	json_decref(doc);
}

static void test_text(void **state)
{
	(void)state;
	assert_int_equal(plan("--profile " ZORSE " --no-groups"), 0);
	assert_non_null(strstr(out, "limits the job"));
	assert_non_null(strstr(out, "p40-0 is left out"));
	assert_non_null(strstr(out, "Without a6000-0"));
	assert_int_equal(plan("--profile " CEPHALO " --compare"), 0);
	assert_non_null(strstr(out, "cephalo"));
	assert_non_null(strstr(out, "exhaustive"));
	assert_non_null(strstr(out, "Alone (predicted):"));
	assert_non_null(strstr(out, "l4-0 does not fit"));
	assert_non_null(strstr(out, "% of the sum of those that fit"));
	assert_int_equal(plan("--profile " CEPHALO " --compare --json"), 0);
	json_t *doc = json_loads(out, 0, NULL);
	assert_non_null(doc);
	assert_int_equal(json_array_size(json_object_get(doc, "plans")), 6);
	assert_int_equal(json_array_size(json_object_get(doc, "alone")), 4);
	assert_true(json_is_number(json_object_get(doc, "sum_tokens_per_second")));
	json_decref(doc);
}

static void test_what_if(void **state)
{
	(void)state;
	assert_int_equal(plan("--profile " ZORSE " --brief --without p40-0,l4-1 --add "
			      "'kind=v100,host=other,bandwidth=1.2;kind=l4,host=other,id=mine'"),
			 0);
	assert_non_null(strstr(out, "of 4 devices"));
	assert_null(strstr(out, "p40-0"));
	/* shorter: on a host of its own */
	assert_int_equal(plan("--profile " ZORSE " --effort 100000 --brief --add 3090"), 0);
	assert_non_null(strstr(out, "65 % of the data sheet's 71, as measured cards of its kind "
				    "reach"));
	assert_non_null(strstr(out, "on a host of its own, 'new', with a gigabit link"));
	assert_non_null(strstr(out, "of 5 devices, planner best (estimated)"));
	assert_int_equal(plan("--profile " ZORSE " --planner even --add 'v100,count=2' --json -q"),
			 0);
	json_t *doc = json_loads(strchr(out, '{'), 0, NULL);
	assert_non_null(doc);
	assert_true(json_is_true(json_object_get(doc, "estimated")));
	assert_int_equal(json_array_size(json_object_get(doc, "stages")), 6);
	json_decref(doc);
}

/* For energy and for money. */
static void test_worth(void **state)
{
	(void)state;
	assert_int_equal(plan("--profile " ZORSE " --planner even --brief --price "
			      "'a6000=3000, l4=2500,p40=200'"),
			 0);
	assert_non_null(strstr(out, "tokens/Wh"));
	assert_non_null(strstr(out, "8200 euro: "));
	assert_null(strstr(out, "estimated"));
	assert_int_equal(plan("--profile " ZORSE " --compare --price a6000=3000,l4=2500,p40=200"),
			 0);
	assert_non_null(strstr(out, "euro per token/s"));
	/* as many as the price buys */
	assert_int_equal(plan("--profile " ZORSE " --planner even --price "
			      "a6000=3000,l4=2500,p40=200,3090=4000 --compare-with 3090"),
			 0);
	assert_non_null(strstr(out, "2 x RTX 3090"));
	assert_non_null(strstr(out, "8000"));
	assert_non_null(strstr(out, "times the tokens/s of 2 x RTX 3090"));
	assert_int_equal(plan("--profile " ZORSE " --planner even --json -q --compare-with "
			      "kind=t4,count=3,hosts=2"),
			 0);
	json_t *doc = json_loads(strchr(out, '{'), 0, NULL);
	assert_non_null(doc);
	json_t *list = json_object_get(doc, "clusters");
	assert_int_equal(json_array_size(list), 2);
	json_t *p = json_object_get(json_array_get(list, 1), "plan");
	assert_true(json_is_true(json_object_get(p, "estimated")));
	assert_null(json_object_get(json_object_get(json_array_get(list, 0), "plan"), "estimated"));
	assert_int_equal(json_array_size(json_object_get(p, "stages")), 3);
	json_decref(doc);
}

/* A plan from nothing but a description; what is wrong with one is tests/test_plan_describe.c. */
static void test_description(void **state)
{
	char dir[128], args[1024];
	const char *tmp = getenv("TMPDIR");

	(void)state;
	snprintf(dir, sizeof dir, "%s/hs-plan-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(dir));
	snprintf(args, sizeof args, "--cluster " HOMELAB " --effort 100000 --out %s/o", dir);
	assert_int_equal(plan(args), 0);
	assert_non_null(strstr(out, "of 4 devices, planner best (estimated)"));
	assert_non_null(strstr(out, "Estimated: the times of 3090, V100, M40, cpu come from data "
				    "sheets"));
	assert_non_null(strstr(out, "M40 (M40): 5.18 TFLOP/s, 74 % of the data sheet's 7"));
	assert_non_null(strstr(out, "because 'M40' has no native 16-bit format"));
	assert_non_null(strstr(out, "limits the job"));
	assert_non_null(strstr(out, "Without M40, cpu the job would compute in float16: "));
	snprintf(args, sizeof args,
		 "grep -q 'estimated' %s/o/plan.json && grep -q '(estimated)' "
		 "%s/o/architecture.dot && grep -q 'nothing was measured' %s/o/profile.html && "
		 "grep -q '; estimated' %s/o/profile.html && rm -r %s",
		 dir, dir, dir, dir, dir);
	assert_int_equal(system(args), 0);
	/* that is not said where a card is added: it was said without it, 4976 ms */
	assert_int_equal(plan("--cluster " HOMELAB " --planner even --without M40,cpu --add 3090"),
			 0);
	assert_non_null(strstr(out, "RTX-3090-new0"));
	assert_null(strstr(out, "the job would compute in"));
	/* without the old ones: another dtype, faster */
	assert_int_equal(plan("--cluster " HOMELAB " --planner even --without M40,cpu --json -q"),
			 0);
	json_t *doc = json_loads(out, 0, NULL);
	assert_non_null(doc);
	assert_string_equal(json_string_value(json_object_get(doc, "dtype")), "float16");
	json_decref(doc);
	/* beside equal cards of the same price, in one command */
	assert_int_equal(plan("--cluster " HOMELAB " -q --planner even --compare-with 3090 --price "
			      "3090=700,V100=250,M40=100,cpu=1000"),
			 0);
	assert_non_null(strstr(out, "2 x RTX 3090"));
	assert_non_null(strstr(out, "bfloat16"));
}

static void wrong(const char *args, int status, const char *word)
{
	char *end;

	assert_int_equal(plan(args), status);
	if (!strstr(out, word))
		fail_msg("'%s' does not say '%s'", out, word);
	end = strchr(out, '\n');
	assert_true(end && !end[1]);
}

static void write_text(const char *dir, const char *name, const char *text)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/* The picture of a shard_plan never replaces that of a run, or somebody's own. */
static void test_picture(void **state)
{
	(void)state;
	char dir[128], args[512], text[64] = "";
	const char *tmp = getenv("TMPDIR");
	snprintf(dir, sizeof dir, "%s/hs-plan-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(dir));
	write_text(dir, "job.yaml",
		   "profile: none\ncoordinator: {ip: 127.0.0.1, port: 3}\n"
		   "workers: [{id: a, ip: 127.0.0.1, port: 1}, {id: b, ip: 127.0.0.1, port: 2}]\n"
		   "shard_plan: [{id: a, start: 0, end: 2}, {id: b, start: 2, end: 4, is_last: "
		   "true}]\n");
	write_text(dir, "run.json", "{}");
	write_text(dir, "architecture.png", "of the run");
	snprintf(args, sizeof args, "%s/job.yaml output_dir=%s", dir, dir);
	assert_int_equal(plan(args), 0);
	assert_non_null(strstr(out, "holds a run: its architecture.png stays as it is"));
	snprintf(args, sizeof args, "%s/architecture.png", dir);
	FILE *f = fopen(args, "r");
	assert_non_null(f);
	assert_true(fread(text, 1, sizeof text - 1, f) > 0);
	fclose(f);
	assert_string_equal(text, "of the run");
	for (int again = 0; again < 2; again++) { /* its own picture is replaced */
		snprintf(args, sizeof args, "%s/job.yaml --out %s/o", dir, dir);
		assert_int_equal(plan(args), 0);
		assert_non_null(strstr(out, "architecture.png shows the shard_plan"));
	}
	snprintf(args, sizeof args, "rm %s/o/architecture.dot", dir);
	assert_int_equal(system(args), 0);
	snprintf(args, sizeof args, "%s/job.yaml --out %s/o", dir, dir);
	assert_int_equal(plan(args), 2);
	assert_non_null(strstr(out, "architecture.png is there without a plan.json"));
	snprintf(args, sizeof args, "rm -r %s", dir);
	assert_int_equal(system(args), 0);
}

static void test_wrong(void **state)
{
	(void)state;
	wrong("", 2, "--profile");
	wrong("/nowhere.yaml", 1, "/nowhere.yaml");
	wrong("--profile /nowhere.json", 1, "/nowhere.json");
	wrong("--profile " ZORSE " --planner bset", 2, "bset");
	wrong("--profile " ZORSE " --schedule x", 2, "1f1b");
	wrong("--profile " ZORSE " --without nobody", 2, "nobody");
	wrong("--profile " ZORSE " --microbatch 3", 2, "does not divide");
	wrong("--profile " ZORSE " --add kind=gtx9,host=y", 2, "the nearest are");
	wrong("--cluster /nowhere.yaml", 1, "/nowhere.yaml");
	wrong("--cluster " HOMELAB " --profile " ZORSE, 2, "leave --profile out");
	wrong("--cluster " HOMELAB " --without nobody", 2, HOMELAB ": device 'nobody'");
	wrong("-q --cluster " HOMELAB " --microbatch 3", 2, HOMELAB ": a microbatch of 3");
	wrong("-q --cluster " HOMELAB " --planner cephalo --add t4,count=40", 2,
	      "take a larger batch or use 'best'");
	wrong("-q --cluster " HOMELAB " --planner exhaustive --add t4,count=9", 2,
	      HOMELAB ": exhaustive: 13 devices");
	/* few splits, but minutes with all schedules and sizes */
	wrong("-q --cluster " HOMELAB " --planner exhaustive --add t4", 2,
	      HOMELAB ": exhaustive: 5 devices");
	wrong("-q --cluster " HOMELAB " --price 3090=700", 2, "no price for 'V100' (V100-SXM2)");
	wrong("-q --cluster " HOMELAB " --price 3090=700,v100=1,m40=1,cpu=0,p40=1", 2,
	      "'p40' is no device");
	wrong("--profile " ZORSE " --add a100", 2, "A100-40, A100-80");
	wrong("--profile " ZORSE " --add kind=t4,bandwidth=x", 2, "bandwidth=x");
	wrong("--profile " ZORSE " --price a6000=3000", 2, "no price for 'l4-0' (l4)");
	wrong("--profile " ZORSE " --price a6000=1,l4=1,p40=1,t4=1", 2, "'t4' is no device");
	wrong("--profile " ZORSE " --price /nowhere", 1, "/nowhere");
	wrong("--profile " ZORSE " --compare-with 3090", 2, "count=N");
	wrong("--profile " ZORSE " --compare-with kind=3091,count=2", 2, "nearest are RTX 3090");
	wrong("--profile " ZORSE " --compare-with kind=t4,count=0", 2, "count=0");
	wrong("--profile " ZORSE " --compare-with kind=t4,color=red", 2, "unknown key 'color'");
	wrong("--profile " ZORSE " --price a6000=1,l4=1,p40=1 --compare-with t4", 2,
	      "no price above 0 for 't4'");
	wrong("--profile " ZORSE " --price a6000=1,l4=1,p40=1,t4=9 --compare-with t4", 2,
	      "that buys none");
	wrong("--profile " ZORSE " --planner manual", 2, "--plan FILE");
	wrong("--profile " ZORSE " --plan " ZORSE, 1, "a plan was expected");
	wrong("--profile " ZORSE " --reserve 22.4 --without a6000-0", 2, "GiB more");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_json),        cmocka_unit_test(test_text),
		cmocka_unit_test(test_what_if),     cmocka_unit_test(test_worth),
		cmocka_unit_test(test_description), cmocka_unit_test(test_picture),
		cmocka_unit_test(test_wrong)
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
