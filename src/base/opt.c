/* SPDX-License-Identifier: Apache-2.0 */
/* opt.c - see opt.h: values into fields, from text, from YAML and from argv. The texts made from
 * rows are in opt_text.c. */
#include "base/opt.h"

#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/yaml.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool same_key(const char *a, const char *b)
{
	for (; *a && *b; a++, b++)
		if (*a != *b && !((*a == '-' || *a == '_') && (*b == '-' || *b == '_')))
			return false;
	return *a == *b;
}

const struct opt *opt_find(const struct opt *rows, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++)
		if (same_key(rows[i].key, key))
			return &rows[i];
	return NULL;
}

static int wrong(const struct opt *r, const char *where, const char *value, const char *want,
		 struct err *e)
{
	return err_set(e, ERR_USAGE, "%s: '%s' must be %s, not '%.60s'", where, r->key, want,
		       value);
}

static int out_of_range(const struct opt *r, const char *where, const char *value, struct err *e)
{
	if (r->hi >= OPT_MAX)
		return err_set(e, ERR_USAGE, "%s: '%s' is %.60s, it must be %s %.15g", where,
			       r->key, value, r->lo_open ? "greater than" : "at least", r->lo);
	if (r->lo_open)
		return err_set(e, ERR_USAGE,
			       "%s: '%s' is %.60s, it must be greater than %.15g and at most %.15g",
			       where, r->key, value, r->lo, r->hi);
	return err_set(e, ERR_USAGE, "%s: '%s' is %.60s, allowed is %.15g to %.15g", where, r->key,
		       value, r->lo, r->hi);
}

static bool in_range(const struct opt *r, double v)
{
	if (r->lo == r->hi)
		return true;
	return (r->lo_open ? v > r->lo : v >= r->lo) && (r->hi >= OPT_MAX || v <= r->hi);
}

static int set_bool(const struct opt *r, bool *v_p, const char *value, const char *where,
		    struct err *e)
{
	static const char *const yes[] = { "true", "yes", "on", "1" }, *const no[] = { "false",
										       "no", "off",
										       "0" };
	for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
		if (!strcasecmp(value, yes[i]) || !strcasecmp(value, no[i])) {
			*v_p = !strcasecmp(value, yes[i]);
			return 0;
		}
	}
	return wrong(r, where, value, "true or false", e);
}

static int set_int(const struct opt *r, int64_t *v_p, const char *value, const char *where,
		   struct err *e)
{
	char *end;
	errno = 0;
	long long v = strtoll(value, &end, 10);
	if (end == value || *end || errno)
		return wrong(r, where, value, "a whole number", e);
	if (!in_range(r, (double)v))
		return out_of_range(r, where, value, e);
	*v_p = v;
	return 0;
}

static int set_float(const struct opt *r, double *v_p, const char *value, const char *where,
		     struct err *e)
{
	char *end;
	double v = strtod(value, &end);
	if (end == value || *end || !isfinite(v) || strpbrk(value, "xX"))
		return wrong(r, where, value, "a number", e);
	if (!in_range(r, v))
		return out_of_range(r, where, value, e);
	*v_p = v;
	return 0;
}

static int set_enum(const struct opt *r, int *v_p, const char *value, const char *where,
		    struct err *e)
{
	int i = 0;
	size_t len = strlen(value);
	for (const char *c = r->choices; *c; i++) {
		size_t n = strcspn(c, "|");
		if (n == len && !strncasecmp(c, value, n)) {
			*v_p = i;
			return 0;
		}
		c += n + (c[n] == '|');
	}
	char words[256];
	size_t w = 0;
	for (const char *c = r->choices; *c && w + 3 < sizeof words; c++) {
		if (*c == '|')
			words[w++] = ',', words[w++] = ' ';
		else
			words[w++] = *c;
	}
	words[w] = 0;
	return err_set(e, ERR_USAGE, "%s: '%s' is '%.60s', allowed are: %s", where, r->key, value,
		       words);
}

static bool is_alias(const struct opt_names *names, size_t i, const char *value)
{
	const char *const *other = names->aliases ? names->aliases(i) : NULL;
	for (; other && *other; other++)
		if (!strcasecmp(*other, value))
			return true;
	return false;
}

static int set_name(const struct opt *r, const char **v_p, const char *value, const char *where,
		    struct err *e)
{
	const char *name, *help;
	for (size_t i = 0; (name = r->names->at(i, &help)); i++)
		if (!strcasecmp(name, value) || is_alias(r->names, i, value)) {
			*v_p = name;
			return 0;
		}
	char words[512];
	return err_set(e, ERR_USAGE, "%s: '%s' is '%.60s', allowed are: %s", where, r->key, value,
		       opt_names_text(r->names, ", ", words, sizeof words));
}

