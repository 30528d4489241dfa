/* SPDX-License-Identifier: Apache-2.0 */
/* fake_gates.h - part of fake_opencl.c: when kernels run, as early and as late as the interface
 * allows.
 *
 *   early  kernels of a context's first queue wait until the host waits for something, or until
 *          another queue waits for them; those of other queues run at once when they are given
 *   late   kernels of other queues wait until the host waits for something
 *   deaf   early, and no queue waits for another one
 *
 * A kernel waits for an event of the host's, its gate. */
#ifndef FAKE_GATES_H
#define FAKE_GATES_H

enum { MOST = 4096, CL_COMPLETE = 0 };

cl_event clCreateUserEvent(cl_context c, int32_t *rc);
int32_t clSetUserEventStatus(cl_event v, int32_t status);

/* kernels of other queues, and those that ran while the first queue had some in front of them */
__attribute__((visibility("default"))) long fake_others, fake_beside;

static struct queue {
	cl_queue q;
	cl_context context;
	bool first;
} queues[MOST];
static struct {
	cl_event v;
	long gates; /* made before it */
} markers[MOST];
static cl_event gate[MOST];
static long nqueues, nmarkers, gates, opened; /* gates [opened, gates) are closed */
static cl_event last;                         /* of the first queue's last kernel; late */

static bool early(void) { return fault("early") >= 0 || fault("deaf") >= 0; }
static bool late(void) { return fault("late") >= 0; }
static bool deaf(void) { return fault("deaf") >= 0; }

static const struct queue *queue_of(cl_queue q)
{
	for (long i = nqueues; i-- > 0;)
		if (queues[i].q == q)
			return &queues[i];
	return NULL;
}

static cl_event new_gate(cl_queue q)
{
	int32_t rc;
	if (gates - opened == MOST)
		abort();
	return gate[gates++ % MOST] = clCreateUserEvent(queue_of(q)->context, &rc);
}

static void open_until(long n)
{
	for (; opened < n && opened < gates; opened++) {
		clSetUserEventStatus(gate[opened % MOST], CL_COMPLETE);
		REAL(clReleaseEvent)(gate[opened % MOST]);
	}
}

static void set_last(cl_event v)
{
	if (last)
		REAL(clReleaseEvent)(last);
	last = v;
}

/* The host waits. Late: what does not wait for the gates has the time to run. */
static void open_all(void)
{
	int32_t status = 1;
	for (int i = 0; i < 20 && late() && opened < gates && last && status > 0; i++) {
		REAL(clGetEventInfo)
		(last, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
		nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
	}
	open_until(gates);
}

static long gates_before(cl_event v)
{
	for (long i = nmarkers; i-- > 0 && i > nmarkers - MOST;)
		if (markers[i % MOST].v == v)
			return markers[i % MOST].gates;
	return 0;
}

/* A kernel in its order. */
static int32_t in_order(cl_queue q, cl_kernel k, uint32_t dim, const size_t *off,
			const size_t *global, const size_t *local, uint32_t n, const void *wait,
			void *event)
{
	const cl_event *const events = wait;
	const bool first = queue_of(q)->first;
	cl_event all[8], own = NULL;
	uint32_t has = 0;
	fake_others += !first;
	for (uint32_t i = 0; i < n && i < 7 && !deaf(); i++) {
		all[has++] = events[i];
		if (early())
			open_until(gates_before(events[i]));
	}
	if (first == early())
		all[has++] = new_gate(q);
	const int32_t rc = REAL(clEnqueueNDRangeKernel)(q, k, dim, off, global, local, has,
							has ? all : NULL, &own);
	if (rc != CL_SUCCESS)
		return rc;
	REAL(clFlush)(q);
	if (early() && !first) {
		REAL(clWaitForEvents)(1, &own);
		fake_beside += opened < gates;
	}
	if (event)
		*(cl_event *)event = own;
	else if (first && late())
		set_last(own);
	else
		REAL(clReleaseEvent)(own);
	return rc;
}

cl_queue clCreateCommandQueue(cl_context c, cl_device d, uint64_t how, int32_t *rc)
{
	cl_queue q = REAL(clCreateCommandQueue)(c, d, how, rc);
	bool first = true;
	for (long i = 0; i < nqueues; i++)
		first = first && queues[i].context != c;
	if (q && nqueues < MOST)
		queues[nqueues++] = (struct queue){ q, c, first };
	return q;
}

int32_t clReleaseContext(cl_context c)
{
	for (long i = 0; i < nqueues; i++)
		if (queues[i].context == c)
			queues[i--] = queues[--nqueues];
	return REAL(clReleaseContext)(c);
}

int32_t clEnqueueMarkerWithWaitList(cl_queue q, uint32_t n, const void *wait, cl_event *v)
{
	const int32_t rc = REAL(clEnqueueMarkerWithWaitList)(q, n, wait, v);
	markers[nmarkers % MOST].gates = gates;
	markers[nmarkers++ % MOST].v = v ? *v : NULL;
	return rc;
}

int32_t clEnqueueBarrierWithWaitList(cl_queue q, uint32_t n, const void *wait, cl_event *v)
{
	return n && deaf() ? CL_SUCCESS : REAL(clEnqueueBarrierWithWaitList)(q, n, wait, v);
}

int32_t clGetEventInfo(cl_event v, uint32_t what, size_t n, void *to, size_t *got)
{
	open_all();
	return REAL(clGetEventInfo)(v, what, n, to, got);
}

void *clEnqueueMapBuffer(cl_queue q, cl_mem b, uint32_t block, uint64_t how, size_t off, size_t n,
			 uint32_t nwait, const void *wait, void *event, int32_t *rc)
{
	if (block)
		open_all();
	return REAL(clEnqueueMapBuffer)(q, b, block, how, off, n, nwait, wait, event, rc);
}

int32_t clEnqueueWriteBuffer(cl_queue q, cl_mem b, uint32_t block, size_t off, size_t n,
			     const void *from, uint32_t nwait, const void *wait, void *event)
{
	if (block)
		open_all();
	return REAL(clEnqueueWriteBuffer)(q, b, block, off, n, from, nwait, wait, event);
}
#endif
