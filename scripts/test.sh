#!/usr/bin/env bash
# Lint, types and the test suite on a fresh machine: bash scripts/test.sh [pytest options]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
ruff check .
ruff format --check .
mypy --cache-dir "$VENV/mypy" & types=$!  # beside the tests; what it knows of torch is kept as long as the environment
# How the files are shared between two workers: tests/helpers/workers.py
OMP_NUM_THREADS=1 python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder "$@"
wait "$types"
