/* SPDX-License-Identifier: Apache-2.0 */
/* heteroshard.h - a model of your own and data of your own, trained by the engine of HeteroShard on
 * one device or on several machines. docs/api.md is the tutorial.
 *
 * C11 and C++17. Names begin with hs_ or HS_.
 *
 * Errors are values. A function that can fail returns 0 or one of the negative HS_E_ codes, and
 * writes one line that says what failed, on what, and what to do into the hs_error it was given
 * (which may be NULL). Outputs are set only on success.
 *
 * Nothing here prints, ends the process or installs a signal handler. What the engine has to say
 * goes to the function of hs_set_log(), or nowhere.
 *
 * Threads. Functions that take different models may run in different threads at once. A model
 * belongs to one call at a time: while hs_train() or hs_evaluate() uses it, every other call with
 * it, from whatever thread, is the error HS_E_USAGE. Callbacks run in the thread that called
 * hs_train(). One hs_train(), hs_profile(), hs_plan() or hs_command() runs in a process at a time.
 *
 * Ownership. What a function creates is released by the _free or _release function that its comment
 * names. Strings and arrays that are passed in are borrowed for the call. A model that was freed,
 * or is NULL, is the error HS_E_USAGE.
 *
 * Versions. HS_API_VERSION grows when something is added; what is there keeps its meaning as long
 * as the library's soname is the same. A struct with `size` as its first member grows at its end:
 * make it with its _init function. What is to go is marked with HS_DEPRECATED for one minor version
 * first. */
#ifndef HETEROSHARD_H
#define HETEROSHARD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HS_API_VERSION 5

/* Stands before what is to go: compilers warn where it is used, and say what to use. */
#if defined(__GNUC__)
#define HS_DEPRECATED(use) __attribute__((deprecated(use)))
#else
#define HS_DEPRECATED(use)
#endif

enum {
	HS_E_USAGE = -1,       /* wrong arguments, a setting, a model's text */
	HS_E_INPUT = -2,       /* a file or a sample that is not as it must be */
	HS_E_UNSUPPORTED = -3, /* well-formed, but not possible here */
	HS_E_IO = -4,          /* the operating system refused (full disk, permission) */
	HS_E_NOMEM = -5,       /* memory, of the host or of a device */
	HS_E_DEVICE = -6,      /* a device or its driver */
	HS_E_NET = -7,         /* a link or a worker is lost */
	HS_E_PROTOCOL = -8,    /* the other side does not follow the protocol */
	HS_E_CANCELLED = -9,   /* it was asked to stop */
	HS_E_INTERNAL = -10    /* a mistake of this library */
};

typedef struct hs_error {
	int code; /* 0 or an HS_E_ code */
	char text[1024];
} hs_error;

/* "0.1.0", and the HS_API_VERSION that the library was built with. */
const char *hs_version(void);
int hs_api_version(void);

/* From now on `fn` gets what the engine says: `level` 0 debug, 1 information, 2 warning, 3 error;
 * `line` has no end of line. It may be called from any thread, one call at a time, and must not
 * call this library. NULL: nobody is told. */
typedef void (*hs_log_fn)(void *ctx, int level, const char *line);
void hs_set_log(hs_log_fn fn, void *ctx, int least);

/* ---- models ---- */

typedef struct hs_model hs_model;

/* A model from its text: blocks that run one after the other, from the shape of the input to the
 * loss, one statement a line or between semicolons:
 *
 *     input 64; linear 128; relu; linear 10; cross_entropy
 *     tokens 65 64; residual { rms_norm; attention heads=4 }; layer_norm; linear 65; cross_entropy
 *
 * hs_block_at() lists the kinds. Parameters are called as in PyTorch's nn.Sequential ("0.weight",
 * "2.bias"), the embedding of a model of tokens "embed.weight"; their first values are drawn from
 * `seed`, by name, from the distributions with which PyTorch's modules begin. HS_E_USAGE: the text;
 * the line names the block, and two neighbours with their shapes where they do not fit. */
