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
    def __init__(
        self, kind: str, norm: str | None = None, sizes: tuple[int, ...] = (), norm_cell: bool = False,
        carry_norm: bool = False, swap: bool = False, slope: float = 0.0, eps: float = 1e-5,
    ) -> None: ...  # fmt: skip

def normalized(
    z: Tensor, sizes: tuple[int, ...], gamma: Tensor | None, beta: Tensor | None, eps: float
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
    beta_c: TensorLike | None = None, lengths: TensorLike | None = None,
) -> tuple[Tensor, ...]: ...  # fmt: skip
