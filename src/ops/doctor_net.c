/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_net.c - checks of the network (doctor.def), and of the machines of a configuration: each
 * of them runs the checks of one machine itself, over ssh. */
#include "ops/doctor_rows.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/os_calls.h"
#include "base/text.h"
#include "base/version.h"
#include "job/network.h"
#include "job/role.h"
#include "net/address.h"
#include "net/interfaces.h"
#include "net/net.h"
#include "ops/fleet.h"
#include "ops/fleet_sh.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORTS = 64, NAMES = 256, PATIENCE_MS = 3000 };

/* ---- ports ---------------------------------------------------------------------------------- */

static void add_port(unsigned *v, size_t *n, int64_t port)
{
	for (size_t i = 0; i < *n; i++)
		if (v[i] == (unsigned)port)
			return;
	if (*n < PORTS)
		v[(*n)++] = (unsigned)port;
}

/* Those at which processes of this machine listen: by the configuration, or the usual ones. */
static size_t own_ports(const struct config *c, unsigned v[PORTS])
{
	size_t n = 0;
	if (!c || !c->coordinator.given) {
		add_port(v, &n, c && c->coordinator.port ? c->coordinator.port : 9998);
		if (!c)
			add_port(v, &n, 9999);
		return n;
	}
	if (c->workers_invited || role_is_here(c->coordinator.ip, c->coordinator.hostname))
		add_port(v, &n, c->coordinator.port);
	for (size_t i = 0; i < c->nworkers; i++)
		if (!c->workers[i].invited &&
		    role_is_here(c->workers[i].ip, c->workers[i].hostname))
			add_port(v, &n, c->workers[i].port);
	return n;
}

static bool is_taken(unsigned port)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
	struct sockaddr_in b = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	const int yes = 1, no = 0;
	int fd = os_socket(AF_INET6, SOCK_STREAM, OS_WAITS), rc;
	if (fd >= 0) {
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
		rc = bind(fd, (const struct sockaddr *)&a, sizeof a);
	} else {
		fd = os_socket(AF_INET, SOCK_STREAM, OS_WAITS);
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
		rc = bind(fd, (const struct sockaddr *)&b, sizeof b);
	}
	rc = rc < 0 ? -1 : listen(fd, 1);
	bool taken = rc < 0 && errno == EADDRINUSE;
	if (fd >= 0)
		close(fd);
	return taken;
}

void check_ports(struct doctor *d)
{
	unsigned v[PORTS];
	size_t n = own_ports(d->c, v);
	for (size_t i = 0; i < n; i++) {
		char name[OS_NAME] = "", text[300], mend[120];
		pid_t pid = 0;
		if (!is_taken(v[i]))
			continue;
		bool known = os_listener(v[i], &pid, name);
		if (known && !strncmp(name, "heteroshard", 11))
			continue;
		if (known) {
			snprintf(text, sizeof text, "port %u is taken by the program %.60s", v[i],
				 name);
			snprintf(mend, sizeof mend, "kill %ld", (long)pid);
		} else {
			snprintf(text, sizeof text,
				 "port %u is taken by a program of another user: see which, or "
				 "write another port",
				 v[i]);
			snprintf(mend, sizeof mend, "sudo ss -ltnp 'sport = :%u'", v[i]);
		}
		doctor_found(d, "ports", "", text, mend);
	}
}

/* The rules of ufw are files. Other firewalls are seen from outside (check_reach). */
void check_firewall(struct doctor *d)
{
	unsigned v[PORTS];
	size_t n = own_ports(d->c, v);
	if (!os_line_with(d->root, "/etc/ufw/ufw.conf", "ENABLED=yes", NULL, 0))
		return;
	for (size_t i = 0; i < n; i++) {
		char rule[2][64], text[200], mend[80];
		snprintf(rule[0], sizeof rule[0], "### tuple ### allow tcp %u ", v[i]);
		snprintf(rule[1], sizeof rule[1], "### tuple ### allow any %u ", v[i]);
		if (os_line_with(d->root, "/etc/ufw/user.rules", rule[0], NULL, 0) ||
		    os_line_with(d->root, "/etc/ufw/user.rules", rule[1], NULL, 0))
			continue;
		snprintf(text, sizeof text, "the firewall (ufw) does not let port %u through",
			 v[i]);
		snprintf(mend, sizeof mend, "sudo ufw allow %u/tcp", v[i]);
		doctor_found(d, "firewall", "", text, mend);
	}
}

/* ---- interfaces ----------------------------------------------------------------------------- */

static bool net_file(const struct doctor *d, const char *interface, const char *file, char *text,
		     size_t n)
{
	char path[200];
	snprintf(path, sizeof path, "/sys/class/net/%.60s/%s", interface, file);
	return os_line(d->root, path, text, n);
}

