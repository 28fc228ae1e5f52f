#!/usr/bin/env bash
# Real TOFU on a tiny Llama, at the field's length. OFMU_SHARED is the folder with data/tofu and models/.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
export OFMU_SHARED="${OFMU_SHARED:-$PWD/../shared}"
python -m ofmu_pl benchmark --config configs/benchmarks/field.yaml "$@"
