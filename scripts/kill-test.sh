#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kills or stops each role of a job (coordinator, first, middle, last worker) at random moments, and
# counts what must never follow: a hang, a half-written checkpoint, an orphaned process, an error
# that does not name the process that was lost. `make test` runs a small form of it.
#   scripts/kill-test.sh [KILLS-OF-EACH-ROLE]     50 unless given: about ten minutes
#   HS_SEED=1                                     the seed of the moments
set -eu
cd "$(dirname "$0")/.."
make -s build/heteroshard build/tests/test_train_kill
HS_SEED=${HS_SEED:-$RANDOM} HS_KILLS=$((4 * ${1:-50})) HS_ONLY=killed_at_random_moments \
	build/tests/test_train_kill
