/* SPDX-License-Identifier: Apache-2.0 */
/* deadline.c - see deadline.h. */
#include "support/deadline.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWER = 3 };
#else
enum { SLOWER = 1 };
#endif

static const char *volatile name;

static void say(const char *text)
{
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		_exit(2);
}

static void is_over(int number)
{
	(void)number;
	say("# ");
	say(name);
	say(" has not ended in time\n");
	_exit(1);
}

int deadline_begin(void **state)
{
	const struct sigaction a = { .sa_handler = is_over };
	name = *state;
	alarm(DEADLINE * SLOWER);
	return sigaction(SIGALRM, &a, NULL);
}

int deadline_end(void **state)
{
	(void)state;
	alarm(0);
	return 0;
}
