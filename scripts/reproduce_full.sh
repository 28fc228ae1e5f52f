#!/usr/bin/env bash
# The paper's models and settings, for four H100s; never run. OFMU_PROBES and OFMU_WMDP: see the configuration's head.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
python -m ofmu_pl benchmark --config configs/benchmarks/paper_full.yaml "$@"
