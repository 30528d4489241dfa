/* SPDX-License-Identifier: Apache-2.0 */
/* control.h - the control socket of a job: who runs on this machine, and how far it is.
 *
 * The process that coordinates listens at a Unix socket JOB.sock in the folder where the processes
 * of this user meet (shm_meet.h); JOB is the name of the run's folder and the number of the
 * process. Only this user's processes are answered (SO_PEERCRED). Who connects says one line and
 * gets one JSON object:
 *   status   how the job stands: pid, config, output_dir, step, steps, loss, and its workers
 *   leave ID that worker is to leave the job: {"leaves": ID, "output_dir"}, or {} where it has none
 *            of this name
 * Invitations and peers are files (peers/peer_list.h), which a job reads as it runs, so that they
 * hold with and without one. */
#ifndef HS_OPS_CONTROL_H
#define HS_OPS_CONTROL_H

#include <jansson.h>
#include <stdbool.h>

struct err;
struct control;

/* A socket that cannot be made is an error that the caller may pass over. */
int control_open(const char *output_dir, struct control **c_p, struct err *e);
/* How the job stands now; copied. */
void control_state(struct control *c, const char *json);
/* The next worker that somebody wants to leave, each once for each time; false: none. */
enum { CONTROL_ID = 128 };
bool control_leave(struct control *c, char id_p[CONTROL_ID]);
void control_close(struct control *c); /* NULL is allowed */

/* Says `word` to each job of this user that runs here. `each` gets the answers; one that does not
 * answer is left out. Returns how many answered. */
typedef void (*control_each_fn)(void *ctx, const json_t *answer);
int control_ask(const char *word, control_each_fn each, void *ctx, struct err *e);

#endif
