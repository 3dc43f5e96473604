#!/usr/bin/env bash
# Cython 3.3.1 writes its own functions into one module for a whole package, if an Extension without sources has the name
# `shared_utility_qualified_name`. If the Extension also says language="c++", as all others of a C++ package do,
# `cythonize` raises "TypeError: dict() got multiple values for keyword argument 'language'", although the code asks for
# that language to choose the suffix. Without it, and with a source that ends in .cpp, it writes a file that compiles as
# C++ too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q Cython==3.3.1 setuptools==84.2.1 2> /dev/null
cd "$folder"
echo 'def twice(x): return 2 * x' > unit.pyx
cat > make.py <<'PY'
from Cython.Build import cythonize
from setuptools import Extension

for options in {"language": "c++"}, {}:
    shared = Extension("shared", ["shared.cpp"], **options)
    unit = Extension("unit", ["unit.pyx"], language="c++")
    try:
        cythonize([shared, unit], shared_utility_qualified_name="shared", quiet=True)
        print(options, "is accepted")
    except TypeError as error:
        print(options, "TypeError:", error)
PY
"$folder/venv/bin/python" make.py | tee seen
[ "$(cut -d' ' -f-3 seen | tr '\n' ' ')" = "{'language': 'c++'} TypeError: {} is accepted " ]
test -s shared.cpp
