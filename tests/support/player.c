/* SPDX-License-Identifier: Apache-2.0 */
/* player.c - see player.h. */
#include "support/player.h"

#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

void players_seats(struct seat_spec *seat, int n, const char *name)
{
	static const char *const id[PLAYERS_MOST] = { "a", "b", "c", "d", "e", "f" };
	for (int i = 0; i < n; i++) {
		seat[i] = (struct seat_spec){
			.kind = SEAT_REMOTE, .id = id[i], .host = "here", .device = "cpu"
		};
		snprintf(seat[i].address, sizeof seat[i].address, "session-%s-%d", name, i);
	}
}

void player_begin(struct player *w, const struct seat_spec *seat, int number,
		  void *(*play)(void *ctx), void *ctx)
{
	struct err e = { 0 };
	w->number = number;
	if (net_open("loop", &(struct net_options){ .window = w->window }, &w->net, &e) < 0 ||
	    net_listen(w->net, seat->address, NULL, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(pthread_create(&w->thread, NULL, play, ctx), 0);
}

void player_end(struct player *w)
{
	pthread_join(w->thread, NULL);
	if (w->link)
		link_close(w->link);
	net_close(w->net, 0);
}

bool player_meet(struct player *w, struct welcome *c)
{
	struct net_msg m;
	struct frame f;
	struct hello h;
	struct err e = { 0 };
	for (;;) {
		if (net_accept(w->net, net_in(20), &w->link, &e) != 1 ||
		    link_recv_frame(w->link, net_in(20), &m, &f, &e) != 1)
			return false;
		const int rc = hello_read(&f, &h, &e);
		net_msg_release(&m);
		if (rc < 0)
			return false;
		if (!w->goes)
			break;
		w->goes--;
		link_close(w->link);
		w->link = NULL;
	}
	w->job = h.job;
	memcpy(c->id, h.to, sizeof c->id);
	return welcome_send(w->link, c, net_in(5), &e) >= 0;
}

void player_say(struct player *w, enum frame_kind kind, uint64_t step, uint32_t microbatch,
		const void *payload, size_t n)
{
	struct err e = { 0 };
	const struct frame f = { .kind = kind,
				 .job = w->job,
				 .epoch = w->epoch,
				 .step = step,
				 .from = FRAME_MEMBER(w->number),
				 .to = FRAME_COORDINATOR,
				 .microbatch = microbatch,
				 .size = n,
				 .payload = payload };
	link_send_frame(w->link, &f, net_in(5), &e);
}
