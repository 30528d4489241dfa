/* SPDX-License-Identifier: Apache-2.0 */
/* lfm2_keys.c - see lfm2_keys.h. */
#include "file/lfm2_keys.h"

#include "base/err.h"
#include "base/json.h"

#include <string.h>

int lfm2_width(const json_t *j, const char *where, int64_t *width_p, struct err *e)
{
	int64_t width = 12288, round = 256;
	bool adjust = true;
	double times = 1;
	const json_t *given = json_object_get(j, "block_ffn_dim_multiplier");
	TRY(json_opt_int(j, where, "intermediate_size", 1, 1 << 22, &width, e));
	TRY(json_opt_int(j, where, "block_ff_dim", 1, 1 << 22, &width, e));
	TRY(json_opt_bool(j, where, "block_auto_adjust_ff_dim", &adjust, e));
	TRY(json_opt_num(j, where, "block_ffn_dim_multiplier", 0, 64, &times, e));
	TRY(json_opt_int(j, where, "block_multiple_of", 1, 1 << 20, &round, e));
	if (adjust) {
		width = 2 * width / 3;
		if (!given || !json_is_null(given))
			width = ((int64_t)(times * (double)width) + round - 1) / round * round;
	}
	if (width < 1)
		return err_set(e, ERR_INPUT, "%s: MLPs would have no width", where);
	*width_p = width;
	return 0;
}

int lfm2_is_conv(const json_t *j, const char *where, int64_t layers, int64_t i, struct err *e)
{
	const json_t *types = json_object_get(j, "layer_types"),
		     *full = json_object_get(j, "full_attn_idxs");
	if (json_is_array(types) && (int64_t)json_array_size(types) != layers)
		return err_set(e, ERR_INPUT, "%s: 'layer_types' has %zu entries for %lld layers",
			       where, json_array_size(types), (long long)layers);
	if (full && !json_is_null(full) && !json_is_array(full))
		return err_set(e, ERR_INPUT, "%s: 'full_attn_idxs' must be a list of layers",
			       where);
	if (json_is_array(types)) {
		const char *type = json_string_value(json_array_get(types, (size_t)i));
		if (type && !strcmp(type, "conv"))
			return 1;
		return type && !strcmp(type, "full_attention")
			       ? 0
			       : err_set(e, ERR_UNSUPPORTED,
					 "%s: 'layer_types': '%s' is not supported", where,
					 type ? type : "?");
	}
	for (size_t k = 0; k < json_array_size(full); k++)
		if (json_integer_value(json_array_get(full, k)) == i)
			return 0;
	return json_is_array(full);
}

int lfm2_read_layers(const json_t *j, const char *where, int64_t layers, uint8_t *conv,
		     int64_t *count_p, struct err *e)
{
	for (int64_t i = 0; i < layers; i++) {
		const int is = lfm2_is_conv(j, where, layers, i, e);
		TRY(is);
		conv[i] = is > 0;
		*count_p += is;
	}
	return 0;
}