const char *opt_path(const char *path, struct arena *a)
{
	const char *home = getenv("HOME");
	if (path[0] != '~' || (path[1] && path[1] != '/') || !home || !home[0])
		return path;
	size_t n = strlen(home) + strlen(path);
	char *s = arena_alloc(a, n);
	if (s)
		snprintf(s, n, "%s%s", home, path + 1);
	return s;
}

static bool is_path(const struct opt *r)
{
	return r->arg &&
	       (!strcmp(r->arg, "FILE") || !strcmp(r->arg, "DIR") || !strcmp(r->arg, "PATH"));
}

static int set_str(const char **v_p, const char *value, struct arena *a, struct err *e)
{
	char *s = arena_strdup(a, value);
	if (!s)
		return err_nomem(e, strlen(value), "a setting");
	*v_p = s;
	return 0;
}

/* "a, b,c": three items without the blanks around them. */
static int set_list(struct opt_list *l_p, const char *value, struct arena *a, struct err *e)
{
	size_t n = 0;
	for (const char *c = value; *c; c++)
		n += *c == ',';
	struct opt_list l = { arena_alloc(a, (n + 1) * sizeof *l.item), 0 };
	if (!l.item)
		return err_nomem(e, (n + 1) * sizeof *l.item, "a list");
	for (const char *c = value; *c;) {
		c += strspn(c, ", \t");
		size_t len = strcspn(c, ","), keep = len;
		while (keep && (c[keep - 1] == ' ' || c[keep - 1] == '\t'))
			keep--;
		if (keep) {
			l.item[l.n] = arena_strndup(a, c, keep);
			if (!l.item[l.n++])
				return err_nomem(e, keep, "a list");
		}
		c += len;
	}
	*l_p = l;
	return 0;
}

static int set_row(const struct opt *r, void *obj, const char *value, const char *where,
		   struct arena *a, struct err *e)
{
	void *f = (char *)obj + r->offset;
	switch (r->kind) {
	case OPT_BOOL:
		return set_bool(r, f, value, where, e);
	case OPT_INT:
		return set_int(r, f, value, where, e);
	case OPT_FLOAT:
		return set_float(r, f, value, where, e);
	case OPT_STR:
		if (is_path(r) && !(value = opt_path(value, a)))
			return err_nomem(e, 4096, "a path");
		return set_str(f, value, a, e);
	case OPT_ENUM:
		return set_enum(r, f, value, where, e);
	case OPT_NAME:
		return set_name(r, f, value, where, e);
	case OPT_LIST:
		return set_list(f, value, a, e);
	case OPT_CUSTOM:
		break;
	}
	return err_set(e, ERR_USAGE,
		       "%s: '%s' cannot be given as one value; write it in the configuration file",
		       where, r->key);
}

int opt_defaults(const struct opt *rows, size_t n, void *obj, struct arena *a, struct err *e)
{
	for (size_t i = 0; i < n; i++)
		if (rows[i].def && rows[i].kind != OPT_CUSTOM)
			TRY(set_row(&rows[i], obj, rows[i].def, "default", a, e));
	return 0;
}

static int unknown(const struct opt *rows, size_t n, const char *key, const char *where,
		   struct err *e)
{
	const char *near = opt_nearest(rows, n, key);
	if (near)
		return err_set(e, ERR_USAGE, "%s: unknown key '%.60s', did you mean '%s'?", where,
			       key, near);
	return err_set(e, ERR_USAGE, "%s: unknown key '%.60s'", where, key);
}

int opt_set(const struct opt *rows, size_t n, void *obj, const char *key, const char *value,
	    const char *where, struct arena *a, struct err *e)
{
	const struct opt *r = opt_find(rows, n, key);
	return r ? set_row(r, obj, value, where, a, e) : unknown(rows, n, key, where, e);
}

static int list_from_yaml(const struct opt *r, struct opt_list *l_p, const struct yaml_node *v,
			  const char *where, struct arena *a, struct err *e)
{
	struct opt_list l = { arena_alloc(a, (v->count ? v->count : 1) * sizeof *l.item),
			      v->count };
	if (!l.item)
		return err_nomem(e, v->count * sizeof *l.item, "a list");
	for (size_t i = 0; i < v->count; i++) {
		if (v->child[i]->kind != YAML_SCALAR)
			return err_set(e, ERR_USAGE, "%s: '%s' must be a list of words", where,
				       r->key);
		TRY(set_str(&l.item[i], v->child[i]->text, a, e));
	}
	*l_p = l;
	return 0;
}

