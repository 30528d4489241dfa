/* SPDX-License-Identifier: Apache-2.0 */
/* fleet_sh.c - see fleet_sh.h. */
#include "ops/fleet_sh.h"

#include "base/err.h"
#include "base/version.h"

#include <stdio.h>
#include <string.h>

/* ---- on each machine ------------------------------------------------------------------------ */

struct buf *fleet_add(struct fleet *f, struct ssh_batch *b, size_t i, double limit)
{
	return ssh_batch_add(b, i, f->member[i].w->ssh, "exec sh", limit);
}

int fleet_run(struct fleet *f, struct ssh_batch *b, struct err *e)
{
	TRY(ssh_batch_run(b, f->stop, e));
	for (size_t k = 0; k < b->n; k++) {
		struct fleet_member *m = &f->member[b->of[k]];
		m->failed |= ssh_batch_failed(b, k, m->text);
	}
	return 0;
}

/* ---- texts ---------------------------------------------------------------------------------- */

void fleet_sh_find(struct buf *s)
{
	ssh_set(s, "want", HS_VERSION);
	buf_adds(s, "share=$HOME/.local/share/heteroshard\n"
		    "hs= other=\n"
		    "for p in \"$share/$want/bin/heteroshard\" \\\n"
		    "	\"$(command -v heteroshard 2>/dev/null)\" \\\n"
		    "	\"$HOME/.local/bin/heteroshard\" /usr/local/bin/heteroshard; do\n"
		    "	[ -n \"$p\" ] && [ -x \"$p\" ] || continue\n"
		    "	v=$(\"$p\" --version 2>/dev/null </dev/null) || continue\n"
		    "	v=${v#heteroshard }\n"
		    "	v=${v%%,*}\n"
		    "	if [ \"$v\" = \"$want\" ]; then hs=$p; break; fi\n"
		    "	other=\"$v in $p\"\n"
		    "done\n");
}

void fleet_sh_head(struct buf *s, const struct fleet_member *m)
{
	buf_adds(s, "set -u\numask 077\n");
	ssh_set(s, "id", m->w->id);
	fleet_sh_find(s);
	buf_adds(s, "dir=$HOME/.local/state/heteroshard/$id\n"
		    /* a number may belong to another process by now */
		    "alive() {\n"
		    "	kill -0 \"$1\" 2>/dev/null || return 1\n"
		    "	[ -r \"/proc/$1/cmdline\" ] || return 0\n"
		    "	tr '\\0' ' ' <\"/proc/$1/cmdline\" | grep -q 'heteroshard.* worker '\n"
		    "}\n"
		    "pid=\n"
		    "[ ! -r \"$dir/pid\" ] || read -r pid <\"$dir/pid\" || :\n"
		    "[ -z \"$pid\" ] || alive \"$pid\" || pid=\n");
}

void fleet_sh_look(struct buf *s, bool devices)
{
	buf_adds(s, "echo \"machine $(uname -m)\"\n"
		    "[ -z \"$hs\" ] || { echo \"version $want\"; echo \"program $hs\"; }\n"
		    "[ -z \"$other\" ] || echo \"other $other\"\n"
		    "[ -z \"$pid\" ] || echo \"pid $pid\"\n"
		    "set -- $(df -Pk \"$HOME\" | tail -n 1)\n"
		    "[ $# -lt 6 ] || echo \"space $4\"\n"
		    "if [ -e \"$dir/config/heteroshard/coordinator\" ]; then\n"
		    "	echo 'joined 1'\n"
		    "elif read -r name more 2>/dev/null \\\n"
		    "	<\"${XDG_CONFIG_HOME:-$HOME/.config}/heteroshard/coordinator\"; then\n"
		    "	[ \"$name\" != \"$id\" ] || echo 'joined 2'\n"
		    "fi 2>/dev/null\n"
		    "[ ! -r \"$dir/log\" ] || echo \"last $(tail -n 1 \"$dir/log\")\"\n");
	if (devices)
		buf_adds(s, "if [ -n \"$hs\" ]; then\n"
			    "	echo devices\n"
			    "	\"$hs\" devices --json 2>/dev/null </dev/null || :\n"
			    "fi\n");
	buf_adds(s, "exit 0\n");
}

