/* SPDX-License-Identifier: Apache-2.0 */
/* prepared.h - the tokens of datasets in a file: written while records are read, mapped when they
 * are used, and used again by the next run of the same data. So data may be larger than memory.
 *
 * FOLDER/KEY.tokens: a head of PREPARED_HEAD bytes, then `bytes` of data, then `count` spans, as
 * the program keeps them in memory. KEY (prepared_key) is a digest of all that the tokens follow
 * from. What a file says is checked before it is used; one that is damaged is none. While it is
 * written it is KEY.PROCESS.N.tmp; such files of processes of this machine that are gone are
 * removed before a file is looked for. */
#ifndef HS_DATA_PREPARED_H
#define HS_DATA_PREPARED_H

#include "data/dataset.h"

enum { PREPARED_HEAD = 4096, PREPARED_KEY = 33 };

struct prepared_head {
	char magic[8];
	uint32_t layout; /* PREPARED_LAYOUT */
	uint32_t span;   /* bytes of one */
	char key[PREPARED_KEY + 7];
	uint64_t bytes, count, digest;
	uint64_t check; /* of this head, itself 0 */
	uint64_t sources;
	struct dataset_stats stats;
};

/* What is mapped, or being written. */
struct prepared {
	struct prepared_head head;
	const uint8_t *data; /* (bytes) */
	const void *span;    /* (count) */
	/* private */
	void *map;
	uint64_t mapped, written;
	int fd;
	char *tmp, *path;
	uint8_t *held;
	uint32_t nheld;
};

/* 1 and the key of these sources; 0 when one of their files is no regular file, so that nothing can
 * be kept. */
int prepared_key(const struct dataset_source *src, size_t nsrc, const struct dataset_options *o,
		 char key[PREPARED_KEY], struct err *e);
/* 1: there is such a file, and it is mapped; 0: there is none that can be used. */
int prepared_open(const char *dir, const char *key, size_t span, struct prepared *p, struct err *e);
/* Writing: begin, put for each piece of data, map (then data and span can be read), keep. */
int prepared_begin(const char *dir, const char *key, struct prepared *p, struct err *e);
int prepared_put(struct prepared *p, const void *data, size_t n, struct err *e);
int prepared_map(struct prepared *p, const void *span, size_t size, size_t count, struct err *e);
/* With the rest of p->head set. */
int prepared_keep(struct prepared *p, struct err *e);
/* Unmaps; what was not kept is removed. Zeros are allowed. */
void prepared_close(struct prepared *p);

#endif
