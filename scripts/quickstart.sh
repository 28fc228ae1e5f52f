#!/usr/bin/env bash
# From nothing to an unlearned language model and a page about what happened, with no download of data or models.
# Steps whose model is there already are skipped; SEED=1 bash scripts/quickstart.sh runs another seed.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
SEED="${SEED:-0}"
BENCHMARK=quickstart
[ "$SEED" = 0 ] || BENCHMARK="quickstart-seed$SEED"
RUNS="logs/$BENCHMARK"

run() {  # METHOD OPTIONS...: print the command, run it unless its model is there
    local method="$1"
    shift
    local command=(python -m ofmu_pl fit "$@" --benchmark "$BENCHMARK" --method "$method" --seed_everything "$SEED")
    echo
    echo "\$ ${command[*]}"
    if [ -d "$RUNS/$method/latest/hf" ]; then
        echo "  done before: $RUNS/$method/latest/hf (delete $RUNS/$method to run it again)"
    else
        "${command[@]}"
    fi
}

run target --config configs/authors_finetune.yaml
run retrained --config configs/authors_finetune.yaml --model.split retain
run ofmu --config configs/authors.yaml \
    --model.network.path "$RUNS/target/latest/hf" --evaluation.reference "$RUNS/retrained/latest/hf" \
    --evaluation.samples full  # these people are invented: see what is said of them
echo
echo "\$ python -m ofmu_pl report $RUNS"
python -m ofmu_pl report "$RUNS"
