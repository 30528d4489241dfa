/* SPDX-License-Identifier: Apache-2.0 */
/* rope.c - see rope.h. */
#include "model/rope.h"

#include "base/err.h"
#include "base/json.h"

#include <math.h>
#include <string.h>

/* Llama 3.1: low frequencies are divided by factor, high ones stay, those between are blended
 * (transformers modeling_rope_utils.py, _compute_llama3_parameters). */
static int scale_llama3(const json_t *s, const char *where, const struct model_config *c,
			float *inv, struct err *e)
{
	double factor, low, high, old;
	TRY(json_need_num(s, where, "factor", 1, 1e6, &factor, e));
	TRY(json_need_num(s, where, "low_freq_factor", 1e-6, 1e6, &low, e));
	TRY(json_need_num(s, where, "high_freq_factor", 1e-6, 1e6, &high, e));
	TRY(json_need_num(s, where, "original_max_position_embeddings", 1, 1e9, &old, e));
	if (!(high > low))
		return err_set(e, ERR_INPUT,
			       "%s: rope_scaling: high_freq_factor must be above low_freq_factor",
			       where);
	for (int64_t i = 0; i < c->rot / 2; i++) {
		double f = inv[i], wave = 2 * M_PI / f;
		if (wave > old / low) {
			inv[i] = (float)(f / factor);
		} else if (wave >= old / high) {
			double smooth = (old / wave - low) / (high - low);
			inv[i] = (float)((1 - smooth) * f / factor + smooth * f);
		}
	}
	return 0;
}

/* The place among D/2 frequencies of the one that turns n times in `old` positions. */
static double yarn_place(double n, double d, double theta, double old)
{
	return d * log(old / (n * 2 * M_PI)) / (2 * log(theta));
}

static double yarn_mscale(double factor, double mscale)
{
	return factor > 1 ? 0.1 * mscale * log(factor) + 1 : 1;
}

/* YaRN (Peng et al. 2023, arXiv 2309.00071, section 3): high frequencies stay, low ones are
 * divided by factor, with a ramp between (transformers' _compute_yarn_parameters). */
static int scale_yarn(const json_t *s, const char *where, double theta, struct model_config *c,
		      int table, struct err *e)
{
	float *inv = c->inv_freq[table];
	double old = c->max_positions ? (double)c->max_positions : 1, fast = 32, slow = 1,
	       attention = 0, mscale = 0, all = 0, factor, d = (double)c->rot;
	bool truncate = true;
	TRY(json_need_num(s, where, "factor", 1, 1e6, &factor, e));
	TRY(json_opt_num(s, where, "original_max_position_embeddings", 1, 1e9, &old, e));
	TRY(json_opt_num(s, where, "beta_fast", 1e-6, 1e6, &fast, e));
	TRY(json_opt_num(s, where, "beta_slow", 1e-6, 1e6, &slow, e));
	TRY(json_opt_num(s, where, "attention_factor", 0, 1e6, &attention, e));
	TRY(json_opt_num(s, where, "mscale", 0, 1e6, &mscale, e));
	TRY(json_opt_num(s, where, "mscale_all_dim", 0, 1e6, &all, e));
	TRY(json_opt_bool(s, where, "truncate", &truncate, e));
	double low = yarn_place(fast, d, theta, old), high = yarn_place(slow, d, theta, old);
	low = fmax(truncate ? floor(low) : low, 0);
	high = fmin(truncate ? ceil(high) : high, d - 1);
	if (low == high)
		high += 0.001;
	for (int64_t i = 0; i < c->rot / 2; i++) {
		double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1), f = inv[i];
		inv[i] = (float)(f / factor * ramp + f * (1 - ramp));
	}
	c->rope_scale[table] = (float)(attention > 0           ? attention
				       : mscale > 0 && all > 0 ? yarn_mscale(factor, mscale) /
									 yarn_mscale(factor, all)
							       : yarn_mscale(factor, 1));
	return 0;
}

/* GGUF carries Llama 3's scaling as one divisor per frequency (rope_freqs.weight). */
static int scale_factors(const json_t *s, const char *where, const struct model_config *c,
			 float *inv, struct err *e)
{
	const json_t *list = json_object_get(s, "factors");
	if (!json_is_array(list) || (int64_t)json_array_size(list) != c->rot / 2)
		return err_set(e, ERR_INPUT, "%s: rope_freqs must have %lld numbers", where,
			       (long long)(c->rot / 2));
	for (int64_t i = 0; i < c->rot / 2; i++) {
		double f = json_number_value(json_array_get(list, (size_t)i));
		if (!(f > 0 && f < 1e9))
			return err_set(e, ERR_INPUT, "%s: rope_freqs: number %lld is not positive",
				       where, (long long)i);
		inv[i] = (float)(inv[i] / f);
	}
	return 0;
}

