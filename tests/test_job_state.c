/* SPDX-License-Identifier: Apache-2.0 */
/* test_job_state.c - the training state in files instead of memory: the same bytes as a checkpoint
 * that is written from memory, whatever the order in which the numbers come; what a full disk and
 * a damaged file do; where snapshots go. */
#include "base/err.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "crew/snapshot.h"
#include "file/atomic.h"
#include "job/state_files.h"
#include "support/tiny.h"
#include "crew/snapshots.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct place {
	struct tiny t;
	struct config *c;
	struct job job;
	char dir[400];
};

static struct err err;

static void make(struct place *p, const char *const *more)
{
	tiny_make(&p->t, 2, 20);
	p->c = tiny_config(&p->t, "run", more);
	if (job_open(p->c, DT_F32, NULL, &p->job, &err) < 0)
		fail_msg("%s", err.msg);
	snprintf(p->dir, sizeof p->dir, "%s/run", p->t.dir);
	assert_true(dir_make(p->dir, &err) >= 0);
}

static void drop(struct place *p)
{
	job_close(&p->job);
	config_free(p->c);
	tiny_remove(&p->t);
}

static const char *at(const struct place *p, const char *name)
{
	static char path[8][600];
	static int turn;
	turn = (turn + 1) % 8;
	snprintf(path[turn], sizeof path[turn], "%s/%s", p->dir, name);
	return path[turn];
}

static uint64_t bytes_of(const struct trained_param *p, int k)
{
	return k ? p->kind[k - 1].count * dtype_size(p->kind[k - 1].dtype) : p->count * 4;
}

/* Numbers that differ everywhere, none of them NaN. */
static void fill(struct job *j, uint64_t seed)
{
	assert_true(job_alloc_state(j, &err) >= 0);
	for (size_t i = 0; i < j->nparam; i++)
		for (int k = 0; k <= j->param[i].states; k++) {
			unsigned char *v = job_array(&j->param[i], k);
			for (uint64_t n = 0; n < bytes_of(&j->param[i], k); n++)
				v[n] = (unsigned char)(rng_fold(seed + i, n * 7 + (uint64_t)k) &
						       0x3f);
		}
}

struct copy {
	unsigned char **v;
	size_t n;
};

static struct copy copy_of(const struct job *j)
{
	struct copy c = { calloc(j->nparam * (1 + PARAM_STATES), sizeof *c.v), 0 };
	assert_non_null(c.v);
	for (size_t i = 0; i < j->nparam; i++)
		for (int k = 0; k <= j->param[i].states; k++) {
			const uint64_t n = bytes_of(&j->param[i], k);
			c.v[c.n] = malloc(n);
			assert_non_null(c.v[c.n]);
			memcpy(c.v[c.n++], job_array(&j->param[i], k), n);
		}
	return c;
}

static void copy_same(const struct copy *c, const struct job *j)
{
	size_t at = 0;
	for (size_t i = 0; i < j->nparam; i++)
		for (int k = 0; k <= j->param[i].states; k++)
			assert_memory_equal(c->v[at++], job_array(&j->param[i], k),
					    bytes_of(&j->param[i], k));
}

static void copy_free(struct copy *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->v[i]);
	free(c->v);
}

static void same_file(const char *a, const char *b)
{
	char *text[2];
	size_t n[2];
	const char *const path[] = { a, b };
	for (int i = 0; i < 2; i++) {
		struct stat st;
		FILE *f = fopen(path[i], "rb");
		if (!f || fstat(fileno(f), &st))
			fail_msg("%s is missing", path[i]);
		n[i] = (size_t)st.st_size;
		text[i] = malloc(n[i]);
		assert_true(text[i] && fread(text[i], 1, n[i], f) == n[i]);
		fclose(f);
	}
	assert_int_equal(n[0], n[1]);
	assert_memory_equal(text[0], text[1], n[0]);
	free(text[0]);
	free(text[1]);
}

/* The copy into a snapshot, in pieces of odd sizes, the last parameter and the last bytes first. */
static int put_all(struct snapshot *s, const struct copy *c, uint64_t piece)
{
	const struct job *j = s->job;
	size_t at = c->n;
	for (size_t i = j->nparam; i-- > 0;)
		for (int k = j->param[i].states; k >= 0; k--) {
			const struct trained_param *p = &j->param[i];
			const unsigned char *v = c->v[--at];
			for (uint64_t end = bytes_of(p, k); end > 0;) {
				const uint64_t n = end < piece ? end : piece;
				end -= n;
				const int rc = snapshot_put(s, p, k, end, v + end, n, &err);
				if (rc < 0)
					return rc;
			}
		}
	return 0;
}

static void collect(struct snapshot *s, const struct copy *c, uint64_t piece)
{
	const struct train_state st = { .step = 3 };
	if (snapshot_begin(s, &err) < 0 || put_all(s, c, piece) < 0 ||
	    snapshot_end(s, &st, &err) < 0)
		fail_msg("%s", err.msg);
}

static const char *const full[] = { "adapter=none", "load_in_4bit=false", "optimizer=adamw_8bit",
				    NULL };
static const char *const lora[] = { "lora_r=4", "optimizer=adamw", NULL };

static void write_both(struct place *p, const char *values, const char *states)
{
	if (state_files_write(&p->job, STATE_VALUES, at(p, values), &err) < 0 ||
	    state_files_write(&p->job, STATE_STATES, at(p, states), &err) < 0)
		fail_msg("%s", err.msg);
}

