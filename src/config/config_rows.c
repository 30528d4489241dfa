/* SPDX-License-Identifier: Apache-2.0 */
/* config_rows.c - every key of a configuration file: its kind, default, range and the line of help
 * it gets.
 *
 * A key is a field of struct config of the same name. The first row of a section carries
 * its heading. */
#include "config/config.h"

#include "base/buf.h"
#include "base/mem.h"
#include "config/names.h"
#include "net/net.h"
#include "sched/sched.h"

#define FIELD(k) .key = #k, .offset = offsetof(struct config, k)
#define BOOL(k, d, h)                                                                              \
	{                                                                                          \
		FIELD(k), .kind = OPT_BOOL, .def = d, .help = h                                    \
	}
#define INT(k, d, l, u, h)                                                                         \
	{                                                                                          \
		FIELD(k), .kind = OPT_INT, .def = d, .lo = l, .hi = u, .help = h                   \
	}
#define NUM(k, d, l, u, h)                                                                         \
	{                                                                                          \
		FIELD(k), .kind = OPT_FLOAT, .def = d, .lo = l, .hi = u, .help = h                 \
	}
#define POS(k, d, h)                                                                               \
	{                                                                                          \
		FIELD(k), .kind = OPT_FLOAT, .def = d, .lo = 0, .lo_open = true, .hi = OPT_MAX,    \
			  .help = h                                                                \
	}
#define STR(k, d, w, h)                                                                            \
	{                                                                                          \
		FIELD(k), .kind = OPT_STR, .def = d, .arg = w, .help = h                           \
	}
#define ENUM(k, c, d, h)                                                                           \
	{                                                                                          \
		FIELD(k), .kind = OPT_ENUM, .choices = c, .def = d, .help = h                      \
	}
#define NAME(k, n, d, h)                                                                           \
	{                                                                                          \
		FIELD(k), .kind = OPT_NAME, .names = n, .def = d, .help = h                        \
	}
#define LIST(k, d, w, h)                                                                           \
	{                                                                                          \
		FIELD(k), .kind = OPT_LIST, .def = d, .arg = w, .help = h                          \
	}
#define CUSTOM(k, w, h)                                                                            \
	{                                                                                          \
		.key = #k, .kind = OPT_CUSTOM, .arg = w, .help = h                                 \
	}
/* The first key of a section: the heading goes before the row. */
#define SECTION(title, k, kd, d, w, h)                                                             \
	{                                                                                          \
		FIELD(k), .kind = kd, .def = d, .arg = w, .help = h, .section = title              \
	}

