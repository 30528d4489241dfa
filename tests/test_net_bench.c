/* test_net_bench.c - the bench of links runs, and its rows are complete. Figures are printed, not judged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "net/net_bench.h"

static void loopback(void **state)
{
	(void)state;
	static const uint64_t sizes[] = { 64 << 10, 1 << 20, 8 << 20 };
	enum { N = sizeof sizes / sizeof *sizes };
	struct net_bench_row rows[NET_BENCH_LINKS * N];
	struct err e;
	size_t count;
	const char *seconds = getenv("NET_BENCH_SECONDS");
	if (net_bench_loopback(sizes, N, seconds ? strtod(seconds, NULL) : 0.05, rows, &count, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(count, NET_BENCH_LINKS * N);
	for (size_t i = 0; i < count; i++) {
		const struct net_bench_row *r = &rows[i];
		printf("%-10s %8llu B  %7.3f GB/s  %5.2f of tcp  round trip %8.1f us  %6llu messages\n", r->link,
		       (unsigned long long)r->message, r->bytes_per_second * 1e-9, r->share_of_tcp, r->round_trip_us,
		       (unsigned long long)r->messages);
		assert_int_equal(r->message, sizes[i % N]);
		assert_true(r->messages > 0 && r->bytes_per_second > 0 && r->round_trip_us > 0 && r->share_of_tcp > 0);
	}
	assert_string_equal(rows[0].link, "tcp");
	assert_string_equal(rows[count - 1].link, "loop");
	assert_int_equal(net_bench_loopback((const uint64_t[]){ 0 }, 1, 0.01, rows, &count, &e), ERR_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(loopback) };
	return cmocka_run_group_tests_name("net_bench", tests, NULL, NULL);
}
