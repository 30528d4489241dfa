/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.c - see interrupt.h. */
#include "support/interrupt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

volatile sig_atomic_t interrupt_flag;

static void on_signal(int number)
{
	(void)number;
	interrupt_flag = 1;
}

void interrupt_clear(void)
{
	const struct sigaction a = { .sa_handler = on_signal };
	interrupt_flag = 0;
	assert_int_equal(sigaction(SIGUSR1, &a, NULL), 0);
}

void interrupt_thread(pthread_t who) { pthread_kill(who, SIGUSR1); }
