/* SPDX-License-Identifier: Apache-2.0 */
/* test_dev_rt.c - what the host does for CUDA and HIP cards, with a stand-in (support/fake_rt.h):
 * memory, transfers and their order beside kernels, arguments of launches, the cache of compiled
 * kernels. It says nothing about real cards. */
#include "support/fake_rt.h"

#include "base/buf.h"
#include "dev/dev_attn.h"
#include "dev/rt.h"
#include "drivers/entry_sig.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>

static void devices_are_listed(void **state)
{
	static const struct {
		const char *env, *says, *absent;
	} row[] = {
		{ "FAKE_RT=devices=2", "hip:1", NULL },
		{ "FAKE_RT=devices=2", "cuda:1", NULL },
		{ "FAKE_RT=devices=0", "cpu:0", "cuda" },
		{ "FAKE_RT=init=999", "cuda: the CUDA driver answers UNKNOWN", "cuda:0" },
		{ "FAKE_RT=init=999", "cpu:0", NULL },
		{ "HS_CUDA_LIBRARY=/nonexistent.so", "/nonexistent.so is not installed", "cuda:0" },
		{ "HS_CUDA_LIBRARY=/nonexistent.so", "hip:0", NULL },
		{ "HS_NVRTC_LIBRARY=/nonexistent.so",
		  "cuda:0 (Fake card 0): /nonexistent.so is not installed", NULL },
		{ "HS_NVRTC_LIBRARY=/nonexistent.so", "hip:0", NULL },
		{ "HS_CUDA_LIBRARY=${HS_CUDA_LIBRARY%fake_rt.so}lacking_rt.so",
		  "lacking_rt.so has no function cuLaunchKernel", NULL },
		{ "HS_HIP_LIBRARY=${HS_HIP_LIBRARY%fake_rt.so}lacking_rt.so",
		  "lacking_rt.so has no function hipModuleLaunchKernel", NULL },
		{ "HS_HIP_LIBRARY=${HS_HIP_LIBRARY%fake_rt.so}lacking_rt.so", "cuda:0", NULL },
	};
	char text[16384];
	(void)state;
	if (!getenv("HS_BIN")) {
		printf("skipped: HS_BIN does not name the program\n");
		skip();
	}
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		assert_int_equal(said(text, sizeof text, row[i].env), 0);
		has(text, row[i].says);
		if (row[i].absent && strstr(text, row[i].absent))
			fail_msg("%s: '%s' is in: %s", row[i].env, row[i].absent, text);
	}
}

static void blocks_are_used_again(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		faults("memory=64 noblas"); /* the library takes memory too */
		struct dev *d = open_card(specs[i]);
		struct rt *c = d->priv;
		struct dev_caps caps;
		struct err e = { 0 };
		assert_int_equal(dev_caps(d, &caps, &e), 0);
		const uint64_t before = c->held;
		struct dev_buf *a = take(d, 6 * MIB);
		const uint64_t at = rt_block_of(a)->at;
		dev_free(a);
		a = take(d, 6 * MIB - 1000); /* nearly the same */
		assert_int_equal(rt_block_of(a)->at, at);
		struct dev_buf *b = take(d, 6 * MIB); /* a's block is in use */
		assert_true(rt_block_of(b)->at != at);
		assert_int_equal(c->held, before + 12 * MIB);
		dev_free(a);
		dev_free(b);
		a = take(d, 2 * MIB); /* too small for either free block */
		assert_int_equal(c->held, before + 14 * MIB);
		dev_free(a);
		/* free blocks count as free memory, and go back to the driver when there is no
		 * room */
		assert_int_equal(dev_caps(d, &caps, &e), 0);
		assert_int_equal(caps.mem_free, 64 * MIB - before);
		a = take(d, 64 * MIB - before - 4 * MIB);
		assert_int_equal(c->held, 60 * MIB);
		assert_int_equal(c->held_peak, 60 * MIB);
		assert_int_equal(d->mem_peak, a->size);
		dev_free(a);
		dev_close(d);
	}
	faults("");
}

