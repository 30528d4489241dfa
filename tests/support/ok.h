/* SPDX-License-Identifier: Apache-2.0 */
/* ok.h - calls that may not fail, in tests that have a `struct err err`. */
#ifndef HS_TESTS_SUPPORT_OK_H
#define HS_TESTS_SUPPORT_OK_H

#define OK(call)                                                                                   \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s (%d)", #call, err.msg, err.code);                         \
	} while (0)

#endif
