"""Checks of tests/distributed that run on several ranks: ``mpiexec -n 2 python -m helpers.ranks FOLDER CHECK …``.

Each check is a function of the folder for its files; the checks of one launch run one after the other.
"""

import logging
import sys
from pathlib import Path

from helpers.ranks import equality, gpus, refusals

from minigrad import distributed

CHECKS = vars(equality) | vars(gpus) | vars(refusals)


def main():
    folder, *names = sys.argv[1:]
    logging.basicConfig(level=logging.INFO)
    distributed.init()
    for name in names:
        CHECKS[name](Path(folder))
    sys.stdout.write(f"rank {distributed.rank()} of {distributed.size()} passed {' '.join(names)}\n")


if __name__ == "__main__":
    main()
