"""The table of operations: each with its counterparts in NumPy and PyTorch, its inputs, and the tests that apply.

A new operation is one line in the list of its family; `checks.Suite` creates its tests, and test_surface.py fails if the
line is missing.
"""

from itertools import pairwise

from table.attention import ATTENTION
from table.creation import CREATION
from table.elementwise import ACTIVATION, ARITHMETIC, FUNCTIONS, LOGIC, TRIGONOMETRY
from table.index import INDEX
from table.layout import JOIN, LAYOUT
from table.losses import SOFTMAX
from table.norms import NORM
from table.products import MATMUL, PRODUCTS
from table.reductions import REDUCE
from table.windows import CONV, POOLING

ALL = [
    *ARITHMETIC, *LOGIC, *FUNCTIONS, *TRIGONOMETRY, *LAYOUT, *REDUCE, *JOIN, *MATMUL, *INDEX, *NORM, *SOFTMAX, *ATTENTION,
    *ACTIVATION,
    *PRODUCTS, *CREATION, *CONV, *POOLING,
]  # fmt: skip
assert all(a.name != b.name for a, b in pairwise(sorted(ALL, key=lambda op: op.name))), (
    "an operation is in the table twice"
)
