/* SPDX-License-Identifier: Apache-2.0 */
/* version.h - the version of the program. The commit that it was built from is in cli/commit.h,
 * which the Makefile writes: only `--version` needs it. */
#ifndef HS_BASE_VERSION_H
#define HS_BASE_VERSION_H

#define HS_VERSION "0.1.0"

#endif
