/* SPDX-License-Identifier: Apache-2.0 */
/* slot_data.c - see slot_data.h. */
#include "model/slot_data.h"

#include "base/err.h"
#include "base/mem.h"

int slot_upload_ints(struct slot *sl, const int32_t *v, int64_t n, struct dev_ref *r_p,
		     struct err *e)
{
	TRY(dmem_take(&sl->mem, (size_t)n * 4, r_p, e));
	return dev_upload(*r_p, v, (size_t)n * 4, e);
}

int slot_upload_labels(struct slot *sl, int64_t classes, struct err *e)
{
	int64_t n = sl->b.n, k = 0;
	if (!mem_grow(&sl->rows, &sl->rows_cap, 2 * (size_t)n, sizeof *sl->rows) ||
	    !mem_grow(&sl->losses, &sl->losses_cap, 2 * (size_t)n, sizeof *sl->losses))
		return err_nomem(e, (unsigned long long)n * 8, "labels");
	for (int64_t i = 0; i < n; i++) {
		int32_t label = sl->b.label[i];
		if (label < 0)
			continue;
		if (label >= classes)
			return err_set(e, ERR_INPUT,
				       "token id %d is outside the model's vocabulary of %lld",
				       label, (long long)classes);
		sl->rows[k] = (int32_t)i;
		sl->rows[n + k] = label;
		k++;
	}
	sl->trained = k;
	TRY(dmem_take(&sl->mem, ((size_t)k + 1) * 4, &sl->thits, e));
	TRY(slot_upload_ints(sl, sl->rows, k, &sl->trows, e));
	return slot_upload_ints(sl, sl->rows + n, k, &sl->tlabels, e);
}

int slot_check_ids(const struct slot *sl, int64_t vocab, struct err *e)
{
	for (int64_t i = 0; i < sl->b.n; i++)
		if (sl->b.id[i] < 0 || sl->b.id[i] >= vocab)
			return err_set(e, ERR_INPUT,
				       "token id %d is outside the model's vocabulary of %lld",
				       sl->b.id[i], (long long)vocab);
	return 0;
}

int slot_upload_places(struct slot *sl, struct err *e)
{
	const struct stage_batch *b = &sl->b;
	if (!mem_grow(&sl->place, &sl->place_cap, 2 * (size_t)b->n, sizeof *sl->place))
		return err_nomem(e, (unsigned long long)b->n * 8, "places");
	for (int64_t i = 0, r = 0; i < b->n; i++) {
		while (b->row && r + 1 < b->nrows && i >= b->row[r + 1])
			r++;
		sl->place[2 * i] = (int32_t)(b->first_row + r);
		sl->place[2 * i + 1] = (int32_t)(b->row ? i - b->row[r] : i);
	}
	return slot_upload_ints(sl, sl->place, 2 * b->n, &sl->places, e);
}

int slot_add_losses(struct slot *sl, const struct tensor *loss, struct err *e)
{
	TRY(dev_download(sl->losses, loss->at, (size_t)sl->trained * 4, e));
	TRY(dev_download(sl->losses + sl->trained, sl->thits, (size_t)sl->trained * 4, e));
	for (int64_t i = 0; i < sl->trained; i++) {
		sl->loss += (double)sl->losses[i];
		sl->hits += sl->losses[sl->trained + i] > 0;
	}
	return 0;
}

int slot_upload_targets(struct slot *sl, int64_t words, int64_t classes, struct err *e)
{
	const int64_t n = sl->b.n;
	if (!mem_grow(&sl->losses, &sl->losses_cap, 2 * (size_t)n, sizeof *sl->losses))
		return err_nomem(e, (unsigned long long)n * 8, "losses");
	sl->trained = n;
	for (int64_t i = 0; classes && i < n; i++) {
		const int32_t c = sl->b.label[i];
		sl->trained -= c == -100;
		if (c != -100 && (c < 0 || c >= classes))
			return err_set(e, ERR_INPUT,
				       "a target is class %d; there are %lld classes, from 0 on",
				       (int)c, (long long)classes);
	}
	TRY(dmem_take(&sl->mem, (size_t)n * 4, &sl->thits, e));
	TRY(dev_zero(sl->thits, (size_t)n * 4, e));
	return slot_upload_ints(sl, sl->b.label, n * words, &sl->tlabels, e);
}

int slot_add_row_losses(struct slot *sl, const struct tensor *loss, struct err *e)
{
	const int64_t n = sl->b.n;
	TRY(dev_download(sl->losses, loss->at, (size_t)n * 4, e));
	TRY(dev_download(sl->losses + n, sl->thits, (size_t)n * 4, e));
	for (int64_t i = 0; i < n; i++) {
		sl->loss += (double)sl->losses[i];
		sl->hits += sl->losses[n + i] > 0;
	}
	return 0;
}
