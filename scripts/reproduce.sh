#!/usr/bin/env bash
# A benchmark's tables and figures anew: bash scripts/reproduce.sh NAME [--workers 4], of configs/benchmarks/NAME.yaml.
# Killed, it goes on where it stopped. paper_tiny needs nothing else; field and smollm2 read the folder OFMU_SHARED, which
# holds data/ and models/; smollm2 takes hours, runs smollm2_facts too, and writes their pages; paper_full is for four H100s.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
export OFMU_SHARED="${OFMU_SHARED:-$PWD/../shared}" OFMU_LANGUAGE="${OFMU_LANGUAGE:-logs/language}"
if [ "$1" != smollm2 ]; then
    exec python -m ofmu_pl benchmark --config "configs/benchmarks/$1.yaml" "${@:2}"
fi
python scripts/language_data.py "$OFMU_LANGUAGE"
python scripts/make_smollm2.py "$OFMU_LANGUAGE/SmolLM2-135M-Instruct"
python scripts/rwku_data.py "$OFMU_LANGUAGE/SmolLM2-135M-Instruct" "$OFMU_LANGUAGE/facts"
for name in smollm2 smollm2_facts; do
    python -m ofmu_pl benchmark --config "configs/benchmarks/$name.yaml" "${@:2}"
    python scripts/results.py "$name" "logs/$name"
done
