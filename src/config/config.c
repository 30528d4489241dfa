/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - see config.h: reading a configuration and freeing it. config_check.c checks keys
 * against each other, config_cluster.c reads the cluster part. */
#include "config/config.h"
#include "config/config_keys.h"
#include "config/config_parts.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/yaml.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static int set_map(struct config *c, const struct yaml_node *map, const char *where, bool *seen,
		   struct err *e);

/* hetero_config.json has three of the keys in a mapping `training`. */
static int read_training(struct config *c, const struct yaml_node *n, const char *where,
			 struct err *e)
{
	if (n->kind != YAML_MAP)
		return err_set(e, ERR_USAGE, "%s:%d: 'training' must be a mapping", where, n->line);
	for (size_t i = 0; i < n->count; i++) {
		const char *k = n->child[i]->key;
		if (strcmp(k, "visualize") && strcmp(k, "visualization_format") &&
		    strcmp(k, "log_level"))
			return err_set(e, ERR_USAGE,
				       "%s:%d: 'training' holds only visualize, "
				       "visualization_format and log_level; write '%.60s' "
				       "at the top level",
				       where, n->child[i]->line, k);
	}
	return set_map(c, n, where, NULL, e);
}

static int custom(void *obj, const struct opt *row, const struct yaml_node *node, const char *file,
		  struct arena *a, struct err *e)
{
	struct config *c = obj;
	(void)a;
	if (!strcmp(row->key, "datasets") || !strcmp(row->key, "test_datasets"))
		return config_data_read(c, node, file, row->key[0] == 't', e);
	if (!strcmp(row->key, "training"))
		return read_training(c, node, file, e);
	if (!strcmp(row->key, "version"))
		return 0;
	return config_cluster_read(c, row->key, node, file, e);
}

static int set_map(struct config *c, const struct yaml_node *map, const char *where, bool *seen,
		   struct err *e)
{
	size_t n;
	const struct opt *rows = config_rows(&n);
	return opt_set_yaml(rows, n, c, map, where, custom, seen, &c->arena, e);
}

/* Lists and mappings on the command line are YAML; any other value, and every text (a template
 * begins with a brace), is used literally, so that no value needs quoting twice. */
static int set_override(struct config *c, const char *word, bool *seen, struct err *e)
{
	size_t n;
	const struct opt *rows = config_rows(&n);
	const char *eq = strchr(word, '='), *where = "command line";
	char key[64];
	if (!eq || eq == word || (size_t)(eq - word) >= sizeof key)
		return err_set(e, ERR_USAGE, "'%.100s' is not of the form key=value%s%.100s%s",
			       word, opt_find(rows, n, word) ? ": write " : "",
			       opt_find(rows, n, word) ? word : "",
			       opt_find(rows, n, word) ? "=VALUE, without blanks" : "");
	memcpy(key, word, (size_t)(eq - word));
	key[eq - word] = 0;
	const struct opt *r = opt_find(rows, n, key);
	const char *v = eq + 1;
	if (!r) {
		struct yaml_node value = { .kind = YAML_SCALAR, .text = (char *)eq + 1 };
		const char *dtype = config_key_dtype(key, &value);
		char same[64];
		if (dtype) {
			snprintf(same, sizeof same, "compute_dtype=%s", dtype);
			return set_override(c, same, seen, e);
		}
		if (!config_key_idle(key, &value))
			return config_key_unknown(key, &value, where, 0, e);
		char list[1000], found[sizeof key + 4];
		snprintf(list, sizeof list, ", %s,", c->ignored ? c->ignored : "");
		snprintf(found, sizeof found, ", %s,", key);
		if (strstr(list, found)) /* the file has it too */
			return 0;
		snprintf(list, sizeof list, "%s%s%s", c->ignored ? c->ignored : "",
			 c->ignored ? ", " : "", key);
		c->ignored = arena_strdup(&c->arena, list);
		return c->ignored ? 0 : err_nomem(e, sizeof list, "a list of keys");
	}
	if (r->kind == OPT_STR || (r->kind != OPT_CUSTOM && v[0] != '[' && v[0] != '{')) {
		TRY(opt_set(rows, n, c, key, v, where, &c->arena, e));
		seen[r - rows] = true;
		return 0;
	}
	struct yaml *y;
	if (!v[0] || !strcmp(v, "null")) /* overrides the value of the file */
		v = "[]";
	TRY(yaml_parse_text(v, strlen(v), where, &y, e));
	const struct yaml_node *root = yaml_root(y);
	struct yaml_node value = *root, *child = &value;
	value.key = r->key;
	struct yaml_node map = { .kind = YAML_MAP, .line = 1, .count = 1, .child = &child };
	int rc = set_map(c, &map, where, seen, e);
	yaml_doc_free(y);
	return rc;
}

static int load(enum config_need need, const struct yaml_node *root, const char *where,
		int noverride, char **override, struct config **c_p, struct err *e)
{
	size_t n;
	const struct opt *rows = config_rows(&n);
	struct config *c = mem_zalloc(sizeof *c);
	bool *seen = mem_array(n, sizeof *seen);
	int rc;
	if (!c || !seen) {
		mem_free(c);
		mem_free(seen);
		return err_nomem(e, sizeof *c, "the configuration");
	}
	TRYOUT(opt_defaults(rows, n, c, &c->arena, e));
	c->coordinator.port = 9998;
	c->coordinator.device = "auto";
	c->path = arena_strdup(&c->arena, root ? where : "");
	if (!c->path) {
		rc = err_nomem(e, strlen(where), "the configuration");
		goto out;
	}
	if (root && root->kind == YAML_MAP) {
		struct yaml_node ours;
		TRYOUT(config_keys_sort(root, where, &c->arena, &ours, &c->ignored, e));
		TRYOUT(set_map(c, &ours, where, seen, e));
	} else if (root) {
		TRYOUT(set_map(c, root, where, seen, e)); /* says what was expected */
	}
	for (int i = 0; i < noverride; i++)
		TRYOUT(set_override(c, override[i], seen, e));
	TRYOUT(config_check(c, need, root ? where : "command line", seen, e));
out:
	mem_free(seen);
	if (rc < 0)
		config_free(c);
	else
		*c_p = c;
	return rc;
}

int config_parse(enum config_need need, const char *text, size_t n, const char *where,
		 int noverride, char **override, struct config **c_p, struct err *e)
{
	struct yaml *y;
	TRY(yaml_parse_text(text, n, where, &y, e));
	int rc = load(need, yaml_root(y), where, noverride, override, c_p, e);
	yaml_doc_free(y);
	return rc;
}

int config_load_as(enum config_need need, const char *path, int noverride, char **override,
		   struct config **c_p, struct err *e)
{
	if (!path)
		return load(need, NULL, "", noverride, override, c_p, e);
	struct yaml *y;
	TRY(yaml_parse_file(path, &y, e));
	int rc = load(need, yaml_root(y), path, noverride, override, c_p, e);
	yaml_doc_free(y);
	return rc;
}

int config_load(const char *path, int noverride, char **override, struct config **c_p,
		struct err *e)
{
	return config_load_as(CONFIG_TRAIN, path, noverride, override, c_p, e);
}

void config_free(struct config *c)
{
	if (!c)
		return;
	arena_release(&c->arena);
	mem_free(c);
}
