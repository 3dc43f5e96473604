from minigrad.engine.tensor import Tensor, TensorLike

class Cell:
    kind: str
    norm: str | None
    sizes: tuple[int, ...]
    norm_cell: bool
    carry_norm: bool
    swap: bool
    slope: float
    eps: float
    eps_c: float
    def __init__(
        self, kind: str, norm: str | None = None, sizes: tuple[int, ...] = (), norm_cell: bool = False,
        carry_norm: bool = False, swap: bool = False, slope: float = 0.0, eps: float = 1e-5, eps_c: float = 1e-5,
    ) -> None: ...  # fmt: skip

class Lengths:
    values: Tensor
    steps: int
    def __init__(
        self, lengths: TensorLike, steps: int, batch: int, op: str = "recurrent", device: str | None = None
    ) -> None: ...

def normalized(z: Tensor, sizes: tuple[int, ...], gamma: Tensor | None, beta: Tensor | None, eps: float) -> Tensor: ...
def projected(
    cell: Cell, eps: float, x: Tensor, weight: Tensor, bias: Tensor | None, gamma: Tensor | None, beta: Tensor | None
) -> Tensor: ...
def rnn_step(
    cell: Cell, x: Tensor, h: Tensor, c: Tensor | None, weight: Tensor, bias: Tensor | None, gamma: Tensor | None,
    beta: Tensor | None, gamma_c: Tensor | None, beta_c: Tensor | None,
) -> tuple[Tensor, None]: ...  # fmt: skip
def lstm_step(
    cell: Cell, x: Tensor, h: Tensor, c: Tensor, weight: Tensor, bias: Tensor | None, gamma: Tensor | None,
    beta: Tensor | None, gamma_c: Tensor | None, beta_c: Tensor | None,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
def gru_step(
    cell: Cell, x: Tensor, h: Tensor, c: Tensor | None, weight: Tensor, bias: Tensor | None, gamma: Tensor | None,
    beta: Tensor | None, gamma_c: Tensor | None, beta_c: Tensor | None,
) -> tuple[Tensor, None]: ...  # fmt: skip
def composition(
    cell: Cell, lengths: Tensor | None, x: Tensor, h: Tensor, c: Tensor | None, weight: Tensor, bias: Tensor | None,
    gamma: Tensor | None, beta: Tensor | None, gamma_c: Tensor | None, beta_c: Tensor | None,
) -> tuple[Tensor, ...]: ...  # fmt: skip
def recurrent(
    cell: Cell, x: TensorLike, h: TensorLike, c: TensorLike | None, weight: TensorLike, bias: TensorLike | None = None,
    gamma: TensorLike | None = None, beta: TensorLike | None = None, gamma_c: TensorLike | None = None,
    beta_c: TensorLike | None = None, lengths: TensorLike | Lengths | None = None,
    source: tuple[float, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None] | None = None,
) -> tuple[Tensor, ...]: ...  # fmt: skip
