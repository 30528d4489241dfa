/* SPDX-License-Identifier: Apache-2.0 */
/* texts.h - texts of kernels (dev/dev_text.h) that tests run and compile. */
#ifndef HS_TESTS_SUPPORT_TEXTS_H
#define HS_TESTS_SUPPORT_TEXTS_H

/* y = x + w sin(s x), number by number */
static const char text_bend[] =
	"FORWARD {\n"
	"	AT(T, y); AT(T, x); AT(f32, p0);\n"
	"	i64 i = ITEM;\n"
	"	if (i < rows * out) st(y, i, ld(x, i) + p0[i % in] * SIN(s0 * ld(x, i)));\n"
	"}\n"
	"BACKWARD {\n"
	"	AT(T, dx); AT(T, dy); AT(T, x); AT(f32, p0);\n"
	"	i64 i = ITEM;\n"
	"	if (i < rows * in)\n"
	"		st(dx, i, ld(dy, i) * (1.0f + p0[i % in] * s0 * COS(s0 * ld(x, i))));\n"
	"}\n"
	"PARAMS {\n"
	"	AT(f32, d); AT(T, dy); AT(T, x);\n"
	"	LOCAL f32 s[WG];\n"
	"	f32 sum = 0;\n"
	"	for (i64 r = LID; r < rows; r += WG)\n"
	"		sum += ld(dy, r * in + GROUP) * SIN(s0 * ld(x, r * in + GROUP));\n"
	"	sum = group_sum(s, sum);\n"
	"	if (LID == 0) d[GROUP] += sum;\n"
	"}\n";

/* y = x / (root of the mean square of its row + s0), with barriers; another width */
static const char text_unit[] =
	"FN f32 share(LOCAL_ARG f32 *s, GLOBAL T *x, i64 n) {\n"
	"	f32 sum = 0;\n"
	"	for (i64 j = LID; j < n; j += WG) sum += ld(x, j) * ld(x, j);\n"
	"	return group_sum(s, sum) / (f32)n;\n"
	"}\n"
	"FORWARD {\n"
	"	AT(T, y); AT(T, x);\n"
	"	LOCAL f32 s[WG];\n"
	"	f32 r = 1.0f / SQRT(share(s, x + GROUP * in, in) + s0);\n"
	"	for (i64 j = LID; j < out; j += WG)\n"
	"		st(y, GROUP * out + j, ld(x, GROUP * in + j) * r);\n"
	"}\n"
	"BACKWARD {\n"
	"	AT(T, dx); AT(T, dy); AT(T, x);\n"
	"	LOCAL f32 s[WG];\n"
	"	f32 r = 1.0f / SQRT(share(s, x + GROUP * in, in) + s0), along = 0;\n"
	"	for (i64 j = LID; j < out; j += WG)\n"
	"		along += ld(dy, GROUP * out + j) * ld(x, GROUP * in + j);\n"
	"	along = group_sum(s, along) * r * r / (f32)in;\n"
	"	for (i64 j = LID; j < in; j += WG) {\n"
	"		f32 own = j < out ? ld(dy, GROUP * out + j) : 0.0f;\n"
	"		st(dx, GROUP * in + j, r * (own - along * ld(x, GROUP * in + j)));\n"
	"	}\n"
	"}\n";

#endif
