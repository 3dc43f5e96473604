from enum import IntEnum
from typing import TypeAlias

import numpy as np

class DType:
    name: str
    itemsize: int
    kind: str
    @property
    def dtype(self) -> np.dtype: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

Code: type[IntEnum]

DTypeLike: TypeAlias = DType | str | type | np.dtype | None

bool_: DType
int32: DType
int64: DType
float32: DType
float64: DType
