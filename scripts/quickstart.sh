#!/usr/bin/env bash
# From nothing to what two methods forget, what relearning brings back, and a page about it; nothing is downloaded.
# Steps whose output is there already are skipped; SEED=1 bash scripts/quickstart.sh runs another seed.
set -euo pipefail
cd "$(dirname "$0")/.."
before=$PATH
source scripts/venv.sh
PATH=$before "$VENV/bin/python" -m ofmu_pl quickstart --seed "${SEED:-0}"  # so that it prints what runs in this shell