static void too_much_memory_is_explained(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct err e = { 0 };
		struct dev_buf *a, *b = NULL;
		faults("memory=64 others=16 noblas");
		struct dev *d = open_card(specs[i]);
		a = take(d, 32 * MIB);
		assert_int_equal(dev_alloc(d, 40 * MIB, &b, &e), ERR_NOMEM);
		has(e.msg, specs[i]);
		has(e.msg, "a buffer of 40 MiB does not fit: of 64 MiB 16 are free, this "
			   "program's buffers hold 32, other programs and the driver 16;");
		has(e.msg, "24 MiB must be saved");
		assert_null(b);
		dev_free(a);
		dev_close(d);
	}
	faults("");
}

static uint32_t *numbers(size_t n, uint32_t salt)
{
	uint32_t *v = mem_array(n, sizeof *v);
	assert_non_null(v);
	for (size_t i = 0; i < n; i++)
		v[i] = (uint32_t)i * 2654435761u ^ salt;
	return v;
}

static void transfers_in_pieces(void **state)
{
	static const size_t sizes[] = { 1,
					RT_PIECE - 4,
					RT_PIECE,
					RT_PIECE + 4,
					RT_SLOTS * RT_PIECE,
					(RT_SLOTS + 2) * RT_PIECE + 12 };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct dev *d = open_card(specs[i]);
		struct err e = { 0 };
		for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
			const size_t n = sizes[k];
			uint32_t *in = numbers(n / 4 + 1, (uint32_t)k),
				 *out = numbers(n / 4 + 1, 7);
			struct dev_buf *b = take(d, n + 8);
			assert_int_equal(dev_upload(DEV_REF(b, 4), in, n, &e), 0);
			assert_int_equal(dev_download(out, DEV_REF(b, 4), n, &e), 0);
			assert_memory_equal(in, out, n);
			dev_free(b);
			mem_free(in);
			mem_free(out);
		}
		dev_close(d);
	}
}

/* The stand-in runs nothing before it is asked for, so each of these fails when one stream does not
 * wait for the other. */
