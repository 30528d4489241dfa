/* SPDX-License-Identifier: Apache-2.0 */
/* measure_host.c - see measure_host.h. */
#include "runtime/measure_host.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/stat.h"
#include "dev/dev.h"
#include "net/frame.h"

#include <stdio.h>
#include <string.h>

enum { MESSAGE = 8 << 20, MESSAGES = 5 };
enum { ROWS = 2048, COLS = 2048, RUNS = 5 }; /* 64 MiB of float32 value, gradient, moments */

static const double enough = 2; /* seconds; Muon's products take long */

static size_t bytes_of(const struct dev_buf *b) { return b ? b->size : 0; }

static double state_gib(const struct param *p)
{
	size_t n = bytes_of(p->grad) + (p->value != p->store[0] ? bytes_of(p->value) : 0);
	for (size_t i = 0; i < PARAM_STATES; i++)
		n += bytes_of(p->state[i]);
	return (double)n / 1073741824.0;
}

static int time_updates(const struct measure_request *q, const struct optimizer *o, struct param *p,
			struct dmem *scratch, double *seconds_p, struct err *e)
{
	struct norm_buffer norms = { 0 };
	const struct optim_work work = { scratch, &norms };
	double t[RUNS + 1], all = 0;
	int rc = optim_init(o, p, &q->optim, e), n = 0;
	for (int i = 0; i <= RUNS && rc >= 0 && all < enough; i++) {
		const struct optim_step s = { (uint64_t)i + 1, 1e-6f, 1e-3f };
		double sum;
		const int64_t begin = clock_now();
		rc = grad_sqnorm(p, scratch, &norms, &sum, e);
		if (rc >= 0)
			rc = optim_update(o, p, &q->optim, &s, &work, e);
		t[n] = clock_seconds(clock_now() - begin);
		all += t[n++];
	}
	/* the first one warms up, where there is a second */
	if (rc >= 0)
		*seconds_p = (n > 1 ? stat_median(t + 1, (size_t)n - 1) : t[0]) / state_gib(p);
	mem_free(norms.sum);
	return rc;
}

int measure_host_update(const struct measure_request *q, double *seconds_p, struct err *e)
{
	const int64_t dim[2] = { ROWS, COLS };
	const struct optimizer *o = optimizer_find(q->optimizer);
	struct dev *host = NULL;
	struct dmem scratch;
	struct param p = { 0 };
	*seconds_p = 0;
	if (!o)
		return 0;
	TRY(dev_open("cpu", &host, e));
	dmem_init(&scratch, host, 4 << 20);
	int rc = param_init_plain(&p, host, "layers.0.matrix", 2, dim, q->opt.act, true, e);
	if (rc >= 0)
		rc = time_updates(q, o, &p, &scratch, seconds_p, e);
	param_release(&p);
	dmem_release(&scratch);
	dev_close(host);
	return rc;
}

/* Of a link: a message there and back, as group_sum.c and gather.c do it: from the device, into the
 * link's memory, with its checksum; out of that memory, checked, taken, to the device. */
static int one_message(struct dev_ref at, unsigned char *own, unsigned char *link,
		       unsigned char *came, struct err *e)
{
	struct frame f = { .kind = FRAME_SUM,
			   .dtype = DT_U8,
			   .ndim = 1,
			   .dim = { MESSAGE },
			   .payload = link + FRAME_HEADER };
	size_t n = 0;
	TRY(dev_download(own, at, MESSAGE, e));
	memcpy(link + FRAME_HEADER, own, MESSAGE);
	TRY(frame_encode(&f, link, FRAME_HEADER + MESSAGE, &n, e));
	memcpy(came, link, n);
	TRY(frame_parse(came, n, &f, e));
	memcpy(own, f.payload, MESSAGE);
	return dev_upload(at, own, MESSAGE, e);
}

int measure_messages(struct dev *dev, double *seconds_p, struct err *e)
{
	const size_t each = FRAME_HEADER + MESSAGE;
	struct dev_buf *b = NULL;
	double t[MESSAGES];
	TRY(dev_alloc(dev, MESSAGE, &b, e));
	unsigned char *own = mem_aligned(64, MESSAGE), *came = mem_aligned(64, each),
		      *link = mem_aligned(64, MESSAGES * each);
	int rc = own && came && link ? 0 : err_nomem(e, (MESSAGES + 2) * each, "messages");
	if (rc >= 0) { /* so that it is there */
		memset(own, 0, MESSAGE);
		memset(came, 0, each);
		memset(link, 0, MESSAGES * each);
		rc = dev_zero(DEV_REF(b, 0), MESSAGE, e);
	}
	for (size_t i = 0; i < MESSAGES && rc >= 0; i++) {
		const int64_t begin = clock_processor();
		rc = one_message(DEV_REF(b, 0), own, link + i * each, came, e);
		t[i] = clock_seconds(clock_processor() - begin);
	}
	if (rc >= 0)
		*seconds_p = stat_median(t, MESSAGES) / 2 / MESSAGE;
	mem_free(own);
	mem_free(came);
	mem_free(link);
	dev_free(b);
	return rc;
}

void measure_cores(char *out, size_t cap)
{
	enum { MOST = 1024 };
	int number[MOST], n = os_processors(number, MOST);
	size_t at = 0;
	out[0] = 0;
	for (int i = 0; i < n; i++) {
		const int first = number[i];
		while (i + 1 < n && number[i + 1] == number[i] + 1)
			i++;
		at += (size_t)snprintf(out + at, cap - at, number[i] > first ? "%s%d-%d" : "%s%d",
				       at ? "," : "", first, number[i]);
		if (at >= cap || first >= MOST) {
			out[0] = 0;
			return;
		}
	}
}
