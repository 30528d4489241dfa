/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_mpi.c - `mpirun heteroshard train`: the bits of one process, and an end without a hang
 * when a rank is killed or everybody interrupted. Skipped where MPI is not built in or mpirun is
 * not installed. */
#include "support/site.h"

#include "base/err.h"
#include "base/mem.h"
#include "net/net.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char program[4096];

static bool available(void)
{
	if (!strstr(net_names(), "mpi"))
		printf("built without MPI\n");
	else if (system("command -v mpirun >/dev/null 2>&1") != 0)
		printf("mpirun is not installed\n");
	else
		return true;
	return false;
}

/* mpirun -n RANKS heteroshard train DIR/one.yaml output_dir=DIR/RUN ARGS */
static struct process mpirun(const struct site *s, const char *ranks, const char *run, ...)
{
	static int serial;
	struct process p;
	char *arg[24], config[512], out[512];
	int n = 0;
	va_list ap;
	snprintf(config, sizeof config, "%s/one.yaml", s->t.dir);
	snprintf(out, sizeof out, "output_dir=%s/%s", s->t.dir, run);
	const char *const fixed[] = { "mpirun", "-n", ranks, program, "train", config, out };
	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		arg[n++] = (char *)fixed[i];
	va_start(ap, run);
	while (n < 23 && (arg[n] = va_arg(ap, char *)))
		n++;
	va_end(ap);
	arg[n] = NULL;
	snprintf(p.log, sizeof p.log, "%.200s/mpi-log-%d", s->t.dir, serial++);
	p.pid = fork();
	assert_true(p.pid >= 0);
	if (p.pid == 0) {
		int fd = open(p.log, O_WRONLY | O_CREAT | O_TRUNC, 0644),
		    in = open("/dev/null", O_RDONLY);
		if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0 || dup2(in, 0) < 0)
			_exit(126);
		setenv("OMP_NUM_THREADS", "1", 1);
		setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
		setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
		setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
		setenv("OMPI_MCA_btl", "self,vader,tcp", 1); /* this machine only */
		setenv("OMPI_MCA_btl_tcp_if_include", "lo", 1);
		setenv("OMPI_MCA_oob_tcp_if_include", "lo", 1);
		setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
		setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* MPI keeps memory to the end */
		execvp("mpirun", arg);
		_exit(127);
	}
	return p;
}

static void the_bits_of_one_process(void **state)
{
	(void)state;
	struct site s;
	if (!available())
		skip();
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	struct process p = site_start(&s, "train", "one.yaml", NULL);
	must_succeed(&p);
	p = mpirun(&s, "4", "three", NULL);
	must_succeed(&p);
	same_result(&s, "one", "three", true);
	p = mpirun(&s, "3", "two", "schedule=interleaved", "interleave=2", NULL);
	must_succeed(&p);
	same_result(&s, "one", "two", true);
	p = mpirun(&s, "2", "alone", NULL); /* one worker */
	must_succeed(&p);
	same_result(&s, "one", "alone", true);
	/* ranks 1 and 2 share the first layers */
	char plan[600];
	site_put(&s, "group.json",
		 "{\"version\": 1, \"microbatch\": 2, \"stages\": [{\"layers\": [0, 4], "
		 "\"devices\": [{\"id\": \"rank1\", \"share\": 2}, {\"id\": \"rank2\", "
		 "\"share\": 1}]}, {\"layers\": [4, 6], \"devices\": [{\"id\": \"rank3\"}]}]}",
		 0644);
	snprintf(plan, sizeof plan, "plan=%s/group.json", s.t.dir);
	p = mpirun(&s, "4", "group", plan, "reduce_order=exact", NULL);
	must_succeed(&p);
	assert_true(says(&p, "groups add up") || says(&p, "0.1 rank2"));
	same_result(&s, "one", "group", true);
	tiny_remove(&s.t);
}

