"""Embeddings: vectors looked up by index, for words, characters or categories."""

from minigrad.arrays.creation import empty
from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import integer
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.module import Module
from minigrad.nn.parameter import Parameter


class Embedding(Module):
    """A table of vectors, one for each index: `weight`, ``(num_embeddings, embedding_dim)``, from N(0, 1).

    Parameters
    ----------
    num_embeddings : int
        The number of rows.
    embedding_dim : int
        The size of a vector.
    padding_idx : int, optional
        A row that is initialized to zeros and gets no gradient; a negative index counts from the end.
    max_norm : None
        For PyTorch's scripts; another value is an error that says what to write.
    device, dtype
        As in `Linear`.

    Raises
    ------
    ValueError
        For sizes below 1 and a `padding_idx` outside the table.
    TypeError, IndexError
        When called, for indices that are not integers or are outside the table; an out-of-range index on a GPU is
        reported at the next transfer to the CPU, or by `minigrad.cuda.synchronize`.

    Examples
    --------
    >>> table = mg.nn.Embedding(10, 3, padding_idx=0)
    >>> table(mg.tensor([[4, 0], [2, 2]])).shape
    (2, 2, 3)
    """

    weight: Parameter

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *,
        max_norm: None = None, device: str | None = None, dtype: DTypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if max_norm is not None:
            raise TypeError(
                f"[Embedding] expected no max_norm, which changes the weight in each call, got {max_norm}: shorten the "
                f"rows after a step, with mg.no_grad(): w *= mg.minimum(1, max_norm / w.norm(dim=1, keepdim=True))"
            )
        self.num_embeddings = num_embeddings = integer("Embedding", "num_embeddings", num_embeddings, 1)
        self.embedding_dim = embedding_dim = integer("Embedding", "embedding_dim", embedding_dim, 1)
        self.padding_idx = F.padding_row("Embedding", padding_idx, num_embeddings)
        self.weight = Parameter(empty((num_embeddings, embedding_dim), dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new vectors from N(0, 1), and set the one at `padding_idx` to zeros."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight.detach()[self.padding_idx])

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None) -> "Embedding":
        """Make a table that shares memory with the given rows, frozen by default.

        Raises ValueError if there are not two axes of at least 1, or if `padding_idx` is outside the table; TypeError
        if `embeddings` is not a tensor of floats.

        Parameters
        ----------
        embeddings : Tensor
            ``(num_embeddings, embedding_dim)``, float.
        freeze : bool
            Whether to leave `weight` out of training.
        padding_idx : int, optional
            As in the class, but the row keeps its values.
        """
        if not isinstance(embeddings, Tensor):
            raise TypeError(f"[Embedding] expected a tensor of rows, got {kind_of(embeddings)}")
        if embeddings.ndim != 2 or min(embeddings.shape) < 1:
            raise ValueError(f"[Embedding] expected rows (num_embeddings, embedding_dim), got {embeddings.shape}")
        if embeddings.dtype.kind != "f":
            raise TypeError(f"[Embedding] expected rows of floats, got {embeddings.dtype}")
        table = cls.__new__(cls)
        Module.__init__(table)
        table.num_embeddings, table.embedding_dim = embeddings.shape
        table.padding_idx = F.padding_row("Embedding", padding_idx, embeddings.shape[0])
        table.weight = Parameter(embeddings.detach(), requires_grad=not freeze)
        return table

    def forward(self, indices: Tensor) -> Tensor:
        """Map integers of any shape to ``(*shape, embedding_dim)``."""
        return F.embedding(indices, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
