#!/usr/bin/env bash
# pip, asked for `mpich` on Alpine, reports success and installs MPICH 0.0.0: a wheel for every platform that holds its
# metadata and nothing else. Of the real releases (5.0.2 among them) there are wheels for glibc and macOS only, and an
# index page has no way to say so; a lower bound turns the silence into an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
get() { # WHICH PLATFORM
    python3 -m pip --disable-pip-version-check download -q --no-deps --only-binary=:all: --python-version 3.13 \
        --platform "$2" -d "$folder/$2" "$1" 2> "$folder/errors"
}
get 'mpich<=5.0.2' musllinux_1_2_x86_64
wheel=$(basename "$folder"/musllinux_1_2_x86_64/*)
names=$(python3 -m zipfile -l "$folder/musllinux_1_2_x86_64/$wheel" | tail -n +2 | awk '{print $1}')
echo "musl: $wheel holds" $names
[ "$wheel" = mpich-0.0.0-py3-none-any.whl ]
if grep -v dist-info <<< "$names"; then exit 1; fi
get 'mpich==5.0.2' manylinux_2_28_x86_64 || get 'mpich==5.0.2' manylinux_2_17_x86_64
echo "glibc: $(basename "$folder"/manylinux*/*)"
if get 'mpich>=4,<=5.0.2' musllinux_1_2_x86_64; then exit 1; fi
echo "musl, with a lower bound: $(grep -m1 'No matching' "$folder/errors")"