static void order_of_the_calls(void **state)
{
	enum { N = 3000 };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct dev *d = open_card(specs[i]);
		struct err e = { 0 };
		struct dev_buf *x = take(d, 4 * N), *y = take(d, 4 * N), *z = take(d, 4 * N);
		float *one = mem_array(N, 4), *two = mem_array(N, 4), *got = mem_array(N, 4);
		for (int k = 0; k < N; k++) {
			one[k] = (float)k;
			two[k] = (float)-k;
		}
		/* a kernel after an upload, an upload after a kernel that reads what was there */
		assert_int_equal(dev_upload(DEV_REF(x, 0), one, 4 * N, &e), 0);
		assert_int_equal(scale(d, y, x, N, 1, &e), 0);
		assert_int_equal(dev_upload(DEV_REF(x, 0), two, 4 * N, &e), 0);
		assert_int_equal(scale(d, z, x, N, 1, &e), 0);
		assert_int_equal(dev_download(got, DEV_REF(y, 0), 4 * N, &e), 0);
		assert_memory_equal(got, one, 4 * N);
		assert_int_equal(dev_download(got, DEV_REF(z, 0), 4 * N, &e), 0);
		assert_memory_equal(got, two, 4 * N);
		/* a block that is freed while a kernel still has to read it, and used again for an
		 * upload */
		assert_int_equal(dev_upload(DEV_REF(x, 0), one, 4 * N, &e), 0);
		assert_int_equal(scale(d, y, x, N, 2, &e), 0);
		const uint64_t at = rt_block_of(x)->at;
		dev_free(x);
		x = take(d, 4 * N);
		assert_int_equal(rt_block_of(x)->at, at);
		assert_int_equal(dev_upload(DEV_REF(x, 0), two, 4 * N, &e), 0);
		assert_int_equal(dev_download(got, DEV_REF(y, 0), 4 * N, &e), 0);
		for (int k = 0; k < N; k++)
			assert_true(got[k] == 2 * one[k]);
		/* the host waits for the compute stream, while nobody waits for the upload that its
		 * first kernel reads */
		for (int k = 0; k < N; k++)
			got[k] = 9;
		assert_int_equal(dev_upload(DEV_REF(x, 0), got, 4 * N, &e), 0);
		assert_int_equal(scale(d, y, x, N, 1, &e), 0);
		for (int k = 0; k < 2 * RT_MARKS * RT_MARK_EVERY; k++)
			assert_int_equal(scale(d, z, z, 1, 1, &e), 0);
		assert_int_equal(dev_download(got, DEV_REF(y, 0), 4 * N, &e), 0);
		for (int k = 0; k < N; k++)
			assert_true(got[k] == 9);
		/* the same with an upload that nobody waited for, and a kernel that writes */
		dev_free(x);
		x = take(d, 4 * N);
		assert_int_equal(dev_zero(DEV_REF(x, 0), 4 * N, &e), 0);
		assert_int_equal(dev_download(got, DEV_REF(x, 0), 4 * N, &e), 0);
		for (int k = 0; k < N; k++)
			assert_true(got[k] == 0);
		/* copies within one buffer, in both directions, and bytes that do not fill a
		 * word */
		assert_int_equal(dev_upload(DEV_REF(x, 0), one, 4 * N, &e), 0);
		assert_int_equal(dev_copy(DEV_REF(x, 4), DEV_REF(x, 0), 4 * N - 4, &e), 0);
		assert_int_equal(dev_copy(DEV_REF(x, 0), DEV_REF(x, 8), 4 * N - 8, &e), 0);
		assert_int_equal(dev_zero(DEV_REF(x, 4 * N - 3), 3, &e), 0);
		assert_int_equal(dev_download(got, DEV_REF(x, 0), 4 * N, &e), 0);
		assert_memory_equal(got, one + 1, 4 * N - 8);
		assert_int_equal(((unsigned char *)got)[4 * N - 1], 0);
		/* more work than may be queued */
		assert_int_equal(dev_upload(DEV_REF(x, 0), one, 4 * N, &e), 0);
		const uint64_t finished = ((struct rt *)d->priv)->finished;
		for (int k = 0; k < 3 * RT_MARKS * RT_MARK_EVERY; k++)
			assert_int_equal(scale(d, k & 1 ? x : y, k & 1 ? y : x, 1, 1, &e), 0);
		assert_true(((struct rt *)d->priv)->finished > finished);
		assert_int_equal(dev_sync(d, &e), 0);
		mem_free(one);
		mem_free(two);
		mem_free(got);
		dev_free(x);
		dev_free(y);
		dev_free(z);
		dev_close(d);
	}
}

/* Buffers that fit the card are to be had, whatever was taken and given back before: sizes that
 * change from step to step, of buffers that live for a moment and for ever. The card counts in
 * pieces of 2 MiB, as drivers do. */
static void what_fits_is_to_be_had(void **state)
{
	enum { MEMORY = 128, LIVE = 100, LOOSE = MEMORY / 128 };
	(void)state;
	faults("memory=128");
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct err e = { 0 };
		struct dev *d = open_card(specs[i]);
		const struct rt *c = d->priv;
		struct dev_buf *b[LIVE] = { NULL };
		size_t live = 0, most = 0, reused = 0;
		uint64_t r = 12345;
		for (int turn = 0; turn < 1500; turn++) {
			r = r * 6364136223846793005u + 1442695040888963407u;
			const int k = (int)(r >> 40) % LIVE;
			/* small ones, steps of a size, any size; in phases of many and of few */
			const size_t n = r >> 34 & 3
						 ? ((r >> 45) % 12 + 1) * (MIB + MIB / 8)
						 : (r >> 44) % (turn / 250 % 2 ? 20 * MIB : MIB);
			if (b[k]) {
				const size_t was = b[k]->size;
				live -= was < MIB ? was + 512 : was / (2 * MIB) * 2 * MIB + 2 * MIB;
				dev_free(b[k]);
				b[k] = NULL;
			}
			const size_t takes = n < MIB ? n + 512 : n / (2 * MIB) * 2 * MIB + 2 * MIB;
			if (live + takes + LOOSE * MIB > MEMORY * MIB)
				continue;
			const uint64_t held = c->held;
			if (dev_alloc(d, n, &b[k], &e) < 0)
				fail_msg("turn %d, %zu bytes beside %zu: %s", turn, n, live, e.msg);
			live += takes;
			most = live > most ? live : most;
			reused += c->held == held;
			assert_true(c->loose <= LOOSE * MIB);
		}
		printf("%s: %zu MiB of %d at most, %zu blocks used again\n", specs[i], most >> 20,
		       MEMORY, reused);
		assert_true(most > (MEMORY - 20) * MIB && reused > 30);
		for (int k = 0; k < LIVE; k++)
			dev_free(b[k]);
		assert_int_equal(c->loose, 0);
		dev_close(d);
	}
	faults("");
}