static bool is_wireless(const struct doctor *d, const char *interface)
{
	char path[4200];
	snprintf(path, sizeof path, "%.3000s/sys/class/net/%.60s/wireless", d->root, interface);
	return access(path, F_OK) == 0;
}

/* The interface of the default route with the smallest metric. */
static bool default_route(const struct doctor *d, char out[OS_NAME])
{
	char path[4200], line[512], name[64];
	unsigned long least = ULONG_MAX, to, metric;
	snprintf(path, sizeof path, "%.3000s/proc/net/route", d->root);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "%63s %lx %*x %*x %*d %*d %lu", name, &to, &metric) == 3 && !to &&
		    metric < least) {
			least = metric;
			snprintf(out, OS_NAME, "%s", name);
		}
	if (f)
		fclose(f);
	return least < ULONG_MAX;
}

void check_wifi(struct doctor *d)
{
	static char name[NAMES][OS_NAME];
	char route[OS_NAME], text[300], mend[120], word[32];
	if (!default_route(d, route) || !is_wireless(d, route))
		return;
	size_t n = os_names(d->root, "/sys/class/net", "", name, NAMES);
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(name[i], "lo") || is_wireless(d, name[i]) ||
		    !net_file(d, name[i], "type", word, sizeof word) || strcmp(word, "1") ||
		    !net_file(d, name[i], "carrier", word, sizeof word) || strcmp(word, "1"))
			continue;
		snprintf(text, sizeof text,
			 "traffic goes over Wi-Fi (%.60s), and %.60s has a cable plugged in", route,
			 name[i]);
		snprintf(mend, sizeof mend, "sudo ip link set dev %.60s down", route);
		doctor_found(d, "wifi", "", text, mend);
		return;
	}
}

void check_mtu(struct doctor *d)
{
	struct interface v[INTERFACES_MOST];
	int n = interfaces_list(v, INTERFACES_MOST);
	for (int i = 0; i < n; i++) {
		char word[32], text[300], mend[120];
		bool twice = false;
		for (int k = 0; k < i; k++)
			twice |= !strcmp(v[k].name, v[i].name);
		if (twice || !net_file(d, v[i].name, "type", word, sizeof word) ||
		    strcmp(word, "1") || is_wireless(d, v[i].name) ||
		    !net_file(d, v[i].name, "mtu", word, sizeof word) ||
		    strtol(word, NULL, 10) >= 1500)
			continue;
		snprintf(text, sizeof text, "%.31s has an MTU of %.20s: more packets than needed",
			 v[i].name, word);
		snprintf(mend, sizeof mend, "sudo ip link set dev %.31s mtu 1500", v[i].name);
		doctor_found(d, "mtu", "", text, mend);
	}
}

/* ---- other machines ------------------------------------------------------------------------- */

/* Whether packets are dropped on the way: an answer, also a refusal, comes at once. *nowhere_p: the
 * name has no address. */
static bool is_silent(const char *at, bool *nowhere_p)
{
	char host[NET_ADDRESS], service[16];
	unsigned port;
	struct addrinfo want = { .ai_socktype = SOCK_STREAM }, *a = NULL;
	address_parts(at, host, &port);
	snprintf(service, sizeof service, "%u", port);
	*nowhere_p = getaddrinfo(host, service, &want, &a) || !a;
	if (*nowhere_p)
		return false;
	int fd = os_socket(a->ai_family, SOCK_STREAM, OS_NEVER_WAITS);
	bool silent = false;
	if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) < 0 && errno == EINPROGRESS)
		silent = poll(&(struct pollfd){ fd, POLLOUT, 0 }, 1, PATIENCE_MS) == 0;
	if (fd >= 0)
		close(fd);
	freeaddrinfo(a);
	return silent;
}

static void reach(struct doctor *d, const char *where, const char *at, const char *ssh)
{
	char text[300], mend[400], host[NET_ADDRESS];
	unsigned port;
	bool nowhere;
	if (!is_silent(at, &nowhere)) {
		snprintf(text, sizeof text, "%.120s: no address is known of that name", at);
		if (nowhere)
			doctor_found(d, "reach", where, text, "");
		return;
	}
	address_parts(at, host, &port);
	snprintf(text, sizeof text, "%.120s does not answer: a firewall there drops the packets",
		 at);
	/* the names are those of /etc/nftables.conf of Debian */
	snprintf(mend, sizeof mend,
		 "%s%.200s%ssudo nft insert rule inet filter input tcp dport %u accept",
		 ssh ? "ssh " : "", ssh ? ssh : "", ssh ? " " : "", port);
	doctor_found(d, "reach", where, text, mend);
}