int hs_model_new(const char *text, uint64_t seed, hs_model **model_p, hs_error *e);
/* From the folder that hs_model_save() or hs_train() wrote. */
int hs_model_load(const char *dir, hs_model **model_p, hs_error *e);
/* config.json and model.safetensors (float32) into the folder, which is made. */
int hs_model_save(const hs_model *model, const char *dir, hs_error *e);
/* NULL is allowed. */
int hs_model_free(hs_model *model, hs_error *e);

/* Parameters: how many; the i-th; by name. */
typedef struct hs_param {
	const char *name; /* as long as the model */
	int ndim;         /* 1 or 2 */
	int64_t dim[2];   /* of a matrix [out, in] */
	uint64_t count;
} hs_param;
size_t hs_model_params(const hs_model *model);
int hs_model_param(const hs_model *model, size_t i, hs_param *param_p, hs_error *e);
/* All `count` values, row-major; `count` must be the parameter's. */
int hs_model_get(const hs_model *model, const char *name, float *value, uint64_t count,
		 hs_error *e);
int hs_model_set(hs_model *model, const char *name, const float *value, uint64_t count,
		 hs_error *e);

/* Floats in a row of the input and of the target: of a model of tokens, and of a loss over classes,
 * one 32-bit integer. 0: not a model. */
uint64_t hs_model_input(const hs_model *model);
uint64_t hs_model_target(const hs_model *model);
/* Since version 4: which of these rows are 32-bit integers in place of floats, as a sum of HS_IDS_;
 * negative: not a model. */
enum { HS_IDS_INPUT = 1, HS_IDS_TARGET = 2 };
int hs_model_ids(const hs_model *model);
/* Floats in a row of the output, which goes into the loss. */
uint64_t hs_model_output(const hs_model *model);

/* A table for people: blocks, shapes, parameters, FLOP of a row, and the memory that training
 * takes: of parameters with what AdamW keeps, and of a row's activations with their gradients. As
 * snprintf: at most `cap` bytes with the final 0, and returns the length that it has. */
int hs_model_summary(const hs_model *model, char *out, size_t cap);

/* Kinds of blocks: name and what it is, for i from 0 on; -1 past the end. Borrowed, for ever. */
int hs_block_at(size_t i, const char **name_p, const char **help_p);

/* ---- kinds of blocks of your own ---- */

/* What a block computes with: `rows` rows, in float32. `set`: its settings, in their order. Arrays
 * belong to the engine and are valid during the call. */
typedef struct hs_pass {
	const double *set;
	uint64_t rows, in, out;    /* numbers in a row of x and of y */
	const float *x;            /* (rows, in) */
	float *y;                  /* (rows, out); of backward: NULL */
	const float *const *param; /* in the order of hs_kind.params */
	/* Of backward: the gradient of y is given. That of x is written, unless it is NULL; those
	 * of parameters are added to what is there, those that are NULL are not wanted. */
	const float *dy;
	float *dx;
	float *const *dparam;
	/* Since version 3: the shape of a row of x */
	int ndim;
	int64_t dim[3];
} hs_pass;

typedef struct hs_setting {
	const char *name; /* NULL: no more */
	double least, most;
	double value; /* where it is not given; NaN: it must be */
} hs_setting;

typedef struct hs_kind_param {
	const char *name;      /* "weight" */
	int64_t rows, columns; /* columns 0: a vector */
	int first; /* values: 0 zeros, 1 ones, 2 uniform in +-1/sqrt(columns), 3 normal (0, 1) */
} hs_kind_param;

enum { HS_SETTINGS = 6, HS_DIMS = 3, HS_PARAMS = 5 };

/* How FORWARD and BACKWARD of a text are divided into lanes: one for each number that they write
 * (ITEM), or a work-group for each row (GROUP). */
enum { HS_LANES = 0, HS_ROWS = 1 };

/* A kind of block whose forward and backward pass are C functions, a text in the kernel dialect
 * (docs/kernels.md), or both. C functions run on workers whose device is the processor; a text is
 * compiled by every device, on a processor by its C compiler where there are no functions. On
 * another device a kind of C functions alone ends the run with an error that names block and
 * device, as does a text that does not compile. Rows are independent of each other: a pass has any
 * number of them. A function that does not return 0 fails the run. All of it is copied by
 * hs_block_register() but the functions. */
