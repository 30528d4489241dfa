/* SPDX-License-Identifier: Apache-2.0 */
/* config_keys.h - keys of a configuration that are none of ours: names that other programs use for
 * one of our keys, and keys of theirs that change nothing here. */
#ifndef HS_CONFIG_CONFIG_KEYS_H
#define HS_CONFIG_CONFIG_KEYS_H

#include <stdbool.h>

struct arena;
struct buf;
struct err;
struct yaml_node;

/* Our key that is meant by `key`, or NULL. */
const char *config_key_near(const char *key);
/* Whether the key, with this value, changes nothing here. */
bool config_key_idle(const char *key, const struct yaml_node *value);
/* The compute_dtype that the key with this value (bf16: true) means, or NULL. */
const char *config_key_dtype(const char *key, const struct yaml_node *value);
/* ERR_USAGE about a key that is none of ours. `where` is the file; `line` 0: none */
int config_key_unknown(const char *key, const struct yaml_node *value, const char *where, int line,
		       struct err *e);

/* Copies the mapping `map` without the keys that change nothing, and with compute_dtype for
 * bf16: true and the like. ERR_USAGE names all keys that are unknown at once. *ignored_p: the keys
 * left out, with commas; NULL: there are none. All in `a`. */
int config_keys_sort(const struct yaml_node *map, const char *where, struct arena *a,
		     struct yaml_node *map_p, const char **ignored_p, struct err *e);

/* The section of docs/configuration.md about them. */
void config_keys_markdown(struct buf *out);

#endif
