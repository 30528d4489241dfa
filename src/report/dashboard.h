/* SPDX-License-Identifier: Apache-2.0 */
/* dashboard.h - a profile as pictures: the speed of every device, the use of its memory, the speed
 * of the links.
 *
 * Speed of a device: tokens per second if all layers of the model ran on it, forward and backward,
 * at its best microbatch size. The page is one file without external parts and without scripts; its
 * colours follow the reader's light or dark setting. All texts of the profile are escaped. */
#ifndef HS_REPORT_DASHBOARD_H
#define HS_REPORT_DASHBOARD_H

struct profile;
struct buf;
struct err;

/* Writes dir/profile.png (cairo) and dir/profile.html, each atomically; `dir` exists. `p` is
 * finished (profile_finish). */
int dashboard_write(const struct profile *p, const char *dir, struct err *e);
/* The page alone: a pure function of the profile. The caller checks buf_ok() afterwards. */
void dashboard_html(const struct profile *p, struct buf *out);

#endif
