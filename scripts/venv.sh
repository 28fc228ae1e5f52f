# Sourced by the other scripts: makes a virtual environment with what is pinned, or reuses it, and puts it on PATH.
# OFMU_VENV says where it lives (default: .venv in the project), so that it can be kept between clones.
VENV="${OFMU_VENV:-$PWD/.venv}"
PYTHON="${PYTHON:-python3.11}"
STAMP="$VENV/.ofmu_pl"
WANTED="$PWD $(cat pyproject.toml constraints.txt | cksum)"
if [ ! -x "$VENV/bin/python" ]; then
    echo "Making $VENV"
    "$PYTHON" -m venv "$VENV"
fi
if [ "$(cat "$STAMP" 2>/dev/null)" != "$WANTED" ]; then
    echo "Installing what pyproject.toml and constraints.txt pin (about 3 GB the first time)"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
    echo "$WANTED" > "$STAMP"
fi
export PATH="$VENV/bin:$PATH"
