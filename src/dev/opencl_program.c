/* SPDX-License-Identifier: Apache-2.0 */
/* opencl_program.c - compiling the kernels: one program for each dtype of activations, kept on disk
 * (gpu_cache.h). */
#include "dev/opencl.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"

#include <string.h>

#define EXT "cl"
#define LOG_MOST ((size_t)4 << 20)

void opencl_key(const struct opencl *c, const char *options, const char *text, size_t n,
		char key[GPU_KEY])
{
	char version[128] = "", platform[256] = "";
	opencl_text(c->lib, c->at.device, CL_DEVICE_VERSION, version, sizeof version);
	c->lib->f.clGetPlatformInfo(c->at.platform, CL_PLATFORM_VERSION, sizeof platform - 1,
				    platform, NULL);
	const char *const part[] = { options, c->name, c->vendor, c->driver, version, platform };
	gpu_cache_key(part, ARRAY_LEN(part), text, n, key);
}

const char *opencl_options(const struct opencl *c, enum dtype t)
{
	return c->subgroup && t != DT_F32 ? c->tile_options : c->options;
}

/* A program from the cache, NULL when it is not there, damaged, or refused by the driver. */
static cl_program cached(struct opencl *c, const char *options, const char *key)
{
	struct buf b = BUF_INIT;
	cl_program p = NULL;
	int32_t status = 0, rc = 0;
	if (gpu_cache_get(key, EXT, &b)) {
		const unsigned char *bytes = (const unsigned char *)b.p;
		p = c->lib->f.clCreateProgramWithBinary(c->context, 1, &c->at.device, &b.n, &bytes,
							&status, &rc);
		if (rc != CL_SUCCESS || status != CL_SUCCESS ||
		    c->lib->f.clBuildProgram(p, 1, &c->at.device, options, NULL, NULL) !=
			    CL_SUCCESS) {
			if (p)
				c->lib->f.clReleaseProgram(p);
			p = NULL;
		}
	}
	buf_release(&b);
	return p;
}

/* A driver for the processor keeps what it compiles by itself, kernel after kernel as they are
 * first launched. PoCL compiles all kernels of a program when it is asked for the binary, which
 * takes a minute. */
static void keep(struct opencl *c, cl_program p, const char *key)
{
	size_t n = 0;
	if (c->cpu)
		return;
	if (c->lib->f.clGetProgramInfo(p, CL_PROGRAM_BINARY_SIZES, sizeof n, &n, NULL) !=
		    CL_SUCCESS ||
	    !n)
		return;
	unsigned char *bytes = mem_alloc(n);
	if (!bytes)
		return;
	if (c->lib->f.clGetProgramInfo(p, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, NULL) ==
	    CL_SUCCESS)
		gpu_cache_put(key, EXT, bytes, n);
	mem_free(bytes);
}

static int build_failed(struct opencl *c, cl_program p, int32_t code, const char *key,
			struct err *e)
{
	size_t n = 0;
	char *log = NULL, line[1600];
	if (c->lib->f.clGetProgramBuildInfo(p, c->at.device, CL_PROGRAM_BUILD_LOG, 0, NULL, &n) ==
		    CL_SUCCESS &&
	    n && n < LOG_MOST && (log = mem_zalloc(n + 1)) != NULL)
		c->lib->f.clGetProgramBuildInfo(p, c->at.device, CL_PROGRAM_BUILD_LOG, n, log,
						NULL);
	gpu_cache_log(key, log ? log : "", line, sizeof line);
	mem_free(log);
	return err_set(e, ERR_DEVICE, "%s (driver %s) does not compile the kernels: %s: %s", c->who,
		       c->driver, opencl_error(code), line);
}

int opencl_build(struct opencl *c, const char *options, const char *text, size_t n, cl_program *p_p,
		 struct err *e)
{
	char key[GPU_KEY];
	int32_t rc;
	opencl_key(c, options, text, n, key);
	*p_p = cached(c, options, key);
	if (*p_p)
		return 0;
	cl_program p = c->lib->f.clCreateProgramWithSource(c->context, 1, &text, &n, &rc);
	if (rc != CL_SUCCESS)
		return err_set(e, ERR_DEVICE, "%s does not accept the kernels: %s", c->who,
			       opencl_error(rc));
	rc = c->lib->f.clBuildProgram(p, 1, &c->at.device, options, NULL, NULL);
	if (rc != CL_SUCCESS) {
		build_failed(c, p, rc, key, e);
		c->lib->f.clReleaseProgram(p);
		return e->code;
	}
	keep(c, p, key);
	*p_p = p;
	return 0;
}

