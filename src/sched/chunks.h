/* SPDX-License-Identifier: Apache-2.0 */
/* chunks.h - the layers of a stage, for messages. Pure. */
#ifndef HS_SCHED_CHUNKS_H
#define HS_SCHED_CHUNKS_H

#include <stddef.h>
#include <stdint.h>

/* "0 to 7, 16 to 23", cut short at `cap`: chunk c of the stage holds the layers [first[v],
 * first[v + 1]), v = c * stages + stage. */
void chunk_layers_text(int stages, int chunks, const int64_t *first, int stage, char *out,
		       size_t cap);

#endif
