/* SPDX-License-Identifier: Apache-2.0 */
/* cards.h - a stand-in for CUDA and HIP cards where there are none: tests/drivers/fake_rt.c, which
 * runs the real kernel text on the processor. */
#ifndef HS_TESTS_SUPPORT_CARDS_H
#define HS_TESTS_SUPPORT_CARDS_H

#include <stdbool.h>

/* Puts the stand-in in place of the driver of each backend that has no device here (or, with
 * `always`, of both). To be called before anything asks for a device. `library` is "fake_rt.so", or
 * "lacking_rt.so", which lacks a function. false, with a line that says why: it is not built, or
 * does not work here. */
bool fake_cards(const char *library, bool always);
/* Puts fake_opencl.so, which needs a real driver, in front of it; false: it is not built. */
bool fake_opencl(void);

#endif
