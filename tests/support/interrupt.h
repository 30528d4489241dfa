/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.h - Ctrl-C, as a loop sees it: a flag that a signal sets. The signal goes to the thread
 * that looks at the flag, so no two threads share it. It uses SIGUSR1. */
#ifndef HS_TESTS_SUPPORT_INTERRUPT_H
#define HS_TESTS_SUPPORT_INTERRUPT_H

#include <pthread.h>
#include <signal.h>

extern volatile sig_atomic_t interrupt_flag;

/* From here on the flag is 0. Before the thread that looks at it begins, or in it. */
void interrupt_clear(void);
void interrupt_thread(pthread_t who);

#endif
