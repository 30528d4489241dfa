/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_peers.c - the text of an invitation, and the files of peers, of invitations and of the
 * coordinator, with what is done to them. The first byte chooses the text (0) or one of the files
 * (1 to 3). A file ends at a byte 255; behind it each byte is a deed. Whatever stands in the files,
 * what is written into them afterwards can be read, and whoever used an invitation is a peer. */
#include <sodium.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "peers/peer_list.h"
#include "small.h"
#include "starve.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define MUST(x)                                                                                    \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

static const char *const file[] = { "peers", "invitations", "coordinator" };
static const char *const name[] = { "a", "box", "local", "x y", "", "-", "a.b-c_d", "box2" };
static char folder[64], path[ARRAY_LEN(file)][PATH_MAX];
static char key[4][KEY_TEXT];
static bool starved;

static void check(int rc, const struct err *e)
{
	MUST(rc >= 0 || (e->code == rc && e->msg[0] && !strchr(e->msg, '\n')));
}

static void text(const uint8_t *p, size_t n)
{
	static char in[4096], out[TOKEN_TEXT], again[TOKEN_TEXT];
	struct invite_token t, back;
	struct err e = { 0 };
	n = n < sizeof in - 1 ? n : sizeof in - 1;
	memcpy(in, p, n);
	in[n] = 0;
	int rc = invite_read(in, &t, &e);
	check(rc, &e);
	if (rc < 0)
		return;
	MUST(t.naddress >= 1 && t.naddress <= TOKEN_ADDRESSES && t.port && t.port < 65536);
	/* there is one text for each invitation, but for capitals and blanks */
	MUST(invite_write(&t, out, &e) == 0 && invite_read(out, &back, &e) == 0 &&
	     invite_write(&back, again, &e) == 0 && !strcmp(out, again));
}

/* An invitation with a proper proof, of the secret 00.., 01.. or 02.. */
static int use(unsigned how, struct err *e)
{
	uint8_t secret[TOKEN_SECRET], binding[LINK_BINDING] = { 1 }, proof[TOKEN_PROOF];
	char given[PEER_NAME] = "";
	const char *asks = name[how / 4 % 8], *who = key[how / 32 % 3];
	memset(secret, (int)(how % 4), sizeof secret);
	if (invite_prove(secret, binding, who, key[3], asks, proof, e) < 0)
		return e->code;
	/* an invitation with a mesh needs a key of WireGuard */
	const char *wg = how & 128 ? "QNcyBYVaBxtzvDhKXTAUBFUdIQTyR1ULxrfaNPbRvk8=" : "";
	bool mesh = false;
	int rc = invitation_use(binding, who, key[3], asks, wg, how / 64 % 4, proof, given, &mesh,
				e);
	MUST(rc <= 0 || peer_name_ok(given));
	if (rc > 0 && !starved) {
		struct peer_list l;
		struct err second = { 0 };
		MUST(peer_list_read(&l, &second) >= 0 && peer_list_find(&l, given) &&
		     peer_list_by_key(&l, who));
		MUST(!mesh == !peer_list_by_key(&l, who)->wg[0]);
		peer_list_release(&l);
	}
	return rc;
}

static int serve_again(struct err *e)
{
	struct served v;
	int rc = served_read(&v, e);
	if (rc < 0)
		return rc;
	MUST(v.port && v.port < 65536 && v.naddress >= 1 && peer_name_ok(v.name));
	struct served back;
	rc = served_write(&v, e);
	if (rc >= 0 && !starved) {
		MUST(served_read(&back, e) == 0);
		MUST(!strcmp(v.name, back.name) && v.naddress == back.naddress);
	}
	return rc;
}

static void deed(unsigned what, unsigned how)
{
	struct buf part = BUF_INIT;
	struct err e = { 0 };
	struct peer_list l;
	struct invitation v = { .until = (int64_t)time(NULL) + (how & 128 ? -1 : 60) };
	int rc = 0;
	memset(v.secret, (int)(how % 4), sizeof v.secret);
	switch (what % 8) {
	case 0:
		rc = peer_list_rename(name[how % 8], name[how / 8 % 8], &e);
		break;
	case 1:
		rc = peer_list_remove(name[how % 8], &e);
		break;
	case 2:
		snprintf(v.name, sizeof v.name, "%s", how & 64 ? name[how / 4 % 8] : "");
		v.mesh = how & 32;
		rc = invitation_open(&v, &e);
		invitations_mesh(v.name);
		break;
	case 3:
		rc = use(how, &e);
		break;
	case 4:
		rc = invitation_close(v.secret, &e);
		break;
	case 5:
		rc = invitation_find(v.secret, &v, &e);
		MUST(rc <= 0 || v.secret[0] == how % 4);
		invitations_until();
		break;
	case 6:
		if (!(how & 128)) {
			rc = serve_again(&e);
			break;
		}
		buf_adds(&part, how & 64 ? "" : "port 1\n");
		rc = buf_ok(&part, &e);
		if (rc >= 0)
			rc = invitation_part_write(name[how % 8], &part, &e);
		if (rc >= 0)
			rc = invitation_part_read(name[how / 8 % 8], &part, &e);
		break;
	default:
		rc = peer_list_read(&l, &e);
		if (rc < 0)
			break;
		for (size_t i = 0; i < l.n; i++)
			MUST(peer_name_ok(l.peer[i].name) &&
			     key_equal(l.peer[i].key, l.peer[i].key));
		peer_list_release(&l);
	}
	buf_release(&part);
	check(rc, &e);
}

static void files(unsigned which, struct feed *in)
{
	const uint8_t *end = in->n ? memchr(in->p, 255, in->n) : NULL;
	size_t n = end ? (size_t)(end - in->p) : in->n;
	for (size_t i = 0; i < ARRAY_LEN(path); i++)
		unlink(path[i]);
	FILE *f = fopen(path[which], "w");
	MUST(f && fwrite(in->p, 1, n, f) == n && fclose(f) == 0);
	in->p += n + (end != NULL);
	in->n -= n + (end != NULL);
	deed(which == 0 ? 7 : which == 1 ? 5 : 6, 0);
	for (int i = 0; i < 12 && in->n; i++) {
		unsigned what = feed_byte(in);
		deed(what, feed_byte(in));
	}
}

static void once(const uint8_t *p, size_t n)
{
	struct feed in = { p, n };
	unsigned which = feed_byte(&in) % 4;
	if (!which)
		text(in.p, in.n);
	else
		files(which - 1, &in);
	starved = !starved;
}

static void tidy(void)
{
	char cmd[100];
	snprintf(cmd, sizeof cmd, "rm -rf '%s'", folder);
	if (system(cmd))
		abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct err e;
	(void)argc;
	(void)argv;
	log_set_sink(NULL, NULL, LOG_ERROR);
	snprintf(folder, sizeof folder, "%s/hs-fuzz-XXXXXX",
		 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	MUST(mkdtemp(folder) && sodium_init() >= 0);
	atexit(tidy);
	setenv("XDG_CONFIG_HOME", folder, 1);
	umask(077);
	for (size_t i = 0; i < ARRAY_LEN(file); i++)
		MUST(peers_path(file[i], path[i], &e) == 0);
	for (size_t i = 0; i < ARRAY_LEN(key); i++) {
		uint8_t raw[KEY_BYTES];
		memset(raw, (int)i, sizeof raw);
		key_public_text(raw, key[i]);
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	starved = false;
	if (size)
		starve(once, data, size);
	return 0;
}