typedef struct hs_kind {
	size_t size;      /* sizeof(hs_kind) */
	const char *name; /* as it stands in a model's text */
	const char *help;
	const char *version; /* another text when it computes something else */
	hs_setting setting[HS_SETTINGS];
	/* The shape of a row of y (at most HS_DIMS numbers) by that of x. Other than 0: it does not
	 * fit. */
	int (*shape)(const double *set, int ndim, const int64_t *in, int *ndim_p, int64_t *out);
	/* How many parameters, at most HS_PARAMS; NULL: none */
	int (*params)(const double *set, int ndim, const int64_t *in, hs_kind_param *param);
	int (*forward)(const hs_pass *p);
	int (*backward)(const hs_pass *p);
	/* Since version 3. NULL: there is none. Settings are s0, s1, ..., parameters p0, p1, ... */
	const char *text;
	int lanes; /* HS_LANES or HS_ROWS */
} hs_kind;

static inline hs_kind hs_kind_init(void)
{
	hs_kind k;
	memset(&k, 0, sizeof k);
	k.size = sizeof k;
	return k;
}

/* From now on models of this process may have such blocks. Code never goes over a wire: every
 * worker of a job must have the same kind (name, version, settings), else it refuses with an
 * error. */
int hs_block_register(const hs_kind *kind, hs_error *e);

/* ---- optimizers of your own ---- */

/* An update of the elements [first, first + count) of a parameter, which are what this worker owns
 * of it: everything for one that does not share its state. Arrays are of these elements, belong to
 * the engine and are valid during the call. */
typedef struct hs_update {
	const char *name;
	int ndim;       /* of the parameter: 1 or 2 */
	int64_t dim[2]; /* of a matrix [out, in] */
	uint64_t first, count;
	uint64_t step; /* from 1 */
	/* The learning rate of this step. The gradient is grad[i] * scale: it is the mean over the
	 * global batch, and clipped. */
	float learning_rate, scale;
	float weight_decay;                    /* 0 for vectors, which do not decay */
	float beta1, beta2, epsilon, momentum; /* as the configuration has them */
	float *value;
	const float *grad;
	float *const *state; /* [hs_optimizer.states], zeros before the first step */
} hs_update;

/* Where the state of a parameter may be cut, so that several workers can each hold and update a
 * part of it (`shard: optimizer`) with the bits of one. */
enum {
	HS_CUT_BLOCK,  /* behind every 4,096th element: an element's update reads no other one */
	HS_CUT_MATRIX, /* between parameters: an update reads one whole parameter */
	HS_CUT_NONE    /* not at all: an update reads other parameters; such a job is not sharded */
};

enum { HS_STATES = 4 };

/* An optimizer whose update is a C function. On a device that is not the processor its numbers go
 * to the host and back. All of it is copied but the function. */
typedef struct hs_optimizer {
	size_t size;      /* sizeof(hs_optimizer) */
	const char *name; /* as `optimizer` of a configuration names it; shorter than 20 */
	const char *help;
	const char *version; /* another text when it computes something else */
	int cut;
	int states;                   /* numbers that it keeps of each element, at most HS_STATES */
	const char *state[HS_STATES]; /* their names, in checkpoints */
	/* Several threads may call it at once, for different parameters. Other than 0 fails the
	 * run. */
	int (*update)(const hs_update *u);
} hs_optimizer;

static inline hs_optimizer hs_optimizer_init(void)
{
	hs_optimizer o;
	memset(&o, 0, sizeof o);
	o.size = sizeof o;
	return o;
}

/* From now on `optimizer=NAME` is possible. Every worker of a job must have the same one (name and
 * version), else it refuses with an error; a checkpoint says which one it was made with. */
int hs_optimizer_register(const hs_optimizer *optimizer, hs_error *e);

/* ---- plugins ---- */

