/* SPDX-License-Identifier: Apache-2.0 */
/* net.h - links: one-to-one, ordered, reliable, authenticated connections that carry messages
 * (bytes with a length).
 *
 * A `struct net` is this process's end of one transport with its key, its listener and its links.
 * Several may live in one process. Everything here may be called from any thread; a transport moves
 * bytes in threads of its own, so sending and receiving go on while the caller computes. Messages
 * of one link arrive in the order of the calls that sent them.
 *
 * Times: a `deadline` is a moment of clock_now() (nanoseconds): NET_NOW does not wait, NET_FOREVER
 * waits without end. A call that finds nothing in time returns 0 where that is normal (accept,
 * receive, poll), and ERR_NET where the caller needed it (wait_up, send).
 *
 * A link that is lost stays lost: it delivers what had arrived, then every call returns ERR_NET
 * with the reason (link_why). There is no silent reconnecting; to reach the peer again, connect
 * again. A connection closed by the other side or its kernel is noticed at once; a peer that says
 * nothing for `peer_timeout` is lost (heartbeats are the transport's, they go on while both sides
 * compute).
 *
 * Back-pressure: at most `window` bytes of a link are in flight, that is sent and not yet taken by
 * the peer's link_recv (one larger message is let through alone). link_send then returns LINK_FULL,
 * and the calls that have a deadline wait for room. */
#ifndef HS_NET_NET_H
#define HS_NET_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/keys.h"

struct err;
struct frame;
struct net;
struct link;
struct net_transport;

#define NET_CONNECTIONS 8
#define NET_NOW ((int64_t)0)
#define NET_FOREVER INT64_MAX
int64_t net_in(double seconds); /* the deadline that many seconds from now */

/* Longest address with its NUL: "host:port", "[v6]:port", to listen also "*:port"; loop: any word.
 * To dial over TCP, "source;host:port" leaves from that address of this machine. */
#define NET_ADDRESS 300

/* ---- one end -------------------------------------------------------------------------------- */

/* Knobs of the loop transport, each per direction of every link that this end opens or accepts
 * (what it sends). */
struct net_knobs {
	int64_t delay; /* ns each message takes on top */
	double rate;   /* bytes per second; 0: no limit */
	double loss;   /* chance that a message vanishes, [0, 1] */
	uint64_t seed; /* of the random losses */
	/* the link breaks instead of carrying message number cut_after (from 1); 0: never */
	uint64_t cut_after;
};

struct net_options {
	/* NULL: no identity and no encryption, loopback addresses only. Copied */
	const struct key_pair *key;
	/* without a key, let other addresses than loopback through: no identity, no encryption */
	bool insecure;
	/* tls: processes of this machine and user meet through shared memory where they can, and
	 * over TCP where not */
	bool near;
	double peer_timeout;  /* seconds of silence after which a peer is lost; 0: 20 */
	uint64_t window;      /* bytes in flight towards this end, per link; 0: 64 MiB */
	uint64_t max_message; /* largest message this end accepts; 0: 256 MiB + 64 KiB */
	/* tls, shm: bytes of messages that a link which the other side dialled receives before
	 * link_take(); 0: no limit but the window. Other links do not look at it. That the peer has
	 * gone is seen then as soon as the kernel has received all that it sent, at the latest when
	 * the link is taken */
	uint64_t before_take;
	/* tls, with a key: a link whose both ends are in this machine's mesh (inside.h) proves its
	 * keys and goes without encryption, where the other end says the same */
	bool mesh;
	/* tls: so many connections a link, 1 to NET_CONNECTIONS, where one of its two ends wants
	 * it, each with a thread at both ends: for a network that is faster than one core encrypts.
	 * Large messages go over all of them, in pieces. Not for links within a machine or a mesh.
	 * 0: 1 */
	unsigned connections;
	bool adopt;             /* and as many as a peer has wanted last */
	struct net_knobs knobs; /* loop only */
};

int net_open(const char *transport, const struct net_options *o, struct net **net_p, struct err *e);
/* Closes every link and the listener. What was sent is still delivered, for at most `linger`
 * seconds in all. Messages that the caller holds stay valid only until here: release them first. */
void net_close(struct net *n, double linger);
const char *net_names(void); /* "loop, tls": for messages and help */
#define NET_DEFAULT "tls"    /* between processes */

/* With a transport whose launcher numbers the processes (mpi): which one this is, of how many. Rank
 * N listens at "rank:N". Otherwise ERR_UNSUPPORTED. */