void fleet_sh_unpack(struct buf *s)
{
	buf_adds(s, "cd \"$share\" || exit 1\n"
		    "new=new-$id\n"
		    "rm -rf \"$new\"\n"
		    "drop() { rm -rf \"$new\" \"$new.tar.xz\"; }\n"
		    "mkdir \"$new\" && tar -xJf \"$new.tar.xz\" -C \"$new\" || {\n"
		    "	command -v xz >/dev/null || echo 'tar needs xz there: install xz-utils' "
		    ">&2\n"
		    "	drop\n"
		    "	exit 1\n"
		    "}\n"
		    "set -- \"$new\"/*\n"
		    "v=$(\"$1/bin/heteroshard\" --version 2>&1 </dev/null) || {\n"
		    "	echo \"the program of the tarball does not run there: $v\" >&2\n"
		    "	drop\n"
		    "	exit 1\n"
		    "}\n"
		    "v=${v#heteroshard }\n"
		    "v=${v%%,*}\n"
		    "if [ \"$v\" != \"$want\" ]; then\n"
		    "	echo \"the tarball holds version $v, not $want\" >&2\n"
		    "	drop\n"
		    "	exit 1\n"
		    "fi\n"
		    "rm -rf \"$want\"\n"
		    "mv \"$1\" \"$want\" && drop\n");
}

/* Starts $hs with what stands in "$@" and waits until its log says how it went. */
static void start(struct buf *s)
{
	buf_adds(s, "echo \"$want $*\" >\"$dir/words\"\n"
		    ": >\"$dir/log\"\n"
		    "nohup \"$hs\" \"$@\" >>\"$dir/log\" 2>&1 </dev/null &\n"
		    "pid=$!\n"
		    "echo $pid >\"$dir/pid\"\n"
		    "k=0\n"
		    "while [ $k -lt 25 ]; do\n"
		    "	if ! kill -0 $pid 2>/dev/null; then\n"
		    "		rm -f \"$dir/pid\"\n"
		    "		tail -n 1 \"$dir/log\" >&2\n"
		    "		exit 1\n"
		    "	fi\n"
		    "	grep -q 'waits for\\|does not answer\\|joined' \"$dir/log\" && break\n"
		    "	sleep 0.1\n"
		    "	k=$((k + 1))\n"
		    "done\n"
		    "echo \"pid $pid\"\n"
		    "echo \"last $(tail -n 1 \"$dir/log\")\"\n");
}

/* Ends where it runs already: "running PID same", or "other" where it was started with another
 * version, or something else than what stands in "$@" and in the configuration. */
static void begin(struct buf *s)
{
	buf_adds(s, "running() {\n"
		    "	how=same\n"
		    "	[ ! -r \"$dir/words\" ] || \\\n"
		    "		[ \"$(cat \"$dir/words\")\" = \"$want $*\" ] || how=other\n"
		    "	[ ! -r \"$dir/next.yaml\" ] || \\\n"
		    "		cmp -s \"$dir/next.yaml\" \"$dir/cluster.yaml\" || how=other\n"
		    "	rm -f \"$dir/next.yaml\"\n"
		    "	echo \"running $pid $how\"\n"
		    "	exit 0\n"
		    "}\n"
		    "[ -z \"$pid\" ] || running \"$@\"\n"
		    "if [ -z \"$hs\" ]; then echo 'the program is not there' >&2; exit 1; fi\n"
		    "mkdir -p \"$dir\" && cd \"$dir\" || exit 1\n"
		    /* two of these at once: one after the other, at most 20 s */
		    "k=0\n"
		    "until (set -C; echo $$ >starting) 2>/dev/null; do\n"
		    "	who=\n"
		    "	read -r who 2>/dev/null <starting || :\n"
		    "	[ -z \"$who\" ] || kill -0 \"$who\" 2>/dev/null || rm -f starting\n"
		    "	[ $k -lt 200 ] || rm -f starting\n"
		    "	sleep 0.1\n"
		    "	k=$((k + 1))\n"
		    "done\n"
		    "trap 'rm -f \"$dir/starting\"' EXIT\n"
		    "[ ! -r pid ] || read -r pid <pid || :\n"
		    "[ -z \"$pid\" ] || alive \"$pid\" || pid=\n"
		    "[ -z \"$pid\" ] || running \"$@\"\n");
}

