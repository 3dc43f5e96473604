"""Run the public test suite of the Python array API standard on minigrad.

The suite is a checkout of release 2026.02.26 of https://github.com/data-apis/array-api-tests, with its submodule. It
needs the packages of its requirements.txt. array_api_skips.txt has what is left out on purpose, with reasons.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog="Other arguments go to pytest, such as -k unique.")
    parser.add_argument("suite", type=Path, help="the checkout")
    parser.add_argument("--max-examples", default="100", help="inputs for each test (default: %(default)s)")
    args, others = parser.parse_known_args()
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "array_api_tests",
        "--max-examples", args.max_examples, "--disable-deadline", "--skips-file", HERE / "array_api_skips.txt",
        *others,
    ]  # fmt: skip
    path = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {
        **os.environ, "PYTHONPATH": path, "ARRAY_API_TESTS_MODULE": "minigrad",
        "ARRAY_API_TESTS_SKIP_DTYPES": "complex64,complex128",  # without this, the suite requires complex numbers
    }  # fmt: skip
    sys.exit(subprocess.run(command, cwd=args.suite, env=environment).returncode)


if __name__ == "__main__":
    main()
