/* SPDX-License-Identifier: Apache-2.0 */
/* test_dev_compile.c - compiles the kernels of the GPU backends with the compilers of NVIDIA and
 * AMD, which need no card: the text for each dtype of activations and each architecture must
 * compile, and every entry point must be in the code that comes out. A compiler that is not
 * installed is skipped with that reason; so is an architecture that this release of it does not
 * know. The kernels are not run here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "dev/gpu.h"
#include "dev/rtc.h"
#include "drivers/entry_sig.h"
#include "support/texts.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Bytes of machine code of function `name` in an ELF file at `p`; 0: it is not there. */
static uint64_t code_of(const char *p, size_t n, const char *name)
{
	Elf64_Ehdr h;
	if (n < sizeof h)
		return 0;
	memcpy(&h, p, sizeof h);
	for (unsigned i = 0; i < h.e_shnum; i++) {
		Elf64_Shdr sec, str;
		if (h.e_shoff + (i + 1) * sizeof sec > n)
			return 0;
		memcpy(&sec, p + h.e_shoff + i * sizeof sec, sizeof sec);
		if (sec.sh_type != SHT_SYMTAB || sec.sh_link >= h.e_shnum ||
		    sec.sh_offset + sec.sh_size > n)
			continue;
		memcpy(&str, p + h.e_shoff + sec.sh_link * sizeof str, sizeof str);
		if (str.sh_offset + str.sh_size > n)
			return 0;
		for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= sec.sh_size;
		     at += sizeof(Elf64_Sym)) {
			Elf64_Sym s;
			memcpy(&s, p + sec.sh_offset + at, sizeof s);
			if (ELF64_ST_TYPE(s.st_info) == STT_FUNC && s.st_name < str.sh_size &&
			    !strcmp(p + str.sh_offset + s.st_name, name))
				return s.st_size;
		}
	}
	return 0;
}

/* NVIDIA's attributes of a function lie in a section of its own, .nv.info.NAME: format, number,
 * then 2 bytes of value or of size. Of the whole file .nv.info has pairs of symbol and value. */
enum { ATTR_FRAME = 0x11, ATTR_PARAMETERS = 0x19, FORMAT_SIZED = 4 };

static uint32_t number(const char *p, int bytes)
{
	uint32_t v = 0;
	memcpy(&v, p, (size_t)bytes); /* little-endian, as this machine is */
	return v;
}

/* The bytes of parameters that `name` takes, and of its stack frame; -1 where the file does not
 * say. */
static void nvidia_sizes(const char *p, const char *name, int64_t *parameters_p, int64_t *frame_p)
{
	Elf64_Ehdr h;
	Elf64_Shdr names, sec, symbols = { 0 }, strings = { 0 };
	char own[96];
	memcpy(&h, p, sizeof h);
	memcpy(&names, p + h.e_shoff + h.e_shstrndx * sizeof names, sizeof names);
	for (unsigned i = 0; i < h.e_shnum; i++) {
		memcpy(&sec, p + h.e_shoff + i * sizeof sec, sizeof sec);
		if (sec.sh_type == SHT_SYMTAB) {
			symbols = sec;
			memcpy(&strings, p + h.e_shoff + sec.sh_link * sizeof strings,
			       sizeof strings);
		}
	}
	*parameters_p = *frame_p = -1;
	snprintf(own, sizeof own, ".nv.info.%s", name);
	for (unsigned i = 0; i < h.e_shnum; i++) {
		memcpy(&sec, p + h.e_shoff + i * sizeof sec, sizeof sec);
		const char *is = p + names.sh_offset + sec.sh_name;
		if (strcmp(is, own) && strcmp(is, ".nv.info"))
			continue;
		const char *end = p + sec.sh_offset + sec.sh_size;
		for (const char *at = p + sec.sh_offset; at + 4 <= end;) {
			const uint32_t value = number(at + 2, 2);
			if (at[1] == ATTR_PARAMETERS && !strcmp(is, own))
				*parameters_p = value;
			if (at[1] == ATTR_FRAME && at[0] == FORMAT_SIZED &&
			    !strcmp(is, ".nv.info")) {
				Elf64_Sym sym;
				memcpy(&sym, p + symbols.sh_offset + number(at + 4, 4) * sizeof sym,
				       sizeof sym);
				if (!strcmp(p + strings.sh_offset + sym.st_name, name))
					*frame_p = number(at + 8, 4);
			}
			at += 4 + (at[0] == FORMAT_SIZED ? value : 0);
		}
	}
}

