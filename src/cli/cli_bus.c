/* SPDX-License-Identifier: Apache-2.0 */
/* cli_bus.c - the end of a process whose mapped file became shorter: a line that names the file.
 * Reading such a page sends SIGBUS; nothing can take the place of the bytes. */
#include "cli/cli.h"

#include "base/text.h"
#include "file/map.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Only what a handler may call. */
static void say(const char *path)
{
	static const char before[] = "error: ",
			  after[] = ": the file became shorter while it was in use, or its disk "
				    "cannot be read: put it back and start again\n";
	char line[4096];
	size_t n = strnlen(path, sizeof line - sizeof before - sizeof after), at = 0;
	memcpy(line, before, sizeof before - 1);
	at += sizeof before - 1;
	memcpy(line + at, path, n);
	at += text_safe(line + at, n, TEXT_LINE);
	memcpy(line + at, after, sizeof after - 1);
	at += sizeof after - 1;
	ssize_t written = write(STDERR_FILENO, line, at);
	(void)written;
}

static void on_bus(int sig, siginfo_t *info, void *context)
{
	(void)context;
	const char *path = map_path_at(info->si_addr);
	if (path) {
		say(path);
		_exit(1);
	}
	signal(sig, SIG_DFL); /* the same instruction runs again, and the process ends as usual */
}

void cli_name_lost_files(void)
{
	struct sigaction sa = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };
	sigaction(SIGBUS, &sa, NULL);
}
