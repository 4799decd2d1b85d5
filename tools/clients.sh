#!/usr/bin/env bash
# Installs the agents that tests/clients run against the gateway, each version once, into
# ${RLLM_CACHE:-~/.cache/rllm}/clients. Needs node, npm and python; takes about a minute and 2 GB.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/environment.sh
root="${RLLM_CACHE:-$HOME/.cache/rllm}/clients"
mkdir -p "$root"

# from_npm NAME PACKAGE@VERSION
from_npm() {
    local into="$root/$1" wanted="$2"
    [ "$(cat "$into/installed" 2>/dev/null)" = "$wanted" ] && return 0
    local work
    work="$(mktemp -d "$root/.$1.XXXXXX")"
    npm install --prefix "$work" --no-audit --no-fund --no-package-lock --loglevel=error "$wanted" > "$work/log" 2>&1 \
        || { cat "$work/log" >&2; rm -rf "$work"; return 1; }
    echo "$wanted" > "$work/installed"
    rm -rf "$into"
    mv "$work" "$into"
    echo "installed $wanted"
}

# from_pypi NAME REQUIREMENT: an environment of its own; uv is many times faster than pip where the package is large.
from_pypi() {
    local into="$root/$1" wanted="$2"
    [ "$(cat "$into/installed" 2>/dev/null)" = "$wanted" ] && return 0
    rm -rf "$into"
    "$(find_python)" -m venv "$into"
    "$into/bin/python" -m pip install --quiet --disable-pip-version-check uv > "$into/log" 2>&1
    "$into/bin/uv" pip install --quiet --python "$into/bin/python" "$wanted" >> "$into/log" 2>&1 \
        || "$into/bin/python" -m pip install --quiet --disable-pip-version-check "$wanted" >> "$into/log" 2>&1 \
        || { cat "$into/log" >&2; return 1; }
    echo "$wanted" > "$into/installed"
    echo "installed $wanted"
}

jobs=()
from_npm claude @anthropic-ai/claude-code@2.1.332 & jobs+=($!)
from_npm codex @openai/codex@0.171.0 & jobs+=($!)
from_npm node node@24.21.0 & jobs+=($!)
from_npm pi @earendil-works/pi-coding-agent@1.6.0 & jobs+=($!)
from_npm gemini @google/gemini-cli@0.61.0 & jobs+=($!)
from_npm opencode opencode-ai@1.18.33 & jobs+=($!)
from_pypi mini mini-swe-agent==2.4.6 & jobs+=($!)
failed=0
for job in "${jobs[@]}"; do
    wait "$job" || failed=1
done
exit "$failed"
