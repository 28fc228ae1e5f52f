#!/usr/bin/env bash
# Lint, types and the test suite on a fresh machine: bash scripts/test.sh [pytest options]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
ruff check .
ruff format --check .
mypy
python -m pytest "$@"
