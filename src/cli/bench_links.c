/* SPDX-License-Identifier: Apache-2.0 */
/* bench_links.c - see bench_links.h. */
#include "cli/bench_links.h"

#include "base/mem.h"
#include "cli/cli.h"
#include "net/address.h"
#include "net/keys.h"
#include "net/net.h"
#include "net/net_bench.h"

#include <limits.h>
#include <string.h>

static const uint64_t sizes[] = { 64 << 10, 1 << 20 };
static const double seconds = 0.5,
		    patience = 60; /* for each row; for the other machine to connect */
enum { SIZES = ARRAY_LEN(sizes) };

static int print_links(const char *heading, const struct net_bench_row *row, size_t n, bool json,
		       struct err *e)
{
	static const char *const columns[] = { "link",   "message",  "rate",
					       "of TCP", "CPU s/GB", "round trip" };
	struct cli_table *t = json ? NULL : cli_table_new(columns, ARRAY_LEN(columns));
	if (!json && !t)
		return err_nomem(e, sizeof *row, "a table");
	for (size_t i = 0; i < n; i++) {
		const struct net_bench_row *r = &row[i];
		char size[32], rate[32], share[32], trip[32], cpu[32];
		if (json) {
			fprintf(cli_out(),
				"{\"row\": \"link\", \"link\": \"%s\", \"bytes\": %llu, "
				"\"mbyte_per_s\": %.2f, \"of_tcp\": %.4f, "
				"\"cpu_s_per_gb\": %.3f, \"round_trip_us\": %.1f}\n",
				r->link, (unsigned long long)r->message, r->bytes_per_second * 1e-6,
				r->share_of_tcp, r->cpu_per_gb, r->round_trip_us);
			continue;
		}
		snprintf(rate, sizeof rate, r->bytes_per_second < 1e9 ? "%.1f MB/s" : "%.0f MB/s",
			 r->bytes_per_second * 1e-6);
		snprintf(share, sizeof share, "%.0f %%", 100 * r->share_of_tcp);
		snprintf(cpu, sizeof cpu, "%.2f", r->cpu_per_gb);
		snprintf(trip, sizeof trip, "%.0f us", r->round_trip_us);
		cli_table_add(t, (const char *const[]){ r->link,
							cli_bytes(r->message, size, sizeof size),
							rate, share, cpu, trip });
	}
	if (!json) {
		cli_heading("%s", heading);
		cli_table_print(t, cli_out());
	}
	fflush(cli_out());
	return 0;
}

int bench_links_here(bool json, struct err *e)
{
	struct net_bench_row row[NET_BENCH_LINKS * SIZES];
	size_t n = 0;
	TRY(net_bench_loopback(sizes, SIZES, seconds, row, &n, e));
	return print_links(
		"Links on loopback (tls: what several machines use, x2 over two connections "
		"(links_per_peer); shm: processes of one machine; loop: threads of one process)",
		row, n, json, e);
}

int bench_links_between(const struct bench_links *o, bool json, struct err *e)
{
	char host[NET_ADDRESS], heading[NET_ADDRESS + 32], path[PATH_MAX];
	struct key_pair key;
	struct net_bench_place at = { .host = host,
				      .peer = o->peer,
				      .plain = o->plain,
				      .connections = (unsigned)o->connections };
	if (o->serve && o->to)
		return err_set(e, ERR_USAGE,
			       "--serve and --to: one machine serves, the other measures");
	address_parts(o->serve ? o->serve : o->to, host, &at.port);
	if (!host[0] || !at.port || at.port > 65536 - NET_BENCH_PORTS)
		return err_set(e, ERR_USAGE,
			       "%s: HOST:PORT was expected; this port and the next three are used",
			       o->serve ? o->serve : o->to);
	if (o->peer) {
		TRY(key_path(o->key_file, path, sizeof path, e));
		TRY(key_pair_load(path, &key, e));
		at.key = &key;
	}
	struct net_bench_row row[NET_BENCH_LINKS * SIZES];
	size_t n = 0;
	int rc = o->serve ? net_bench_serve(&at, net_in(patience), e)
			  : net_bench_measure(&at, sizes, SIZES, seconds, row, &n, e);
	if (o->peer)
		key_pair_wipe(&key);
	if (rc < 0 || o->serve)
		return rc;
	snprintf(heading, sizeof heading, "Links to %s", o->to);
	return print_links(heading, row, n, json, e);
}
