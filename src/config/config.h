/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - the configuration of a job: one YAML (or JSON) file, then `key=value` from the
 * command line.
 *
 * Training keys carry the names that axolotl users know, the cluster part those of HeteroShard's
 * hetero_config.json. The keys are rows (config_rows()): from them are made parsing, range checks,
 * `heteroshard help config` and docs/configuration.md. Cross-checks between keys are made here, so
 * a loaded configuration is consistent in itself; what depends on the model, the data or the
 * machines (layer counts, sequence limits, names of modules, addresses) is checked by the code that
 * knows them. Paths are relative to the working directory.
 *
 * A configuration is immutable once loaded; it owns everything it points to. */
#ifndef HS_CONFIG_CONFIG_H
#define HS_CONFIG_CONFIG_H

#include "base/arena.h"
#include "base/dtype.h"
#include "base/opt.h"
#include "data/dataset.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct buf;

enum adapter { ADAPTER_NONE, ADAPTER_LORA, ADAPTER_QLORA }; /* none: full-parameter training */
enum wire_dtype { WIRE_BFLOAT16, WIRE_FLOAT32, WIRE_FLOAT16 };
/* with keys: at every address of the machine, or at its `ip` only */
enum config_listen { LISTEN_ALL, LISTEN_IP };
enum config_log { CONFIG_LOG_DEBUG, CONFIG_LOG_INFO, CONFIG_LOG_WARNING, CONFIG_LOG_ERROR };

/* What a worker may take of its machine. */
struct config_limits {
	int64_t threads; /* of the processor; 0: its part of what the machine has */
	double memory;   /* GiB, where its device is the processor; 0: what is free */
	int64_t nice;    /* 0 to 19 */
};

/* A machine in the WireGuard mesh (mesh/mesh.h). */
struct config_meshed {
	const char *wg_public_key; /* as `wg pubkey` writes it; NULL: not given */
	struct opt_list endpoint;  /* "host", "host:port": where others reach its UDP port */
	struct opt_list mesh_ip;   /* its addresses inside; none: the next free ones */
	int family;                /* enum config_family: what it reaches others by */
};
enum config_encrypt { ENCRYPT_LINK, ENCRYPT_MESH };
enum config_family { FAMILY_ANY, FAMILY_IPV4, FAMILY_IPV6, FAMILY_BOTH };
/* The key `mesh`. */
struct config_mesh {
	bool given;
	struct opt_list range; /* "10.77.0.0/24", one of each family at most */
	int64_t port, mtu;
	const char *hub;       /* id of a machine; NULL: chosen */
	const char *interface; /* its name on every machine */
	const char *key_file;  /* the private key, on every machine */
	const char *dir;       /* where the files are written */
};

/* The machine that owns the job. `device`: "auto", "none" (it only coordinates), "backend"
 * or "backend:index". */
struct config_coordinator {
	bool given;           /* false: no cluster part, the job runs on this machine alone */
	const char *hostname; /* NULL: not given; the same for ip and public_key */
	const char *ip;
	int64_t port;           /* 9998 */
	const char *device;     /* "auto" */
	const char *public_key; /* as net/keys.h writes it */
	int listen;             /* enum config_listen */
	struct config_limits limits;
	struct config_meshed meshed;
};

struct config_worker {
	const char *id; /* a number or a name; "local" is the coordinator's own device */
	const char *hostname;
	const char *ip;
	int64_t port;       /* 9999 */
	const char *device; /* "auto" */
	int64_t num_gpus;   /* 1 (or 0) once loaded: an entry with more has become several */
	const char *public_key;
	int listen;      /* enum config_listen */
	bool spare;      /* joins, and holds nothing until another one is lost */
	bool invited;    /* a name: it connects to the coordinator (peers/peer_list.h) */
	const char *ssh; /* "user@host:port", for `heteroshard up`; NULL: not given */
	struct config_limits limits;
	struct config_meshed meshed;
};

