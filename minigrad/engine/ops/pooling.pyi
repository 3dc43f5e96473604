from minigrad.engine.tensor import Tensor, TensorLike

def max_pool2d(
    x: TensorLike,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    ceil_mode: bool = False,
) -> Tensor: ...
def avg_pool2d(
    x: TensorLike,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
    padding: int | tuple[int, int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor: ...
def adaptive_avg_pool2d(
    x: TensorLike, output_size: int | tuple[int | None, int | None] | list[int | None] | None
) -> Tensor: ...