struct net_ranks {
	int rank, size;
	int local; /* lower ranks on this machine, rank 0 not counted */
};
int net_world(struct net *n, struct net_ranks *r_p, struct err *e);

/* Sums by the launcher's own collectives (mpi). A group is some of its processes, named by address;
 * all of them make it with the same list, and one group after the other. Making it waits for
 * nobody, and it goes with the net. Other transports: ERR_UNSUPPORTED. */
struct net_group;
int net_group_make(struct net *n, const char *const *address, int members, struct net_group **g_p,
		   struct err *e);
/* Room for `count` numbers, kept from call to call; NULL without memory. */
float *net_group_room(struct net_group *g, size_t count);
/* Begins to add up what the members have in their rooms, `count` numbers each. All members begin
 * the same sums in the same order, one at a time. */
int net_group_sum(struct net_group *g, size_t count, struct err *e);
/* 1: the sum is in the room, the same bits with every member; 0: not yet. When it is there
 * net_wake() is called. */
int net_group_done(struct net_group *g, struct err *e);

/* Who may connect. With a key, nobody is let in until listed; without one (loopback) anybody is.
 * May be called at any time. */
int net_allow(struct net *n, const char *public_key, struct err *e);

/* From now on this key is refused, and its links are lost. */
void net_forbid(struct net *n, const char *public_key);

/* Whether unknown keys are let in too, as unproven: over TLS only. Such a link may say one message
 * of at most NET_UNPROVEN bytes, stays among the strangers with their limits (tls_hub.h) and is cut
 * off after their 2 s. May be changed at any time. */
#define NET_UNPROVEN 256
void net_admit(struct net *n, bool unknown);

/* This end's signature of a text (keys.h); "" without a key. */
int net_prove(struct net *n, const char *subject, const char *text, char proof_p[KEY_PROOF],
	      struct err *e);

/* One listener per net. Port 0 takes a free one. *bound_p (may be NULL): the address with the port
 * that was taken. */
int net_listen(struct net *n, const char *address, char bound_p[NET_ADDRESS], struct err *e);

/* A new connection, ready to use; *link_p. 1, or 0 when none came until `deadline`. */
int net_accept(struct net *n, int64_t deadline, struct link **link_p, struct err *e);
/* The link is used from now on: what `before_take` held back is received. So links that wait until
 * their user knows who they are take little memory, however much their peers send. */
#define NET_BEFORE_TAKE (8 << 10)
void link_take(struct link *l);

/* Begins to connect and returns at once; tries again until `deadline` while nobody listens there.
 * `peer_key`: the public key the peer must prove to hold (NULL only without a key). link_wait_up()
 * or net_poll() tell how it went. */
int net_dial(struct net *n, const char *address, const char *peer_key, int64_t deadline,
	     struct link **link_p, struct err *e);
/* dial and wait. The peer must have called net_listen; it does not have to be in net_accept. So no
 * order of connecting and accepting between processes can deadlock. */
int net_connect(struct net *n, const char *address, const char *peer_key, int64_t deadline,
		struct link **link_p, struct err *e);

/* A device that transfers from memory without a copy of its own once it knows of it (dev_pin()):
 * called for whole pages that are shared with a process of this machine, when they are mapped and
 * before they are unmapped, from any thread. What is mapped before net_pin() is not told. */
struct net_pinner {
	bool (*pin)(void *ctx, void *p, size_t n); /* false: not this one */
	void (*unpin)(void *ctx, void *p);
	void *ctx;
};
/* NULL: nobody from now on, and no call is under way; the device forgets what it was told. */
void net_pin(struct net *n, const struct net_pinner *who);

/* ---- one link ------------------------------------------------------------------------------- */

enum link_state { LINK_CONNECTING, LINK_UP, LINK_LOST };

struct link_stats {
	/* of messages taken by link_send / given out by link_recv */
	uint64_t bytes_out, bytes_in, messages_out, messages_in;
	/* bytes sent that the peer has not taken yet */
	uint64_t in_flight;
	/* bytes arrived that link_recv has not given out yet */
	uint64_t queued_in;
	/* time that waiting sends spent on a full link */
	int64_t full_ns;
	/* that carry it now */
	unsigned connections;
};

enum link_state link_state(const struct link *l);
const char *link_address(const struct link *l); /* of the peer, for messages */
/* how it goes: "memory", "shared memory", "TLS", "TCP", "TCP in the mesh", "MPI"; of a link that is
 * not up yet, how it would go */