/* "user@host:22" as words of ssh. */
static const char *ssh_words(const char *where, char out[SSH_WHERE + 16])
{
	char host[SSH_WHERE];
	unsigned port;
	struct err ignored = { 0 };
	if (!where || ssh_where(where, host, &port, &ignored) < 0)
		return NULL;
	if (port)
		snprintf(out, SSH_WHERE + 16, "-p %u %s", port, host);
	else
		snprintf(out, SSH_WHERE + 16, "%s", host);
	return out;
}

/* Workers with an address, from here; the coordinator's port, from invited machines. */
void check_reach(struct doctor *d)
{
	const struct config *c = d->c;
	if (d->reach)
		reach(d, "", d->reach, NULL);
	for (size_t i = 0; c && i < c->nworkers; i++) {
		const struct config_worker *w = &c->workers[i];
		char at[NET_ADDRESS], words[SSH_WHERE + 16];
		if (w->invited || role_is_here(w->ip, w->hostname))
			continue;
		network_address(w->ip, w->hostname, w->port, at);
		reach(d, w->id, at, ssh_words(w->ssh, words));
	}
}

/* The findings of another machine, as its `doctor --json` says them. */
static void take_findings(struct doctor *d, const struct fleet_member *m, const char *text)
{
	json_t *doc = NULL;
	struct err ignored = { 0 };
	char words[SSH_WHERE + 16], mend[SSH_WHERE + 500];
	if (json_parse_text(text, strlen(text), "doctor", &doc, &ignored) < 0)
		return;
	for (size_t i = 0; i < json_array_size(doc); i++) {
		const json_t *f = json_array_get(doc, i);
		const char *check = json_string_value(json_object_get(f, "check")),
			   *say = json_string_value(json_object_get(f, "text")),
			   *how = json_string_value(json_object_get(f, "command"));
		if (!check || !say || !how)
			continue;
		char word[400];
		if (!strcmp(check, "reach")) /* it is this machine that does not answer */
			snprintf(mend, sizeof mend, "%.400s", how);
		else
			snprintf(mend, sizeof mend, "ssh -t %s %s", ssh_words(m->w->ssh, words),
				 text_word(how, word, sizeof word));
		doctor_found(d, check, m->w->id, say, mend);
	}
	json_decref(doc);
}

/* The command between quotes in what ssh_run() and others say. */
static void quoted(const char *text, char *out, size_t cap)
{
	const char *from = strchr(text, '\''), *to = from ? strchr(from + 1, '\'') : NULL;
	snprintf(out, cap, "%.*s", to ? (int)(to - from - 1) : 0, from ? from + 1 : "");
}

void check_machines(struct doctor *d)
{
	struct fleet f;
	struct ssh_batch b;
	struct err e = { 0 };
	char mend[500], word[300], at[NET_ADDRESS];
	if (!d->c || fleet_open(d->c, NULL, &f, &e) < 0)
		return;
	f.stop = d->stop;
	if (fleet_look(&f, false, &e) < 0 || ssh_batch_open(f.n, &b, &e) < 0) {
		doctor_found(d, "machines", "", e.msg, "");
		fleet_close(&f);
		return;
	}
	const struct config_coordinator *o = &d->c->coordinator;
	network_address(o->ip, o->hostname, o->port ? o->port : 9998, at);
	for (size_t i = 0; i < f.n; i++) {
		struct fleet_member *m = &f.member[i];
		if (m->failed) {
			quoted(m->text, mend, sizeof mend);
			doctor_found(d, "machines", m->w->id, m->text, mend);
		} else if (!m->version[0]) {
			char text[300];
			snprintf(text, sizeof text, "%.120s there, and %s here",
				 m->other[0] ? m->other : "heteroshard is not", HS_VERSION);
			snprintf(mend, sizeof mend, "heteroshard up --install %s %s",
				 text_word(d->c->path, word, sizeof word), m->w->id);
			doctor_found(d, "machines", m->w->id, text, mend);
		} else {
			struct buf *s = fleet_add(&f, &b, i, 60);
			fleet_sh_head(s, m);
			buf_adds(s, "\"$hs\" doctor --json");
			if (m->w->invited && (o->ip || o->hostname)) {
				buf_adds(s, " --reach ");
				ssh_quote(s, at);
			}
			buf_adds(s, " </dev/null\n[ $? -le 1 ]\n");
		}
	}
	if (fleet_run(&f, &b, &e) >= 0)
		for (size_t k = 0; k < b.n; k++)
			if (!f.member[b.of[k]].failed)
				take_findings(d, &f.member[b.of[k]], b.call[k].out.p);
	ssh_batch_close(&b);
	fleet_close(&f);
}
