/* SPDX-License-Identifier: Apache-2.0 */
/* measure_talk.h - PROFILE and PROFILED over the link to the coordinator, for measure_serve(). */
#ifndef HS_WORKER_MEASURE_TALK_H
#define HS_WORKER_MEASURE_TALK_H

#include "worker/measure_serve.h"

struct orders;

/* What else the coordinator may say while devices are measured ends the measurement: ABORT and
 * FINISH with ERR_CANCELLED, any other message with ERR_PROTOCOL. */
struct measure_talk measure_talk_with(struct orders *o);

#endif