/* A shared object for `heteroshard worker --plugin FILE` exports a function of the type
 * hs_plugin_fn named hs_plugin, or one of the type hs_plugin_optimizers_fn named
 * hs_plugin_optimizers, or both. They register their kinds, and their optimizers, with the function
 * they are given. It needs not be linked with this library. */
typedef int (*hs_register_fn)(const hs_kind *kind, hs_error *e);
typedef int (*hs_plugin_fn)(hs_register_fn add, hs_error *e);
typedef int (*hs_register_optimizer_fn)(const hs_optimizer *optimizer, hs_error *e);
typedef int (*hs_plugin_optimizers_fn)(hs_register_optimizer_fn add, hs_error *e);
/* Loads one: for programs whose workers do the same. */
int hs_plugin_load(const char *path, hs_error *e);

/* ---- data ---- */

/* Data by index. A sample is `length` rows: 1, or the positions of a sequence. `get` writes sample
 * `index` (below count + held): length * hs_model_input() numbers of 4 bytes into x and length *
 * hs_model_target() into y (floats; ids and classes are int32_t; class -100: this row has no
 * target). 0: done; HS_DATA_ENDS: there is no such sample; this and anything else fails the run.
 * Samples come in an order that is drawn from the
 * seed, so that a run that is resumed sees what it would have seen. */
enum { HS_DATA_ENDS = -100 };

typedef struct hs_data {
	size_t size;      /* sizeof(hs_data) */
	uint64_t count;   /* samples to train on */
	uint64_t held;    /* behind them, samples only to evaluate; 0: see val_set_size */
	uint32_t length;  /* rows of a sample; 0 means 1 */
	uint64_t version; /* another number for other data: then a run is not resumed with it */
	int (*get)(void *ctx, uint64_t index, void *x, void *y);
	void *ctx;
	/* 0: an epoch visits the samples in an order of all of them. Else in blocks of so many that
	 * follow each other, in a drawn order, `mixed` of which (0: 1) are mixed at a time: for
	 * data that is larger than memory. val_set_size then holds out whole blocks. */
	uint64_t block, mixed;
} hs_data;

static inline hs_data hs_data_init(void)
{
	hs_data d;
	memset(&d, 0, sizeof d);
	d.size = sizeof d;
	return d;
}

/* Data that lies in memory: arrays of all samples, one behind the other, borrowed as long as the
 * data is used. */
int hs_data_arrays(const hs_model *model, const void *x, const void *y, uint64_t count,
		   uint32_t length, hs_data *data_p, hs_error *e);

/* Data in files: NumPy's .npy and .npz, IDX (MNIST), columns of .csv, .tsv and .jsonl, each also
 * with .gz or .zst (then up to 1 GiB unpacked), and a folder of PNG or JPEG images in a folder for
 * each class, by name. At most 64 MiB of samples are in memory; data that is larger is visited in
 * blocks (hs_data.block). A row of a file is a sample. */
typedef struct hs_files {
	size_t size;       /* sizeof(hs_files) */
	const char *x, *y; /* what the model reads, what its loss compares with; y NULL: as x */
	/* Of a table or JSONL the columns "a,b,c" (NULL: all; of x all but those of y), of an .npz
	 * the array's name */
	const char *x_columns, *y_columns;
	uint32_t length; /* rows of a sample; 0: as many as a row of the file has */
	uint64_t held;   /* so many samples at the end are only evaluated */
	/* A float v of x is v * scale + shift; scale 0: 1/255 for pixels and unsigned bytes, else
	 * 1. */
	double scale, shift;
	uint64_t block, mixed; /* as of hs_data; 0: chosen by size */
} hs_files;

static inline hs_files hs_files_init(void)
{
	hs_files f;
	memset(&f, 0, sizeof f);
	f.size = sizeof f;
	return f;
}

int hs_data_files(const hs_model *model, const hs_files *files, hs_data *data_p, hs_error *e);
/* Releases what hs_data_arrays() and hs_data_files() made. */
void hs_data_release(hs_data *data);

/* ---- training ---- */