#define BY_TWO "shard_plan=[{id: [1, 2], share: [2, 1], start: 0, end: 6}]"

/* A sum of two numbers has the same bits whoever adds them. */
static void the_collective_of_the_library(void **state)
{
	(void)state;
	struct site s;
	if (!available())
		skip();
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	struct process p = mpirun(&s, "3", "collective", BY_TWO, "reduce_order=fast", NULL);
	must_succeed(&p);
	assert_true(says(&p, "groups add up their gradients by 'mpi', in the order 'fast'"));
	p = mpirun(&s, "3", "direct", BY_TWO, "reduce_order=fast", "reduce=direct", NULL);
	must_succeed(&p);
	assert_true(says(&p, "by 'direct'"));
	same_result(&s, "collective", "direct", true);
	/* three members of two stages, all parameters: `auto` is the order fast there */
	site_configuration(&s, "one", 0, "adapter: none\nreduce_parts: 3\n");
	p = mpirun(&s, "3", "divided", BY_TWO, "shard=optimizer", NULL);
	must_succeed(&p);
	assert_true(says(&p, "by 'mpi'") && says(&p, "share the state of the optimizer"));
	p = mpirun(&s, "5", "full",
		   "shard_plan=[{id: [rank4, rank1, 2], start: 0, end: 2}, "
		   "{id: 3, start: 2, end: 6, is_last: true}]",
		   NULL);
	must_succeed(&p);
	assert_true(says(&p, "by 'mpi'"));
	p = mpirun(&s, "3", "exact", BY_TWO, "reduce_order=exact", NULL);
	must_succeed(&p);
	assert_true(says(&p, "by 'direct', in the order 'exact'"));
	p = mpirun(&s, "4", "half", BY_TWO, "reduce_dtype=bfloat16", "reduce_order=fast", NULL);
	must_succeed(&p);
	assert_true(says(&p, "by 'direct', in the order 'fast'"));
	assert_true(says(&p, "'shard_plan' gives no layers to 'rank3': this worker is not used"));
	tiny_remove(&s.t);
}

static void what_cannot_be_is_one_line(void **state)
{
	(void)state;
	struct site s;
	if (!available())
		skip();
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	struct process p;
	static const struct {
		const char *plan, *order, *dtype, *says;
	} bad[] = {
		{ BY_TWO, "reduce_order=exact", "reduce_dtype=float32",
		  "'reduce: mpi' cannot keep the order 'exact'" },
		{ BY_TWO, "reduce_order=fast", "reduce_dtype=bfloat16",
		  "'reduce: mpi' adds in float32" },
		{ "shard_plan=[{id: [0, 1], start: 0, end: 6}]", "reduce_order=fast",
		  "reduce_dtype=float32",
		  "'rank0', which coordinates and computes nothing: 3 processes were started" },
		{ "shard_plan=[{id: [1, 3], start: 0, end: 6}]", "reduce_order=fast",
		  "reduce_dtype=float32",
		  "'rank3': 3 processes were started, of which ranks 1 to 2 compute" },
		{ "shard_plan=[{id: local, start: 0, end: 6}]", "reduce_order=fast",
		  "reduce_dtype=float32", "write 'id: 1'" },
		{ "shard_plan=[{id: [1, rank1], start: 0, end: 6}]", "reduce_order=fast",
		  "reduce_dtype=float32", "names 'rank1' twice" },
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		p = mpirun(&s, "3", "x", bad[i].plan, "reduce=mpi", bad[i].order, bad[i].dtype,
			   NULL);
		/* mpirun's status is that of the rank which ended first */
		assert_int_not_equal(finished(&p, PATIENCE), 0);
		show_log(&p);
		assert_true(says(&p, bad[i].says));
	}
	p = site_start(&s, "train", "one.yaml", "reduce=mpi", "reduce_order=fast", NULL);
	must_fail(&p, 2, "'reduce: mpi' needs links over MPI: start the program with mpirun");
	p = site_start(&s, "train", "one.yaml", BY_TWO, NULL);
	must_fail(&p, 2, "'shard_plan' names ranks, but this program was not started by mpirun");
	p = mpirun(&s, "1", "x", "transport=mpi", NULL);
	must_fail(&p, 2, "start at least two");
	p = mpirun(&s, "2", "x", "--worker", "a", NULL);
	must_fail(&p, 2, "under mpirun or srun");
	tiny_remove(&s.t);
}

