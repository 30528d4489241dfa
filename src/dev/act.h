/* SPDX-License-Identifier: Apache-2.0 */
/* act.h - kinds of activations (kernel act_fwd). The numbers are in kernels. */
#ifndef HS_DEV_ACT_H
#define HS_DEV_ACT_H

enum activation { ACT_RELU, ACT_GELU, ACT_GELU_TANH, ACT_SILU, ACT_TANH, ACT_SIGMOID };

#endif