typedef struct hs_step {
	uint64_t step, total; /* from 1 */
	double epoch;         /* epochs of the data, with fraction */
	double loss;          /* the mean over the rows that have a target */
	double accuracy;      /* share of them whose likeliest class was right; 0 with floats */
	double learning_rate, grad_norm, seconds;
	uint64_t rows;
	int skipped; /* the loss or the gradient was not finite: nothing was changed */
} hs_step;

typedef struct hs_evaluation {
	uint64_t step; /* after which; 0: before training */
	double loss, accuracy;
	uint64_t rows;
} hs_evaluation;

typedef struct hs_change {
	const char *event; /* "lost", "joined", "left", "moved" */
	const char *text;  /* one line: who, which layers, from which step on */
	uint64_t step;     /* it goes on after this step */
} hs_change;

/* What a callback wants. */
enum {
	HS_GO_ON = 0,
	HS_STOP = 1 /* finish this step, save, end */
		    /* anything else fails the run */
};

/* All may be NULL. *rate_p is NaN; what is written there is the learning rate of the next step, in
 * place of the schedule's. */
typedef struct hs_callbacks {
	void *ctx;
	int (*step)(void *ctx, const hs_step *s, double *rate_p);
	int (*evaluated)(void *ctx, const hs_evaluation *v);
	int (*saved)(void *ctx, uint64_t step, const char *path);
	int (*changed)(void *ctx, const hs_change *c); /* members or plan */
} hs_callbacks;

typedef struct hs_options {
	size_t size; /* sizeof(hs_options) */
	/* The configuration of a job, as `heteroshard train` takes it: a YAML file, or NULL, and
	 * then keys, "learning_rate=0.01", which win. For a model of one's own base_model, datasets
	 * and adapter are not given. docs/configuration.md */
	const char *config;
	const char *const *set;
	size_t sets;
	/* The devices of this machine that train, one worker in this process for each, in the order
	 * of the model's blocks: "cpu", "opencl:0", "cpu" twice. None: `device` of the
	 * configuration; or the machines of its cluster part. */
	const char *const *device;
	size_t devices;
	/* argv that starts a worker of this machine for a job over several machines (its end is
	 * NULL); "--worker ID" is added. NULL: workers of this machine are started by hand. */
	char *const *worker;
	hs_callbacks on;
	/* Since version 3. Other than 0: a run is resumed although the model, the data or a setting
	 * has changed; each change is told as a warning. */
	int allow_changes;
	/* Since version 5. NULL, or set to another number than 0, from whatever thread, it stops
	 * what goes on: a run finishes its step and saves, as after HS_STOP (which sets it too);
	 * what has no step yet, and a measurement, is the error HS_E_CANCELLED. */
	volatile int *stop;
} hs_options;

static inline hs_options hs_options_init(void)
{
	hs_options o;
	memset(&o, 0, sizeof o);
	o.size = sizeof o;
	return o;
}

typedef struct hs_result {
	uint64_t step, total; /* done, and planned */
	int stopped;          /* by a callback, `stop`, early_stopping_patience, or max_minutes */
	double first_loss, last_loss;
	double held_before, held_after; /* losses of what is held out; NaN: nothing is */
	double seconds;
	/* The history: [steps] of this call, the k-th of step first_step + k */
	uint64_t first_step, steps;
	double *loss, *learning_rate, *grad_norm;
} hs_result;
void hs_result_release(hs_result *r);

/* Trains the model on the data. Where the configuration has an output_dir the run is there, with
 * checkpoints, metrics.jsonl, plan.json and the result, and can be resumed; the first values lie
 * beside it, in OUTPUT_DIR-model. Without one nothing is kept on disk when the call ends.
 * Afterwards the model has the trained values, also when a callback stopped it.
 *
 * With `model` and `data` NULL it trains what the configuration says, as `heteroshard train` does,
 * and leaves the same result and checkpoints. */
int hs_train(hs_model *model, const hs_data *data, const hs_options *o, hs_result *result_p,
	     hs_error *e);

/* Loss and accuracy over all samples of `data`, on one device ("cpu"; NULL: the best there is).
 * `batch`: samples at once. */
int hs_evaluate(hs_model *model, const hs_data *data, const char *device, uint32_t batch,
		hs_evaluation *v_p, hs_error *e);
