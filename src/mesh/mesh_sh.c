/* SPDX-License-Identifier: Apache-2.0 */
/* mesh_sh.c - see mesh_sh.h. Every word that comes from the configuration is quoted. */
#include "mesh/mesh_sh.h"

#include "base/buf.h"
#include "net/inside.h"
#include "ops/fleet_sh.h"
#include "ops/ssh.h"

#include <string.h>

const char mesh_sh_root[] = "sh -c 'test \"$(id -u)\" = 0 && exec sh; exec sudo -n sh'";

static void head(struct buf *s, const struct mesh *m)
{
	buf_adds(s, "set -u\numask 077\nexport LC_ALL=C\nunset LOG_LEVEL\n"
		    "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin\n");
	ssh_set(s, "if", m->c->mesh.interface);
	ssh_set(s, "key", m->c->mesh.key_file);
	ssh_set(s, "inside", INSIDE_FILE);
	buf_addf(s, "port=%lld\nconf=/etc/wireguard/$if.conf\n", (long long)m->c->mesh.port);
}

void mesh_sh_look(struct buf *s, const struct mesh *m, bool make)
{
	head(s, m);
	buf_addf(s, "make=%d\n", make);
	buf_adds(s,
		 "for p in ip wg wg-quick; do\n"
		 "	command -v $p >/dev/null || echo \"missing $p\"\n"
		 "done\n"
		 "if [ -e /sys/module/wireguard ] || modprobe -n -q wireguard 2>/dev/null; then\n"
		 "	echo 'way kernel'\n"
		 "elif ip link add hsprobe type wireguard 2>/dev/null; then\n"
		 "	ip link del hsprobe\n"
		 "	echo 'way kernel'\n"
		 "else\n"
		 "	for p in wireguard-go boringtun-cli boringtun none; do\n"
		 "		command -v $p >/dev/null && break\n"
		 "	done\n"
		 "	[ -e /dev/net/tun ] || p=none\n"
		 "	echo \"way $p\"\n"
		 "fi\n"
		 "up=\n"
		 "if ip link show dev \"$if\" >/dev/null 2>&1; then\n"
		 "	up=1\n"
		 "	grep -q 'written by heteroshard' \"$conf\" 2>/dev/null || echo 'foreign "
		 "1'\n"
		 "	echo 'up 1'\n"
		 "elif [ -e \"$conf\" ] && ! grep -q 'written by heteroshard' \"$conf\"; then\n"
		 "	echo 'foreign 2'\n"
		 "elif [ -n \"$(ss -Hlun \"sport = :$port\" 2>/dev/null)\" ]; then\n"
		 "	echo \"busy $port\"\n"
		 "fi\n"
		 "for f in 4 6; do\n"
		 "	[ -z \"$(ip -$f -o addr show scope global 2>/dev/null | grep -v \" $if "
		 "\")\" "
		 "] || \\\n"
		 "		echo \"family $f\"\n"
		 "	ip -$f route show 2>/dev/null | while read -r to rest; do\n"
		 "		case \" $rest \" in\n"
		 "		*\" dev $if \"*) ;;\n"
		 "		*) echo \"route $to\" ;;\n"
		 "		esac\n"
		 "	done\n"
		 "done\n"
		 "if [ ! -e \"$key\" ] && [ $make = 1 ] && command -v wg >/dev/null; then\n"
		 "	mkdir -p \"${key%/*}\"\n"
		 "	(set -C; wg genkey >\"$key\") || exit 1\n"
		 "fi\n"
		 "if [ -e \"$key\" ]; then\n"
		 "	case $(stat -L -c %a \"$key\") in\n"
		 "	*00 | 0) ;;\n"
		 "	*) echo \"loose $key\" ;;\n"
		 "	esac\n"
		 "	! command -v wg >/dev/null || echo \"key $(wg pubkey <\"$key\")\"\n"
		 "fi\n"
		 "exit 0\n");
}

/* The names of the mesh in /etc/hosts, between two lines of ours. */
static void hosts(struct buf *s)
{
	buf_adds(s, "names() {\n"
		    "	old=$(mktemp) && all=$(mktemp) || exit 1\n"
		    "	cat /etc/hosts >\"$old\"\n"
		    "	sed '/^# heteroshard mesh$/,/^# end of heteroshard mesh$/d' \"$old\" "
		    ">\"$all\"\n"
		    "	cat >>\"$all\"\n"
		    "	cmp -s \"$old\" \"$all\" || cat \"$all\" >/etc/hosts\n"
		    "	rm -f \"$old\" \"$all\"\n"
		    "}\n");
}

/* The file of net/inside.h, which everybody may read and root alone writes. */
static void inside(struct buf *s)
{
	buf_adds(s, "inside() {\n"
		    "	mkdir -p -m 755 \"${inside%/*}\"\n"
		    "	rm -f \"$inside.new\"\n"
		    "	cat >\"$inside.new\" && chmod 644 \"$inside.new\" || exit 1\n"
		    "	if [ -s \"$inside.new\" ]; then mv \"$inside.new\" \"$inside\"; else\n"
		    "		rm -f \"$inside.new\" \"$inside\"\n"
		    "	fi\n"
		    "}\n");
}

