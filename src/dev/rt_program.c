/* SPDX-License-Identifier: Apache-2.0 */
/* rt_program.c - see rt.h: the kernels of one dtype, from the cache on disk or from the compiler,
 * loaded at the first launch. */
#include "dev/rt.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "dev/gpu_cache.h"

#define EXT "gpu"

static int compile(struct rt *c, const char *text, const char *key, struct buf *code, struct err *e)
{
	struct buf log = BUF_INIT;
	int rc = rtc_compile(c->compiler, text, c->arch, code, &log, e);
	if (rc == ERR_DEVICE) {
		char line[1600];
		const struct err why = *e;
		gpu_cache_log(key, log.p, line, sizeof line);
		err_set(e, ERR_DEVICE, "%s (driver %s): %s: %s", c->label, c->driver, why.msg,
			line);
	} else if (rc < 0) {
		err_prefix(e, "%s", c->label);
	}
	buf_release(&log);
	return rc;
}

/* Code takes memory of the card, and what is loaded late finds the card full: then blocks that
 * nobody uses go back first. A code of the driver. */
static int load(struct rt *c, void **module_p, const void *code, struct err *e)
{
	const int rc = c->f->module(module_p, code);
	return rc == RT_OUT_OF_MEMORY && rt_spare_back(c, e) ? c->f->module(module_p, code) : rc;
}

/* The same of one kernel: drivers may load each when it is first asked for. */
static int find(struct rt *c, void **function_p, void *module, const char *name, struct err *e)
{
	int code = c->f->module_function(function_p, module, name);
	if (code == RT_OUT_OF_MEMORY && rt_spare_back(c, e))
		code = c->f->module_function(function_p, module, name);
	return rt_failed(c, code, name, e);
}

static int build(struct rt *c, const struct buf *text, void **module_p, struct err *e)
{
	struct buf code = BUF_INIT;
	char key[GPU_KEY];
	int rc = 0;
	const char *const part[] = { c->v->backend, c->arch, c->driver, rtc_name(c->compiler) };
	gpu_cache_key(part, ARRAY_LEN(part), text->p, text->n, key);
	if (gpu_cache_get(key, EXT, &code)) {
		const int loaded = load(c, module_p, code.p, e);
		if (loaded == RT_OUT_OF_MEMORY)
			TRYOUT(rt_failed(c, loaded, "loading the kernels", e));
		if (loaded == RT_OK)
			goto out;
	}
	/* what the driver refuses is compiled anew */
	buf_reset(&code);
	log_info("%s: compiling the kernels (%s, %s)", c->label, rtc_name(c->compiler), c->arch);
	TRYOUT(compile(c, text->p, key, &code, e));
	TRYOUT(rt_failed(c, load(c, module_p, code.p, e), "loading the kernels", e));
	gpu_cache_put(key, EXT, code.p, code.n);
out:
	buf_release(&code);
	return rc;
}

int rt_kernel(struct rt *c, enum gpu_entry n, enum dtype t, void **function_p, struct err *e)
{
	void **entry = &c->built[t].entry[n];
	if (!c->built[t].module) {
		struct buf b = BUF_INIT;
		gpu_text(t, &b);
		int rc = buf_ok(&b, e);
		if (rc == 0)
			rc = build(c, &b, &c->built[t].module, e);
		buf_release(&b);
		if (rc < 0)
			return rc;
	}
	if (!*entry)
		TRY(find(c, entry, c->built[t].module, gpu_entry_name(n), e));
	*function_p = *entry;
	return 0;
}

struct rt_user {
	const struct dev_text *text;
	enum dtype t;
	void *module, *entry[TEXT_ENTRIES];
	struct rt_user *next;
};

/* A text as it is compiled for a dtype. */
static int user_of(struct rt *c, const struct dev_text *text, enum dtype t, struct rt_user **u_p,
		   struct err *e)
{
	struct buf b = BUF_INIT;
	for (*u_p = c->user; *u_p; *u_p = (*u_p)->next)
		if ((*u_p)->text == text && (*u_p)->t == t)
			return 0;
	struct rt_user *u = mem_zalloc(sizeof *u);
	if (!u)
		return err_nomem(e, sizeof *u, text->name);
	*u = (struct rt_user){ .text = text, .t = t };
	gpu_user_text(t, text, false, &b);
	int rc = buf_ok(&b, e);
	if (rc == 0)
		rc = build(c, &b, &u->module, e);
	buf_release(&b);
	if (rc < 0) {
		mem_free(u);
		return rc;
	}
	u->next = c->user;
	*u_p = c->user = u;
	return 0;
}

int rt_user_kernel(struct rt *c, const struct dev_text_launch *l, void **function_p, struct err *e)
{
	struct rt_user *u;
	int rc = user_of(c, l->text, l->t, &u, e);
	if (rc == 0 && !u->entry[l->entry])
		rc = find(c, &u->entry[l->entry], u->module, gpu_user_entry(l->entry), e);
	if (rc < 0)
		return err_prefix(e, "%s", l->text->name);
	*function_p = u->entry[l->entry];
	return 0;
}

static void users_release(struct rt *c)
{
	while (c->user) {
		struct rt_user *u = c->user;
		c->user = u->next;
		c->f->module_unload(u->module);
		mem_free(u);
	}
}

void rt_programs_release(struct rt *c)
{
	users_release(c);
	for (size_t t = 0; t < ARRAY_LEN(c->built); t++)
		if (c->built[t].module)
			c->f->module_unload(c->built[t].module);
}
