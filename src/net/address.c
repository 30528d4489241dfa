/* SPDX-License-Identifier: Apache-2.0 */
/* address.c - see address.h. */
#include "net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static int split(const char *text, bool for_listen, char *host, size_t cap, unsigned *port_p,
		 struct err *e)
{
	const char *colon = strrchr(text, ':'), *from = text, *to = colon;
	if (!colon || strlen(text) >= NET_ADDRESS)
		return err_set(e, ERR_USAGE, "address '%.80s': expected host:port", text);
	if (*text == '[') {
		from = text + 1;
		to = strchr(text, ']');
		if (!to || to + 1 != colon)
			return err_set(e, ERR_USAGE, "address '%s': expected [host]:port", text);
	} else if (memchr(text, ':', (size_t)(colon - text))) {
		return err_set(e, ERR_USAGE,
			       "address '%s': an IPv6 host stands in brackets, [host]:port", text);
	}
	char *end;
	long n = strtol(colon + 1, &end, 10);
	if (colon[1] < '0' || colon[1] > '9' || *end || n > 65535 || (n == 0 && !for_listen))
		return err_set(e, ERR_USAGE, "address '%s': the port is a number from %d to 65535",
			       text, for_listen ? 0 : 1);
	if (from == to || (size_t)(to - from) >= cap)
		return err_set(e, ERR_USAGE, "address '%s': no host in it", text);
	memcpy(host, from, (size_t)(to - from));
	host[to - from] = 0;
	*port_p = (unsigned)n;
	return 0;
}

/* false: no machine is reached by it alone. */
static bool take(const struct addrinfo *a, unsigned port, struct address *v)
{
	char number[INET6_ADDRSTRLEN];
	if (a->ai_family == AF_INET) {
		const struct in_addr *in =
			&((const struct sockaddr_in *)(const void *)a->ai_addr)->sin_addr;
		inet_ntop(AF_INET, in, number, sizeof number);
		v->loopback = (ntohl(in->s_addr) >> 24) == 127;
		snprintf(v->text, NET_ADDRESS, "%s:%u", number, port);
		return true;
	}
	if (a->ai_family != AF_INET6)
		return false;
	const struct in6_addr *in =
		&((const struct sockaddr_in6 *)(const void *)a->ai_addr)->sin6_addr;
	inet_ntop(AF_INET6, in, number, sizeof number);
	v->loopback = IN6_IS_ADDR_LOOPBACK(in);
	snprintf(v->text, NET_ADDRESS, "[%s]:%u", number, port);
	return !IN6_IS_ADDR_LINKLOCAL(in);
}

static int resolve(const char *text, bool for_listen, struct address *v, int most, int *n_p,
		   struct err *e)
{
	char host[NET_ADDRESS];
	unsigned port = 0;
	*n_p = 0;
	TRY(split(text, for_listen, host, sizeof host, &port, e));
	if (for_listen && strcmp(host, "*") == 0) {
		snprintf(v->text, NET_ADDRESS, "*:%u", port);
		v->loopback = false;
		*n_p = 1;
		return 0;
	}
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *list;
	int rc = getaddrinfo(host, NULL, &hints, &list);
	if (rc != 0)
		return err_set(e, ERR_NET,
			       "address '%s': %s; name the machine by its IP address, or add it to "
			       "/etc/hosts",
			       text, gai_strerror(rc));
	/* IPv4 where there is both: home networks and firewalls are mostly set up for it. */
	for (int v4 = 1; v4 >= 0; v4--)
		for (const struct addrinfo *a = list; a && *n_p < most; a = a->ai_next)
			if ((a->ai_family == AF_INET) == v4)
				*n_p += take(a, port, &v[*n_p]);
	freeaddrinfo(list);
	return *n_p ? 0
		    : err_set(e, ERR_NET,
			      "address '%s': this is a link-local address, which means another "
			      "machine on each cable: give both machines addresses of a network "
			      "(fd00::1/64 and fd00::2/64, or IPv4)",
			      text);
}

int address_resolve(const char *text, bool for_listen, char out_p[NET_ADDRESS], bool *loopback_p,
		    struct err *e)
{
	struct address one;
	int n;
	TRY(resolve(text, for_listen, &one, 1, &n, e));
	memcpy(out_p, one.text, NET_ADDRESS);
	*loopback_p = one.loopback;
	return 0;
}

int address_all(const char *text, struct address v[ADDRESS_MOST], int *n_p, struct err *e)
{
	return resolve(text, false, v, ADDRESS_MOST, n_p, e);
}

unsigned address_socket(const char *number, struct sockaddr_storage *a_p)
{
	char host[NET_ADDRESS];
	unsigned port;
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	address_parts(number, host, &port);
	memset(a_p, 0, sizeof *a_p);
	if (inet_pton(AF_INET, host, &in.sin_addr) == 1) {
		in.sin_port = htons((uint16_t)port);
		memcpy(a_p, &in, sizeof in);
		return sizeof in;
	}
	if (strcmp(host, "*") != 0 && inet_pton(AF_INET6, host, &in6.sin6_addr) != 1)
		return 0;
	in6.sin6_port = htons((uint16_t)port);
	memcpy(a_p, &in6, sizeof in6);
	return sizeof in6;
}

void address_text(const struct sockaddr_storage *a, bool port, char out[NET_ADDRESS])
{
	char host[INET6_ADDRSTRLEN] = "?";
	unsigned number = 0;
	if (a->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)a;
		inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
		number = ntohs(in->sin_port);
	} else if (a->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const void *)a;
		if (IN6_IS_ADDR_V4MAPPED(&in->sin6_addr))
			inet_ntop(AF_INET, in->sin6_addr.s6_addr + 12, host, sizeof host);
		else
			inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
		number = ntohs(in->sin6_port);
	}
	if (port)
		address_join(host, number, out);
	else
		snprintf(out, NET_ADDRESS, "%s", host);
}

bool address_is_number(const char *host)
{
	unsigned char any[sizeof(struct in6_addr)];
	return inet_pton(AF_INET, host, any) == 1 || inet_pton(AF_INET6, host, any) == 1;
}

void address_parts(const char *text, char host[NET_ADDRESS], unsigned *port_p)
{
	const char *colon = strrchr(text, ':'), *from = text;
	size_t n = colon ? (size_t)(colon - text) : strlen(text);
	if (n >= 2 && *from == '[' && text[n - 1] == ']') {
		from++;
		n -= 2;
	}
	snprintf(host, NET_ADDRESS, "%.*s", (int)n, from);
	*port_p = colon ? (unsigned)strtoul(colon + 1, NULL, 10) & 0xffff : 0;
}

void address_join(const char *host, unsigned port, char out[NET_ADDRESS])
{
	snprintf(out, NET_ADDRESS, strchr(host, ':') ? "[%.250s]:%u" : "%.250s:%u", host, port);
}