/* The compiler and the host must agree on the bytes of a kernel's parameters. The sums that a lane
 * keeps must lie in registers, not in memory: an array of them would take 64 bytes at least. The
 * widest forward kernel and the widest products keep 48 bytes of single numbers there on sm_75, dk
 * and dv as many from sm_100 on, so their limit is wider. */
static void check_nvidia(const char *elf, const char *text, const char *name)
{
	char sig[64];
	int64_t want = 0, parameters, frame;
	assert_true(entry_signature(text, name, sig, sizeof sig));
	for (int i = 0; sig[i]; i++)
		want = sig[i] == 'f' ? want + 4 : (want + 7) / 8 * 8 + 8;
	nvidia_sizes(elf, name, &parameters, &frame);
	if (parameters != want)
		fail_msg("%s takes %lld bytes of parameters, the host packs %lld", name,
			 (long long)parameters, (long long)want);
	const bool widest = !strcmp(name, "attn_fwd_256") || !strcmp(name, "gemm_256") ||
			    !strcmp(name, "gemm_512") || !strncmp(name, "attn_dkv_", 9);
	const int64_t most = widest ? 64 : 32;
	if ((!strncmp(name, "attn_", 5) || !strncmp(name, "gemm_", 5)) && frame >= most)
		fail_msg("%s has a stack frame of %lld bytes", name, (long long)frame);
}

/* AMD's code objects are ELF files in a bundle: the last one is the device's. */
static const char *elf_in(const struct buf *code, size_t *n_p)
{
	static const char magic[] = "\177ELF\2";
	const char *last = NULL;
	for (size_t i = 0; i + 64 <= code->n; i++)
		if (!memcmp(code->p + i, magic, sizeof magic - 1))
			last = code->p + i;
	assert_non_null(last);
	*n_p = code->n - (size_t)(last - code->p);
	return last;
}

/* The program's own kernels, or those of a text that somebody adds. */
static int entries(const struct dev_text *user) { return user ? TEXT_ENTRIES : GPU_ENTRIES; }

static const char *entry_name(const struct dev_text *user, int k)
{
	return user ? gpu_user_entry((enum dev_text_entry)k) : gpu_entry_name((enum gpu_entry)k);
}

static void make_text(const struct dev_text *user, enum dtype t, struct buf *b)
{
	if (user)
		gpu_user_text(t, user, false, b);
	else
		gpu_text(t, b);
}

/* NVRTC 12.9 says of cards before sm_75 that later releases will not know them. */
static bool only_says_old(const char *log)
{
	for (const char *next; *log; log = next) {
		const size_t n = strcspn(log, "\n");
		const char *old = strstr(log, "Architectures prior to");
		next = log + n + (log[n] == '\n');
		if (n && (!old || old > log + n))
			return false;
	}
	return true;
}

static void compile_one(const struct rtc *r, const char *arch, enum dtype t,
			const struct dev_text *user)
{
	struct buf text = BUF_INIT, code = BUF_INIT, log = BUF_INIT;
	struct err e = { 0 };
	uint64_t all = 0;
	size_t n;
	const int64_t began = clock_now();
	make_text(user, t, &text);
	assert_int_equal(buf_ok(&text, &e), 0);
	if (rtc_compile(r, text.p, arch, &code, &log, &e) < 0)
		fail_msg("%s\n%s", e.msg, log.p);
	const char *elf = elf_in(&code, &n);
	for (int k = 0; k < entries(user); k++) {
		const char *name = entry_name(user, k);
		const uint64_t size = code_of(elf, n, name);
		if (!size)
			fail_msg("%s, %s, %s: no code for %s", rtc_name(r), arch, dtype_name(t),
				 name);
		if (!strncmp(arch, "sm_", 3))
			check_nvidia(elf, text.p, name);
		all += size;
	}
	printf("%-12s %-8s %-9s ok: %d entry points, %llu KiB of code, %.1f s\n", rtc_name(r), arch,
	       dtype_name(t), entries(user), (unsigned long long)all >> 10,
	       clock_seconds(clock_now() - began));
	if (log.n && !user)
		printf("%s\n", log.p);
	/* No warnings: nobody can run this code here to see whether one matters. Around a text that
	 * somebody adds there are functions that it does not use, and that is said. */
	assert_true(user || only_says_old(log.n ? log.p : ""));
	buf_release(&text);
	buf_release(&code);
	buf_release(&log);
}

