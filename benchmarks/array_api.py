"""Run the public test suite of the Python array API standard on minigrad.

The suite is a checkout of release 2026.02.26 of https://github.com/data-apis/array-api-tests, with its submodule. It
needs the packages of its requirements.txt. array_api_skips.txt has what is left out on purpose, with reasons.
"""

import argparse
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ENVIRONMENT = {
    "ARRAY_API_TESTS_MODULE": "minigrad",
    # without this, the suite requires complex numbers, and computes with uint8, which is there for storage
    "ARRAY_API_TESTS_SKIP_DTYPES": "complex64,complex128,uint8",
}


class LeftOut:
    """Deselect the tests whose name contains a line of array_api_skips.txt."""

    def pytest_collection_modifyitems(self, config, items):
        lines = (HERE / "array_api_skips.txt").read_text(encoding="utf-8").splitlines()
        parts = [line for line in lines if line and not line.startswith("#")]
        left_out = [item for item in items if any(part in item.nodeid for part in parts)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog="Other arguments go to pytest, such as -k unique.")
    parser.add_argument("suite", type=Path, help="the checkout")
    parser.add_argument("--max-examples", default="100", help="inputs for each test (default: %(default)s)")
    args, others = parser.parse_known_args()
    os.chdir(args.suite)
    os.environ.update(ENVIRONMENT)
    sys.path[:0] = [".", str(HERE.parent)]
    options = ["-q", "-p", "no:cacheprovider", "--max-examples", args.max_examples, "--disable-deadline", *others]
    sys.exit(pytest.main(["array_api_tests", *options], plugins=[LeftOut()]))


if __name__ == "__main__":
    main()
