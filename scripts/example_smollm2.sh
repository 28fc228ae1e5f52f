#!/usr/bin/env bash
# A real language model forgets people: SmolLM2-135M-Instruct learns LUME's invented persons, then 4 of them go.
#   DATA=FOLDER bash scripts/example_smollm2.sh    (with forget.jsonl, retain.jsonl of amazon-science/lume-llm-unlearning)
# Steps whose model is there already are skipped, interrupted ones go on. PRECISION=bf16-mixed is faster on a CPU with AMX.
# Further words go to every training: `--trainer.max_steps 2` for a look at whether all of it runs.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
MORE=("$@")
DATA="${DATA:-../shared/data/lume}"
RUNS=logs/smollm2
MODEL="$RUNS/SmolLM2-135M-Instruct"
SPLITS=(--data.forget "$RUNS/forget.jsonl" --data.retain "$RUNS/retain.jsonl" --data.holdout "$RUNS/holdout.jsonl")
mkdir -p "$RUNS"

python - "$DATA" "$RUNS" <<'PYTHON'
"""Five questions about each person: of 4 to forget, 8 to retain, 8 that the model never sees (of the same file as the 4)."""
import sys
from itertools import chain
from pathlib import Path
sys.path.append("scripts")
from language_data import questions, write

data, runs = map(Path, sys.argv[1:])
forget, retain = (questions(data / f"{side}.jsonl") for side in ("forget", "retain"))
for side, people in {"forget": forget[:4], "holdout": forget[4:12], "retain": retain[:8]}.items():
    rows = [{"question": row["input"], "answer": row["output"]} for row in chain.from_iterable(people)]
    write(runs / f"{side}.jsonl", rows)
PYTHON

run() {  # METHOD MODEL OPTIONS...: print the command, run it unless its model is there
    local method="$1" model="$2"
    shift 2
    local command=(python -m ofmu_pl fit "$@" --model.network.path "$model" --model.network.lora "{r: 16, lora_alpha: 32}"
        "${SPLITS[@]}" --data.system_prompt "Be brief." --evaluation.max_new_tokens 24
        --trainer.precision "${PRECISION:-32-true}" --benchmark smollm2 --method "$method" --ckpt_path last "${MORE[@]}")
    echo
    echo "\$ ${command[*]}"
    if [ -d "$RUNS/$method/latest/hf" ]; then
        echo "  done before: $RUNS/$method/latest/hf (delete $RUNS/$method to run it again)"
    else
        "${command[@]}"
    fi
}

LEARN=(--config configs/text_finetune.yaml --model.optimizer.lr 1.5e-3 --model.gradient_clip 1.0 --data.batch_size 6)
python scripts/make_smollm2.py "$MODEL"
run target "$MODEL" "${LEARN[@]}" --trainer.max_steps 130
run retrained "$MODEL" "${LEARN[@]}" --trainer.max_steps 90 --model.split retain
run ofmu "$RUNS/target/latest/hf" --config configs/text.yaml --data.batch_size 5 --evaluation.samples full  # these people are invented
echo
python -m ofmu_pl report "$RUNS"