/* The process id of a rank whose command line names `run`. */
static pid_t rank_of(const char *run, int rank)
{
	char command[600], text[32] = "";
	snprintf(command, sizeof command,
		 "exec 2>/dev/null; for p in /proc/[0-9]*; do tr '\\0' '\\n' <$p/cmdline | grep "
		 "-qx 'output_dir=.*/%s' && "
		 "tr '\\0' '\\n' <$p/environ | grep -qE '^(OMPI_COMM_WORLD_RANK|PMI_RANK)=%d$' && "
		 "tr '\\0' '\\n' <$p/cmdline | head -1 | grep -q heteroshard && echo ${p#/proc/}; "
		 "done | head -1",
		 run, rank);
	FILE *f = popen(command, "r");
	if (f && !fgets(text, sizeof text, f))
		text[0] = 0;
	if (f)
		pclose(f);
	return (pid_t)strtol(text, NULL, 10);
}

static void killed_or_interrupted_ends(void **state)
{
	(void)state;
	struct site s;
	if (!available())
		skip();
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	for (int who = 0; who < 4; who++) {
		char run[64];
		snprintf(run, sizeof run, "end-%d-%d", (int)getpid(), who);
		struct process p = mpirun(&s, "3", run, "max_steps=100000", "save_steps=0",
					  "peer_timeout=5", NULL);
		until(&p, " 3/100000 ");
		pid_t victim = who == 3 ? p.pid : rank_of(run, who);
		assert_true(victim > 0);
		kill(victim, who == 3 ? SIGINT : SIGKILL);
		int rc = finished(&p, PATIENCE);
		assert_true(rc != 0);
		no_torn_checkpoint(&s, run);
		for (int r = 0; r < 3; r++)
			for (int wait = 0; rank_of(run, r) > 0; wait++) {
				assert_true(wait < 100); /* no orphans */
				usleep(100000);
			}
	}
	tiny_remove(&s.t);
}

/* The next start of the same command goes on from the newest checkpoint. */
static void killed_and_started_again(void **state)
{
	(void)state;
	struct site s;
	char run[64];
	if (!available())
		skip();
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	struct process p = site_start(&s, "train", "one.yaml", "max_steps=60", NULL);
	must_succeed(&p);
	snprintf(run, sizeof run, "again-%d", (int)getpid());
	p = mpirun(&s, "3", run, "max_steps=60", "save_steps=5", "auto_resume=true", NULL);
	until(&p, " 12/60 ");
	kill(rank_of(run, 1), SIGKILL);
	assert_true(finished(&p, PATIENCE) != 0);
	p = mpirun(&s, "3", run, "max_steps=60", "save_steps=5", "auto_resume=true", NULL);
	must_succeed(&p);
	assert_true(says(&p, "(auto_resume)"));
	same_result(&s, "one", run, true);
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	const char *given = getenv("HETEROSHARD"), *slash = strrchr(argv[0], '/');
	site_program(argv[0]);
	if (given)
		snprintf(program, sizeof program, "%s", given);
	else
		snprintf(program, sizeof program, "%.*s/../heteroshard",
			 slash ? (int)(slash - argv[0]) : 1, slash ? argv[0] : ".");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_bits_of_one_process),
		cmocka_unit_test(the_collective_of_the_library),
		cmocka_unit_test(what_cannot_be_is_one_line),
		cmocka_unit_test(killed_or_interrupted_ends),
		cmocka_unit_test(killed_and_started_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