/* Rows of a pass, and passes of a step. */
enum { PASS_ROWS_MOST = 65536, PASSES_MOST = 16384 };

enum config_reduce_dtype { REDUCE_FLOAT32, REDUCE_BFLOAT16 };
enum config_auto_resume { AUTO_RESUME_CLUSTER, AUTO_RESUME_ON, AUTO_RESUME_OFF };
enum config_snapshot { SNAPSHOT_AUTO, SNAPSHOT_MEMORY, SNAPSHOT_DISK, SNAPSHOT_OFF };
enum config_rebalance { REBALANCE_AUTO, REBALANCE_OFF, REBALANCE_SUGGEST, REBALANCE_ON };
enum config_shard_state { SHARD_AUTO, SHARD_NOTHING, SHARD_STATES, SHARD_VALUES };
enum config_reduce_order { ORDER_AUTO, ORDER_EXACT, ORDER_FAST };

/* Layers [start, end), in the order of the pipeline, on a worker, or on a group of workers that
 * share the microbatches; the last entry has is_last, whether it was given or not. */
struct config_shard {
	struct opt_list id;
	struct opt_list shares; /* as they were written */
	const int *share;       /* [id.n] of the microbatches; NULL: not given */
	struct opt_list states; /* state_share, as written */
	const double *state;    /* [id.n] of the training state, 1 in sum; NULL: not given */
	struct opt_list sizes;  /* micro_batch_size, as written */
	const int *size;        /* [id.n] rows of each one's passes; NULL: not given */
	/* Where experts are on other members: id has those too, behind the `homes` that run
	 * microbatches */
	struct opt_list experts; /* as they were written */
	size_t homes;
	const char **own; /* [id.n] numbers of experts, "": by speed; NULL: none. NULL: not given */
	int64_t start, end;
	bool is_last;
};

struct config {
	struct arena arena;  /* everything this struct points to */
	const char *path;    /* the file; "" when there was none */
	const char *ignored; /* keys of other programs that change nothing; NULL: none */

	/* model */
	const char *base_model;
	bool load_in_4bit, bnb_4bit_use_double_quant; /* qlora implies load_in_4bit */
	int compute_dtype;                            /* enum compute_dtype */
	bool gradient_checkpointing;
	/* NULL: the model's own. What chat_template_jinja gives, where that is given */
	const char *chat_template, *chat_template_jinja;

	/* adapter */
	int adapter; /* enum adapter */
	int64_t lora_r;
	double lora_alpha, lora_dropout;
	/* never empty with an adapter, unless lora_target_linear */
	struct opt_list lora_target_modules;
	bool lora_target_linear; /* all linear layers but the head */
	bool use_rslora;
	double loraplus_lr_ratio;           /* 0: one rate for A and B */
	const char *peft_init_lora_weights; /* NULL, "loftq" or "pissa" */
	const char *pissa_first;    /* the adapter that pissa_begin() made (train/pissa.h) */
	const char *lora_model_dir; /* adapter to begin with; NULL: a new one */
	bool peft_use_dora;
	struct opt_list special_tokens; /* "eos_token=</s>" */
	struct opt_list lora_modules_to_save, peft_layers_to_transform, lora_rank_pattern,
		lora_alpha_pattern;

	/* data */
	struct dataset_source *datasets; /* those of test_datasets are the last */
	size_t ndatasets, ntest;
	double val_set_size; /* below 1: a share of the examples; 1 and more: that many */
	int64_t sequence_len;
	bool sample_packing, train_on_inputs, skip_bad_records;
	int excess_length_strategy;        /* enum dataset_excess */
	const char *dataset_prepared_path; /* MAY */