/* clang-format off: a table reads best with one row a line */
static const struct opt rows[] = {
	{ FIELD(base_model), .kind = OPT_STR, .arg = "PATH", .names = &names_family,
	  .section = "Model",
	  .help = "model to start from: a Hugging Face folder (config.json, safetensors) or a "
		  ".gguf "
		  "file, or its name on a hub (docs/hub.md); of one of these families" },
	BOOL(load_in_4bit, "false",
	     "keep the frozen weights in NF4, 4 bits each; needs an adapter"),
	BOOL(bnb_4bit_use_double_quant, "true",
	     "quantise the NF4 block scales too: 4.13 instead of 4.5 bits a weight"),
	ENUM(compute_dtype, "auto|float32|bfloat16|float16", "auto",
	     "dtype in which matrix products compute; auto: bfloat16 where all devices have it "
	     "natively, "
	     "else float16 (with dynamic loss "
	     "scaling) where they have that, else float32; a resumed run keeps its own"),
	BOOL(gradient_checkpointing, "false",
	     "recompute each layer in backward: less memory, about a third more time"),
	STR(chat_template, NULL, "NAME",
	    "chat template: tokenizer_default (the model's own Jinja text), a file NAME.jinja, "
	    "chatml, llama3, mistral, zephyr, alpaca, plain, or tokenizer_default_fallback_chatml "
	    "and so on; not given: the model's own, else one that its tokens tell"),
	STR(chat_template_jinja, NULL, "TEXT",
	    "a chat template as Jinja text, or the name of its file; chat_template is then jinja "
	    "or not given"),

	{ FIELD(adapter), .kind = OPT_ENUM, .choices = "none|lora|qlora", .def = "none",
	  .section = "Adapter",
	  .help = "what is trained: lora and qlora (lora on 4-bit weights) train an adapter, none "
		  "trains all parameters" },
	INT(lora_r, "8", 1, 4096, "rank of the adapter"),
	POS(lora_alpha, "16",
	    "scale of the adapter: its output is multiplied by lora_alpha / lora_r"),
	{ FIELD(lora_dropout), .kind = OPT_FLOAT, .def = "0", .lo = 0, .hi = 0.95,
	  .help = "share of the adapter's inputs dropped in training; no effect with rl" },
	LIST(lora_target_modules, "q_proj,v_proj", "A,B,...",
	     "linear layers that get an adapter, by name: q_proj, k_proj, v_proj, o_proj, "
	     "gate_proj, up_proj, down_proj (Phi: qkv_proj, o_proj, gate_up_proj, down_proj; GLM: "
	     "gate_up_proj); or all-linear"),
	BOOL(lora_target_linear, "false",
	     "all linear layers but the head get an adapter, those of lora_target_modules among "
	     "them"),
	BOOL(use_rslora, "false", "rank-stabilised scale: lora_alpha / sqrt(lora_r)"),
	NUM(loraplus_lr_ratio, "0", 0, 1e6,
	    "LoRA+: the learning rate of the matrices B, as a multiple of that of A (and of all "
	    "else that is trained); 0: the same"),
	BOOL(peft_use_dora, "false",
	     "DoRA: a trained magnitude for each output of a module, the adapter turns the weight; "
	     "dropout is of the adapter's input alone"),
	LIST(lora_modules_to_save, NULL, "A,B,...",
	     "modules trained whole beside the adapters: embed_tokens, lm_head (where the head is "
	     "the "
	     "embedding they become two copies, as PEFT makes them)"),
	LIST(peft_layers_to_transform, NULL, "N,N,...",
	     "the layers that get adapters, from 0; not given: all"),
	LIST(lora_rank_pattern, NULL, "NAME=N,...",
	     "ranks of some kinds of modules in place of lora_r: q_proj=16"),
	LIST(lora_alpha_pattern, NULL, "NAME=N,...",
	     "lora_alpha of some kinds of modules: q_proj=32"),
	STR(peft_init_lora_weights, NULL, "true|loftq|pissa",
	    "how adapters begin: as usual; with loftq so that they hold what 4 bits took from "
	    "the weights (one step of LoftQ, with the base as it is); with pissa as the largest "
	    "singular values of the weights, over a base without them that is written to "
	    "OUTPUT_DIR-pissa/base"),
	STR(lora_model_dir, NULL, "DIR",
	    "adapter to begin with: a run's folder or what PEFT saved, of the same rank, scale and "
	    "modules; not given: a new one"),

	LIST(special_tokens, NULL, "NAME=TOKEN,...",
	     "another bos_token or eos_token of the model's vocabulary; unk_token and pad_token "
	     "have no effect"),

	{ .key = "datasets",
	  .kind = OPT_CUSTOM,
	  .arg = "[{path, type, ...}]",
	  .section = "Data",
	  .help = "training data, JSON, JSONL, CSV or Parquet: path (a file, a pattern or a "
		  "folder), type (alpaca, sharegpt, messages or chat_template, completion, text or "
		  "auto: recognised, the default; or a mapping of field_instruction, field_input, "
		  "field_output, field_system, format), split (train[:100]), data_files, weight, "
		  "field_messages, message_property_mappings and others: docs/datasets.md" },
	{ .key = "test_datasets",
	  .kind = OPT_CUSTOM,
	  .arg = "[{path, type, ...}]",
	  .help = "data that is held out, in the place of val_set_size; the keys are those of "
		  "datasets" },
	NUM(val_set_size, "0", 0, 1e9,
	    "validation split: below 1 a share of the examples, from 1 on their number"),
	INT(sequence_len, "2048", 2, 1048576,
	    "tokens of a row; longer examples are cut at the end"),
	ENUM(excess_length_strategy, "truncate|drop|raise", "truncate",
	     "what happens to a longer example: it is cut at the end, left out, or an error"),
	BOOL(sample_packing, "false",
	     "put several short examples into one row; attention and positions keep them apart"),
	BOOL(train_on_inputs, "false", "learn the prompts too, not only the answers"),
	BOOL(skip_bad_records, "false", "skip bad records, and count them, instead of stopping"),
	STR(dataset_prepared_path, NULL, "DIR",
	    "where the tokens of the data are kept, in place of memory, and used again by runs of "
	    "the same data, tokenizer and template; not given: nothing is kept"),

	{ FIELD(micro_batch_size), .kind = OPT_INT, .def = "1", .lo = 1, .hi = 65536,
	  .section = "Training", .help = "rows computed at once" },
	INT(gradient_accumulation_steps, "1", 1, 65536,
	    "microbatches of one optimizer step, which has at most 65536 rows"),
	LIST(passes, NULL, "[ROWS, ...]",
	     "rows of each microbatch of a step, in order, where they differ: [13, 6, 34, 5]; "
	     "their "
	     "sum is micro_batch_size x gradient_accumulation_steps; with one stage only"),
	{ FIELD(num_epochs), .kind = OPT_FLOAT, .def = "1", .lo = 0, .lo_open = true, .hi = 1e6,
	  .help = "passes over the data; may be a fraction" },
	INT(max_steps, "0", 0, 1e9,
	    "stop after this many optimizer steps; 0: what num_epochs gives"),
	NUM(max_minutes, "0", 0, 1e7,
	    "the run ends after so many minutes as if it had all its steps; 0: no limit"),
	{ FIELD(learning_rate), .kind = OPT_FLOAT, .def = "0.0002", .lo = 0, .lo_open = true,
	  .hi = 10, .help = "the highest learning rate, reached after the warm-up" },
	NAME(lr_scheduler, &names_curve, "cosine", "how the learning rate falls after the warm-up"),
	INT(warmup_steps, "0", 0, 1e9, "steps in which the learning rate rises to its full value"),
	NUM(warmup_ratio, "0", 0, 1,
	    "the same as a share of all steps, rounded down; only one of the two"),
	NUM(cosine_min_lr_ratio, "0", 0, 1, "where the cosine ends, as a share of learning_rate"),
	NUM(lr_min_ratio, "0", 0, 1,
	    "where polynomial and warmup_stable_decay end, as a share of learning_rate"),
	{ FIELD(lr_num_cycles), .kind = OPT_FLOAT, .def = "1", .lo = 1, .hi = 10000,
	  .help = "cosines of cosine_with_restarts" },
	POS(lr_power, "1", "exponent of polynomial; 1: a straight line"),
	{ FIELD(lr_decay_ratio), .kind = OPT_FLOAT, .def = "0.1", .lo = 0, .lo_open = true, .hi = 1,
	  .help = "share of the steps after the warm-up in which warmup_stable_decay falls" },
	NAME(optimizer, &names_optimizer, "adamw", "how parameters follow from gradients"),
	{ FIELD(adam_beta1), .kind = OPT_FLOAT, .def = "0.9", .lo = 0, .hi = 0.999999,
	  .help = "decay of the first moment" },
	{ FIELD(adam_beta2), .kind = OPT_FLOAT, .def = "0.999", .lo = 0, .hi = 0.9999999,
	  .help = "decay of the second moment" },
	{ FIELD(adam_epsilon), .kind = OPT_FLOAT, .def = "1e-08", .lo = 0, .lo_open = true, .hi = 1,
	  .help = "added to the root of the second moment" },
	NUM(weight_decay, "0", 0, 10,
	    "decoupled weight decay (of sgd: L2) of matrices; norms, biases and DoRA's magnitudes "
	    "have none"),
	NUM(momentum, "0", 0, 0.999999, "momentum of sgd and muon"),
	NUM(max_grad_norm, "1", 0, OPT_MAX,
	    "gradients are scaled down to this norm over all parameters; 0: never"),
	NUM(neftune_noise_alpha, "0", 0, 1e6,
	    "NEFTune: noise on the embeddings in training, alpha / sqrt(length of the sequence * "
	    "width); 5 to 15 are usual, 0 is none"),
	NUM(router_aux_loss_coef, "-1", -1, 1e6,
	    "of experts: factor on the loss that balances their use (docs/experts.md); -1: that of "
	    "the "
	    "model's configuration, if that has output_router_logits"),
	NUM(router_z_loss_coef, "0", 0, 1e6,
	    "of experts: factor on the mean square of the log-sum-exp of router logits"),
	NAME(rl, &names_prefer, "none", "what is learned from preferences (docs/preferences.md)"),
	POS(rl_beta, "0.1", "of preferences: the larger, the nearer to the reference it stays"),
	NUM(orpo_alpha, "0", 0, 1e6, "rl: orpo: rl_beta, as axolotl calls it there; 0: not given"),
	{ FIELD(dpo_label_smoothing), .kind = OPT_FLOAT, .def = "0", .lo = 0, .hi = 0.5,
	  .help = "rl: dpo: the share of pairs that are taken to be the wrong way round" },
	NUM(rpo_alpha, "0", 0, 1e6,
	    "rl: dpo: times the loss of the chosen answers' tokens, which is added (RPO)"),
	NUM(cpo_alpha, "1", 0, 1e6,
	    "rl: simpo: times the loss of the chosen answers' tokens, which is added as TRL does; "
	    "0: SimPO alone"),
	NUM(simpo_gamma, "0.5", 0, 1e6, "rl: simpo: margin that rewards should have"),
	NUM(kto_desirable_weight, "1", 0, 1e6, "rl: kto: weight of wanted answers"),
	NUM(kto_undesirable_weight, "1", 0, 1e6, "rl: kto: weight of unwanted answers"),
	INT(max_nonfinite_steps, "5", 1, 1e6,
	    "stop after this many steps in a row whose loss or gradient is not a finite number "
	    "(each is skipped)"),
	INT(seed, "42", 0, OPT_MAX,
	    "fixes initial adapter weights, dropout and the order of the data"),
	INT(data_seed, NULL, 0, OPT_MAX,
	    "order of the data and validation split only; not given: seed"),

	SECTION("Output", output_dir, OPT_STR, NULL, "DIR",
		"the run's folder: adapter, metrics, pictures, checkpoints"),
	BOOL(overwrite_output_dir, "false", "replace the earlier run in output_dir"),
	STR(resume_from_checkpoint, NULL, "DIR",
	    "continue from this checkpoint; latest or true: the newest in output_dir"),
	ENUM(auto_resume, "auto|true|false", "auto",
	     "without the two keys above, a run in output_dir that was cut off goes on from its "
	     "newest checkpoint, or begins again where there is none; its configuration must be "
	     "the same but for machines, plan and output; auto: with several machines"),
	INT(save_steps, "500", 0, 1e9, "steps between checkpoints; 0: only at the end"),
	INT(saves_per_epoch, "0", 0, 1e6,
	    "checkpoints in each pass over the data, in the place of save_steps"),
	STR(save_minutes, "auto", "auto|N",
	    "a checkpoint after so many minutes without one, in the place of the one that was made "
	    "for that before; auto: 10, and "
	    "more where saving would cost above 2 % of the time; 0: never"),
	INT(save_total_limit, "0", 0, 1e6, "checkpoints kept, the newest; 0: all"),
	INT(eval_steps, "0", 0, 1e9,
	    "steps between evaluations on the validation split; 0: before and after training"),
	INT(evals_per_epoch, "0", 0, 1e6,
	    "evaluations in each pass over the data, in the place of eval_steps"),
	INT(early_stopping_patience, "0", 0, 1e6,
	    "stop after so many evaluations in a row without a lower loss; 0: never"),
	BOOL(load_best_model_at_end, "false",
	     "the result is the model of the evaluation with the lowest loss, whose checkpoint is "
	     "kept beside those of save_total_limit"),
	INT(logging_steps, "1", 1, 1e9,
	    "steps between lines on the screen; metrics.jsonl has every step"),
	LIST(sample_prompts, NULL, "[TEXT, ...]",
	     "prompts that the trained model answers, through all stages, after training: shown, "
	     "and kept in "
	     "output_dir/samples.jsonl"),
	NUM(sample_temperature, "0", 0, 100,
	    "their tokens are drawn at this temperature, from 'seed', as by 'heteroshard generate "
	    "--seed'; 0: always the likeliest token"),
	{ FIELD(sample_top_p), .kind = OPT_FLOAT, .def = "1", .lo = 0, .lo_open = true, .hi = 1,
	  .help = "only among the likeliest tokens that have this probability together" },
	INT(sample_max_tokens, "64", 1, 1048576, "longest answer to a sample prompt, in tokens"),
	INT(sample_steps, "0", 0, 1e9,
	    "steps between answers to the sample prompts; 0: only after training"),
	BOOL(tensorboard, "true", "write TensorBoard files into output_dir/tensorboard"),
	STR(notify, NULL, "URL",
	    "where to POST a JSON object when the run ends, in whatever way: text, content (the "
	    "same "
	    "text), status, run, step, loss, val_loss, seconds, error; for a chat's webhook"),
	STR(mlflow_experiment_name, NULL, "NAME",
	    "write the numbers of the run for MLflow into output_dir/mlruns, as an experiment of "
	    "this name; not given: nothing is written"),
	STR(mlflow_run_name, NULL, "NAME",
	    "name of the run in MLflow; not given: the last part of output_dir"),
	STR(wandb_project, NULL, "NAME",
	    "write the numbers of the run for Weights & Biases into output_dir/wandb, as an "
	    "offline run of this project, which 'wandb sync' sends; not given: nothing is written"),
	STR(wandb_entity, NULL, "NAME", "user or team that it is sent to; not given: wandb's own"),
	STR(wandb_name, NULL, "NAME",
	    "name of the run there; not given: the last part of output_dir"),
	BOOL(trace, "true",
	     "write trace.json, the last steps on a time axis, for Perfetto or chrome://tracing"),
	BOOL(visualize, "true", "draw loss.png and architecture.png"),
	{ FIELD(visualization_format), .kind = OPT_STR, .def = "png", .arg = "png|svg|pdf|mmd",
	  .help = "additional format of the architecture picture; png, svg, dot and mmd are always "
		  "written" },
	ENUM(log_level, "debug|info|warning|error", "info",
	     "least severity of the messages that are shown"),

	SECTION("Device and plan", device, OPT_STR, "auto", "DEVICE",
		"backend or backend:index, as 'heteroshard devices' lists them; auto: the best one "
		"here"),
	STR(plan, NULL, "FILE", "plan.json to execute; not given: one is made"),
	STR(profile, NULL, "FILE",
	    "profile.json to plan with; auto: devices and links are measured; none: nothing is "
	    "measured or predicted, and the layers are divided evenly unless plan or shard_plan is "
	    "given; not given: auto, with a shard_plan none ('heteroshard plan' measures then "
	    "too)"),
	NAME(planner, &names_planner, "best", "who makes the plan"),
	NUM(memory_reserve, "0.5", 0, 1e6, "GiB that stay free on every device"),
	NAME(schedule, &names_schedule, "auto", "order of forward and backward passes"),
	INT(interleave, "2", 1, 64,
	    "most chunks of the model that a worker holds, with a schedule that interleaves them"),
	ENUM(shard, "auto|none|optimizer|parameters", "auto",
	     "training state that the workers of a group share out, by state_share in shard_plan; "
	     "optimizer: optimizer state and float32 copies of the parameters; parameters: the "
	     "weights too, frozen ones as well, which are gathered chunk by chunk (schedule "
	     "breadth_first); auto: the first of none, optimizer, parameters that fits into "
	     "memory"),
	LIST(offload, "auto", "[WHAT, ...]",
	     "what devices with a memory of their own have in that of their host; activations: "
	     "the input of each chunk, from which its forward pass is repeated; optimizer: "
	     "optimizer state and float32 copies of matrices, which the host updates; parameters: "
	     "the weights, which come layer by layer (with activations: schedule breadth_first); "
	     "experts: frozen experts of a mixture, of which those come that tokens chose; "
	     "auto: the least that makes the job fit; none"),
	NUM(expert_cache, "0", 0, 1e6,
	    "GiB on a device for experts that 'offload: experts' has in the memory of its host; 0: "
	    "as large as all experts of two layers"),
	ENUM(reduce_order, "auto|exact|fast", "auto",
	     "order in which the gradients of microbatches are added; exact: the same bits for "
	     "every group and share; fast: less memory and fewer bytes; auto: exact where its "
	     "memory fits and its step is predicted to take at most 5 % longer; without "
	     "measurements exact for adapters, fast for all parameters"),
	NAME(reduce, &names_reduce, "auto", "how the workers of a group add up their gradients"),
	ENUM(reduce_dtype, "float32|bfloat16", "float32",
	     "dtype of the gradients that the workers of a group send each other; bfloat16: half "
	     "the bytes, and only with reduce_order: fast"),
	INT(reduce_parts, "0", 0, SCHED_MAX_PARTS,
	    "parts in which a group adds up the gradients of its layers, each while the next "
	    "layers are computed; 0: as many as have 8 MiB, at most 16"),

	{ FIELD(transport), .kind = OPT_NAME, .names = &names_transport, .def = "auto",
	  .section = "Cluster",
	  .help = "links between workers (auto: mpi under mpirun or srun, else shm between "
		  "processes of one machine and user, and tls)" },
	ENUM(wire_dtype, "bfloat16|float32|float16", "bfloat16",
	     "dtype of activations and gradients on the links"),
	{ FIELD(peer_timeout), .kind = OPT_FLOAT, .def = "20", .lo = 0, .lo_open = true,
	  .hi = 86400, .help = "seconds of silence after which a peer counts as lost" },
	NUM(stall_timeout, "0", 0, 864000,
	    "seconds after which a worker that is connected but does not advance counts as lost; "
	    "0: "
	    "10 times the longest of the last steps, at least 30 s (600 s in the first step)"),
	{ FIELD(join_timeout), .kind = OPT_FLOAT, .def = "300", .lo = 0, .lo_open = true,
	  .hi = 864000, .help = "seconds to wait for workers to join" },
	INT(min_workers, "0", 0, 4096,
	    "a job without shard_plan starts, and 'heteroshard up' succeeds, with so many of the "
	    "workers; 0: all that are listed, with 'workers: all' one. After a loss a job goes on "
	    "with at least so many; 0: with as many as the model needs"),
	NUM(rejoin_timeout, "600", 0, 864000,
	    "seconds to wait, when too few workers are left to go on, for one that comes back; "
	    "then "
	    "the job saves and ends"),
	NUM(coordinator_timeout, "600", 0, 864000,
	    "seconds that a worker which lost its coordinator waits for it, in the same job or "
	    "another one; 0: it ends"),
	NUM(rebalance_gain, "0.1", 0, 100,
	    "a worker that comes back gets work when the predicted step is shorter by more than "
	    "this share (without measurements always); work moves while the job runs when the next "
	    "100 steps and the moving take less time by more than this share"),
	ENUM(rebalance, "auto|off|suggest|on", "auto",
	     "whether work moves when workers became slower or faster than when they were "
	     "measured: "
	     "first the shares of a group, then layers; suggest: it is only said. auto: on where a "
	     "planner made the plan, suggest with 'shard_plan' and 'plan'; without measurements "
	     "(profile: none) slow workers are only named"),
	INT(snapshot_steps, "0", 0, 1e9,
	    "steps from one snapshot of the training state of all workers to the next; after a "
	    "loss the job goes back to the newest; 0: as often as takes at most 2 % of the time"),
	ENUM(snapshot_to, "auto|memory|disk|off", "auto",
	     "where snapshots are kept; memory: of the coordinator, twice the size of a "
	     "checkpoint; "
	     "disk: as checkpoints; off: there are none, and after a loss the job goes back to the "
	     "newest checkpoint. auto: memory, where that takes at most half of what is free"),
	BOOL(insecure, "false",
	     "allow links without keys and encryption on other addresses than loopback: anyone who "
	     "reaches the port can join"),
	ENUM(encrypt, "link|mesh", "link",
	     "mesh: a link between two machines of the mesh that reach each other directly is "
	     "encrypted by WireGuard alone, and proves the keys of both ends as always; after "
	     "'heteroshard mesh --apply' with this key"),
	INT(links_per_peer, "1", 1, NET_CONNECTIONS,
	    "connections of a link between two machines, each with a thread at both ends; more "
	    "than 1 where the network is faster than one core encrypts; a link has as many as the "
	    "end that wants more; inside a mesh with encrypt: mesh it has one"),
	CUSTOM(mesh, "{range, port, ...}",
	       "a WireGuard mesh between the machines ('heteroshard mesh', docs/mesh.md): range of "
	       "addresses inside it (10.77.0.0/24; a list of one IPv4 and one IPv6 range), port "
	       "(51820, UDP, on every machine), hub (id of the machine that passes on what is "
	       "between two that cannot reach each other; not given: the first that both reach), "
	       "mtu (1420), interface (hsmesh), key_file (the private key on every machine: "
	       "/etc/wireguard/heteroshard.key), dir (mesh: where the files are written)"),
	STR(key_file, NULL, "FILE",
	    "this machine's private key; not given: where 'heteroshard keygen' puts it"),
	STR(cache_dir, NULL, "DIR",
	    "where a worker keeps the layers that it received; not given: ~/.cache/heteroshard"),
	NUM(cache_limit_gib, "100", 0, 1e6,
	    "largest size of that cache; after a job the files unused for the longest time are "
	    "removed, unless another job runs; 0: no limit"),
	CUSTOM(coordinator, "{hostname, ip, ...}",
	       "the machine that owns the job: hostname, ip, port (9998), device (auto), "
	       "public_key, "
	       "listen (all); threads, memory and nice of its own device, and the four of the "
	       "mesh, as of a worker"),
	CUSTOM(workers, "[{id, ip, ...}]",
	       "the others: id, hostname, ip, port (9999), device (auto), num_gpus (N above 1: "
	       "workers ID.0 to ID.(N-1), with N ports and devices counted up), public_key, "
	       "listen (all: every address of the machine, where there are keys; ip: only its ip), "
	       "spare (true: it joins and holds nothing until another one is lost), "
	       "ssh (user@host:port, for 'heteroshard up'; without ip and hostname it is an "
	       "invited machine), threads (its part of the machine's), memory (GiB, on the "
	       "processor), nice; for the mesh wg_public_key ('heteroshard mesh key'), endpoint "
	       "(host:port, or a list: where others reach it; none: behind a router), mesh_ip "
	       "(its address inside), family (ipv4, ipv6 or both: what it has); "
	       "or "
	       "names of invited machines ('heteroshard peers'), or all: those that are there"),
	CUSTOM(shard_plan, "[{id, share, state_share, experts, start, end, is_last}]",
	       "layers [start, end) of each worker in order (is_last is optional); id of a worker "
	       "(with num_gpus: all its cards in a row), or local for the coordinator's device; a "
	       "list of ids is a group that holds the same layers, and share says how many parts "
	       "of the microbatches each of them gets (not given: by speed), state_share which "
	       "fractions of the training state they store (not given: by memory); experts: "
	       "workers that have the experts of these layers and nothing else, by speed or as "
	       "'box2=0-31' says (docs/experts.md)"),
	CUSTOM(training, "{visualize, ...}",
	       "as in hetero_config.json: visualize, visualization_format, log_level"),
	CUSTOM(version, "TEXT", "as in hetero_config.json; not used"),
};
/* clang-format on */

