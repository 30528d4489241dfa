#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A new planner, schedule, way of adding up, optimizer, learning-rate curve and model family, each
# one file and one row in a scratch copy of src: help lists them, a configuration takes them, a
# run uses them, and the tests that go over all rows try them. Only the new files and the six
# registries are compiled; the rest is linked from the build. Prints TAP.
. "$(dirname "$0")/support/tap.sh"
build=${HS_BUILD:-$PWD/build}
echo "1..19"

cp -r src "$tmp/src"
file() { { echo '/* SPDX-License-Identifier: Apache-2.0 */'; cat; } >"$tmp/src/$1"; }
file plan/planner_trial.c <<'END'
#include "plan/plan.h"
static int plan_trial(const struct profile *p, const struct plan_options *o, struct plan *out,
		      struct err *e)
{
	int rc = planner_even.plan(p, o, out, e);
#ifdef BROKEN
	if (rc == 0)
		out->first[0] = 1;
#endif
	return rc;
}
const struct planner planner_trial = { .name = "trial", .help = "a trial", .plan = plan_trial };
END
file sched/sched_trial.c <<'END'
#include "sched/sched.h"
static void order(int stages, int chunks, int microbatches, int stage, struct instr *out)
{
	sched_gpipe.order(stages, chunks, microbatches, stage, out);
#ifdef BROKEN
	out[0].microbatch = microbatches - 1;
#endif
}
static int in_flight(int stages, int chunks, int microbatches, int stage)
{
	return sched_gpipe.in_flight(stages, chunks, microbatches, stage);
}
const struct sched sched_trial = {
	.name = "trial", .help = "a trial", .order = order, .in_flight = in_flight
};
END
file sched/reduce_trial.c <<'END'
#include "sched/reduce.h"
static uint32_t numbers(const struct reduction *r) { return reducer_tree.numbers(r); }
static uint32_t receives(const struct reduction *r) { return reducer_tree.receives(r); }
static uint32_t phases(const struct reduction *r) { return reducer_tree.phases(r); }
static int ready(struct reduction *r, size_t segment, uint32_t phase, struct err *e)
{
	return reducer_tree.ready(r, segment, phase, e);
}
static int phase(struct reduction *r, size_t segment, uint32_t p, struct err *e)
{
	return reducer_tree.phase(r, segment, p, e);
}
static void seconds(const struct reduce_links *l, double *begin_s_p, double *finish_s_p)
{
	reducer_tree.time(l, begin_s_p, finish_s_p);
}
const struct reducer reducer_trial = { .name = "trial", .help = "a trial", .numbers = numbers,
				       .receives = receives, .phases = phases, .ready = ready,
				       .phase = phase, .time = seconds };
END
file optim/optim_trial.c <<'END'
#include "optim/optim.h"
extern const struct optimizer optim_sgd;
static int update(const struct optimizer *o, struct param *p, const struct optim_config *c,
		  const struct optim_step *s, const struct optim_work *w, struct err *e)
{
	(void)o;
	struct optim_step mine = *s;
#ifdef BROKEN
	mine.lr = -mine.lr;
#endif
	return optim_sgd.update(&optim_sgd, p, c, &mine, w, e);
}
static int states(const struct optimizer *o, const char *name, int ndim, const int64_t *dim,
		  struct optim_state s[PARAM_STATES])
{
	(void)o, (void)name;
	s[0] = optim_state_f32("trial_state", (uint64_t)(dim[0] * (ndim == 2 ? dim[1] : 1)));
	return 1;
}
static const char *const aliases[] = { "trial_torch", NULL };
const struct optimizer optim_trial = { .name = "trial", .help = "a trial", .aliases = aliases,
				       .states = states, .update = update };
END
file optim/lr_trial.c <<'END'
#include "optim/optim.h"
static double share(double at, const struct lr_shape *s)
{
	(void)at, (void)s;
#ifdef BROKEN
	return 2;
#endif
	return 0.5;
}
const struct lr_curve lr_trial = { .name = "trial", .help = "a trial", .share = share };
END
file model/model_trial.c <<'END'
#include "model/model.h"
static int read_trial(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	(void)j, (void)where, (void)c, (void)e;
#ifdef BROKEN
	c->rope_scale[0] = 0.0f / 0.0f;
#endif
	return 0;
}
static const char *const types[] = { "trial", NULL };
static const char *const keys[] = { "attention_bias", "mlp_bias", NULL };
const struct model_family model_trial = {
	.name = "trial", .help = "a trial", .model_types = types, .keys = keys, .read = read_trial
};
END
echo 'PLANNER(trial)' >>"$tmp/src/plan/planner.def"
echo 'SCHED(trial)' >>"$tmp/src/sched/sched.def"
echo 'REDUCER(trial)' >>"$tmp/src/sched/reduce.def"
echo 'OPTIM(trial)' >>"$tmp/src/optim/optim.def"
echo 'LR(trial)' >>"$tmp/src/optim/lr.def"
echo 'MODEL(trial)' >>"$tmp/src/model/model.def"

