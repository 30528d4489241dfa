/* SPDX-License-Identifier: Apache-2.0 */
/* rtc.h - compilers of GPU code that are libraries: NVRTC (CUDA C) and hipRTC (HIP). No device and
 * no driver is needed to compile.
 *
 * Several NVRTC may be installed, and each release drops old cards: the newest that makes code for
 * the card and that its driver takes is used. HS_NVRTC_LIBRARY and HS_HIPRTC_LIBRARY name the one
 * library to use instead. Libraries stay open until the process ends. Interfaces: NVIDIA, "NVRTC"
 * 11.2 to 13; AMD, "HIP RTC" 5.2 to 7. */
#ifndef HS_DEV_RTC_H
#define HS_DEV_RTC_H

#include <stdbool.h>
#include <stddef.h>

struct buf;
struct err;

enum rtc_kind { RTC_NVRTC, RTC_HIPRTC };

struct rtc;

/* The compiler for `arch` ("sm_86", "gfx90a:sramecc+:xnack-"; NULL: any). `most` is the highest
 * major version the driver takes; 0: any. ERR_UNSUPPORTED when none is installed, or none does
 * it. */
int rtc_open(enum rtc_kind k, const char *arch, int most, const struct rtc **r_p, struct err *e);
const char *rtc_name(const struct rtc *r); /* "NVRTC 13.0" */
/* NVRTC: fills `archs` with the numbers it makes code for (75, 80, ...), ascending; returns how
 * many. hipRTC: 0. */
int rtc_archs(const struct rtc *r, int *archs, int most);
/* Compiles; `code` gets what a driver loads (NVRTC: a cubin, or PTX of the nearest older
 * architecture when it does not know this one), `log` all that the compiler said. ERR_DEVICE when
 * it refuses the text. Both buffers are appended to. */
int rtc_compile(const struct rtc *r, const char *text, const char *arch, struct buf *code,
		struct buf *log, struct err *e);

#endif