static int factor_list(const json_t *s, const char *where, const char *key,
		       const struct model_config *c, const float *inv, float *out, struct err *e)
{
	const json_t *list = json_object_get(s, key);
	if (!json_is_array(list) || (int64_t)json_array_size(list) != c->rot / 2)
		return err_set(e, ERR_INPUT,
			       "%s: rope_scaling: '%s' must be a list of %lld numbers", where, key,
			       (long long)(c->rot / 2));
	for (int64_t i = 0; i < c->rot / 2; i++) {
		const double f = json_number_value(json_array_get(list, (size_t)i));
		if (!(f > 0 && f < 1e9))
			return err_set(e, ERR_INPUT,
				       "%s: rope_scaling: '%s': number %lld is not positive", where,
				       key, (long long)i);
		out[i] = (float)(inv[i] / f);
	}
	return 0;
}

/* LongRoPE (Ding et al. 2024, arXiv 2402.13753): a divisor for each frequency, other ones for
 * sequences that are longer than the model was first trained for (transformers'
 * _compute_longrope_parameters). */
static int scale_longrope(const json_t *j, const json_t *s, const char *where,
			  struct model_config *c, struct err *e)
{
	float *inv = c->inv_freq[0];
	double old = c->max_positions ? (double)c->max_positions : 1, factor = 0, attention = -1;
	TRY(json_opt_num(s, where, "original_max_position_embeddings", 2, 1e9, &old, e));
	TRY(json_opt_num(j, where, "original_max_position_embeddings", 2, 1e9, &old, e));
	TRY(json_opt_num(s, where, "factor", 1e-6, 1e6, &factor, e));
	TRY(json_opt_num(s, where, "attention_factor", 0, 1e6, &attention, e));
	if (factor == 0)
		factor = (double)c->max_positions / old;
	TRY(factor_list(s, where, "long_factor", c, inv, c->long_freq, e));
	TRY(factor_list(s, where, "short_factor", c, inv, inv, e));
	c->rope_limit = (int64_t)old;
	c->rope_scale[0] = (float)(attention >= 0 ? attention
				   : factor > 1   ? sqrt(1 + log(factor) / log(old))
						  : 1);
	return 0;
}

/* NTK-aware scaling by length (transformers' _compute_dynamic_ntk_parameters): up to
 * max_position_embeddings nothing changes, and up to `factor` times as much may be run. */
static int scale_dynamic(const json_t *s, const char *where, double theta, struct model_config *c,
			 struct err *e)
{
	TRY(json_need_num(s, where, "factor", 1, 1e6, &c->dynamic_factor, e));
	if (!c->max_positions || c->rot < 4)
		return 0;
	c->dynamic_theta = theta;
	c->rope_limit = c->max_positions;
	c->max_positions = (int64_t)((double)c->max_positions * c->dynamic_factor);
	return 0;
}

static void plain(double theta, int64_t rot, float *inv)
{
	for (int64_t i = 0; i < rot / 2; i++)
		inv[i] = (float)(1.0 / pow(theta, (double)(2 * i) / (double)rot));
}

int rope_scale(const json_t *j, const json_t *s, const char *where, double theta,
	       struct model_config *c, int table, struct err *e)
{
	const char *type = "default";
	double factor;
	float *inv = c->inv_freq[table];
	plain(theta, c->rot, inv);
	c->rope_scale[table] = 1;
	if (!s || json_is_null(s))
		return 0;
	TRY(json_opt_str(s, where, "type", &type, e));
	TRY(json_opt_str(s, where, "rope_type", &type, e));
	if (!strcmp(type, "default"))
		return 0;
	if (!strcmp(type, "dynamic") && table == 0)
		return scale_dynamic(s, where, theta, c, e);
	if (!strcmp(type, "yarn"))
		return scale_yarn(s, where, theta, c, table, e);
	if (!strcmp(type, "longrope") && table == 0)
		return scale_longrope(j, s, where, c, e);
	if (!strcmp(type, "llama3"))
		return scale_llama3(s, where, c, inv, e);
	if (!strcmp(type, "gguf_factors"))
		return scale_factors(s, where, c, inv, e);
	if (strcmp(type, "linear"))
		return err_set(
			e, ERR_UNSUPPORTED,
			"%s: rope scaling of type '%s' is not supported%s (default, %slinear, "
			"llama3, %syarn are)",
			where, type, table ? " for layers with a window" : "",
			table ? "" : "dynamic, ", table ? "" : "longrope, ");
	TRY(json_need_num(s, where, "factor", 1e-3, 1e6, &factor, e));
	for (int64_t i = 0; i < c->rot / 2; i++)
		inv[i] = (float)(inv[i] / factor);
	return 0;
}

