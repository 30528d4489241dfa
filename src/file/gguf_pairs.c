/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_pairs.c - see gguf_kv.h: building pairs. */
#include "file/gguf_kv.h"

#include "file/gguf.h"

#include <stdio.h>
#include <string.h>

void pairs_text(struct gguf_pairs *p, const char *s, size_t n)
{
	uint64_t len = n;
	buf_add(&p->b, &len, 8);
	buf_add(&p->b, s, n);
}

static void begin(struct gguf_pairs *p, const char *key, uint32_t kind)
{
	pairs_text(p, key, strlen(key));
	buf_add(&p->b, &kind, 4);
	p->n++;
}

void pairs_str(struct gguf_pairs *p, const char *key, const char *s)
{
	begin(p, key, GGUF_STR);
	pairs_text(p, s, strlen(s));
}

void pairs_u32(struct gguf_pairs *p, const char *key, uint32_t v)
{
	begin(p, key, GGUF_U32);
	buf_add(&p->b, &v, 4);
}

void pairs_f32(struct gguf_pairs *p, const char *key, float v)
{
	begin(p, key, GGUF_F32);
	buf_add(&p->b, &v, 4);
}

void pairs_bool(struct gguf_pairs *p, const char *key, bool v)
{
	begin(p, key, GGUF_BOOL);
	buf_addc(&p->b, v);
}

void pairs_array(struct gguf_pairs *p, const char *key, uint32_t kind, uint64_t count)
{
	begin(p, key, GGUF_ARRAY);
	buf_add(&p->b, &kind, 4);
	buf_add(&p->b, &count, 8);
}

void maker_u32(const struct gguf_maker *m, const char *name, int64_t v)
{
	char key[128];
	snprintf(key, sizeof key, "%s.%s", m->s->arch->name, name);
	if (m->p)
		pairs_u32(m->p, key, (uint32_t)v);
}

void maker_f32(const struct gguf_maker *m, const char *name, double v)
{
	char key[128];
	snprintf(key, sizeof key, "%s.%s", m->s->arch->name, name);
	if (m->p)
		pairs_f32(m->p, key, (float)v);
}

float *maker_factors(const struct gguf_maker *m, const char *name)
{
	m->s->factors[m->s->nfactors].name = name;
	return m->s->factors[m->s->nfactors++].v;
}
