#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kills or stops each role of a job (coordinator, first, middle, last worker) at random moments, and counts what must not be left behind: hangs,
# torn checkpoints, processes without a parent, errors that do not say who it was. The small form of it is part of `make test`.
#   scripts/kill-test.sh [KILLS-OF-EACH-ROLE]     50 unless said otherwise: about ten minutes
#   HS_SEED=1                                     other moments
set -eu
cd "$(dirname "$0")/.."
make -s build/heteroshard build/tests/test_train_kill
HS_SEED=${HS_SEED:-$RANDOM} HS_KILLS=$((4 * ${1:-50})) HS_ONLY=killed_at_random_moments build/tests/test_train_kill