/* The parameters of each kernel, by its text, are what the host packs, by kernel.def. */
static void arguments_fit_the_text(void **state)
{
	static const int64_t widths[] = { 2, 100, 200, 300 };
	bool seen[GPU_ENTRIES] = { false };
	struct buf text = BUF_INIT;
	struct dev_buf any = { 0 };
	struct err e = { 0 };
	(void)state;
	gpu_text(DT_F32, &text);
	for (int k = 0; k < K_COUNT + GPU_SHAPES; k++)
		for (size_t w = 0; w < ARRAY_LEN(widths); w++) {
			const char *sig =
				k < K_COUNT ? dev_kernel_sig((enum dev_kernel)k) : GPU_GEMM_SIG;
			union dev_arg a[GPU_ARGS] = { 0 };
			struct gpu_step s[GPU_STEPS] = { { GPU_gemm_32, 1, 0 } };
			char packed[64] = "", taken[64];
			const bool delta = k == K_delta_fwd || k == K_delta_bwd; /* has a limit */
			int n = 1;
			for (int i = 0; sig[i]; i++) {
				if (sig[i] == 'b')
					a[i].b.buf = &any;
				else if (sig[i] == 'i')
					a[i].i = k == K_cast ? DT_F16 : delta ? 100 : widths[w];
				strcat(packed, sig[i] == 'b' ? "pi" : sig[i] == 'f' ? "f" : "i");
			}
			if (k < K_COUNT)
				n = gpu_steps((enum dev_kernel)k, a, s, &e);
			else
				s[0].entry = (enum gpu_entry)(GPU_gemm_32 + k - K_COUNT);
			if (n <= 0)
				fail_msg("%s: %s", dev_kernel_name((enum dev_kernel)k), e.msg);
			for (int i = 0; i < n; i++) {
				const char *name = gpu_entry_name(s[i].entry);
				if (!entry_signature(text.p, name, taken, sizeof taken))
					fail_msg("%s is not in the text", name);
				if (strcmp(packed, taken))
					fail_msg("%s takes %s and gets %s", name, taken, packed);
				seen[s[i].entry] = true;
			}
		}
	for (int i = 0; i < GPU_ENTRIES; i++)
		if (!seen[i])
			fail_msg("no kernel uses %s", gpu_entry_name((enum gpu_entry)i));
	buf_release(&text);
}

/* Launches at the sizes of real models fit what a driver takes: 131,072 tokens, the widest
 * feed-forward (Llama 3 70B), the largest table (Gemma 3 27B); convolutions of 128 images. */