const char *link_way(const struct link *l);
/* its public key, proven; "" on a link without keys */
const char *link_peer_key(const struct link *l);
/* A lost link that was dialled: the peer answered, and has this machine's key on no list. */
bool link_was_refused(const struct link *l);
bool link_is_unproven(const struct link *l); /* net_admit() */
/* What only the two ends of this connection know, equal at both (RFC 9266, tls-exporter); zeros on
 * a link without TLS. */
#define LINK_BINDING 32
void link_binding(const struct link *l, uint8_t out[LINK_BINDING]);
void link_why(struct link *l, struct err *e_p); /* why it is lost; code 0 while it is not */
void link_stats(struct link *l, struct link_stats *s_p);
void *link_user(const struct link *l); /* a pointer of the caller's, kept with the link */
void link_set_user(struct link *l, void *user);
int link_wait_up(struct link *l, int64_t deadline, struct err *e); /* 0 once it is up */

/* Gives the link back. The peer gets what was sent, then sees the link closed ("closed by the
 * peer"). `l` is invalid afterwards. */
void link_close(struct link *l);

/* Called exactly once for every message that link_send took, when the link is done with the bytes,
 * whether they arrived or not: from any thread, so it does little, does not block and calls nothing
 * of net.h. */
typedef void (*net_release_fn)(void *ctx, void *data);

/* Hands bytes over without a copy. 0: taken, the link owns them until release(ctx, data) is called
 * (which can be before this returns). Anything else leaves them with the caller: LINK_FULL when the
 * window is used up (net_poll for NET_SEND), ERR_NET on a lost link, ERR_INPUT for a message larger
 * than the peer takes. On a CONNECTING link messages wait for it, within the window. */
#define LINK_FULL 1
int link_send(struct link *l, void *data, size_t n, net_release_fn release, void *ctx,
	      struct err *e);
/* The same, waiting for room until `deadline`. */
int link_send_wait(struct link *l, void *data, size_t n, net_release_fn release, void *ctx,
		   int64_t deadline, struct err *e);
/* Sends a copy: the bytes are the caller's again at return. */
int link_send_copy(struct link *l, const void *data, size_t n, int64_t deadline, struct err *e);
/* Encodes and sends a copy of a frame. */
int link_send_frame(struct link *l, const struct frame *f, int64_t deadline, struct err *e);
/* A buffer of n bytes from the net's pool, 64-byte aligned, to be filled and handed to link_send(l,
 * p, n, net_buffer_release, net, e). */
void *net_buffer(struct net *n, size_t bytes);
void net_buffer_release(void *net, void *data);
/* The same for a message over this link: between two processes of a machine it is memory that both
 * see, and nothing is copied. */
void *link_buffer(struct link *l, size_t bytes);

/* A message that arrived. Its bytes are the receiver's until net_msg_release(), by any thread,
 * before net_close(). On a link through shared memory the peer can change them meanwhile: who
 * checks a value copies it first (link_recv_frame does that with all but the numbers of a
 * tensor). */
struct net_msg {
	void *data;
	size_t size;
	int64_t arrived; /* clock_now() when its last byte was here */
	void *handle;    /* private */
};

/* 1 with a message; 0 when none came until `deadline`; ERR_NET once the link is lost and everything
 * that arrived was given out. */
int link_recv(struct link *l, int64_t deadline, struct net_msg *m_p, struct err *e);
/* The same, and parses it: `f` points into `m`. A message that is no valid frame loses the link
 * (ERR_PROTOCOL). The CRC is checked where the bytes came from outside this process. */
int link_recv_frame(struct link *l, int64_t deadline, struct net_msg *m_p, struct frame *f_p,
		    struct err *e);
void net_msg_release(struct net_msg *m); /* may be called again, does nothing then */

/* Breaks the link because of what came over it: the peer sees it closed, `why` becomes the reason
 * on this side. */
void link_fail(struct link *l, int code, const char *why);

/* ---- several links -------------------------------------------------------------------------- */

enum {
	NET_RECV = 1, /* a message is there; with link NULL: a new connection is there */
	NET_SEND = 2, /* there is room to send */
	NET_UP = 4,   /* no longer connecting */
	NET_LOST = 8, /* lost and nothing left to receive: always reported */
};

struct net_poll {
	struct link *link; /* NULL: the listener */
	unsigned want;
	unsigned ready; /* filled in */
};

/* Waits until one of the `count` items is ready, net_wake() was called, or `deadline`. Returns how
 * many are ready (0: woken or late). */
int net_poll(struct net *n, struct net_poll *items, size_t count, int64_t deadline);
/* from any thread (not from a signal handler); ends the net_poll that runs, or the next one */
void net_wake(struct net *n);

#endif