/* Each architecture is compiled in one dtype: that takes half a minute on a slow processor. The
 * texts of 16 bits are those with matrix units; bfloat16 and float16 differ by two conversions.
 * With HS_COMPILE_ALL=1 every dtype is compiled for every architecture that the compiler knows
 * (scripts/compile-all.sh), with HS_COMPILE_DTYPE=bfloat16 that one alone. */
static bool wanted(const char *arch, enum dtype t)
{
	static const struct {
		const char *arch;
		enum dtype t;
	} one[] = {
		{ "sm_75", DT_F16 },    { "sm_80", DT_BF16 },   { "sm_86", DT_F32 },
		{ "sm_89", DT_F32 },    { "sm_90", DT_BF16 },   { "sm_100", DT_F32 },
		{ "sm_120", DT_BF16 },  { "gfx900", DT_F32 },   { "gfx906", DT_F16 },
		{ "gfx90a", DT_BF16 },  { "gfx942", DT_F16 },   { "gfx1030", DT_F32 },
		{ "gfx1100", DT_BF16 }, { "gfx1151", DT_BF16 }, { "gfx1201", DT_BF16 },
	};
	const char *only = getenv("HS_COMPILE_DTYPE");
	bool known = !only;
	for (enum dtype k = DT_F32; k <= DT_F16 && !known; k++)
		known = !strcmp(only, dtype_name(k));
	if (!known)
		fail_msg("HS_COMPILE_DTYPE is '%s'", only);
	if (only)
		return !strcmp(only, dtype_name(t));
	bool is = getenv("HS_COMPILE_ALL") != NULL;
	for (size_t i = 0; i < ARRAY_LEN(one); i++)
		is |= !strcmp(one[i].arch, arch) && t == one[i].t;
	return is;
}

static const struct rtc *compiler(enum rtc_kind k)
{
	const struct rtc *r = NULL;
	struct err e = { 0 };
	if (rtc_open(k, NULL, 0, &r, &e) < 0)
		printf("skipped: %s\n", e.msg);
	return r;
}

static void nvidia(void **state)
{
	static const int cards[] = { 75, 80, 86, 89, 90, 100, 120 };
	int known[64], n = 0, have[64];
	(void)state;
	const struct rtc *r = compiler(RTC_NVRTC);
	if (!r)
		skip();
	const int nknown = rtc_archs(r, known, ARRAY_LEN(known));
	const char *range = getenv("HS_COMPILE_SM"); /* of these with HS_COMPILE_ALL: "50-72" */
	int from = 0, to = INT32_MAX;
	if (range)
		assert_int_equal(sscanf(range, "%d-%d", &from, &to), 2);
	for (int j = 0; j < nknown && getenv("HS_COMPILE_ALL"); j++)
		if (known[j] >= from && known[j] <= to)
			have[n++] = known[j];
	for (size_t i = 0; i < ARRAY_LEN(cards) && !getenv("HS_COMPILE_ALL"); i++) {
		bool is = false;
		for (int j = 0; j < nknown; j++)
			is |= known[j] == cards[i];
		if (is)
			have[n++] = cards[i];
		else
			printf("%-12s sm_%-5d           skipped: %s does not know it\n",
			       rtc_name(r), cards[i], rtc_name(r));
	}
	assert_true(n > 0);
	for (int i = 0; i < n; i++) {
		char arch[32];
		snprintf(arch, sizeof arch, "sm_%d", have[i]);
		for (enum dtype t = DT_F32; t <= DT_F16; t++)
			if (wanted(arch, t))
				compile_one(r, arch, t, NULL);
	}
}