static void launches_of_real_sizes(void **state)
{
	enum { TOKENS = 131072, WIDE = 28672 };
	static const int64_t all = (int64_t)TOKENS * WIDE;
	static const struct {
		enum dev_kernel k;
		int64_t i[9]; /* from the first number on */
	} row[] = {
		{ K_cast, { all, DT_F32, DT_BF16 } },
		{ K_axpby, { all } },
		{ K_dropout, { TOKENS, WIDE } },
		{ K_swiglu_fwd, { all, WIDE, 2 * WIDE } },
		{ K_swiglu_oss_bwd, { (int64_t)TOKENS * 4 * 2880, 2880, 5760 } },
		{ K_adamw, { (int64_t)262144 * 5376 } },
		{ K_sqnorm, { (int64_t)262144 * 5376 } },
		{ K_sink_fwd, { TOKENS, 64, 64 } },
		{ K_attn_fwd, { TOKENS, TOKENS / 32, 64, 8, 128, 8192, 8192, 1024, 1024 } },
		{ K_attn_bwd, { TOKENS, TOKENS / 32, 64, 8, 128, 8192, 8192, 1024, 1024 } },
		{ K_im2col, { 128, 64, 112, 112, 3, 3, 1, 1, 1 } },
		{ K_col2im, { 128, 64, 112, 112, 3, 3, 1, 1, 1 } },
	};
	(void)state;
	for (size_t d = 0; d < ARRAY_LEN(specs); d++) {
		struct dev *dev = open_card(specs[d]);
		const int64_t most = ((struct rt *)dev->priv)->v->most_groups;
		for (size_t r = 0; r < ARRAY_LEN(row); r++) {
			const char *sig = dev_kernel_sig(row[r].k),
				   *name = dev_kernel_name(row[r].k);
			union dev_arg a[GPU_ARGS] = { 0 };
			struct gpu_step s[GPU_STEPS];
			struct err e = { 0 };
			for (int i = 0, k = 0; sig[i]; i++)
				if (sig[i] == 'i' && k < 9)
					a[i].i = row[r].i[k++];
			if (row[r].k == K_attn_bwd)
				a[23].i = 1;
			const int n = gpu_steps(row[r].k, a, s, &e);
			if (n <= 0)
				fail_msg("%s: %s", name, e.msg);
			for (int i = 0; i < n; i++)
				if (s[i].groups < 1 || s[i].groups > most)
					fail_msg("%s: %s of %lld groups, a launch has %lld",
						 specs[d], gpu_entry_name(s[i].entry),
						 (long long)s[i].groups, (long long)most);
		}
		/* what is too much is refused with a line */
		struct err e = { 0 };
		struct dev_buf *x = take(dev, 64);
		assert_int_equal(scale(dev, x, x, INT64_MAX / 2, 1, &e), ERR_UNSUPPORTED);
		has(e.msg, "groups is more than a launch can have");
		dev_free(x);
		dev_close(dev);
	}
}

/* Heads wider than 512 have no kernel. */
static void heads_that_are_too_wide(void **state)
{
	enum { S = 1, H, G, D }; /* arguments behind the number of tokens */
	static const enum dev_kernel kernels[] = { K_attn_fwd, K_attn_bwd };
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct gpu_step s[GPU_STEPS];
		struct err e = { 0 };
		union dev_arg a[GPU_ARGS] = { 0 };
		union dev_arg *n = a + strcspn(dev_kernel_sig(kernels[i]), "i");
		n[0].i = 9;
		n[S].i = 1;
		n[H].i = n[G].i = 2;
		n[D].i = 512;
		a[23].i = 1; /* parts of attn_bwd */
		assert_true(gpu_steps(kernels[i], a, s, &e) > 0);
		n[D].i = 520;
		assert_int_equal(gpu_steps(kernels[i], a, s, &e), ERR_UNSUPPORTED);
		has(e.msg, "attention heads of 520 numbers: at most 512 are supported");
	}
}

/* dk and dv in parts: as many as fill a card and no more, one where it is filled. */
static void parts_fill_a_card(void **state)
{
	enum { UNITS = 132 };
	static const struct {
		struct dev_attn a;
		int64_t parts;
	} rows[] = {
		{ { 512, 1, 8, 1, 128, 0 }, 32 },   /* 8 groups; 128 queries a part */
		{ { 4096, 1, 8, 1, 128, 0 }, 4 },   /* 64 groups */
		{ { 4096, 1, 8, 1, 256, 0 }, 2 },   /* 128 of 32 keys */
		{ { 512, 1, 8, 1, 512, 0 }, 2 },    /* 128 of 4 keys */
		{ { 4096, 8, 8, 2, 64, 0 }, 2 },    /* 128 */
		{ { 8192, 1, 32, 8, 128, 0 }, 1 },  /* 1,024 */
		{ { 4096, 1, 4, 1, 128, 64 }, 4 },  /* a window */
		{ { 512, 8, 1, 1, 128, 0 }, 1 },    /* sequences of 64 */
		{ { 65536, 1, 64, 1, 128, 0 }, 1 }, /* 1,024 */
		{ { 1000, 3, 8, 2, 128, 0 }, 7 },   /* 36 */
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct dev_attn *a = &rows[i].a;
		const int64_t parts = dev_attn_parts(UNITS, a);
		if (parts != rows[i].parts)
			fail_msg("shape %zu: %lld parts", i, (long long)parts);
		const size_t sums = dev_attn_bytes(a, parts) - dev_attn_bytes(a, 1);
		assert_true(sums <= (size_t)UNITS * (size_t)a->d * 1024);
		assert_int_equal(dev_attn_parts(0, a), 1);
		assert_int_equal(dev_attn_parts(2, a), 1);
	}
}

