#!/usr/bin/env bash
# From nothing to what two methods forget, what relearning brings back, and a page about it; nothing is downloaded.
# Steps whose output is there already are skipped; SEED=1 bash scripts/quickstart.sh runs another seed.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
python -m ofmu_pl quickstart --seed "${SEED:-0}"
