#!/usr/bin/env bash
# Every table and figure of the paper at tiny scale; nothing to download.
# Killed, it goes on where it stopped.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
python -m ofmu_pl benchmark --config configs/benchmarks/paper_tiny.yaml "$@"
