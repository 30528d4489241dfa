/* SPDX-License-Identifier: Apache-2.0 */
/* measure_talk.h - a worker's answer to PROFILE, over the link to the coordinator. */
#ifndef HS_WORKER_MEASURE_TALK_H
#define HS_WORKER_MEASURE_TALK_H

struct err;
struct frame;
struct orders;

/* An empty request is answered at once: with it the coordinator measures the time of a message and
 * its answer. Else the device is measured (measure_serve.h); what the coordinator says meanwhile
 * ends the measurement: ABORT and FINISH with ERR_CANCELLED, any message but an empty PROFILE with
 * ERR_PROTOCOL. */
int measure_answer(struct orders *o, const char *device, const char *cache_dir,
		   const struct frame *f, struct err *e);

#endif
