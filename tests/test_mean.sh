#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The short form of scripts/mean.sh: what a careless user types destroys nothing.
exec "$(dirname "$0")/../scripts/mean.sh" --short
