/* SPDX-License-Identifier: Apache-2.0 */
/* A plan.json from anywhere, for a small profile: it is read and whole, or refused with one
 * line; what was read survives the way through JSON. An input that ends with a space is read by a
 * job that has passes of its own. */
#include "base/buf.h"
#include "base/err.h"
#include "plan/plan.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define EXPERTS                                                                                    \
	"\"experts_forward_ms\":{\"linear\":[0.5,0]},\"experts_backward_ms\":{\"linear\":[1,0]}"

static const char cluster[] =
	"{\"version\":1,\"model\":{\"layers\":6,\"hidden\":64,\"parameters_per_layer\":1e6,"
	"\"experts\":4,\"top_k\":2,\"expert_parameters\":1e5},"
	"\"sequence_len\":128,\"global_batch\":"
	"8,\"devices\":["
	"{\"id\":\"a\",\"host\":\"x\",\"memory_gib\":8,\"forward_ms\":{\"linear\":[2,0]},"
	"\"backward_ms\":{\"linear\":[4,0]}," EXPERTS "},"
	"{\"id\":\"b\",\"host\":\"y\",\"memory_gib\":8,\"forward_ms\":{\"linear\":[1,0]},"
	"\"backward_ms\":{\"linear\":[2,0]}," EXPERTS "},"
	"{\"id\":\"c\",\"host\":\"y\",\"memory_gib\":1,\"forward_ms\":{\"linear\":[1,0]},"
	"\"backward_ms\":{\"linear\":[2,0]}," EXPERTS "}],"
	"\"links\":[{\"hosts\":[\"x\",\"y\"],\"bandwidth_gbytes_per_s\":0.1}]}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static struct profile p;
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	static const int pass[] = { 5, 3 };
	struct plan plan;
	struct err e = { 0 };

	if (!p.devices && profile_read_text(&p, cluster, strlen(cluster), "cluster", &e) < 0)
		abort();
	if (n && data[n - 1] == ' ') {
		o.pass = pass;
		o.passes = 2;
	}
	int rc = plan_read_text(&p, &o, (const char *)data, n, "fuzz.json", &plan, &e);
	if (rc < 0) {
		if (rc == ERR_INTERNAL || !e.msg[0] || strchr(e.msg, '\n'))
			abort();
		return 0;
	}
	if (plan_check(&p, &plan, &e) < 0 || !(plan.simulated_ms > 0))
		abort();
	struct buf text = BUF_INIT;
	struct plan again;
	plan_to_json(&p, &plan, &text);
	if (plan_read_text(&p, &o, text.p, text.n, "again.json", &again, &e) < 0)
		abort();
	buf_release(&text);
	plan_release(&again);
	plan_release(&plan);
	return 0;
}