int opencl_kernel(struct opencl *c, enum gpu_entry n, enum dtype t, cl_kernel *k_p, struct err *e)
{
	int32_t rc = 0;
	if (!c->built[t].program) {
		struct buf b = BUF_INIT;
		gpu_text(t, &b);
		int r = buf_ok(&b, e);
		if (r == 0)
			r = opencl_build(c, opencl_options(c, t), b.p, b.n, &c->built[t].program,
					 e);
		buf_release(&b);
		if (r < 0)
			return r;
	}
	cl_kernel *k = &c->built[t].kernel[n];
	if (!*k)
		*k = c->lib->f.clCreateKernel(c->built[t].program, gpu_entry_name(n), &rc);
	if (!*k)
		return err_set(e, ERR_DEVICE, "%s has no kernel %s after compiling: %s", c->who,
			       gpu_entry_name(n), opencl_error(rc));
	*k_p = *k;
	return 0;
}

struct opencl_user {
	const struct dev_text *text;
	enum dtype t;
	cl_program program;
	cl_kernel kernel[TEXT_ENTRIES];
	struct opencl_user *next;
};

/* A text as it is compiled for a dtype. */
static int user_of(struct opencl *c, const struct dev_text *text, enum dtype t,
		   struct opencl_user **u_p, struct err *e)
{
	struct buf b = BUF_INIT;
	for (*u_p = c->user; *u_p; *u_p = (*u_p)->next)
		if ((*u_p)->text == text && (*u_p)->t == t)
			return 0;
	struct opencl_user *u = mem_zalloc(sizeof *u);
	if (!u)
		return err_nomem(e, sizeof *u, text->name);
	*u = (struct opencl_user){ .text = text, .t = t };
	gpu_user_text(t, text, false, &b);
	int rc = buf_ok(&b, e);
	if (rc == 0)
		rc = opencl_build(c, c->options, b.p, b.n, &u->program, e);
	buf_release(&b);
	if (rc < 0) {
		mem_free(u);
		return rc;
	}
	u->next = c->user;
	*u_p = c->user = u;
	return 0;
}

int opencl_user_kernel(struct opencl *c, const struct dev_text_launch *l, cl_kernel *k_p,
		       struct err *e)
{
	struct opencl_user *u;
	int32_t rc = CL_SUCCESS;
	if (user_of(c, l->text, l->t, &u, e) < 0)
		return err_prefix(e, "%s", l->text->name);
	cl_kernel *k = &u->kernel[l->entry];
	if (!*k)
		*k = c->lib->f.clCreateKernel(u->program, gpu_user_entry(l->entry), &rc);
	if (!*k)
		return err_set(e, ERR_DEVICE, "%s: %s has no kernel %s after compiling: %s",
			       l->text->name, c->who, gpu_user_entry(l->entry), opencl_error(rc));
	*k_p = *k;
	return 0;
}

static void users_release(struct opencl *c)
{
	while (c->user) {
		struct opencl_user *u = c->user;
		c->user = u->next;
		for (int n = 0; n < TEXT_ENTRIES; n++)
			if (u->kernel[n])
				c->lib->f.clReleaseKernel(u->kernel[n]);
		c->lib->f.clReleaseProgram(u->program);
		mem_free(u);
	}
}

void opencl_programs_release(struct opencl *c)
{
	users_release(c);
	for (size_t t = 0; t < ARRAY_LEN(c->built); t++) {
		for (int n = 0; n < GPU_ENTRIES; n++)
			if (c->built[t].kernel[n])
				c->lib->f.clReleaseKernel(c->built[t].kernel[n]);
		if (c->built[t].program)
			c->lib->f.clReleaseProgram(c->built[t].program);
	}
	memset(c->built, 0, sizeof c->built);
}
