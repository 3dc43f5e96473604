#!/usr/bin/env bash
# `zig c++ -c unit.cpp -o /dev/null` (ziglang 0.17.1) succeeds and leaves unit.o in the current folder, which clang, whose
# command line it takes, does not: the output /dev/null is understood as no output named. So a check that compiles files
# and throws the objects away overwrites those of a build in the same folder.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q ziglang==0.17.1 2> /dev/null
cd "$folder"
echo 'int twice(int x) { return 2 * x; }' > unit.cpp
echo 'of a build' > unit.o
ZIG_LOCAL_CACHE_DIR=$folder/cache ZIG_GLOBAL_CACHE_DIR=$folder/cache \
    "$folder/venv/bin/python" -m ziglang c++ -target x86_64-linux-musl -c unit.cpp -o /dev/null
echo "unit.o after -o /dev/null: $(head -c 4 unit.o | tr -d '\177')"
[ "$(head -c 4 unit.o)" = $'\177ELF' ]