static void collected_in_any_order(void **state)
{
	(void)state;
	const char *const *const kinds[] = { full, lora };
	for (size_t kind = 0; kind < ARRAY_LEN(kinds); kind++) {
		struct place p = { 0 };
		struct snapshot s;
		const struct train_state st = { 0 };
		make(&p, kinds[kind]);
		fill(&p.job, 5);
		struct copy first = copy_of(&p.job);
		write_both(&p, "values", "states");
		fill(&p.job, 99);
		struct copy other = copy_of(&p.job);

		snapshot_init(&s, &p.job, p.dir, &st, true);
		collect(&s, &other, 1 << 20);
		copy_same(&other, &p.job);
		collect(&s, &first, 1009); /* while the other one is mapped */
		copy_same(&first, &p.job);
		assert_non_null(p.job.mapped[0]);
		/* the files themselves become the checkpoint's, and what is mapped stays */
		assert_int_equal(access(p.job.incoming[1], F_OK), 0);
		write_both(&p, "values-moved", "states-moved");
		same_file(at(&p, "values"), at(&p, "values-moved"));
		same_file(at(&p, "states"), at(&p, "states-moved"));
		assert_int_not_equal(access(p.job.incoming[1], F_OK), 0);
		copy_same(&first, &p.job);
		/* and once more, when they are gone */
		write_both(&p, "values-again", "states-again");
		same_file(at(&p, "values"), at(&p, "values-again"));
		same_file(at(&p, "states"), at(&p, "states-again"));
		/* a set that is never whole changes nothing */
		assert_true(snapshot_begin(&s, &err) >= 0 &&
			    snapshot_put(&s, p.job.param, 0, 0, other.v[0], 4, &err) >= 0);
		copy_same(&first, &p.job);
		assert_true(s.whole);
		snapshot_release(&s);
		assert_int_not_equal(access(at(&p, "checkpoints/incoming.tmp"), F_OK), 0);
		copy_same(&first, &p.job);

		/* from a mapped set into memory, where there is room for two */
		snapshot_init(&s, &p.job, NULL, &st, true);
		collect(&s, &other, 4096);
		copy_same(&other, &p.job);
		assert_null(p.job.mapped[0]);
		collect(&s, &first, 4096);
		copy_same(&first, &p.job);
		snapshot_release(&s);
		copy_free(&first);
		copy_free(&other);
		drop(&p);
	}
}

static void a_checkpoint_is_mapped(void **state)
{
	(void)state;
	struct place p = { 0 };
	make(&p, full);
	fill(&p.job, 5);
	struct copy first = copy_of(&p.job);
	write_both(&p, "values", "states");
	job_drop_state(&p.job);
	assert_true(state_files_map(&p.job, at(&p, "values"), at(&p, "states"), &err) >= 0);
	copy_same(&first, &p.job);

	/* a number that is not finite, and files of another job: what was there stays */
	fill(&p.job, 6);
	struct copy second = copy_of(&p.job);
	p.job.param[1].value[7] = NAN;
	write_both(&p, "values-nan", "states-nan");
	p.job.param[1].value[7] = 0;
	memcpy(p.job.param[1].value, second.v[1 + p.job.param[0].states],
	       bytes_of(&p.job.param[1], 0));
	assert_int_equal(state_files_map(&p.job, at(&p, "values-nan"), at(&p, "states"), &err),
			 ERR_INPUT);
	printf("  %s\n", err.msg);
	assert_non_null(strstr(err.msg, "is nan; use an earlier checkpoint"));
	assert_int_equal(state_files_map(&p.job, at(&p, "states"), at(&p, "values"), &err),
			 ERR_INPUT);
	printf("  %s\n", err.msg);
	assert_non_null(strstr(err.msg, "the checkpoint is of another job"));
	copy_same(&second, &p.job);
	copy_free(&first);
	copy_free(&second);
	drop(&p);
}

static void the_disk_is_full(void **state)
{
	(void)state;
	struct place p = { 0 };
	struct snapshot s;
	const struct train_state st = { .step = 3 };
	make(&p, full);
	fill(&p.job, 5);
	struct copy first = copy_of(&p.job);
	if (mount("tmpfs", p.dir, "tmpfs", 0, "size=64k") < 0) {
		copy_free(&first);
		drop(&p);
		skip();
	}
	snapshot_init(&s, &p.job, p.dir, &st, false);
	assert_true(snapshot_begin(&s, &err) >= 0);
	assert_int_equal(put_all(&s, &first, 4096), ERR_IO);
	printf("  %s\n", err.msg);
	assert_non_null(strstr(err.msg, "could not be written whole"));
	copy_same(&first, &p.job);
	/* over the set that is there */
	s.over = true;
	collect(&s, &first, 4096);
	copy_same(&first, &p.job);
	snapshot_release(&s);
	umount(p.dir);
	copy_free(&first);
	drop(&p);
}

/* auto: in memory while two sets take at most half of what is free. */
static void where_snapshots_go(void **state)
{
	(void)state;
	static const struct {
		const char *key;
		uint64_t bytes;
		enum config_snapshot to;
	} row[] = {
		{ "snapshot_to=auto", 1 << 20, SNAPSHOT_MEMORY },
		{ "snapshot_to=auto", (uint64_t)1 << 40, SNAPSHOT_DISK },
		{ "snapshot_to=memory", (uint64_t)1 << 40, SNAPSHOT_MEMORY },
		{ "snapshot_to=disk", 1, SNAPSHOT_DISK },
		{ "snapshot_to=off", 1, SNAPSHOT_OFF },
	};
	struct tiny t;
	tiny_make(&t, 1, 4);
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		struct config *c =
			tiny_config(&t, "run", (const char *const[]){ row[i].key, NULL });
		assert_int_equal(snapshots_place(c, row[i].bytes), row[i].to);
		config_free(c);
	}
	tiny_remove(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(collected_in_any_order),
		cmocka_unit_test(a_checkpoint_is_mapped),
		cmocka_unit_test(the_disk_is_full),
		cmocka_unit_test(where_snapshots_go),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