	/* training */
	int64_t micro_batch_size, gradient_accumulation_steps;
	struct opt_list passes; /* as written */
	/* [npass] rows of a step's passes, by `passes` or by the shard plan; NULL:
	 * gradient_accumulation_steps passes of micro_batch_size */
	const int *pass;
	size_t npass;
	double num_epochs;
	int64_t max_steps;  /* 0: as many as num_epochs gives */
	double max_minutes; /* of a run; 0: no limit */
	double learning_rate;
	const char *lr_scheduler; /* row of optim/lr.def */
	int64_t warmup_steps;
	double warmup_ratio; /* of all steps; used when warmup_steps is 0 */
	double cosine_min_lr_ratio, lr_min_ratio, lr_num_cycles, lr_power, lr_decay_ratio;
	const char *optimizer; /* row of optim/optim.def */
	double adam_beta1, adam_beta2, adam_epsilon, weight_decay, momentum;
	double max_grad_norm; /* 0: no clipping */
	int64_t max_nonfinite_steps;
	double neftune_noise_alpha;  /* 0: no noise */
	double router_aux_loss_coef; /* -1: as the model's configuration says */
	double router_z_loss_coef;
	const char *rl; /* row of prefer/prefer.def, or "none" */
	double rl_beta, orpo_alpha, dpo_label_smoothing, rpo_alpha, cpo_alpha, simpo_gamma;
	double kto_desirable_weight, kto_undesirable_weight;
	int64_t seed, data_seed; /* data_seed: the seed where it is not given */

	/* the run's folder */
	const char *output_dir;
	bool overwrite_output_dir;
	/* a folder; "latest": the newest in output_dir; NULL: do not resume */
	const char *resume_from_checkpoint;
	int auto_resume;                 /* enum config_auto_resume */
	int64_t save_steps;              /* 0: only at the end */
	int64_t saves_per_epoch;         /* above 0: in the place of save_steps */
	const char *save_minutes;        /* "auto" or a number; "0": never */
	int64_t save_total_limit;        /* 0: keep all */
	int64_t eval_steps;              /* 0: only before and after training */
	int64_t evals_per_epoch;         /* above 0: in the place of eval_steps */
	int64_t early_stopping_patience; /* evaluations; 0: never */
	bool load_best_model_at_end;
	int64_t logging_steps;
	double sample_temperature, sample_top_p;
	struct opt_list sample_prompts;          /* answered by the trained model */
	int64_t sample_max_tokens, sample_steps; /* sample_steps 0: only after training */
	bool tensorboard, trace, visualize;
	const char *notify; /* URL; NULL: nobody is told that the run ended */
	const char *wandb_project, *wandb_entity, *wandb_name; /* NULL: not given */
	const char *mlflow_experiment_name, *mlflow_run_name;  /* NULL: not given */
	/* "png", "svg", "pdf" or "mmd", beside the four that are always written */
	const char *visualization_format;
	int log_level; /* enum config_log */

	/* device and plan */
	const char *device;    /* "auto", "backend" or "backend:index" */
	const char *plan;      /* plan.json to use; NULL: plan */
	const char *profile;   /* a file, "auto" or "none"; NULL: config_profile() says */
	const char *planner;   /* row of plan/planner.def */
	double memory_reserve; /* GiB kept free on every device */
	const char *schedule;  /* row of sched/sched.def, or "auto" */
	int64_t interleave;    /* chunks per worker of a chunked schedule */
	int shard;             /* enum config_shard_state */
	struct opt_list offload;
	unsigned offload_bits; /* enum offload, as `offload` says */
	double expert_cache;
	bool offload_auto;
	int reduce_order;     /* enum config_reduce_order */
	int reduce_dtype;     /* enum config_reduce_dtype */
	int64_t reduce_parts; /* 0: auto */
	const char *reduce;   /* row of sched/reduce.def, or "auto" */