const struct opt *config_rows(size_t *n_p)
{
	*n_p = ARRAY_LEN(rows);
	return rows;
}

void config_reference(bool markdown, struct buf *out)
{
	if (!markdown) {
		buf_adds(out, "A configuration is one YAML or JSON file of these keys. On the "
			      "command line, key=value behind the file\n"
			      "changes one of them: heteroshard train job.yaml learning_rate=1e-4 "
			      "max_steps=100\n\n");
		opt_help(rows, ARRAY_LEN(rows), false, out);
		return;
	}
	/* clang-format off: the lines as they are printed */
	buf_adds(out, "# Configuration\n"
		      "\n"
		      "After this page you know every key of a configuration file, its default and "
		      "its range.\n"
		      "\n"
		      "A configuration is one YAML or JSON file. `key=value` after the file on the "
		      "command line changes\n"
		      "single keys: `heteroshard train job.yaml learning_rate=1e-4 max_steps=100`. "
		      "Unknown keys are errors,\n"
		      "all named at once. Keys of axolotl that change nothing here "
		      "(`flash_attention`, `tf32`, `bf16:\n"
		      "auto`, empty `wandb_*` and the like) are ignored, and named. Paths are "
		      "relative to the working\n"
		      "directory. `heteroshard help config` prints the same reference, and "
		      "`heteroshard help\n"
		      "config --markdown` prints this page; `make lint` checks that it is up to "
		      "date.\n"
		      "\n"
		      "`base_model`, `datasets` and `output_dir` are required; every other key has "
		      "a default.\n"
		      "\n"
		      "```yaml\n"
		      "base_model: models/SmolLM2-135M-Instruct\n"
		      "adapter: qlora\n"
		      "lora_r: 16\n"
		      "lora_alpha: 32\n"
		      "lora_target_modules: [q_proj, k_proj, v_proj, o_proj]\n"
		      "datasets:\n"
		      "  - path: data/train.jsonl\n"
		      "    type: alpaca\n"
		      "val_set_size: 0.05\n"
		      "gradient_accumulation_steps: 4\n"
		      "max_steps: 100\n"
		      "learning_rate: 2e-4\n"
		      "warmup_steps: 10\n"
		      "cosine_min_lr_ratio: 0.1\n"
		      "output_dir: runs/first\n"
		      "```\n"
		      "\n"
		      "For several machines see the section Cluster. A `hetero_config.json` works "
		      "as it is; the training\n"
		      "keys are given after it (`heteroshard train hetero_config.json "
		      "base_model=... datasets=...\n"
		      "output_dir=...`).\n"
		      "\n");
	/* clang-format on */
	opt_markdown(rows, ARRAY_LEN(rows), out);
}