int rope_read(const json_t *j, const struct model_family *f, const char *where,
	      struct model_config *c, struct err *e)
{
	const json_t *p = json_object_get(j, "rope_parameters"),
		     *s = json_object_get(j, "rope_scaling");
	double theta = f->rope_theta > 0 ? f->rope_theta : 10000,
	       share = f->rotary > 0 ? f->rotary : 1;
	TRY(json_opt_num(j, where, "rope_theta", 1, 1e12, &theta, e));
	TRY(json_opt_num(j, where, "partial_rotary_factor", 1e-3, 1, &share, e));
	if (json_is_object(json_object_get(p, "full_attention")))
		p = json_object_get(p, "full_attention"); /* by kinds of layers */
	if (json_is_object(p)) { /* transformers 5 keeps everything in one object */
		TRY(json_opt_num(p, where, "rope_theta", 1, 1e12, &theta, e));
		s = p;
	}
	if (json_is_object(s))
		TRY(json_opt_num(s, where, "partial_rotary_factor", 1e-3, 1, &share, e));
	if (f->rotary == 0 && !(share >= 1))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'partial_rotary_factor' is %g; for this family only 1 is "
			       "supported",
			       where, share);
	c->rot = (int64_t)((double)c->head_dim * share);
	if (c->rot < 2 || c->rot % 2)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'partial_rotary_factor' %g of a head of %lld is no even number",
			       where, share, (long long)c->head_dim);
	return rope_scale(j, s, where, theta, c, 0, e);
}

int rope_score_scale(const json_t *j, const char *where, double *scale_p, struct err *e)
{
	const json_t *p = json_object_get(j, "rope_parameters"),
		     *s = json_is_object(p) ? p : json_object_get(j, "rope_scaling");
	const char *type = "default";
	double all = 0, factor = 1;
	*scale_p = 1;
	if (!json_is_object(s))
		return 0;
	TRY(json_opt_str(s, where, "type", &type, e));
	TRY(json_opt_str(s, where, "rope_type", &type, e));
	TRY(json_opt_num(s, where, "mscale_all_dim", 0, 1e6, &all, e));
	if (!strcmp(type, "default") || !(all > 0))
		return 0;
	TRY(json_need_num(s, where, "factor", 1e-3, 1e6, &factor, e));
	*scale_p = yarn_mscale(factor, all) * yarn_mscale(factor, all);
	return 0;
}

int rope_read_windowed(const json_t *j, const char *where, double theta, struct model_config *c,
		       struct err *e)
{
	const json_t *s =
		json_object_get(json_object_get(j, "rope_parameters"), "sliding_attention");
	if (s)
		TRY(json_opt_num(s, where, "rope_theta", 1, 1e12, &theta, e));
	if (c->rope_limit) /* by the length of a sequence: one table has that */
		return err_set(
			e, ERR_UNSUPPORTED,
			"%s: this kind of rope scaling is not supported beside layers with a "
			"window that rotate otherwise (default, linear, llama3, yarn are)",
			where);
	TRY(rope_scale(j, s, where, theta, c, 1, e));
	for (int64_t i = 0; i < c->layers; i++)
		c->rope_table[i] = c->windowed[i];
	return 0;
}

/* `proportional`: the first `share` of the frequencies of the whole head, the rest do not rotate
 * (transformers modeling_rope_utils.py, _compute_proportional_rope_parameters). */
int rope_read_kind(const json_t *j, const char *where, const char *kind, int table, int64_t d,
		   double theta, double share, struct model_config *c, struct err *e)
{
	const json_t *all = json_object_get(j, "rope_parameters"), *s = json_object_get(all, kind);
	double factor = 1;
	const char *type = share < 1 && !s ? "proportional" : "default";
	share = s ? 1 : share;
	char path[512];
	snprintf(path, sizeof path, "%s: 'rope_parameters': '%s'", where, kind);
	if (json_is_object(all) && !json_is_object(s))
		return err_set(e, ERR_INPUT, "%s is missing", path);
	if (s) {
		TRY(json_need_num(s, path, "rope_theta", 1, 1e12, &theta, e));
		TRY(json_opt_num(s, path, "partial_rotary_factor", 0, 1, &share, e));
		TRY(json_opt_num(s, path, "factor", 1e-3, 1e6, &factor, e));
		TRY(json_need_str(s, path, "rope_type", &type, e));
	}
	const bool part = !strcmp(type, "proportional");
	if (!part && (strcmp(type, "default") != 0 || share != 1 || factor != 1))
		return err_set(
			e, ERR_UNSUPPORTED,
			"%s: 'rope_type' '%s' with 'partial_rotary_factor' %g and 'factor' %g "
			"is not supported (proportional is, and default with 1 and 1)",
			path, type, share, factor);
	const int64_t angles = (int64_t)(share * (double)d) / 2;
	for (int64_t i = 0; i < d / 2; i++)
		c->inv_freq[table][i] =
			i < angles ? (float)(1 / pow(theta, (double)(2 * i) / (double)d) / factor)
				   : 0;
	c->rope_scale[table] = 1;
	return 0;
}

void rope_long(const struct model_config *c, int64_t length, float *inv)
{
	const double d = (double)c->rot, f = c->dynamic_factor;
	if (f > 0)
		plain(c->dynamic_theta * pow(f * (double)length / (double)c->rope_limit - (f - 1),
					     d / (d - 2)),
		      c->rot, inv);
	else
		memcpy(inv, c->long_freq, (size_t)(c->rot / 2) * sizeof *inv);
}