/* Attention is launched in pieces where it is much work, never more than there are key heads. */
static void long_attention_takes_several_launches(void **state)
{
	static const struct {
		struct dev_attn a;
		int64_t forward, backward;
	} rows[] = {
		{ { 2048, 4, 9, 3, 64, 0 }, 1, 1 },     /* smollm2-135m */
		{ { 8192, 1, 32, 8, 128, 0 }, 2, 3 },   /* 5.5e11 operations forward */
		{ { 32768, 1, 32, 8, 128, 0 }, 8, 8 },  /* 8.8e12 */
		{ { 32768, 16, 32, 8, 128, 0 }, 2, 3 }, /* sequences of 2,048 */
		{ { 131072, 1, 32, 8, 128, 0 }, 8, 8 },
		{ { 131072, 1, 32, 8, 128, 512 }, 3, 5 }, /* a window */
		{ { 131072, 1, 8, 1, 128, 0 }, 1, 1 },
		{ { 131072, 1, 8, 3, 128, 0 }, 1, 1 }, /* a mistake, which gpu_steps() names */
		{ { 0, 0, 8, 2, 128, 0 }, 1, 1 },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const int64_t forward = dev_attn_pieces(&rows[i].a, false),
			      backward = dev_attn_pieces(&rows[i].a, true);
		if (forward != rows[i].forward || backward != rows[i].backward)
			fail_msg("shape %zu: %d and %d pieces", i, (int)forward, (int)backward);
	}
	/* a card gets so many: N says much work, the sequence in it is short */
	enum { N = 65536, H = 8, D = 16, AT = H * D * 4 };
	static const int32_t ends[] = { 0, 40 };
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct dev *d = open_card(specs[i]);
		struct err e = { 0 };
		struct dev_buf *x = take(d, (size_t)N * AT), *y = take(d, (size_t)N * AT),
			       *lse = take(d, (size_t)N * H * 4), *at = take(d, sizeof ends);
		const struct dev_ref starts = DEV_REF(at, 0), q = DEV_REF(x, 0);
		const union dev_arg a[] = { { .b = DEV_REF(y, 0) },
					    { .b = DEV_REF(lse, 0) },
					    { .b = q },
					    { .b = q },
					    { .b = q },
					    { .b = starts },
					    { .b = starts },
					    { .i = N },
					    { .i = 1 },
					    { .i = H },
					    { .i = H },
					    { .i = D },
					    { .i = H * D },
					    { .i = H * D },
					    { .i = H * D },
					    { .i = H * D },
					    { .i = 0 },
					    { .f = 1 },
					    { .f = 0 } };
		const struct rt *c = d->priv;
		assert_int_equal(dev_zero(q, (size_t)N * AT, &e), 0);
		assert_int_equal(dev_upload(starts, ends, sizeof ends, &e), 0);
		const uint64_t before = c->launched;
		if (dev_launch(d, K_attn_fwd, DT_F32, a, &e) < 0)
			fail_msg("%s: %s", specs[i], e.msg);
		assert_int_equal(c->launched - before, 3);
		assert_int_equal(dev_sync(d, &e), 0);
		dev_free(x);
		dev_free(y);
		dev_free(lse);
		dev_free(at);
		dev_close(d);
	}
}

