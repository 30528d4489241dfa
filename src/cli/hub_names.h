/* SPDX-License-Identifier: Apache-2.0 */
/* hub_names.h - names of models and data sets of a hub (hub/hub.h) become paths before anything is
 * opened. What is a file or folder here stays what it is. */
#ifndef HS_CLI_HUB_NAMES_H
#define HS_CLI_HUB_NAMES_H

#include "config/config.h"

int cli_fetch_model(const char **path, struct arena *a, struct err *e);
int cli_fetch_data(const char **path, struct arena *a, struct err *e);
int cli_fetch_config(struct config *c, struct err *e); /* base_model and datasets */

#endif
