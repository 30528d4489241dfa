/* SPDX-License-Identifier: Apache-2.0 */
/* shm_meet.h - the rendezvous of processes of one user on one machine: a Unix socket for each
 * address that is listened at, in a folder that is the user's alone.
 *
 * The folder is $XDG_RUNTIME_DIR/heteroshard, without that variable /run/user/UID/heteroshard, and
 * where that does not exist /tmp/heteroshard-UID. It is made with mode 0700 and refused when it
 * belongs to another user or lets others in. A socket's name follows from the address and from the
 * network that the process sees, so that equal addresses of two network namespaces are two places.
 * Both ends check that the other one belongs to their user (SO_PEERCRED). A process that is killed
 * leaves a name without a listener; the next listener removes it. */
#ifndef HS_NET_SHM_MEET_H
#define HS_NET_SHM_MEET_H

#include <stdbool.h>
#include <sys/types.h>

#define MEET_PATH 108 /* holds a socket's path with its NUL */

struct err;

/* The folder; `make`: where it is missing. 1; 0: it does not exist. */
int meet_folder(bool make, char path_p[MEET_PATH], struct err *e);
/* Where those of this user meet that began before /run/user/UID was there: services, and jobs of
 * cron. False: it is not there, or is meet_folder() itself, or the user chose another folder. */
bool meet_folder_without_session(char path_p[MEET_PATH]);

/* Whether `number` (as address_resolve makes it) is an address of this machine. */
bool meet_is_here(const char *number);

/* A socket that listens for `number` ("*:5000" is every address of this machine), and its path.
 * ERR_NET when somebody listens there already; ERR_IO: the folder cannot be used. */
int meet_listen(const char *number, int *fd_p, char path_p[MEET_PATH], struct err *e);
/* Closes it and removes its name. fd -1 is allowed. */
void meet_leave(int fd, const char *path);

/* Connects to the process that listens for `number`, or at every address with the same port. 1:
 * connected; 0: nobody listens there, or not yet; ERR_IO: the folder cannot be used; ERR_NET: the
 * listener belongs to another user. */
int meet_connect(const char *number, int *fd_p, struct err *e);

/* The process at the other end of a socket; false: it is not of this user. */
bool meet_peer(int fd, pid_t *pid_p);

#endif
