/* SPDX-License-Identifier: Apache-2.0 */
/* opencl_queue.c - see opencl.h: errors of the driver, how far `queue` is, waiting for it. */
#include "base/err.h"
#include "dev/opencl.h"

/* launches after which a mark is set, and a driver that waits for more is told to begin */
#define MARK_EVERY 16
#define MARK_FLOPS 2e10 /* or as much work in products */

static bool is_lost(int32_t code)
{
	return code == CL_DEVICE_NOT_AVAILABLE || code == CL_EXEC_STATUS_ERROR ||
	       code == CL_INVALID_DEVICE || code == CL_INVALID_CONTEXT ||
	       code == CL_INVALID_COMMAND_QUEUE || code == CL_ILLEGAL_ACCESS_NV;
}

int opencl_failed(struct opencl *c, int32_t code, const char *what, struct err *e)
{
	if (code == CL_SUCCESS)
		return 0;
	if (is_lost(code)) {
		c->lost = true;
		return err_set(e, ERR_DEVICE,
			       "%s is lost (%s: %s): it was removed, reset, or its driver failed "
			       "(see the system's log); "
			       "'heteroshard devices' shows what is still there",
			       c->who, what, opencl_error(code));
	}
	const bool memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE ||
			    code == CL_OUT_OF_RESOURCES || code == CL_OUT_OF_HOST_MEMORY;
	/* Intel's driver answers so when a kernel hung, NVIDIA's when one failed, too */
	return err_set(e, memory ? ERR_NOMEM : ERR_DEVICE, "%s: %s: %s%s", c->who, what,
		       opencl_error(code),
		       code == CL_OUT_OF_RESOURCES ? " (no memory, or the driver has ended a "
						     "kernel: see the system's log)"
						   : "");
}

int32_t opencl_wait_event(struct opencl *c, cl_event v, const char *what)
{
	dev_watch_begin(&c->watch, what);
	const int32_t rc = c->lib->f.clWaitForEvents(1, &v);
	dev_watch_end(&c->watch);
	return rc;
}

static void drop_oldest(struct opencl *c)
{
	c->lib->f.clReleaseEvent(c->mark[c->first_mark]);
	c->first_mark = (c->first_mark + 1) % OPENCL_MARKS;
	c->marks--;
}

static int32_t wait_oldest(struct opencl *c, const char *what)
{
	const uint64_t at = c->mark_at[c->first_mark];
	const int32_t rc = opencl_wait_event(c, c->mark[c->first_mark], what);
	drop_oldest(c);
	if (rc == CL_SUCCESS && c->finished < at)
		c->finished = at;
	return rc;
}

/* When there is no room for another mark, waits until the oldest has been reached. */
int32_t opencl_launched(struct opencl *c, double flops)
{
	const struct cl_functions *f = &c->lib->f;
	int32_t rc = CL_SUCCESS;
	c->launched++;
	c->flops += flops;
	if (++c->queued < MARK_EVERY && c->flops < MARK_FLOPS)
		return CL_SUCCESS;
	c->queued = 0;
	c->flops = 0;
	if (c->marks == OPENCL_MARKS)
		rc = wait_oldest(c, "a kernel");
	const int last = (c->first_mark + c->marks) % OPENCL_MARKS;
	if (rc == CL_SUCCESS)
		rc = f->clEnqueueMarkerWithWaitList(c->queue, 0, NULL, &c->mark[last]);
	if (rc != CL_SUCCESS)
		return rc;
	c->mark_at[last] = c->launched;
	c->marks++;
	return f->clFlush(c->queue);
}

int32_t opencl_wait_until(struct opencl *c, uint64_t at, const char *what)
{
	int32_t rc = CL_SUCCESS;
	while (c->marks && c->mark_at[c->first_mark] <= at && rc == CL_SUCCESS)
		rc = wait_oldest(c, what);
	return rc;
}

