/* SPDX-License-Identifier: Apache-2.0 */
/* seat.c - see seat.h. One row for each kind of seat. */
#include "coord/seat.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/os_calls.h"
#include "net/address.h"
#include "net/shm_meet.h"
#include "worker/serve.h"

#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK = 8 << 20, ARGS_MOST = 256 };

/* ---- a thread ---- */

static void *run_thread(void *ctx)
{
	struct seat *w = ctx;
	const struct serve o = { .net = w->net,
				 .id = w->spec->id,
				 .device = w->spec->device,
				 .cache_dir = w->spec->cache_dir,
				 .source = w->source,
				 .called_off = &w->called_off };
	worker_serve(&o, &w->err);
	net_close(w->net, 5);
	w->net = NULL;
	return NULL;
}

static int start_thread(struct seat *w, char *const *program, struct err *e)
{
	(void)program;
	TRY(net_open("loop", &(struct net_options){ .window = w->spec->window }, &w->net, e));
	TRY(net_listen(w->net, w->spec->address, NULL, e));
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	int rc = pthread_create(&w->thread, &attr, run_thread, w);
	pthread_attr_destroy(&attr);
	if (rc)
		return err_sys(e, rc, "starting a worker's thread");
	w->running = true;
	return 0;
}

static void stop_thread(struct seat *w, double patience)
{
	(void)patience;
	if (w->running)
		pthread_join(w->thread, NULL);
	if (w->net)
		net_close(w->net, 0);
	w->net = NULL;
	w->running = false;
}

/* ---- a process ---- */

static bool taken(const char *address)
{
	char text[NET_ADDRESS];
	bool loopback, busy = false;
	struct err ignored = { 0 };
	if (address_resolve(address, true, text, &loopback, &ignored) < 0)
		return false;
	char *host = text, *port = strrchr(text, ':');
	if (!port)
		return false;
	*port++ = 0;
	if (*host == '[') {
		host++;
		host[strcspn(host, "]")] = 0;
	}
	struct addrinfo *a, hint = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
				     .ai_socktype = SOCK_STREAM };
	if (getaddrinfo(host, port, &hint, &a))
		return false;
	int fd = os_socket(a->ai_family, SOCK_STREAM, OS_WAITS), on = 1;
	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
		busy = bind(fd, a->ai_addr, a->ai_addrlen) < 0 && errno == EADDRINUSE;
		close(fd);
	}
	freeaddrinfo(a);
	return busy;
}

bool seat_is_taken(const struct seat_spec *s)
{
	char number[NET_ADDRESS];
	bool loopback;
	struct err ignored;
	int fd;
	if (s->by_port && taken(s->address))
		return true;
	if (address_resolve(s->address, true, number, &loopback, &ignored) < 0 ||
	    meet_connect(number, &fd, &ignored) != 1)
		return false;
	close(fd);
	return true;
}

static int start_process(struct seat *w, char *const *program, struct err *e)
{
	char *args[ARGS_MOST + 3];
	size_t n = 0;
	if (w->spec->handed && taken(w->spec->address))
		return err_set(
			e, ERR_NET,
			"worker '%s': another program, or another user's, listens at %s: end "
			"it, or write another 'port' into the configuration",
			w->spec->id, w->spec->address);
	if (seat_is_taken(w->spec)) {
		log_info("worker '%s': something already listens at %s; it is used "
			 "(a worker of another job on this machine will refuse: then give this job "
			 "other ports)",
			 w->spec->id, w->spec->address);
		return 0;
	}
	for (; program && program[n]; n++) {
		if (n >= ARGS_MOST)
			return err_set(e, ERR_USAGE,
				       "too many key=value arguments to start a worker with; put "
				       "them into the file");
		args[n] = program[n];
	}
	if (!n)
		return err_set(e, ERR_INTERNAL, "worker '%s': no program to start it with",
			       w->spec->id);
	args[n++] = (char *)"--worker";
	args[n++] = (char *)w->spec->id;
	args[n] = NULL;
	/* A worker ends with its coordinator, however that ends. Ctrl-C goes to the coordinator,
	 * which stops the workers. */
	const char *handed = w->spec->handed ? w->spec->handed : "";
	if (os_spawn_told(args[0], args, handed, strlen(handed), &w->pid, &w->tie, e) < 0)
		return err_prefix(e, "worker '%s'", w->spec->id);
	w->running = true;
	return 0;
}

static void reap(struct seat *w, int flags)
{
	if (w->running && w->pid > 0 && waitpid(w->pid, &w->status, flags) == w->pid) {
		w->running = false;
		close(w->tie);
	}
}

static void stop_process(struct seat *w, double patience)
{
	for (int64_t end = net_in(patience); w->running && clock_now() < end;) {
		reap(w, WNOHANG);
		if (w->running)
			usleep(10000);
	}
	if (w->running) {
		kill(w->pid, SIGKILL);
		reap(w, 0);
	}
}

/* ---- on another machine ---- */

static int start_remote(struct seat *w, char *const *program, struct err *e)
{
	(void)w;
	(void)program;
	(void)e;
	return 0;
}

static void stop_remote(struct seat *w, double patience)
{
	(void)w;
	(void)patience;
}

static const struct {
	int (*start)(struct seat *w, char *const *program, struct err *e);
	void (*stop)(struct seat *w, double patience);
} kinds[] = {
	[SEAT_THREAD] = { start_thread, stop_thread },
	[SEAT_PROCESS] = { start_process, stop_process },
	[SEAT_REMOTE] = { start_remote, stop_remote },
	[SEAT_INVITED] = { start_remote, stop_remote },
};

int seat_start(struct seat *w, char *const *program, struct err *e)
{
	return kinds[w->spec->kind].start(w, program, e);
}

bool seat_ended(struct seat *w, char *how, size_t cap)
{
	if (w->pid <= 0)
		return false;
	reap(w, WNOHANG);
	if (w->running)
		return false;
	if (WIFSIGNALED(w->status))
		snprintf(how, cap, "was killed by signal %d%s", WTERMSIG(w->status),
			 WTERMSIG(w->status) == SIGKILL ? " (out of memory?)" : "");
	else
		snprintf(how, cap, "ended with status %d", WEXITSTATUS(w->status));
	return true;
}

bool seat_replaced(struct seat *w)
{
	if (w->running || w->spec->handed || !seat_is_taken(w->spec))
		return false;
	log_info("worker '%s' was started by hand at the same moment; that one is used",
		 w->spec->id);
	w->pid = 0;
	return true;
}

void seat_stop(struct seat *w, double patience, bool reached)
{
	w->called_off = !reached;
	if (w->spec)
		kinds[w->spec->kind].stop(w, reached ? patience : 0);
}