	/* cluster */
	/* "auto": tls, mpi under mpirun or srun; else a row of net/net.def */
	const char *transport;
	int wire_dtype;                    /* enum wire_dtype */
	double peer_timeout, join_timeout; /* seconds */
	double stall_timeout;              /* seconds; 0: from the times of steps */
	/* to start with, and to go on with after a loss; 0: all that are listed, and what memory
	 * needs */
	int64_t min_workers;
	/* seconds: of the coordinator for workers, and of these for it */
	double rejoin_timeout, coordinator_timeout;
	int rebalance; /* enum config_rebalance */
	double rebalance_gain;
	int64_t snapshot_steps; /* 0: by the clock */
	int snapshot_to;        /* enum config_snapshot */
	bool insecure;
	int encrypt; /* enum config_encrypt */
	int64_t links_per_peer;
	struct config_mesh mesh;
	const char *key_file;   /* NULL: the default of `heteroshard keygen` */
	const char *cache_dir;  /* NULL: $XDG_CACHE_HOME/heteroshard */
	double cache_limit_gib; /* 0: no limit */
	struct config_coordinator coordinator;
	struct config_worker *workers;
	size_t nworkers;
	/* `workers` was a list of names, or `all`: nworkers is 0 then, until the list of peers was
	 * read (peers/invited.h) */
	bool workers_invited, workers_all;
	int64_t invited_port; /* where such workers connect; 0: not resolved yet */
	struct config_shard *shard_plan;
	size_t nshards;
};

enum config_need {
	CONFIG_TRAIN, /* base_model, datasets and output_dir are required */
	CONFIG_MODEL, /* base_model is required (plan, profile) */
	CONFIG_PART,  /* nothing is required; given keys must be consistent */
};

/* Reads `path` (NULL: no file, only defaults and overrides) and then the overrides, each
 * "key=value" (the value may be YAML: "datasets=[{path: a.jsonl, type: alpaca}]"; a plain file name
 * works for datasets too). ERR_USAGE with one line on anything wrong. config_load is config_load_as
 * with CONFIG_TRAIN. */
int config_load(const char *path, int noverride, char **override, struct config **c_p,
		struct err *e);
int config_load_as(enum config_need need, const char *path, int noverride, char **override,
		   struct config **c_p, struct err *e);
/* The same from text; `where` heads the messages. */
int config_parse(enum config_need need, const char *text, size_t n, const char *where,
		 int noverride, char **override, struct config **c_p, struct err *e);
/* Whether a configuration that was loaded as CONFIG_PART has the keys that `need` requires. */
int config_complete(const struct config *c, enum config_need need, struct err *e);
void config_free(struct config *c); /* NULL is allowed */

/* The whole configuration as a JSON object that config_load() reads back to the same values. Check
 * the buffer with buf_ok(). */
void config_to_json(const struct config *c, struct buf *out);

const struct opt *config_rows(size_t *n_p);
/* Who has which expert of an entry with `experts`: place_p[experts] is an index of its ids. Where
 * the entry does not say it, by the speed of each id (0: without experts) and the load of each
 * expert (deal.h). */
int config_experts_deal(const struct config_shard *s, int64_t experts, const double *load,
			const double *speed, uint8_t *place_p, const char *where, struct err *e);
/* The reference of all keys: as text for `heteroshard help config`, as Markdown
 * for docs/configuration.md. */
void config_reference(bool markdown, struct buf *out);

/* The reference of `rl` is computed before the first step (train/beforehand.h). */
bool config_refers_first(const struct config *c);
/* Whether nothing is asked for that only a model of text has, or that needs measured workers. */
bool config_is_plain(const struct config *c);
/* Where a run's profile comes from: as configured, else measured ("auto"), but "none" where a
 * shard_plan leaves nothing to choose. */
const char *config_profile(const struct config *c);
/* Under mpirun or srun `shard_plan` names ranks: 1 or rank1. The number; -1: it is none. */
#define CONFIG_RANK "rank"
int config_rank(const char *id);
/* Whether an id of shard_plan is a rank's, and no worker's. */
bool config_names_ranks(const struct config *c);
const char *config_adapter_name(int adapter);
const char *config_compute_name(int compute_dtype);
const char *config_wire_name(int wire_dtype);

#endif