/* The one file in the cache whose name ends so. */
static void cached_file(const char *end, char *path, size_t most)
{
	char dir[256];
	const struct dirent *f;
	snprintf(dir, sizeof dir, "%s/heteroshard/kernels", cache);
	DIR *d = opendir(dir);
	assert_non_null(d);
	path[0] = 0;
	while ((f = readdir(d)))
		if (strlen(f->d_name) > strlen(end) &&
		    !strcmp(f->d_name + strlen(f->d_name) - strlen(end), end))
			snprintf(path, most, "%s/%s", dir, f->d_name);
	closedir(d);
	assert_true(path[0] != 0);
}

static void empty_cache(void)
{
	char command[300];
	snprintf(command, sizeof command, "rm -rf '%s/heteroshard'", cache);
	assert_int_equal(system(command), 0);
}

static void kernels_are_kept_and_refusals_explained(void **state)
{
	char path[512];
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct err e = { 0 };
		empty_cache();
		faults("compile");
		assert_int_equal(one_launch(specs[i], &e), ERR_DEVICE);
		has(e.msg, specs[i]);
		has(e.msg, "Fake card 0");
		has(e.msg, "does not compile the kernels");
		has(e.msg, "error: the first line the second the third (the whole log is in ");
		cached_file(".log", path, sizeof path);
		has(e.msg, path);
		err_clear(&e);
		faults("");
		assert_int_equal(one_launch(specs[i], &e), 0);
		/* now it is cached: the compiler is not asked */
		faults("compile");
		assert_int_equal(one_launch(specs[i], &e), 0);
		/* the cached file is damaged: the compiler is asked */
		cached_file(".gpu", path, sizeof path);
		FILE *f = fopen(path, "r+");
		assert_non_null(f);
		fseek(f, 100, SEEK_SET);
		fputc('#', f);
		fclose(f);
		assert_int_equal(one_launch(specs[i], &e), ERR_DEVICE);
		faults("");
		err_clear(&e);
		assert_int_equal(one_launch(specs[i], &e), 0);
	}
}

static void compilers_that_do_not_fit(void **state)
{
	const struct rtc *r;
	struct err e = { 0 };
	(void)state;
	assert_int_equal(rtc_open(RTC_NVRTC, "sm_86", 13, &r, &e), 0);
	assert_int_equal(rtc_open(RTC_NVRTC, "sm_86", 12, &r, &e), ERR_UNSUPPORTED);
	has(e.msg, "is newer than the driver, which takes CUDA 12");
	assert_int_equal(rtc_open(RTC_NVRTC, "sm_52", 13, &r, &e), ERR_UNSUPPORTED);
	has(e.msg, "makes code for sm_75 and newer, this card is sm_52");
	err_clear(&e);
	/* a card that is newer than the compiler gets assembly text for the newest architecture
	 * that the compiler knows; the driver finishes it */
	faults("arch=121");
	assert_int_equal(one_launch("cuda:0", &e), 0);
	faults("arch=52");
	assert_int_equal(one_launch("cuda:0", &e), ERR_UNSUPPORTED);
	has(e.msg, "cuda:0 (Fake card 0): NVRTC");
	faults("");
}

static void auto_takes_a_card_it_can_use(void **state)
{
	/* the second: CUDA's compiler does not know the card */
	static const char *const words[] = { "", "arch=52" };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		char spec[DEV_SPEC];
		faults(words[i]);
		struct dev *d = open_card("auto");
		dev_spec(d, spec);
		assert_string_equal(spec, specs[i]);
		dev_close(d);
	}
	faults("");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(devices_are_listed),
	cmocka_unit_test(blocks_are_used_again),
	cmocka_unit_test(too_much_memory_is_explained),
	cmocka_unit_test(transfers_in_pieces),
	cmocka_unit_test(order_of_the_calls),
	cmocka_unit_test(what_fits_is_to_be_had),
	cmocka_unit_test(arguments_fit_the_text),
	cmocka_unit_test(launches_of_real_sizes),
	cmocka_unit_test(heads_that_are_too_wide),
	cmocka_unit_test(parts_fill_a_card),
	cmocka_unit_test(long_attention_takes_several_launches),
	cmocka_unit_test(kernels_are_kept_and_refusals_explained),
	cmocka_unit_test(compilers_that_do_not_fit),
	cmocka_unit_test(auto_takes_a_card_it_can_use),
};

FAKE_RT_MAIN(tests)
