#!/usr/bin/env bash
# A benchmark's runs anew: bash scripts/reproduce.sh NAME [--workers 4], of configs/benchmarks/NAME.yaml. Killed, it goes on
# where it stopped. paper_tiny needs nothing else; field, own-data and those of smollm2 read the folder OFMU_SHARED, which holds
# data/ and models/ (smollm2_example data/lume alone). smollm2 takes hours, smollm2_facts, too; paper_full is for four H100s.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
export OFMU_SHARED="${OFMU_SHARED:-$PWD/../shared}" OFMU_LANGUAGE="${OFMU_LANGUAGE:-logs/language}"
case "$1" in
    own-data) python scripts/own_data.py "$OFMU_LANGUAGE/own" ;;
    smollm2*)
        python scripts/language_data.py "$OFMU_LANGUAGE" --few "$([ "$1" = smollm2_example ] && echo true || echo false)"
        python scripts/make_smollm2.py "$OFMU_LANGUAGE/SmolLM2-135M-Instruct"
        [ "$1" != smollm2_facts ] || python scripts/rwku_data.py "$OFMU_LANGUAGE/SmolLM2-135M-Instruct" "$OFMU_LANGUAGE/facts"
        ;;
esac
exec python -m ofmu_pl benchmark --config "configs/benchmarks/$1.yaml" "${@:2}"