static const char *const amd_cards[] = { "gfx906", "gfx90a", "gfx1030", "gfx1100" };

static bool amd_by_hiprtc(void)
{
	const struct rtc *r = compiler(RTC_HIPRTC);
	if (!r)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(amd_cards); i++) {
		struct err e = { 0 };
		if (rtc_open(RTC_HIPRTC, amd_cards[i], 0, &r, &e) < 0) {
			printf("%-12s %-8s           skipped: %s\n", rtc_name(r), amd_cards[i],
			       e.msg);
			continue;
		}
		for (enum dtype t = DT_F32; t <= DT_F16; t++)
			if (wanted(amd_cards[i], t))
				compile_one(r, amd_cards[i], t, NULL);
	}
	return true;
}

/* clang knows cards that hipRTC does not. It makes machine code in which the mathematical functions
 * are not linked. The clang of the package ziglang (scripts/fetch-ziglang.sh) knows all of them. */
static bool run_clang(const char *const *args)
{
	const char *zig = getenv("HS_ZIG"), *v[32];
	int status = 0, n = 0;
	if (!zig || access(zig, X_OK) < 0)
		return false;
	v[n++] = zig;
	v[n++] = "clang";
	while (*args && n + 1 < (int)ARRAY_LEN(v))
		v[n++] = *args++;
	v[n] = NULL;
	fflush(NULL);
	const pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		execv(zig, (char *const *)(uintptr_t)v);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	return true;
}

/* The number behind `word` where the assembly describes kernel `name`. */
static long said_of(const char *text, const char *name, const char *word)
{
	char own[96];
	snprintf(own, sizeof own, " .name:           %s\n", name);
	const char *at = strstr(text, own);
	at = at ? strstr(at, word) : NULL;
	if (!at)
		fail_msg("%s: nothing behind '%s'", name, word);
	return strtol(at + strlen(word), NULL, 10);
}

/* The sums that a lane keeps must lie in registers. A few spilled numbers are allowed, but an array
 * of sums has 16 at least. delta_bwd keeps 128, and loads as many at a time as there are registers
 * (512 on gfx942, where it spills 19). */
static long most_spilled(const char *name) { return strcmp(name, "delta_bwd") != 0 ? 15 : 31; }

static bool clang_one(const char *dir, const char *arch, enum dtype t, const struct dev_text *user)
{
	char in[96], out[96], stub[512], name[64], target[64];
	const char *source = getenv("HS_SOURCE");
	struct buf text = BUF_INIT, code = BUF_INIT;
	struct err e = { 0 };
	snprintf(stub, sizeof stub, "%s/tests/support/hip_stub.h", source ? source : ".");
	snprintf(in, sizeof in, "%s/k.hip", dir);
	snprintf(out, sizeof out, "%s/k.s", dir);
	snprintf(target, sizeof target, "--offload-arch=%s", arch);
	make_text(user, t, &text);
	FILE *f = fopen(in, "we");
	assert_non_null(f);
	assert_int_equal(fwrite(text.p, 1, text.n, f), text.n);
	assert_int_equal(fclose(f), 0);
	const char *const args[] = { "-x",      "hip",       "--cuda-device-only",
				     target,    "-nogpuinc", "-nogpulib",
				     "-Werror", "-O2",       "-include",
				     stub,      "-S",        in,
				     "-o",      out,         NULL };
	const int64_t began = clock_now();
	const bool ran = run_clang(args);
	if (ran) {
		assert_int_equal(buf_read_file(&code, out, 0, &e), 0);
		long regs = 0, spills = 0;
		for (int k = 0; k < entries(user); k++) {
			const char *entry = entry_name(user, k);
			snprintf(name, sizeof name, ".amdhsa_kernel %s\n", entry);
			if (!strstr(code.p, name))
				fail_msg("%s, %s: no code for %s", arch, dtype_name(t), entry);
			const long r = said_of(code.p, entry, ".vgpr_count:"),
				   n = said_of(code.p, entry, ".vgpr_spill_count:");
			if (n > most_spilled(entry))
				fail_msg("%s, %s: %s spills %ld registers", arch, dtype_name(t),
					 entry, n);
			regs = r > regs ? r : regs;
			spills = n > spills ? n : spills;
		}
		printf("%-12s %-8s %-9s ok: %d entry points, at most %ld vector registers and %ld "
		       "spills, %.1f s\n",
		       "clang", arch, dtype_name(t), entries(user), regs, spills,
		       clock_seconds(clock_now() - began));
	}
	unlink(in);
	unlink(out);
	buf_release(&text);
	buf_release(&code);
	return ran;
}

