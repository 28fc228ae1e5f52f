#!/usr/bin/env bash
# From nothing to an unlearned language model and a page about what happened, with no download of data or models.
# Steps whose model is there already are skipped; SEED=1 bash scripts/quickstart.sh runs another seed.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
python -m ofmu_pl quickstart --seed "${SEED:-0}"