# The flags of the build; the copy's headers and rows go first.
read -r -a flags <"$build/.flags"
compile() { # compile FILE.c OBJECT [FLAG ...]
	local from=$1 to=$2
	shift 2
	"${flags[0]}" -I"$tmp/src" "${flags[@]:1}" -w -Werror=incompatible-pointer-types \
		-O0 "$@" -c "$tmp/src/$from" -o "$tmp/$to.o"
}
status=0
{
	for f in plan/planners sched/sched sched/reducers optim/optim optim/lr model/model; do
		compile $f.c "${f//\//_}" || status=1
	done
	for f in plan/planner sched/sched sched/reduce optim/optim optim/lr model/model; do
		compile ${f}_trial.c "${f##*/}_trial" || status=1
		compile ${f}_trial.c "${f##*/}_broken" -DBROKEN || status=1
	done
} >"$tmp/out" 2>&1
good="$tmp/*_trial.o" broken="$tmp/*_broken.o"
registry=$(ls "$tmp"/*.o | grep -vE '_(trial|broken)\.o$')
link() { # link OUT OBJECT ...: the objects stand in front of the library's
	local to=$1
	shift
	# shellcheck disable=SC2086
	"${flags[0]}" "$@" $registry "$build/libheteroshard.a" "${flags[@]:1}" -lcmocka \
		-o "$tmp/$to"
}
support=$(ls "$build"/tests/support/*.o)
{
	# shellcheck disable=SC2086
	link heteroshard $good "$build/cli/main.o" || status=1
	for t in test_sched test_rows test_plan_files; do
		# shellcheck disable=SC2086
		link $t $good "$build/tests/$t.o" $support || status=1
	done
	for t in test_sched test_rows; do
		# shellcheck disable=SC2086
		link ${t}_broken $broken "$build/tests/$t.o" $support || status=1
	done
	# planners are judged by the schedules, so only the planner is wrong there
	# shellcheck disable=SC2086
	link test_plan_files_broken "$tmp/planner_broken.o" "$tmp/sched_trial.o" \
		"$tmp/reduce_trial.o" \
		"$tmp/optim_trial.o" "$tmp/lr_trial.o" "$tmp/model_trial.o" \
		"$build/tests/test_plan_files.o" $support || status=1
} >>"$tmp/out" 2>&1
[ $status -eq 0 ]
check "six files and six rows are all that is needed to build"

hs=$tmp/heteroshard
for key in planner schedule reduce optimizer lr_scheduler base_model; do
	"$hs" help config --markdown >"$tmp/out" 2>&1 &&
		grep "^| \`$key\`" "$tmp/out" | grep -q trial
	check "help config lists the new row under $key"
done
"$hs" plan --help >"$tmp/out" 2>&1 &&
	[ "$(tr -s '\n ' ' ' <"$tmp/out" | grep -o ', trial' | wc -l)" = 2 ]
check "plan --help lists planner and schedule"

mkdir "$tmp/model"
cp tests/golden/models/smollm2/* "$tmp/model"
sed -i 's/"model_type": "llama"/"model_type": "trial"/' "$tmp/model/config.json"
echo '{"text": "one two three four five six seven eight"}' >"$tmp/data.jsonl"
cat >"$tmp/job.yaml" <<END
base_model: $tmp/model
datasets: [{path: $tmp/data.jsonl, type: text}]
output_dir: $tmp/run
planner: trial
schedule: trial
optimizer: trial_torch
lr_scheduler: trial
sequence_len: 16
max_steps: 2
learning_rate: 0.001
device: cpu
visualize: false
cache_dir: $tmp/cache
END
XDG_CACHE_HOME=$tmp/cache "$hs" train "$tmp/job.yaml" >"$tmp/out" 2>&1
check "a run uses them"
grep -q '"planner": "trial"' "$tmp/run/plan.json" &&
	grep -q '"schedule": "trial"' "$tmp/run/plan.json"
check "its plan is the new planner's, in the new schedule"
grep -q '"learning_rate": *0.0005' "$tmp/run/metrics.jsonl"
check "its learning rate is that of the new curve"
grep -q 'trial_state' "$tmp"/run/checkpoints/*/optimizer.safetensors
check "its checkpoint has the new optimizer's state"
"$hs" train "$tmp/job.yaml" optimizer=none >"$tmp/out" 2>&1
[ $? -eq 2 ] && grep -q 'allowed are: adamw, sgd, .*, trial' "$tmp/out"
check "errors name the new row"

for t in test_sched test_rows test_plan_files; do
	HS_SEED=1 "$tmp/$t" >"$tmp/out" 2>&1
	check "$t passes with the new rows"
done
HS_SEED=1 "$tmp/test_sched_broken" >"$tmp/out" 2>&1
[ $? -ne 0 ]
check "test_sched finds a mistake in the new schedule"
HS_SEED=1 CMOCKA_MESSAGE_OUTPUT=TAP "$tmp/test_rows_broken" >"$tmp/out" 2>&1
[ "$(grep -cE '^not ok [0-9]+ (- )?(families|optimizers|curves)' "$tmp/out")" = 3 ]
check "test_rows finds mistakes in the new optimizer, curve and family"
HS_SEED=1 "$tmp/test_plan_files_broken" >"$tmp/out" 2>&1
grep -q "planner 'trial'" "$tmp/out"
check "test_plan_files finds a mistake in the new planner"
exit $failed