/* Every second of the cards and dtypes, so that two processes take all of them. */
static bool clang_half(const char *const *cards, int half)
{
	char dir[] = "/tmp/hs-compile-XXXXXX";
	bool ran = true;
	int k = 0;
	assert_non_null(mkdtemp(dir));
	for (size_t i = 0; cards[i] && ran; i++)
		for (enum dtype t = DT_F32; t <= DT_F16 && ran; t++)
			if (wanted(cards[i], t) && k++ % 2 == half)
				ran = clang_one(dir, cards[i], t, NULL);
	rmdir(dir);
	return ran;
}

/* One card of each generation; HS_COMPILE_ALL=1: every card, in every dtype. */
static bool amd_by_clang(void)
{
	static const char *const few[] = {
		"gfx900", "gfx1151", "gfx942", "gfx1030", "gfx1201", NULL
	};
	static const char *const every[] = { "gfx900",  "gfx902",  "gfx904",  "gfx906",  "gfx908",
					     "gfx909",  "gfx90a",  "gfx90c",  "gfx942",  "gfx950",
					     "gfx1010", "gfx1011", "gfx1012", "gfx1013", "gfx1030",
					     "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035",
					     "gfx1036", "gfx1100", "gfx1101", "gfx1102", "gfx1103",
					     "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200",
					     "gfx1201", NULL };
	const char *const *cards = getenv("HS_COMPILE_ALL") ? every : few;
	int status = 0;
	fflush(NULL);
	const pid_t other = fork(); /* an assertion that fails there ends it with a status */
	assert_true(other >= 0);
	const bool ran = clang_half(cards, other == 0);
	if (other == 0) {
		fflush(NULL);
		_exit(ran ? 0 : 2);
	}
	assert_int_equal(waitpid(other, &status, 0), other);
	assert_int_equal(status, ran ? 0 : 2 << 8);
	return ran;
}

static void amd(void **state)
{
	(void)state;
	const bool hiprtc = amd_by_hiprtc(), clang = amd_by_clang();
	if (!clang)
		printf("no clang: scripts/fetch-ziglang.sh fetches one\n");
	if (!hiprtc && !clang)
		skip();
}

/* A text that somebody adds (dev_text.h), for a card of each maker. */
static void a_text_of_ones_own(void **state)
{
	static const struct dev_text text = { "bend", text_bend, true };
	char dir[] = "/tmp/hs-compile-XXXXXX";
	struct err e = { 0 };
	const struct rtc *nv = NULL, *hip = NULL;
	(void)state;
	assert_non_null(mkdtemp(dir));
	const bool ran[] = { rtc_open(RTC_NVRTC, "sm_80", 0, &nv, &e) == 0,
			     rtc_open(RTC_HIPRTC, "gfx1030", 0, &hip, &e) == 0,
			     clang_one(dir, "gfx1030", DT_BF16, &text) };
	if (ran[0])
		compile_one(nv, "sm_80", DT_BF16, &text);
	if (ran[1])
		compile_one(hip, "gfx1030", DT_F16, &text);
	rmdir(dir);
	if (!ran[0] && !ran[1] && !ran[2])
		skip();
}

/* The text for Intel's matrix units as OpenCL C, for sub-groups of 8 and 16 lanes, with and without
 * reads of whole blocks: that it is right OpenCL. */
