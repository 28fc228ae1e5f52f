#!/usr/bin/env bash
# The site, with its tutorials run, in build/docs/index.html; any warning stops it: bash scripts/docs.sh [sphinx-build options]
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${OFMU_DOCS_PYTHON:-}" ]; then  # or the interpreter of an environment that has the extra docs already
    source scripts/venv.sh
    OFMU_DOCS_PYTHON="$VENV/bin/python"
    "$OFMU_DOCS_PYTHON" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[docs]"
fi
OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$OFMU_DOCS_PYTHON" -m sphinx -W --keep-going -b html "$@" docs build/docs
echo "build/docs/index.html"
