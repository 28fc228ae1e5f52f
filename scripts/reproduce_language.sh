#!/usr/bin/env bash
# What the language benchmarks found (docs/results/smollm2.md), anew; it may be stopped and started again.
#   OFMU_SHARED=FOLDER bash scripts/reproduce_language.sh    # the folder holds data/lume, knowundo, mmlu, tofu and models
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
export OFMU_SHARED="${OFMU_SHARED:-../shared}" OFMU_LANGUAGE="${OFMU_LANGUAGE:-logs/language}"
python scripts/language_data.py "$OFMU_LANGUAGE"
python scripts/make_smollm2.py "$OFMU_LANGUAGE/SmolLM2-135M-Instruct"
python scripts/rwku_data.py "$OFMU_LANGUAGE/SmolLM2-135M-Instruct" "$OFMU_LANGUAGE/facts"
for name in smollm2 smollm2_facts; do
    python -m ofmu_pl benchmark --config "configs/benchmarks/$name.yaml" --workers "${WORKERS:-1}"
    python scripts/results.py "$name" "logs/$name"
done