static bool intel_by_clang(const char *in, const char *out, const char *stub, const char *lanes,
			   bool blocks)
{
	const char *const args[] = { "-x",
				     "cl",
				     "-cl-std=CL1.2",
				     "-cl-no-stdinc",
				     "-target",
				     "spir64-unknown-unknown",
				     "-Xclang",
				     "-cl-ext=+all",
				     "-Werror",
				     "-Wno-pass-failed",
				     "-O1",
				     lanes,
				     blocks ? "-Dcl_intel_subgroup_local_block_io" : "-Dnone",
				     "-include",
				     stub,
				     "-emit-llvm",
				     "-S",
				     in,
				     "-o",
				     out,
				     NULL };
	struct buf code = BUF_INIT;
	struct err e = { 0 };
	char name[64];
	const bool ran = run_clang(args);
	if (ran)
		assert_int_equal(buf_read_file(&code, out, 0, &e), 0);
	buf_add(&code, "", 0);
	for (int k = 0; k < GPU_ENTRIES && ran; k++) {
		snprintf(name, sizeof name, "@%s(", gpu_entry_name((enum gpu_entry)k));
		if (!strstr(code.p, name))
			fail_msg("%s: no code for %s", lanes, name);
	}
	buf_release(&code);
	return ran;
}

/* Intel's own compiler (HS_OCLOC: scripts/fetch-ocloc.sh), for Arc A and Max. It names the kernels
 * that spill registers. */
static void intel_by_ocloc(const char *dir, const char *in, const char *card, const char *lanes)
{
	const char *ocloc = getenv("HS_OCLOC");
	char command[2048], line[512];
	bool built = false;
	if (!ocloc || !ocloc[0])
		return;
	snprintf(command, sizeof command,
		 "'%s' compile -file '%s' -device %s -out_dir '%s/bin' -options '-cl-std=CL1.2 %s "
		 "-cl-intel-256-GRF-per-thread' 2>&1; rm -rf '%s/bin'",
		 ocloc, in, card, dir, lanes, dir);
	FILE *f = popen(command, "r");
	assert_non_null(f);
	while (fgets(line, sizeof line, f)) {
		built |= strstr(line, "Build succeeded") != NULL;
		if (line[0] != '\n')
			printf("ocloc, %s: %s", card, line);
	}
	pclose(f);
	assert_true(built);
}

static void intel(void **state)
{
	char dir[] = "/tmp/hs-compile-XXXXXX", in[64], out[64], stub[512], lanes[32];
	const char *source = getenv("HS_SOURCE");
	bool ran = true;
	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(in, sizeof in, "%s/k.cl", dir);
	snprintf(out, sizeof out, "%s/k.ll", dir);
	snprintf(stub, sizeof stub, "%s/tests/support/opencl_stub.h", source ? source : ".");
	for (int i = 0; i < 4 && ran; i++) {
		const enum dtype t = i & 1 ? DT_F16 : DT_BF16;
		struct buf text = BUF_INIT;
		if (i % 3 && !getenv("HS_COMPILE_ALL"))
			continue;
		snprintf(lanes, sizeof lanes, "-DHS_SUBGROUP=%d", i & 2 ? 16 : 8);
		gpu_text(t, &text);
		FILE *f = fopen(in, "we");
		assert_non_null(f);
		assert_int_equal(fwrite(text.p, 1, text.n, f), text.n);
		assert_int_equal(fclose(f), 0);
		ran = intel_by_clang(in, out, stub, lanes, i & 1);
		if (ran)
			printf("clang, OpenCL C with Intel's matrix units, %s, %s ok\n", lanes,
			       dtype_name(t));
		intel_by_ocloc(dir, in, i & 2 ? "pvc" : "dg2", lanes);
		buf_release(&text);
	}
	unlink(in);
	unlink(out);
	rmdir(dir);
	if (!ran)
		skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(nvidia), cmocka_unit_test(amd),
					    cmocka_unit_test(a_text_of_ones_own),
					    cmocka_unit_test(intel) };
	const char *only = getenv("HS_COMPILE"); /* the name of a test */
	if (only)
		cmocka_set_test_filter(only);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
