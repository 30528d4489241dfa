/* SPDX-License-Identifier: Apache-2.0 */
/* entry_sig.h - the parameters of an entry point, read from the kernels' own text: p pointer, i
 * 64-bit integer, f float. So what the host packs is compared with what the kernel takes, not with
 * the host's own table. */
#ifndef HS_TESTS_DRIVERS_ENTRY_SIG_H
#define HS_TESTS_DRIVERS_ENTRY_SIG_H

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The parameters from s on, to the end of the list or of a macro's lines; what is no parameter is a
 * macro for some. */
static bool entry_list(const char *text, const char *s, char *sig, size_t most, size_t *n)
{
	for (; *s && *s != ')'; s++) {
		s += strspn(s, " \t\n\\");
		if (*n + 3 > most)
			return false;
		if (!strncmp(s, "BUF(", 4)) {
			sig[(*n)++] = 'p';
			sig[(*n)++] = 'i';
			s = strchr(s, ')') + 1;
		} else if (!strncmp(s, "i64 ", 4) || !strncmp(s, "u64 ", 4)) {
			sig[(*n)++] = 'i';
		} else if (!strncmp(s, "f32 ", 4)) {
			sig[(*n)++] = 'f';
		} else {
			char name[96];
			snprintf(name, sizeof name, "#define %.*s ", (int)strcspn(s, ",) \n"), s);
			const char *macro = strstr(text, name);
			if (!macro || !entry_list(text, macro + strlen(name), sig, most, n))
				return false;
		}
		s += strcspn(s, ",)\n");
		if (*s != ',') /* of a macro: its last line */
			break;
	}
	sig[*n] = 0;
	return true;
}

/* false: no such entry point, or a parameter of another type. */
static bool entry_signature(const char *text, const char *name, char *sig, size_t most)
{
	char head[96];
	size_t stem = strlen(name), n = 0;
	snprintf(head, sizeof head, "KERNEL(%s)(", name);
	const char *s = strstr(text, head);
	if (!s) { /* one kernel of several that differ by a number: attn_fwd_64 */
		while (stem && isdigit((unsigned char)name[stem - 1]))
			stem--;
		snprintf(head, sizeof head, "KERNEL(CAT(%.*s, DT))(", (int)stem, name);
		s = strstr(text, head);
	}
	if (!s)
		return false;
	return entry_list(text, s + strlen(head), sig, most, &n);
}

#endif
