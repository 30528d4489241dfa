/* SPDX-License-Identifier: Apache-2.0 */
/* lfm2_keys.h - keys of LFM2 that mean something else than they say, for its configuration and for
 * a GGUF (transformers, models/lfm2, configuration_lfm2.py and Lfm2MLP). */
#ifndef HS_FILE_LFM2_KEYS_H
#define HS_FILE_LFM2_KEYS_H

#include <jansson.h>
#include <stdint.h>

struct err;

/* The width of MLPs: that of the configuration, reduced and rounded up where it is to be
 * adjusted. */
int lfm2_width(const json_t *j, const char *where, int64_t *width_p, struct err *e);
/* Whether layer `i` of `layers` has a short convolution: by `layer_types`, else attention is in the
 * layers of `full_attn_idxs`, else in all. */
int lfm2_is_conv(const json_t *j, const char *where, int64_t layers, int64_t i, struct err *e);
/* That of all layers, and how many have one, added to *count_p. */
int lfm2_read_layers(const json_t *j, const char *where, int64_t layers, uint8_t *conv,
		     int64_t *count_p, struct err *e);

#endif
