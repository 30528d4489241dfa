/* SPDX-License-Identifier: Apache-2.0 */
/* role.c - which of the configuration's machines this one is: by address first, by host name where
 * no address fits. */
#include "job/role.h"

#include "base/buf.h"
#include "base/err.h"
#include "net/address.h"
#include "net/net.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ADDRESSES = 128 };

struct self {
	char host[256];
	char address[ADDRESSES][NI_MAXHOST];
	int n;
};

static void look(struct self *s)
{
	struct ifaddrs *all;
	*s = (struct self){ 0 };
	gethostname(s->host, sizeof s->host - 1);
	if (getifaddrs(&all) < 0)
		return;
	for (struct ifaddrs *i = all; i && s->n < ADDRESSES; i = i->ifa_next) {
		int f = i->ifa_addr ? i->ifa_addr->sa_family : 0;
		socklen_t len =
			f == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
		if ((f == AF_INET || f == AF_INET6) &&
		    getnameinfo(i->ifa_addr, len, s->address[s->n], NI_MAXHOST, NULL, 0,
				NI_NUMERICHOST) == 0)
			s->n++;
	}
	freeifaddrs(all);
}

static bool given(const char *s) { return s && s[0]; }

/* Names are resolved; 127.0.0.0/8 belongs to every machine. */
static bool own_address(const struct self *s, const char *text)
{
	char with_port[NET_ADDRESS], out[NET_ADDRESS];
	bool loopback = false;
	struct err ignored = { 0 };
	snprintf(with_port, sizeof with_port, strchr(text, ':') ? "[%.250s]:1" : "%.250s:1", text);
	if (address_resolve(with_port, false, out, &loopback, &ignored) < 0)
		return false;
	if (loopback)
		return true;
	char *host = out, *end = strrchr(out, ':');
	if (end)
		*end = 0;
	if (*host == '[') {
		host++;
		host[strcspn(host, "]")] = 0;
	}
	for (int i = 0; i < s->n; i++)
		if (!strcasecmp(s->address[i], host))
			return true;
	return false;
}

static bool own_name(const struct self *s, const char *name)
{
	size_t n = strcspn(s->host, ".");
	return given(name) && (!strcasecmp(name, s->host) ||
			       (strlen(name) == n && !strncasecmp(name, s->host, n)));
}

/* by_name false: the address decides; the host name only for an entry without address. */
static bool is_own(const struct self *s, const char *ip, const char *hostname, bool by_name)
{
	if (by_name)
		return own_name(s, hostname);
	if (given(ip))
		return own_address(s, ip);
	return given(hostname) && (own_name(s, hostname) || own_address(s, hostname));
}

bool role_is_here(const char *ip, const char *hostname)
{
	struct self s;
	look(&s);
	return is_own(&s, ip, hostname, false);
}

static int by_id(const struct config *c, const char *id, struct role *r, struct err *e)
{
	r->kind = ROLE_WORKER;
	r->ncandidate = 1;
	if (!strcmp(id, "local")) {
		r->candidate[0] = ROLE_LOCAL;
		return 0;
	}
	struct buf b = BUF_INIT;
	for (size_t i = 0; i < c->nworkers; i++) {
		if (!strcmp(c->workers[i].id, id)) {
			r->candidate[0] = (int)i;
			buf_release(&b);
			return 0;
		}
		buf_addf(&b, "%s'%.60s'", i ? ", " : "", c->workers[i].id);
	}
	int rc = err_set(e, ERR_USAGE, "--worker %.60s: %s has no worker of this id (%.300s)", id,
			 c->path, b.n ? b.p : "it has none");
	buf_release(&b);
	return rc;
}

static int no_entry_fits(const struct config *c, const struct self *s, struct err *e)
{
	struct buf mine = BUF_INIT, listed = BUF_INIT;
	for (int i = 0; i < s->n; i++)
		if (strncmp(s->address[i], "127.", 4) && strcmp(s->address[i], "::1") &&
		    !strchr(s->address[i], '%'))
			buf_addf(&mine, "%s%s", mine.n ? ", " : "", s->address[i]);
	buf_addf(&listed, "coordinator %s",
		 given(c->coordinator.ip) ? c->coordinator.ip : c->coordinator.hostname);
	for (size_t i = 0; i < c->nworkers; i++)
		buf_addf(&listed, ", worker '%.40s' %s", c->workers[i].id,
			 given(c->workers[i].ip) ? c->workers[i].ip : c->workers[i].hostname);
	int rc = err_set(e, ERR_USAGE,
			 "%s: none of this machine's addresses (%.200s; host name %.60s) is in it "
			 "(%.400s): correct it, or force the role "
			 "with --role coordinator or --worker ID",
			 c->path, mine.n ? mine.p : "none but loopback", s->host, listed.p);
	buf_release(&mine);
	buf_release(&listed);
	return rc;
}

int role_find(const struct config *c, const char *forced, const char *worker, struct role *r,
	      struct err *e)
{
	struct self s;
	*r = (struct role){ 0 };
	if (forced && strcmp(forced, "coordinator") && strcmp(forced, "worker"))
		return err_set(e, ERR_USAGE, "--role %.40s: 'coordinator' or 'worker'", forced);
	if (!c->coordinator.given) {
		if (forced || worker)
			return err_set(e, ERR_USAGE,
				       "%s has no 'coordinator': it describes a job of one "
				       "machine, without roles",
				       c->path);
		return 0;
	}
	if (forced && !strcmp(forced, "coordinator")) {
		if (worker)
			return err_set(
				e, ERR_USAGE,
				"--role coordinator and --worker %.60s contradict each other",
				worker);
		r->kind = ROLE_COORDINATOR;
		return 0;
	}
	if (worker)
		return by_id(c, worker, r, e);
	look(&s);
	for (int by_name = 0; by_name < 2; by_name++) {
		if (!forced && is_own(&s, c->coordinator.ip, c->coordinator.hostname, by_name)) {
			r->kind = ROLE_COORDINATOR;
			return 0;
		}
		for (size_t i = 0; i < c->nworkers && r->ncandidate < ROLE_CANDIDATES; i++)
			if (is_own(&s, c->workers[i].ip, c->workers[i].hostname, by_name))
				r->candidate[r->ncandidate++] = (int)i;
		if (r->ncandidate) {
			r->kind = ROLE_WORKER;
			return 0;
		}
	}
	return no_entry_fits(c, &s, e);
}