/* What wg-quick prints is kept, and its last line said when it fails. */
static void quick(struct buf *s)
{
	buf_adds(s, "quick() {\n"
		    "	log=$(mktemp)\n"
		    "	if ! wg-quick \"$1\" \"$if\" >\"$log\" 2>&1 </dev/null; then\n"
		    "		grep -v '^\\[[#!]\\]' \"$log\" | grep . | tail -n 1 >&2\n"
		    "		rm -f \"$log\"\n"
		    "		exit 1\n"
		    "	fi\n"
		    "	rm -f \"$log\"\n"
		    "}\n");
}

void mesh_sh_apply(struct buf *s, const struct mesh *m, size_t i, const char *way)
{
	head(s, m);
	if (way[0])
		/* boringtun gives up root by the name of who logged in, and over ssh there is none:
		 * WG_SUDO keeps it from that */
		buf_addf(s, "export WG_QUICK_USERSPACE_IMPLEMENTATION=%s WG_SUDO=1\n", way);
	hosts(s);
	inside(s);
	quick(s);
	buf_adds(s, "if [ -e \"$conf\" ] && ! grep -q 'written by heteroshard' \"$conf\"; then\n"
		    "	echo \"heteroshard did not write $conf\" >&2\n"
		    "	exit 1\n"
		    "fi\n"
		    "mkdir -p /etc/wireguard\ncat >\"$conf.new\" <<'" FLEET_END "'\n");
	mesh_conf(m, i, s);
	buf_adds(s, FLEET_END "\nnames <<'" FLEET_END "'\n# heteroshard mesh\n");
	mesh_hosts(m, s);
	buf_adds(s, "# end of heteroshard mesh\n" FLEET_END "\ninside <<'" FLEET_END "'\n");
	mesh_inside(m, i, s);
	buf_adds(
		s, FLEET_END
		"\n"
		"own() { sed '/^\\[Peer\\]/,$d; /^PostUp = sysctl /d; /^PostUp = (/d' \"$1\" "
		"2>/dev/null; }\n"
		/* mesh_text.c, ask_again() */
		"again() { sed -n \"s/%i/$if/g; s/^PostUp = (/(/p\" \"$conf\"; }\n"
		"sync() {\n"
		/* without the key in it, syncconf would take the key away */
		"	{\n"
		"		echo '[Interface]'\n"
		"		echo \"PrivateKey = $(cat \"$key\")\"\n"
		"		wg-quick strip \"$if\" | grep -v '^\\[Interface\\]'\n"
		"	} | wg syncconf \"$if\" /dev/stdin || exit 1\n"
		/* it may pass on from now on */
		"	sed -n 's/^PostUp = sysctl -q -w //p' \"$conf\" | while read -r x; do\n"
		"		sysctl -q -w \"$(echo \"$x\" | sed \"s/%i/$if/g\")\"\n"
		"	done\n"
		"}\n"
		"up=\n"
		"ip link show dev \"$if\" >/dev/null 2>&1 && up=1\n"
		"if [ -n \"$up\" ] && cmp -s \"$conf.new\" \"$conf\"; then\n"
		"	rm -f \"$conf.new\"\n"
		/* a name may mean another address by now, and WireGuard asks only once */
		"	! grep -q '^Endpoint = [^[]*[a-zA-Z]' \"$conf\" || sync\n"
		"	echo same\n"
		"elif [ -n \"$up\" ] && [ \"$(own \"$conf.new\")\" = \"$(own \"$conf\")\" ]; then\n"
		"	was=$(again)\n"
		"	mv \"$conf.new\" \"$conf\"\n"
		"	sync\n"
		"	[ \"$(again)\" = \"$was\" ] || eval \"$(again)\"\n"
		"	echo changed\n"
		"else\n"
		"	if [ -n \"$up\" ]; then quick down; fi\n"
		"	mv \"$conf.new\" \"$conf\"\n"
		"	quick up\n"
		"	echo up\n"
		"fi\n");
}

void mesh_sh_down(struct buf *s, const struct mesh *m)
{
	head(s, m);
	hosts(s);
	inside(s);
	quick(s);
	buf_adds(s, "names </dev/null\ninside </dev/null\n"
		    "if ! grep -q 'written by heteroshard' \"$conf\" 2>/dev/null; then\n"
		    "	echo none\n"
		    "	exit 0\n"
		    "fi\n"
		    "if ip link show dev \"$if\" >/dev/null 2>&1; then quick down; fi\n"
		    "rm -f \"$conf\" \"$conf.new\"\n"
		    "echo down\n");
}

/* ---- looking at it -------------------------------------------------------------------------- */

