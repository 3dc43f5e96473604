#!/usr/bin/env bash
# `uv lock` (0.13.9) of a project with two optional dependencies, cupy-cuda12x[ctk] and cupy-cuda13x[ctk], succeeds with
# CuPy 13.6.0 for one of them: a release from before the extra `ctk` existed, which is therefore left out. uv locks all
# extras of a project together, and the CUDA libraries of the two exclude each other; an old release without the
# requested extra counts as a solution, of which a warning tells. `conflicts` in [tool.uv] gives both 14.2.0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q uv==0.13.9 2> /dev/null
cd "$folder"
lock() {
    rm -f uv.lock
    UV_PYTHON=$folder/venv/bin/python "$folder/venv/bin/uv" lock 2>&1 | grep warning || true
    found=$(sed -n '/^name = "cupy-cuda/{N;s/\n/ /;s/name = //;s/version = //;p}' uv.lock | tr '\n' ' ')
    echo "$1: $found"
}
cat > pyproject.toml <<'TOML'
[project]
name = "app"
version = "0"
requires-python = ">=3.11"
[project.optional-dependencies]
a = ["cupy-cuda12x[ctk]<=14.2.0"]
b = ["cupy-cuda13x[ctk]<=14.2.0"]
TOML
lock "without conflicts"
grep -q 13.6.0 <<< "$found"
printf '[tool.uv]\nconflicts = [[{ extra = "a" }, { extra = "b" }]]\n' >> pyproject.toml
lock "with conflicts"
[ "$(grep -o 14.2.0 <<< "$found" | wc -l)" = 2 ]
