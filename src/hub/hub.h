/* SPDX-License-Identifier: Apache-2.0 */
/* hub.h - models and data sets by name, from a server with the HTTP interface of the Hugging Face
 * Hub, in the cache that huggingface_hub uses: what one of them fetched, the other finds.
 *
 * A name is OWNER/NAME, with @REVISION and :FILE behind it where they are wanted. Environment:
 * HF_ENDPOINT (the server's address; there is no default, so nothing is asked of a host that the
 * user did not name), HF_TOKEN or the file HF_TOKEN_PATH (HF_HOME/token), HF_HUB_CACHE
 * (HF_HOME/hub), HF_HOME (~/.cache/huggingface), HF_HUB_OFFLINE.
 *
 * Files are HF_HUB_CACHE/models--OWNER--NAME/blobs/HASH, and snapshots/COMMIT/FILE is a link to
 * one; refs/REVISION names the commit. A file that was cut off goes on where it ended
 * (HASH.incomplete), several are fetched at once, and a file is taken into the cache only when its
 * hash is that of the server's list (SHA-256, or git's SHA-1 for small files). The token is sent
 * over https or to this machine only, and never to the host that a redirect leads to. */
#ifndef HS_HUB_HUB_H
#define HS_HUB_HUB_H

#include <stdbool.h>
#include <stddef.h>

struct err;

enum { HUB_NAME = 256, HUB_PATH = 4096 };

struct hub_name {
	char repo[HUB_NAME], revision[HUB_NAME], file[HUB_NAME]; /* "": not given */
};

/* Whether the text is such a name and no file or folder is there. */
bool hub_is_name(const char *text);
int hub_parse(const char *text, struct hub_name *n_p, struct err *e);

struct hub_options {
	bool dataset;
	const char *endpoint; /* NULL: HF_ENDPOINT */
	unsigned retry_ms;    /* the first pause before another try; 0: 1000 */
	unsigned stall_s; /* a connection that is slower than 1,000 bytes/s so long is cut; 0: 30 */
};

/* The files of the name (a model: configuration, tokenizer and safetensors; a data set: its data
 * files; or :FILE alone), fetched where they are not in the cache. `path`: the folder of the
 * snapshot, or the file. */
int hub_fetch(const struct hub_name *n, const struct hub_options *o, char path[HUB_PATH],
	      struct err *e);

#endif