void fleet_sh_serve(struct buf *s, const struct config_worker *w, int key, const char *token)
{
	if (token) /* a worker that runs there was removed from the peers here */
		buf_adds(s, "[ -z \"$pid\" ] || { kill \"$pid\"; rm -f \"$dir/pid\"; }\npid=\n");
	buf_adds(s, "set -- worker --device ");
	ssh_quote(s, w->device);
	if (w->limits.threads)
		buf_addf(s, " --threads %lld", (long long)w->limits.threads);
	if (w->limits.memory > 0)
		buf_addf(s, " --memory %.9g", w->limits.memory);
	if (w->limits.nice)
		buf_addf(s, " --nice %lld", (long long)w->limits.nice);
	buf_addc(s, '\n');
	begin(s);
	if (key < 2)
		buf_adds(s, "export XDG_CONFIG_HOME=\"$dir/config\"\n"
			    "mkdir -p \"$XDG_CONFIG_HOME\"\n");
	if (token)
		buf_addf(s,
			 "\"$hs\" worker --join - --name \"$id\" 2>\"$dir/join\" <<'" FLEET_END
			 "'\n%s\n" FLEET_END "\n"
			 "[ $? -eq 0 ] || { tail -n 1 \"$dir/join\" >&2; exit 1; }\n",
			 token);
	start(s);
}

void fleet_sh_work(struct buf *s, const struct config_worker *w, const char *config)
{
	buf_adds(s, "mkdir -p \"$dir\" && cat >\"$dir/next.yaml\" <<'" FLEET_END "' || exit 1\n");
	buf_adds(s, config);
	buf_adds(s, "\n" FLEET_END "\nset -- worker --stay --worker ");
	ssh_quote(s, w->id);
	buf_adds(s, " cluster.yaml\n");
	begin(s);
	buf_adds(s, "mv next.yaml cluster.yaml || exit 1\n");
	start(s);
}

void fleet_sh_stop(struct buf *s, int wait, bool now)
{
	/* one that is being started is waited for, at most 25 s */
	buf_adds(s, "k=0\n"
		    "while [ -z \"$pid\" ] && [ $k -lt 250 ]; do\n"
		    "	who=\n"
		    "	read -r who 2>/dev/null <\"$dir/starting\" && kill -0 \"$who\" 2>/dev/null "
		    "|| "
		    "break\n"
		    "	[ ! -r \"$dir/pid\" ] || read -r pid <\"$dir/pid\" || :\n"
		    "	[ -z \"$pid\" ] || alive \"$pid\" || pid=\n"
		    "	sleep 0.1\n"
		    "	k=$((k + 1))\n"
		    "done\n"
		    "[ ! -r \"$dir/pid\" ] || read -r pid <\"$dir/pid\" || :\n"
		    "[ -z \"$pid\" ] || alive \"$pid\" || pid=\n");
	buf_addf(s,
		 "if [ -z \"$pid\" ]; then rm -f \"$dir/pid\"; echo none; exit 0; fi\n"
		 "kill -%s \"$pid\" || exit 1\n"
		 "k=0\n"
		 "while alive \"$pid\"; do\n"
		 "	if [ $k -ge %d ]; then echo running; exit 0; fi\n"
		 "	sleep 0.1\n"
		 "	k=$((k + 1))\n"
		 "done\n"
		 "rm -f \"$dir/pid\"\n"
		 "echo stopped\n",
		 now ? "KILL" : "TERM", wait > 0 ? wait * 10 : 10);
}

void fleet_sh_log(struct buf *s, int lines, bool follow)
{
	buf_addf(s,
		 "[ -r \"$dir/log\" ] || { echo 'there is no log: it was not started here' >&2; "
		 "exit 1; }\n"
		 "exec tail -n %d %s\"$dir/log\" </dev/null\n",
		 lines, follow ? "-F " : "");
}
