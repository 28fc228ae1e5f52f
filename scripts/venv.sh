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
by_uv() {  # takes a third of pip's time; its cache lies beside, so that files are linked and not copied, and goes again
    # Bytecode as pip makes it: where Python may not write it later (PYTHONDONTWRITEBYTECODE), each start would take 9 s more.
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv || return
    while IFS="=" read -r option value; do  # uv does not read what pip is configured to use
        value="${value:1:-1}"
        case "$option" in
            *.index-url) export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$value}" ;;
            *.extra-index-url) export UV_INDEX="${UV_INDEX:-${value//\\n/ }}" ;;
            *.find-links) export UV_FIND_LINKS="${UV_FIND_LINKS:-${value// /,}}" ;;
            *.cert) export SSL_CERT_FILE="${SSL_CERT_FILE:-$value}" ;;
        esac
    done < <("$VENV/bin/python" -m pip config list)
    UV_CACHE_DIR="$VENV/uv" "$VENV/bin/uv" pip install --quiet --python "$VENV/bin/python" --index-strategy \
        unsafe-best-match --compile-bytecode --constraint constraints.txt --editable ".[dev]"
}
if [ "$(cat "$STAMP" 2>/dev/null)" != "$WANTED" ]; then
    echo "Installing what pyproject.toml and constraints.txt pin (about 3 GB the first time)"
    (by_uv) || "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
        --editable ".[dev]"
    rm -rf "$VENV/uv"
    echo "$WANTED" > "$STAMP"
fi
export PATH="$VENV/bin:$PATH"
