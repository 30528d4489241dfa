/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_bench.c - the bench of links runs, and its rows are complete. Figures are printed, not
 * judged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "net/net_bench.h"
#include "support/scratch.h"

static void loopback(void **state)
{
	(void)state;
	static const uint64_t sizes[] = { 64 << 10, 1 << 20, 8 << 20 };
	enum { N = sizeof sizes / sizeof *sizes };
	struct net_bench_row rows[NET_BENCH_LINKS * N];
	struct err e;
	size_t count;
	const char *seconds = getenv("NET_BENCH_SECONDS");
	if (net_bench_loopback(sizes, N, seconds ? strtod(seconds, NULL) : 0.05, rows, &count, &e) <
	    0)
		fail_msg("%s", e.msg);
	assert_int_equal(count, NET_BENCH_LINKS * N);
	for (size_t i = 0; i < count; i++) {
		const struct net_bench_row *r = &rows[i];
		printf("%-10s %8llu B  %7.3f GB/s  %5.2f of tcp  %.3f CPU s/GB  round trip %8.1f "
		       "us  %6llu "
		       "messages\n",
		       r->link, (unsigned long long)r->message, r->bytes_per_second * 1e-9,
		       r->share_of_tcp, r->cpu_per_gb, r->round_trip_us,
		       (unsigned long long)r->messages);
		assert_int_equal(r->message, sizes[i % N]);
		assert_true(r->messages > 0 && r->bytes_per_second > 0 && r->round_trip_us > 0 &&
			    r->share_of_tcp > 0);
	}
	assert_string_equal(rows[0].link, "tcp");
	assert_string_equal(rows[count - 1].link, "loop");
	assert_int_equal(net_bench_loopback((const uint64_t[]){ 0 }, 1, 0.01, rows, &count, &e),
			 ERR_USAGE);
}

/* The same between two processes, as people call it. */
static void two_machines(void **state)
{
	(void)state;
	const char *bin = getenv("HS_BIN");
	char command[9000], line[512], port[16];
	int rows = 0, curve = 0;
	if (!bin) {
		printf("HS_BIN does not name the program\n");
		skip();
	}
	for (int i = 1; i <= 2; i++) {
		snprintf(command, sizeof command, "'%s' keygen '%s' >'%s' 2>&1", bin,
			 scratch("key%d", i), scratch("said%d", i));
		assert_int_equal(system(command), 0);
	}
	snprintf(port, sizeof port, "%d", 20000 + (int)(getpid() % 4000) * 5);
	snprintf(command, sizeof command,
		 "'%s' bench --serve 127.0.0.4:%s --key-file '%s' \"--peer=$(cat '%s.pub')\" & "
		 "'%s' bench --to 127.0.0.4:%s --key-file '%s' \"--peer=$(cat '%s.pub')\" --json; "
		 "rc=$?; wait $! || rc=1; exit $rc",
		 bin, port, scratch("key1"), scratch("key2"), bin, port, scratch("key2"),
		 scratch("key1"));
	FILE *f = popen(command, "r");
	assert_non_null(f);
	while (fgets(line, sizeof line, f)) {
		rows += strstr(line, "\"row\": \"link\"") != NULL;
		curve += strstr(line, "\"link\": \"tls\"") != NULL;
	}
	assert_int_equal(pclose(f), 0);
	assert_int_equal(rows, 4);
	assert_int_equal(curve, 2);
	snprintf(command, sizeof command, "'%s' bench --to 127.0.0.4 2>/dev/null", bin);
	assert_int_equal(WEXITSTATUS(system(command)), 2); /* no port */
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(loopback),
					    cmocka_unit_test(two_machines) };
	return cmocka_run_group_tests_name("net_bench", tests, NULL, NULL);
}
