/* SPDX-License-Identifier: Apache-2.0 */
/* version.h - the version of the program. */
#ifndef HS_BASE_VERSION_H
#define HS_BASE_VERSION_H

#define HS_VERSION "0.1.0"

#endif
