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
import json
import re
import sys
from pathlib import Path

data, runs = map(Path, sys.argv[1:])


def people(name: str) -> list[list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for line in (data / name).read_text().splitlines():
        row = json.loads(line)
        asked = re.fullmatch(r"(.+)qa\d", row["id"])
        if asked and row["task"] == "Task2":
            found.setdefault(asked[1], []).append({"question": row["input"], "answer": row["output"]})
    return [rows for rows in found.values() if len(rows) == 5]


forget, retain = people("forget.jsonl"), people("retain.jsonl")
for name, chosen in {"forget": forget[:4], "holdout": forget[4:12], "retain": retain[:8]}.items():
    lines = [json.dumps(row) + "\n" for rows in chosen for row in rows]
    (runs / f"{name}.jsonl").write_text("".join(lines))
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
