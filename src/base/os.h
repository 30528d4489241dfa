/* SPDX-License-Identifier: Apache-2.0 */
/* os.h - facts from the operating system: memory and processors that this process may use, its own
 * program, the end of its parent, names of the running kernel and network. Linux's answers are in
 * os_linux.c, those of macOS in os_macos.c, those of other systems (mostly "unknown") in
 * os_other.c, and what POSIX has everywhere in os.c. Nothing else in src/ reads /proc or /sys. */
#ifndef HS_BASE_OS_H
#define HS_BASE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct err;

/* `root` is put in front of every path that these two read: "" for the system itself, a folder with
 * proc/ and sys/ in tests. */

/* Bytes that this process may have in all, and those it can still take without swapping: of the
 * machine and of each control group it is in (cgroup v1 and v2). Pages of files count as free, as
 * the kernel drops them when memory is asked for. 0 and 0 where the system does not say. */
void os_memory(const char *root, uint64_t *total_p, uint64_t *free_p);
/* Of the machine, whatever this process may have; 0: unknown. */
uint64_t os_machine_memory(const char *root);
/* `cores`, or the fewer that the quotas of the control groups pay for. */
int os_cores(const char *root, int cores);
/* The same as a fraction: what a quota of 0.45 pays for counts as that. */
double os_cores_share(const char *root, double cores);

/* The most threads that may be asked for (OMP_NUM_THREADS, `threads`): OpenMP has data of each on
 * the stack. */
#define OS_THREADS_MOST 4096

/* From now on the two above give this process at most so much (with root ""); 0: no limit. */
void os_limit(int cores, uint64_t memory);
/* Processors that this process may run on; 0: unknown. */
int os_affinity(void);
/* Their numbers, at most `most`; and keeping this thread, and those that it starts from now on, to
 * some of them. */
int os_processors(int *number, int most);
bool os_keep_to(const int *number, int n);
/* Name and maker of the processor; unchanged where it is unknown. */
void os_processor(char *name, size_t n_name, char *vendor, size_t n_vendor);
/* Sleeps of this thread end when they should, not up to 50 microseconds later. */
void os_exact_sleeps(void);
/* The first line of a file of the system below `root`, and whether it is there. */
bool os_line(const char *root, const char *path, char *out, size_t n);
/* Whether a line of it begins so; *out (MAY be NULL) is what follows. */
bool os_line_with(const char *root, const char *path, const char *begin, char *out, size_t n);
/* The names in a folder of the system that begin with `begin`, in order, at most `most`. */
#define OS_NAME 64
size_t os_names(const char *root, const char *path, const char *begin, char (*name_p)[OS_NAME],
		size_t most);
/* The process that listens at a TCP port, where this user may see it, and the name of its
 * program. */
bool os_listener(unsigned port, pid_t *pid_p, char name_p[OS_NAME]);

/* Asks for large pages for a mapping; and says that its pages are not needed for now. Neither can
 * fail in a way that matters. */
void os_huge_pages(void *p, size_t n);
void os_drop_pages(void *p, size_t n);

/* From now on this process writes no core file, and others of its user cannot trace it or read its
 * memory. */
void os_forbid_tracing(void);

/* The path of the program that runs, also when this library was loaded by another program; NULL:
 * unknown. It stays valid. */
const char *os_self_exe(void);
/* Of the running kernel: another one after each start of the machine. false: unknown. */
bool os_boot_id(char *out, size_t n);
/* Of the network that this process sees; equal texts on one kernel are one network. */
bool os_net_namespace(char *out, size_t n);

/* Starts a program that ends when this process does, however that ends, SIGKILL included.
 *
 * PR_SET_PDEATHSIG of Linux is not enough: it fires when the THREAD that forked ends, so a program
 * that starts workers from a thread of its own would lose them with that thread. Here parent and
 * child share a pipe of which only the parent has the end to write: the kernel closes it with the
 * last of the parent's threads. The child watches the other end from os_die_with_parent() on.
 *
 * The child is in a process group of its own (Ctrl-C is the parent's). `args` ends with NULL. The
 * parent keeps *tie_p open as long as the child shall live and closes it after waitpid(). */
int os_spawn_tied(const char *path, char *const *args, pid_t *pid_p, int *tie_p, struct err *e);
/* The same, and says `n` bytes (at most OS_SAID) to the child through that pipe: a secret that
 * stands neither in its arguments nor in its environment. */
enum { OS_SAID = 32 << 10 };
int os_spawn_told(const char *path, char *const *args, const void *say, size_t n, pid_t *pid_p,
		  int *tie_p, struct err *e);
/* At the beginning of main(), behind the last exec of itself: when os_spawn_tied() started this
 * process, a thread waits from now on for the parent's end and ends the process with SIGKILL.
 * Returns whether it was started so. Calling it again changes nothing. */
bool os_die_with_parent(void);
/* What the parent said to a process that was started so; NULL: nothing. It stays valid until
 * os_parent_forget(), which overwrites it. */
const void *os_parent_said(size_t *n_p);
void os_parent_forget(void);

#endif
