/* SPDX-License-Identifier: Apache-2.0 */
/* weights_out.c - the coordinator's side of weights_out.h. Tensors are made from the file once for
 * hashing and again for sending, so that none stays in memory. */
#include "coord/weights_out.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "proto/hashes.h"
#include "proto/weights_blob.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct weights_out {
	struct model_file *file;
	struct blob_head *head;
	size_t n, cap;
	uint64_t bytes;
	bool served;
};

int weights_out_open(struct model_file *f, const struct plan_message *plan, const char *cache_dir,
		     struct weights_out **w_p, struct err *e)
{
	struct weights_out *w = mem_zalloc(sizeof *w);
	if (!w)
		return err_nomem(e, sizeof *w, "parameters to offer");
	w->file = f;
	int rc = 0;
	struct hashes *known = hashes_open(cache_dir);
	const struct hash_key source = hashes_source(model_file_path(f));
	for (size_t i = 0; i < model_file_count(f); i++) {
		const struct model_tensor *t = model_file_tensor(f, i);
		struct blob b;
		if (!plan_needs(plan, t->name))
			continue;
		if (!mem_grow(&w->head, &w->cap, w->n + 1, sizeof *w->head)) {
			rc = err_nomem(e, (w->n + 1) * sizeof *w->head, "parameters to offer");
			goto out;
		}
		struct blob_head *h = &w->head[w->n];
		TRYOUT(blob_describe(f, t, &plan->opt, h, e));
		const struct hash_key key = hashes_tensor(&source, h);
		if (!hashes_find(known, &key, h->hash)) {
			TRYOUT(blob_make(f, h, &b, e));
			blob_hash(b.p, b.n, h->hash);
			blob_release(&b);
			model_file_drop(f, t);
			hashes_add(known, &key, h->hash);
		}
		w->bytes += h->bytes;
		w->n++;
	}
	hashes_close(known);
	*w_p = w;
	return 0;
out:
	hashes_close(known);
	weights_out_close(w);
	return rc;
}

uint64_t weights_out_bytes(const struct weights_out *w) { return w->bytes; }

void weights_out_close(struct weights_out *w)
{
	if (!w)
		return;
	mem_free(w->head);
	mem_free(w);
}

static void put_offer(struct wire_writer *out, const struct weights_out *w)
{
	wire_put_u32(out, (uint32_t)w->n);
	for (size_t i = 0; i < w->n; i++)
		blob_head_put(out, &w->head[i]);
}

int weights_out_offer(struct weights_out *w, const struct weights_way *to, struct err *e)
{
	struct wire_writer count = wire_write(NULL, 0);
	put_offer(&count, w);
	void *mem = mem_alloc(count.n);
	if (!mem)
		return err_nomem(e, count.n, "parameters to offer");
	struct wire_writer out = wire_write(mem, count.n);
	put_offer(&out, w);
	size_t n;
	int rc = wire_write_end(&out, &n, e);
	if (rc >= 0)
		rc = to->send(
			to->ctx,
			&(struct frame){ .kind = FRAME_WEIGHTS_OFFER, .size = n, .payload = mem },
			e);
	mem_free(mem);
	return rc;
}

static int send_tensor(struct weights_out *w, uint32_t i, const struct weights_way *to,
		       unsigned char *room, struct err *e)
{
	const struct blob_head *h = &w->head[i];
	struct blob b;
	TRY(blob_make(w->file, h, &b, e));
	int rc = 0;
	for (uint64_t at = 0; at < b.n && rc >= 0; at += BLOB_PART) {
		struct wire_writer out = wire_write(room, BLOB_PART + 64);
		size_t n;
		wire_put_u32(&out, i);
		wire_put_u64(&out, at);
		wire_put_bytes(&out, b.p + at, b.n - at < BLOB_PART ? b.n - at : BLOB_PART);
		rc = wire_write_end(&out, &n, e);
		if (rc >= 0)
			rc = to->send(to->ctx,
				      &(struct frame){
					      .kind = FRAME_WEIGHTS, .size = n, .payload = room },
				      e);
	}
	blob_release(&b);
	const struct model_tensor *t = model_file_find(w->file, h->name);
	if (t)
		model_file_drop(w->file, t);
	return rc;
}

int weights_out_serve(struct weights_out *w, const struct weights_way *to, const struct frame *need,
		      uint64_t *bytes_p, struct err *e)
{
	struct wire_reader r = wire_read(need->payload, need->size);
	uint32_t n = wire_get_count(&r, 4, (uint32_t)w->n);
	uint32_t *index = mem_array(n ? n : 1, sizeof *index);
	unsigned char *room = mem_alloc(BLOB_PART + 64);
	int rc = 0;
	*bytes_p = 0;
	if (!index || !room) {
		rc = err_nomem(e, BLOB_PART, "parameters to send");
		goto out;
	}
	for (uint32_t i = 0; i < n; i++)
		index[i] = wire_get_u32(&r);
	TRYOUT(wire_read_end(&r, "WEIGHTS_NEED", e));
	for (uint32_t i = 0; i < n && rc >= 0; i++)
		if (index[i] >= w->n || (i && index[i] <= index[i - 1]))
			rc = err_set(e, ERR_PROTOCOL, "WEIGHTS_NEED: tensor %u of %zu%s", index[i],
				     w->n, index[i] < w->n ? ", not in their order" : "");
	if (rc >= 0 && w->served)
		rc = err_set(e, ERR_PROTOCOL, "WEIGHTS_NEED for the second time");
	w->served = true;
	for (uint32_t i = 0; i < n && rc >= 0; i++) {
		TRYOUT(send_tensor(w, index[i], to, room, e));
		*bytes_p += w->head[index[i]].bytes;
	}
out:
	mem_free(index);
	mem_free(room);
	return rc;
}

void weights_model_digest(const struct model_file *f, char out[65])
{
	crypto_generichash_state s;
	unsigned char hash[BLOB_HASH];
	crypto_generichash_init(&s, NULL, 0, sizeof hash);
	char *config = json_dumps(model_file_config(f), JSON_COMPACT | JSON_SORT_KEYS);
	if (config)
		crypto_generichash_update(&s, (const unsigned char *)config, strlen(config));
	free(config);
	for (size_t i = 0; i < model_file_count(f); i++) {
		const struct model_tensor *t = model_file_tensor(f, i);
		char line[512];
		int n = snprintf(line, sizeof line, "%.300s %d %d %d %lld %lld %llu\n", t->name,
				 t->kind, t->dtype, t->ggml_type, (long long)t->shape[0],
				 (long long)t->shape[1], (unsigned long long)t->bytes);
		crypto_generichash_update(&s, (const unsigned char *)line, (unsigned long long)n);
	}
	crypto_generichash_final(&s, hash, sizeof hash);
	sodium_bin2hex(out, 65, hash, sizeof hash);
}