void mesh_sh_check(struct buf *s, const struct mesh *m, size_t i)
{
	head(s, m);
	buf_addf(s, "mtu=%lld\n", (long long)m->c->mesh.mtu);
	buf_adds(s,
		 "ip link show dev \"$if\" >/dev/null 2>&1 || { echo 'none interface'; exit 0; }\n"
		 "if ip -d link show dev \"$if\" | grep -q ' wireguard'; then echo 'by kernel'; "
		 "else\n"
		 "	ss -Hxlp | sed -n \"s,.*wireguard/$if\\.sock.*((\\\"\\([^\\\"]*\\).*,by "
		 "\\1,p\"\n"
		 "fi\n"
		 "for f in 4 6; do\n"
		 "	[ -z \"$(ip -$f -o addr show scope global | grep -v \" $if \")\" ] || \\\n"
		 "		echo \"family $f\"\n"
		 "done\n"
		 "echo \"now $(date +%s)\"\n"
		 "command -v ping >/dev/null || { echo 'none ping'; exit 0; }\n"
		 /* twice, as one packet may be lost, unless somebody says what fits ("mtu = N") */
		 "one() { said=$(ping -n -M do -c 1 -W 2 -s $(($2 - $3)) \"$1\" 2>&1); }\n"
		 "told() { echo \"$said\" | sed -n 's/.*mtu *= *\\([0-9]*\\).*/\\1/p' | head -n 1; "
		 "}\n"
		 "try() { one \"$@\" || { [ -z \"$(told)\" ] && one \"$@\"; }; }\n"
		 /* latency, and the largest packet that gets through whole */
		 "way() {\n"
		 "	head=28\n"
		 "	case $1 in *:*) head=48 ;; esac\n"
		 "	t=$(ping -n -c 5 -i 0.2 -W 2 \"$1\" 2>/dev/null |\n"
		 "		sed -n 's,^rtt [^=]*= [^/]*/\\([^/]*\\)/.*,\\1,p')\n"
		 "	size=$mtu low=576\n"
		 "	if [ -z \"$t\" ]; then size=-\n"
		 "	elif ! try \"$1\" $mtu $head; then\n"
		 "		high=$mtu m=$(told)\n"
		 "		if [ -n \"$m\" ] && [ $m -gt $low ] && [ $m -lt $high ] &&\n"
		 "			try \"$1\" $m $head; then high=$m low=$m; fi\n"
		 "		while [ $((high - low)) -gt 8 ]; do\n"
		 "			mid=$(((high + low) / 2))\n"
		 "			if try \"$1\" $mid $head; then low=$mid; else high=$mid; "
		 "fi\n"
		 "		done\n"
		 "		size=$low\n"
		 "	fi\n"
		 "	echo \"way $1 ${t:--} $size\"\n"
		 "}\n");
	for (size_t k = 0; k < m->n; k++)
		if (k != i)
			buf_addf(s, "way %s &\n", m->m[k].ip[0][0] ? m->m[k].ip[0] : m->m[k].ip[1]);
	buf_adds(s, "wait\n"
		    "tab=$(printf '\\t')\n"
		    "wg show \"$if\" dump | sed 1d | while IFS=$tab read -r k p e a h rest; do\n"
		    "	echo \"peer $k $h $e\"\n"
		    "done\n");
}

static void bench_head(struct buf *s, const char *program)
{
	buf_adds(s, "set -u\numask 077\n");
	if (program)
		ssh_set(s, "hs", program);
	else
		fleet_sh_find(s);
	buf_adds(s, "[ -n \"$hs\" ] || { echo 'the program is not there' >&2; exit 1; }\n");
}

void mesh_sh_bench_key(struct buf *s, const char *program)
{
	bench_head(s, program);
	buf_adds(s, "d=$(mktemp -d) || exit 1\n"
		    "k=$(\"$hs\" keygen \"$d/key\" 2>/dev/null) || exit 1\n"
		    "echo \"dir $d\"\n"
		    "echo \"key $k\"\n");
}

void mesh_sh_bench(struct buf *s, const char *program, const char *dir, const char *key,
		   const char *ip, unsigned port, bool serve)
{
	bench_head(s, program);
	ssh_set(s, "d", dir);
	buf_addf(s, strchr(ip, ':') ? "at='[%s]:%u'\n" : "at='%s:%u'\n", ip, port);
	ssh_set(s, "peer", key);
	if (serve)
		buf_adds(s, "exec \"$hs\" bench --serve \"$at\" --peer \"$peer\" "
			    "--key-file \"$d/key\" </dev/null\n");
	else
		buf_adds(s, "sleep 1\n" /* until the other side listens */
			    "exec \"$hs\" bench --to \"$at\" --peer \"$peer\" "
			    "--key-file \"$d/key\" --json </dev/null\n");
}

void mesh_sh_bench_end(struct buf *s, const char *dir)
{
	ssh_set(s, "d", dir);
	buf_adds(s, "rm -f \"$d/key\" \"$d/key.pub\"\nrmdir \"$d\"\n");
}