/* What goes into the loss, for `count` samples of `length` rows x: y, with hs_model_output() floats
 * a row. */
int hs_predict(hs_model *model, const char *device, const void *x, uint64_t count, uint32_t length,
	       float *y, hs_error *e);

/* ---- language models: what the commands profile, plan and generate do ---- */

/* Measures the devices and links of a job: `o` has its configuration. *json_p: the profile, as
 * profile.json has it; release it with hs_text_release(). */
int hs_profile(const hs_options *o, char **json_p, hs_error *e);
/* The plan of a job, as plan.json has it, with what it predicts. `profile_file`: measured before
 * (profile.json); NULL: that of the configuration, or the job is measured now. Without `config` and
 * `set` it is the plan for a profile alone. */
int hs_plan(const hs_options *o, const char *profile_file, char **json_p, hs_error *e);
void hs_text_release(char *text); /* NULL is allowed */

typedef struct hs_generation {
	size_t size;         /* sizeof(hs_generation) */
	const char *model;   /* a folder or a .gguf file */
	const char *adapter; /* a PEFT folder, or NULL */
	const char *device;  /* "cpu"; NULL: the best there is */
	/* NULL: recognised; no system message */
	const char *chat_template, *system;
	const char *prompt;
	int raw;            /* the prompt is continued as it is, without a chat template */
	int64_t most;       /* tokens; 0: 256 */
	double temperature; /* 0: always the likeliest token */
	double top_p;       /* the likeliest tokens that have this probability; 0: all */
	int64_t top_k;      /* only so many of the likeliest; 0: all */
	uint64_t seed;
	/* Gets the text, part by part (UTF-8, not ended by 0); other than 0 ends it. */
	int (*text)(void *ctx, const char *text, size_t n);
	void *ctx;
} hs_generation;

static inline hs_generation hs_generation_init(void)
{
	hs_generation g;
	memset(&g, 0, sizeof g);
	g.size = sizeof g;
	return g;
}

/* A model's answer to a prompt. *tokens_p (MAY be NULL): how many there were. */
int hs_generate(const hs_generation *g, uint64_t *tokens_p, hs_error *e);

/* ---- every command ---- */

/* What a command of `heteroshard` has in place of the streams and signals of a process. */
typedef struct hs_io {
	size_t size; /* sizeof(hs_io) */
	/* What it reads as its standard input: a text for `tokenize`, a prompt for `generate` */
	const char *input;
	size_t input_size;
	/* Get its results and its messages, part by part, not ended by 0; NULL: they are dropped.
	 * Other than 0: the call fails when the command has ended. */
	int (*out)(void *ctx, const char *text, size_t n);
	int (*err)(void *ctx, const char *text, size_t n);
	void *ctx;
	/* NULL, or set to another number than 0 it is Ctrl-C: a job finishes its step and saves */
	const volatile int *stop;
	const char *program; /* starts workers of this machine; NULL: heteroshard of PATH */
} hs_io;

static inline hs_io hs_io_init(void)
{
	hs_io io;
	memset(&io, 0, sizeof io);
	io.size = sizeof io;
	return io;
}

/* Does what the command line does, by its words: "eval", "model.gguf", "--data", "held-out.jsonl".
 * docs/api.md says which function has the same as numbers and structs. Nobody is asked anything,
 * and nothing goes to the streams of this process. *status_p (MAY be NULL): the exit status, which
 * is 1 too where a command says no (`doctor` has found something). An error is the error line of
 * the command. One at a time in a process, and no hs_train() beside it. `io` MAY be NULL. */
int hs_command(const char *const *word, size_t words, const hs_io *io, int *status_p, hs_error *e);

/* ---- workers ---- */

/* Works for the coordinator of a configuration until its job ends: `id` as in its `workers`, NULL:
 * found by this machine's addresses. `stop`, which may be NULL: set to another number than 0 it
 * asks the coordinator to go on without this worker. */
int hs_worker_run(const char *config, const char *const *set, size_t sets, const char *id,
		  const volatile int *stop, hs_error *e);

#ifdef __cplusplus
}
#endif

#endif
