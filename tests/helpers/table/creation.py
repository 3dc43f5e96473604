"""Triangles and grids."""

import numpy as np

from table.entry import Op, T, case

TRIANGLES = (case((3, 4)), case((4, 3), k=1), case((2, 3, 3), k=-1), case((0, 3)), case((3, 3), k=9))

CREATION = [
    Op("tril", lambda x, k=0: np.tril(x, k), TRIANGLES, torch=T("tril", k="diagonal"), dtypes="fib", ulps=0),
    Op("triu", lambda x, k=0: np.triu(x, k), TRIANGLES, torch=T("triu", k="diagonal"), dtypes="fib", ulps=0),
    Op(
        "meshgrid", np.meshgrid, torch=T("meshgrid"), dtypes="fib", ulps=0,
        cases=(case((2,), (3,), indexing="xy"), case((2,), (3,), (4,), indexing="ij"), case((2,), (3,), (4,), indexing="xy"), case((3,), indexing="ij"),
               case((0,), (2,), indexing="ij")),
    ),
]  # fmt: skip
