/* SPDX-License-Identifier: Apache-2.0 */
/* shm_memory.h - the memory in which messages of one link lie, between two processes of one
 * machine.
 *
 * Each buffer is a memfd of its own, sealed so that nobody can change its size. The side that sends
 * makes it, fills it, and gives its descriptor to the other side once; both map it and close the
 * descriptor, so nothing has a name and nothing outlives the two. The last bytes are a note for the
 * devices at both ends (base/note.h); the last 64 of them hold a word
 * that is 1 while the message is the receiver's; it sets it to 0 when its user is done, and the
 * sender, who asks now and then, uses the buffer again. The sender reads nothing else that the
 * receiver can write, and a false word only spoils messages to that receiver. The receiver reads
 * nothing there but the user's bytes.
 *
 * The receiver decides how much memory a peer can make it map: SHM_BUFFERS buffers, and as many
 * bytes as its window and one largest message. What does not fit goes through the socket. */
#ifndef HS_NET_SHM_MEMORY_H
#define HS_NET_SHM_MEMORY_H

#include "net/net_priv.h"
#include "net/pins.h"

enum { SHM_BUFFERS = 1024, SHM_LEAST = 16 << 10 /* smaller messages go through the socket */ };

struct shm_out; /* of a sender */
struct shm_in;  /* of a receiver */
struct shm_buffer;

/* ---- sending -------------------------------------------------------------------------------- */

/* `most`: bytes of shared memory at most. Above `keep` bytes, buffers that are not used are given
 * up first. `pins` MAY be NULL. NULL: memory is out. */
struct shm_out *shm_out_new(uint64_t most, uint64_t keep, struct pins *pins);
/* The link is over. What users hold stays valid until they release it. */
void shm_out_end(struct shm_out *s);
void shm_out_free(struct shm_out *s); /* after shm_out_end */

/* n bytes, to be released with net_buffer_release; NULL: no room for it. From any thread. */
void *shm_out_buffer(struct shm_out *s, size_t n);
/* The buffer in which a message lies; NULL: it is none of this link. */
struct shm_buffer *shm_out_of(struct shm_out *s, const struct net_node *node);
/* The buffer is the receiver's from now on. Its number; *fd_p: its descriptor when the receiver
 * does not know it yet (then *size_p is its size), else -1. */
uint32_t shm_out_send(struct shm_buffer *b, int *fd_p, uint64_t *size_p);
/* A number that is used no more, to be said before the next descriptor; -1: none. */
int64_t shm_out_given_up(struct shm_out *s);

/* ---- receiving ------------------------------------------------------------------------------ */

/* `most`: bytes. `pins` MAY be NULL. NULL: memory is out. */
struct shm_in *shm_in_new(uint64_t most, struct pins *pins);
/* The link is over. Messages that the user holds stay valid. */
void shm_in_end(struct shm_in *s);

/* A buffer that the peer shares: the descriptor is closed in any case. NULL, or what is wrong with
 * it. */
const char *shm_in_add(struct shm_in *s, uint64_t number, int fd, uint64_t size);
/* A message of n bytes in it: into `node`. NULL, or what is wrong. */
const char *shm_in_take(struct shm_in *s, uint64_t number, uint64_t n, struct net_node *node);
/* The peer uses it no more. */
const char *shm_in_drop(struct shm_in *s, uint64_t number);

#endif