/* {a: 1, b: 2} of a row whose items are NAME=VALUE. */
static int list_from_map(const struct opt *r, struct opt_list *l_p, const struct yaml_node *v,
			 const char *where, struct arena *a, struct err *e)
{
	struct opt_list l = { arena_alloc(a, (v->count + 1) * sizeof *l.item), v->count };
	if (!l.item)
		return err_nomem(e, v->count * sizeof *l.item, "a list");
	for (size_t i = 0; i < v->count; i++) {
		const struct yaml_node *one = v->child[i];
		if (one->kind != YAML_SCALAR)
			return err_set(e, ERR_USAGE, "%s: '%s' of '%s' must be one word", where,
				       one->key, r->key);
		const size_t n = strlen(one->key) + strlen(one->text) + 2;
		char *text = arena_alloc(a, n);
		if (!text)
			return err_nomem(e, n, "a list");
		snprintf(text, n, "%s=%s", one->key, one->text);
		l.item[i] = text;
	}
	*l_p = l;
	return 0;
}

static int set_from_yaml(const struct opt *r, void *obj, const struct yaml_node *v,
			 const char *where, struct arena *a, struct err *e)
{
	if (r->kind == OPT_LIST && v->kind == YAML_LIST)
		return list_from_yaml(r, (struct opt_list *)((char *)obj + r->offset), v, where, a,
				      e);
	if (r->kind == OPT_LIST && v->kind == YAML_MAP && r->arg && !strncmp(r->arg, "NAME=", 5))
		return list_from_map(r, (struct opt_list *)((char *)obj + r->offset), v, where, a,
				     e);
	if (v->kind != YAML_SCALAR)
		return err_set(e, ERR_USAGE, "%s: '%s' must be %s, not a %s", where, r->key,
			       r->kind == OPT_LIST ? "a word or a list of words" : "one value",
			       v->kind == YAML_MAP ? "mapping" : "list");
	return set_row(r, obj, v->text, where, a, e);
}

int opt_set_yaml(const struct opt *rows, size_t n, void *obj, const struct yaml_node *map,
		 const char *file, opt_custom_fn custom, bool *seen, struct arena *a, struct err *e)
{
	if (map->kind != YAML_MAP)
		return err_set(e, ERR_USAGE, "%s:%d: 'key: value' lines were expected", file,
			       map->line);
	for (size_t i = 0; i < map->count; i++) {
		const struct yaml_node *v = map->child[i];
		char where[512];
		snprintf(where, sizeof where, "%.480s:%d", file, v->line);
		const struct opt *r = opt_find(rows, n, v->key);
		if (!r)
			return unknown(rows, n, v->key, where, e);
		if (yaml_is_null(v))
			continue;
		if (r->kind == OPT_CUSTOM)
			TRY(custom(obj, r, v, file, a, e));
		else
			TRY(set_from_yaml(r, obj, v, where, a, e));
		if (seen)
			seen[r - rows] = true;
	}
	return 0;
}

/* One flag; *used_p is how many words of argv it took. */
static int set_flag(const struct opt *rows, size_t n, void *obj, const char *flag, const char *next,
		    int *used_p, struct arena *a, struct err *e)
{
	char key[64];
	const char *name = flag + 2, *eq = strchr(name, '='), *value = eq ? eq + 1 : NULL;
	size_t len = eq ? (size_t)(eq - name) : strlen(name);
	if (flag[1] != '-' || !len || len >= sizeof key)
		return err_set(e, ERR_USAGE, "unknown option '%.60s' (see --help)", flag);
	memcpy(key, name, len);
	key[len] = 0;
	*used_p = 1;
	const struct opt *r = opt_find(rows, n, key);
	if (!r && !eq && !strncmp(key, "no-", 3)) {
		const struct opt *b = opt_find(rows, n, key + 3);
		if (b && b->kind == OPT_BOOL)
			r = b, value = "false";
	}
	if (!r) {
		const char *near = opt_nearest(rows, n, key);
		char dashed[64] = "";
		for (size_t i = 0; near && near[i] && i + 1 < sizeof dashed; i++)
			dashed[i] = near[i] == '_' ? '-' : near[i];
		if (near)
			return err_set(e, ERR_USAGE, "unknown option '--%s', did you mean '--%s'?",
				       key, dashed);
		return err_set(e, ERR_USAGE, "unknown option '--%s' (see --help)", key);
	}
	if (!value && r->kind == OPT_BOOL)
		value = "true";
	if (!value) {
		if (!next)
			return err_set(e, ERR_USAGE, "option '--%s' needs a value", key);
		value = next;
		*used_p = 2;
	}
	return set_row(r, obj, value, "command line", a, e);
}

int opt_argv(const struct opt *rows, size_t n, void *obj, int argc, char **argv, int *npos_p,
	     struct arena *a, struct err *e)
{
	int npos = 0;
	for (int i = 0; i < argc;) {
		const char *w = argv[i];
		if (!strcmp(w, "--")) {
			for (i++; i < argc; i++)
				argv[npos++] = argv[i];
			break;
		}
		if (w[0] != '-' || !w[1]) {
			argv[npos++] = argv[i++];
			continue;
		}
		int used = 1;
		TRY(set_flag(rows, n, obj, w, i + 1 < argc ? argv[i + 1] : NULL, &used, a, e));
		i += used;
	}
	*npos_p = npos;
	return 0;
}