int32_t opencl_fork(struct opencl *c)
{
	const struct cl_functions *f = &c->lib->f;
	if (c->fork)
		f->clReleaseEvent(c->fork);
	c->fork = NULL;
	c->may.forked = false;
	const int32_t rc = f->clEnqueueMarkerWithWaitList(c->queue, 0, NULL, &c->fork);
	if (rc == CL_SUCCESS)
		gpu_forked(&c->may, c->launched, c->seen);
	return rc;
}

int32_t opencl_start_ahead(struct opencl *c, cl_kernel k, size_t lanes)
{
	const struct cl_functions *f = &c->lib->f;
	const size_t local = GPU_LANES;
	cl_event join;
	int32_t rc = f->clFlush(c->queue); /* else the fork might never come */
	if (rc == CL_SUCCESS)
		rc = f->clEnqueueNDRangeKernel(c->side, k, 1, NULL, &lanes, &local, 1, &c->fork,
					       &join);
	if (rc != CL_SUCCESS)
		return rc;
	rc = f->clFlush(c->side);
	if (rc == CL_SUCCESS)
		rc = f->clEnqueueBarrierWithWaitList(c->queue, 1, &join, NULL);
	f->clReleaseEvent(join);
	return rc;
}

static void drop_tail(struct opencl *c)
{
	if (c->tail)
		c->lib->f.clReleaseEvent(c->tail);
	c->tail = NULL;
}

int32_t opencl_finish(struct opencl *c, const char *what)
{
	drop_tail(c);
	int32_t rc = opencl_wait_until(c, UINT64_MAX, what);
	c->queued = 0;
	c->flops = 0;
	dev_watch_begin(&c->watch, what);
	if (rc == CL_SUCCESS)
		rc = c->lib->f.clFinish(c->queue);
	if (rc == CL_SUCCESS)
		rc = c->lib->f.clFinish(c->copy);
	dev_watch_end(&c->watch);
	if (rc == CL_SUCCESS) {
		c->finished = c->launched;
		c->seen = c->copies;
	}
	return rc;
}

/* Whether an event has come; its error, if it is one. */
static int32_t look_at(struct opencl *c, cl_event v, bool *come_p)
{
	int32_t status = 1;
	const int32_t rc = c->lib->f.clGetEventInfo(v, CL_EVENT_COMMAND_EXECUTION_STATUS,
						    sizeof status, &status, NULL);
	*come_p = status <= 0;
	return rc != CL_SUCCESS ? rc : status < 0 ? status : CL_SUCCESS;
}

int opencl_under_way(struct opencl *c, struct err *e)
{
	const struct cl_functions *f = &c->lib->f;
	int32_t rc = CL_SUCCESS;
	bool come = true, some = !atomic_load_explicit(&c->watch.since, memory_order_relaxed);
	if (c->finished == c->launched)
		return 0;
	if (c->tail && c->tail_at != c->launched)
		drop_tail(c);
	if (!c->tail) {
		rc = f->clEnqueueMarkerWithWaitList(c->queue, 0, NULL, &c->tail);
		c->tail_at = c->launched;
		if (rc == CL_SUCCESS)
			rc = f->clFlush(c->queue);
	}
	while (rc == CL_SUCCESS && c->marks &&
	       (rc = look_at(c, c->mark[c->first_mark], &come)) == CL_SUCCESS && come) {
		drop_oldest(c);
		some = true;
	}
	if (rc == CL_SUCCESS)
		rc = look_at(c, c->tail, &come);
	if (rc != CL_SUCCESS || come) {
		dev_watch_end(&c->watch);
		drop_tail(c);
		c->finished = c->launched;
		return opencl_failed(c, rc, "a kernel", e);
	}
	if (some)
		dev_watch_begin(&c->watch, "a kernel");
	return 1;
}

void opencl_queue_release(struct opencl *c)
{
	while (c->marks)
		drop_oldest(c);
	drop_tail(c);
	if (c->fork)
		c->lib->f.clReleaseEvent(c->fork);
	c->fork = NULL;
}
