/* SPDX-License-Identifier: Apache-2.0 */
/* hash.c - see hash.h. */
#include "file/hash.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/open.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <unistd.h>

enum { HASH = 32, PIECE = 4 << 20, THREADS_MOST = 8 };

void hash_bytes(const void *p, size_t n, char hex[HASH_HEX])
{
	unsigned char h[HASH];
	crypto_generichash(h, HASH, p, n, NULL, 0);
	sodium_bin2hex(hex, HASH_HEX, h, HASH);
}

/* Pieces of one file, taken by whichever thread is free. */
struct pieces {
	int fd;
	uint64_t n, size;
	atomic_ullong next;
	atomic_int errnum; /* of the first read that failed; EIO also where the file ended early */
	unsigned char *hash; /* [n][HASH] */
};

static void *hash_pieces(void *ctx)
{
	struct pieces *p = ctx;
	unsigned char *piece = mem_array(PIECE, 1);
	if (!piece) {
		atomic_store(&p->errnum, ENOMEM);
		return NULL;
	}
	for (uint64_t i; (i = atomic_fetch_add(&p->next, 1)) < p->n && !atomic_load(&p->errnum);) {
		uint64_t off = i * PIECE, left = p->size - off < PIECE ? p->size - off : PIECE;
		size_t n = 0;
		while (n < left) {
			ssize_t k = pread(p->fd, piece + n, left - n, (off_t)(off + n));
			if (k < 0 && errno == EINTR)
				continue;
			if (k <= 0) {
				atomic_store(&p->errnum, k ? errno : EIO);
				break;
			}
			n += (size_t)k;
		}
		crypto_generichash(p->hash + i * HASH, HASH, piece, n, NULL, 0);
	}
	mem_free(piece);
	return NULL;
}

int hash_file(const char *path, char hex[HASH_HEX], uint64_t *bytes_p, struct err *e)
{
	struct pieces p = { .fd = -1 };
	TRY(open_read(path, &p.fd, &p.size, e));
	p.n = (p.size + PIECE - 1) / PIECE;
	p.hash = mem_array(p.n ? p.n : 1, HASH);
	if (!p.hash) {
		close(p.fd);
		return err_nomem(e, p.n * HASH, path);
	}
	pthread_t thread[THREADS_MOST];
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	int threads = 0;
	while (threads < THREADS_MOST && threads + 1 < cores && (uint64_t)threads + 1 < p.n &&
	       !pthread_create(&thread[threads], NULL, hash_pieces, &p))
		threads++;
	hash_pieces(&p);
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	close(p.fd);
	int errnum = atomic_load(&p.errnum);
	if (!errnum)
		hash_bytes(p.hash, p.n * HASH, hex);
	mem_free(p.hash);
	if (errnum)
		return err_sys(e, errnum, "%s: reading", path);
	if (bytes_p)
		*bytes_p = p.size;
	return 0;
}
