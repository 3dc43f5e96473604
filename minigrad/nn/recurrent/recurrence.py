"""The options and parameters shared by recurrent cells (`cell`) and layers (`recurrent`)."""

import math
from typing import Literal

from minigrad.arrays.creation import empty
from minigrad.engine.memory.dtype import DType, DTypeLike
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.ops.recurrent import GATES, Cell, normalized
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import init
from minigrad.nn.module import Module
from minigrad.nn.norm.batch_norm import RecurrentBatchNorm1d
from minigrad.nn.norm.row_norms import Affine, LayerNorm
from minigrad.nn.parameter import Parameter

# `Source` holds the arguments of the input's projection: eps, x, weight, bias, gamma, beta. `Loop` holds what every
# step is given: weight, bias, and gamma and beta of both norms.
Source = tuple[float, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]
Loop = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]

# The norms over units, which the whole-sequence operation computes, and how the names of their modules begin.
PREFIXES: dict[str | None, str] = {"layer": "ln", "rms": "rms"}
# The slopes of Keras's hard_sigmoid and of PyTorch's hardsigmoid; 0 means the logistic function.
SLOPES = {"sigmoid": 0.0, "hard_sigmoid": 0.2, "hardsigmoid": 1 / 6}


class GateNorm(Affine):
    """Layer normalization or RMSNorm of groups of gates, each group separately.

    Parameters
    ----------
    sizes : sequence of int
        The columns of each group; their sum is the size of the last axis.
    eps : float
        Added to the variance or to the mean square.
    device, dtype
        As in `Linear`.
    centered : bool
        Whether the mean is subtracted: True is layer normalization, False is RMSNorm (Zhang, Sennrich 2019,
        https://arxiv.org/abs/1910.07467, equation 4).

    Attributes
    ----------
    weight : Parameter
        ``(sum(sizes),)``, initialized to ones.
    bias : Parameter
        ``(sum(sizes),)``, initialized to zeros.

    Examples
    --------
    >>> from minigrad.nn.recurrent.recurrence import GateNorm
    >>> norm = GateNorm([2, 2], eps=0.0)
    >>> norm(mg.tensor([[1.0, 3.0, 10.0, 50.0]])).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """

    def __init__(
        self, sizes: list[int] | tuple[int, ...], eps: float = 1e-5,
        device: str | None = None, dtype: DTypeLike = None, *, centered: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.sizes, self.eps, self.centered = tuple(sizes), eps, centered
        self.add_affine(sum(sizes), True, True, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., sum(sizes))`` to the same shape."""
        return normalized(x, self.sizes, self.weight, self.bias, self.eps, self.centered)

    def extra_repr(self) -> str:
        return f"{self.sizes}, eps={self.eps}{'' if self.centered else ', centered=False'}"


class Recurrent(Module):
    """Base class with the options and parameters; the suffix of a parameter's name identifies its layer."""

    kind: Literal["rnn", "lstm", "gru", "mingru", "minlstm"]
    norms: tuple[str | None, ...] = (None, "layer", "rms")

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool | Literal["input"], norm: str | None, eps: float
    ) -> None:
        super().__init__()
        if not isinstance(bias, bool) and bias != "input":
            error = ValueError if isinstance(bias, str) else TypeError
            raise error(f"[{self.name}] expected bias True, False or 'input', got {bias!r}")
        if norm not in self.norms:
            raise ValueError(f"[{self.name}] expected norm {' or '.join(map(repr, self.norms))}, got {norm!r}")
        self.input_size = integer(self.name, "input_size", input_size, 1)
        self.hidden_size = integer(self.name, "hidden_size", hidden_size, 1)
        self.norm, self.bias, self._eps = norm, bias, number(self.name, "eps", eps, 0)

    @property
    def eps(self) -> float:
        """The value the norms were created with; each norm has its own ``eps``, which may be changed."""
        return self._eps

    @property
    def name(self) -> str:
        """The name of the class, with which its error messages begin."""
        return type(self).__name__

    # ── options of the subclasses ──

    def _set_nonlinearity(self, nonlinearity: str) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"[{self.name}] expected nonlinearity 'tanh' or 'relu', got {nonlinearity!r}")
        self.nonlinearity = nonlinearity

    def _set_gates(self, gate_activation: str) -> None:
        if not isinstance(gate_activation, str) or gate_activation not in SLOPES:
            raise ValueError(f"[{self.name}] expected gate_activation {', '.join(map(repr, SLOPES))}, "
                             f"got {gate_activation!r}")  # fmt: skip
        self.gate_activation = gate_activation

    def _flag(self, option: str, value: bool) -> bool:
        if not isinstance(value, bool):
            raise TypeError(f"[{self.name}] expected {option} True or False, got {value!r}")
        return value

    def _set_lstm(self, norm_each_gate: bool, carry_norm: bool, norm_cell: bool, forget_bias: float | None) -> None:
        if (norm_each_gate or carry_norm) and self.norm not in PREFIXES:
            raise ValueError(f"[{self.name}] expected norm='layer' or 'rms' with norm_each_gate and carry_norm, "
                             f"got {self.norm!r}")  # fmt: skip
        if not norm_cell and (self.norm is None or carry_norm):
            raise ValueError(f"[{self.name}] expected a norm, and none of c to carry on, with norm_cell=False, "
                             f"got norm={self.norm!r} and carry_norm={carry_norm}")  # fmt: skip
        if forget_bias is not None and self.bias is False and not norm_each_gate:
            raise ValueError(f"[{self.name}] expected a bias with forget_bias={forget_bias}, got bias=False")
        self.norm_each_gate = self._flag("norm_each_gate", norm_each_gate)
        self.carry_norm = self._flag("carry_norm", carry_norm)
        self.norm_cell = self._flag("norm_cell", norm_cell)
        self.forget_bias = None if forget_bias is None else number(self.name, "forget_bias", forget_bias)

    def _set_gru(self, convention: str | None, reset_after: bool) -> None:
        if convention not in (None, "torch", "paper"):
            raise ValueError(f"[{self.name}] expected convention None, 'torch' or 'paper', got {convention!r}")
        self.convention = convention or self._usual_convention()
        self.reset_after = self._flag("reset_after", reset_after)

    def _usual_convention(self) -> str:
        """Return the convention of the publication of the norm."""
        return "paper" if self.norm in PREFIXES else "torch"

    def _groups(self) -> tuple[str | None, tuple[int, ...]]:
        """Return where a norm of the units applies, in the terms of `Cell`, and the sizes of its groups of columns."""
        n = self.hidden_size
        if self.norm not in PREFIXES:
            return None, ()
        if self.kind == "rnn":
            return "sum", (n,)
        if self.kind == "gru":
            return "state", (2 * n, n)
        return ("sum", (n,) * 4) if self.norm_each_gate else ("state", (4 * n,))

    def _norm_sizes(self) -> dict[str, tuple[int, ...]]:
        """Return the group sizes of each norm of the units in one layer and direction, by the prefix of its name."""
        place, sizes = self._groups()
        if place is None:
            return {}
        prefix = PREFIXES[self.norm]
        norms = {prefix: sizes} if place == "sum" else {f"{prefix}_ih": sizes, f"{prefix}_hh": sizes}
        return {**norms, f"{prefix}_c": (self.hidden_size,)} if self.kind == "lstm" and self.norm_cell else norms

    # ── parameters ──

    def _add_layer(self, suffix: str, input_size: int, device: str | None, dtype: DTypeLike) -> None:
        """Add the weights, biases and norms of one layer in one direction, under PyTorch's names."""
        n = self.hidden_size
        columns = GATES[self.kind] * n
        # The norms have their own biases: the sum needs at most one more, and none if each product has a norm's bias.
        one_bias = self.bias == "input" or (self.norm is not None and (self.kind == "lstm" or self.norm == "batch"))
        no_bias = not self.bias or (self.norm in PREFIXES and self.kind == "gru")
        for name, shape, wanted in (
            ("weight_ih", (columns, input_size), True), ("weight_hh", (columns, n), True),
            ("bias_ih", (columns,), not no_bias), ("bias_hh", (columns,), not no_bias and not one_bias),
        ):  # fmt: skip
            parameter = Parameter(empty(shape, dtype=dtype, device=device)) if wanted else None
            self.register_parameter(name + suffix, parameter)
        for name, sizes in self._norm_sizes().items():
            norm: Affine = (
                LayerNorm(n, self.eps, device=device, dtype=dtype) if name == "ln_c"
                else GateNorm(sizes, self.eps, device, dtype, centered=self.norm == "layer")
            )  # fmt: skip
            self.register_module(name + suffix, norm)

    def _norms_inside(self) -> list[Module]:
        """Return the norms of the units, which this module computes itself: a forward pass does not call them."""
        return [getattr(self, name + suffix) for suffix in self._all_suffixes() for name in self._norm_sizes()]

    def reset_parameters(self) -> None:
        """Draw new weights and biases from U(−1/√hidden_size, 1/√hidden_size), and reset the norms."""
        bound, n = 1 / math.sqrt(self.hidden_size), self.hidden_size
        for parameter in self.parameters(recurse=False):
            init.uniform_(parameter, -bound, bound)
        for child in self.children():
            if isinstance(child, GateNorm | LayerNorm | RecurrentBatchNorm1d):
                child.reset_parameters()
        if self.kind != "lstm" or self.forget_bias is None:
            return
        # With every gate normalized separately, a constant bias of the sum has no effect, so the norm's bias is set.
        for suffix in self._all_suffixes():
            if self.norm_each_gate:
                first, second = getattr(self, PREFIXES[self.norm] + suffix).bias, None
            else:
                first, second = getattr(self, "bias_ih" + suffix), getattr(self, "bias_hh" + suffix)
            init.constant_(first.detach()[n : 2 * n], self.forget_bias)
            if second is not None:
                init.zeros_(second.detach()[n : 2 * n])

    def _all_suffixes(self) -> list[str]:
        """Return the suffixes of the parameters' names, one for each layer and direction."""
        return [""]

    def _check_state(self, state: object, shape: tuple[int, ...], x: Tensor) -> None:
        if not isinstance(state, Tensor):
            raise TypeError(f"[{self.name}] expected the state to be a Tensor, got {kind_of(state)}")
        if state.shape != shape:
            raise ValueError(f"[{self.name}] expected a state of shape {shape}, got {state.shape}")
        if state.dtype != x.dtype:
            raise TypeError(f"[{self.name}] expected a state of {x.dtype}, the dtype of x, got {state.dtype}")

    def _check_input(self, x: object) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"[{self.name}] expected a Tensor, got {kind_of(x)}")
        if x.dtype != self.weight_dtype:
            raise TypeError(
                f"[{self.name}] expected an input of {self.weight_dtype} like the weights, got {x.dtype}: "
                f'use x.astype("{self.weight_dtype}")'
            )

    @property
    def weight_dtype(self) -> DType:
        """The dtype of the parameters."""
        members = self.__dict__  # not weight_ih itself, which may be computed
        for name in self._parameters:
            if members[name] is not None:
                return members[name].dtype
        raise AttributeError(f"[{self.name}] expected parameters, but all of them were deleted")

    def _pair(self, state: object) -> tuple[Tensor | None, Tensor | None]:
        """Return the two states of an LSTM."""
        if state is None:
            return None, None
        if not isinstance(state, tuple | list) or len(state) != 2:
            size = f" of {len(state)}" if isinstance(state, tuple | list) else ""
            raise TypeError(f"[{self.name}] expected a pair (h, c) of states, got {type(state).__name__}{size}")
        return state[0], state[1]

    def _norm_of(self, name: str, sizes: tuple[int, ...]) -> GateNorm | LayerNorm:
        """Return the current norm, which may have replaced the original one, after checking it."""
        norm, centered = getattr(self, name), self.norm == "layer"
        if not isinstance(norm, GateNorm | LayerNorm) or (isinstance(norm, LayerNorm) or norm.centered) != centered:
            kind = "a layer normalization" if centered else "a GateNorm with centered=False"
            raise TypeError(f"[{self.name}] expected {name} to be {kind}, got {type(norm).__name__}")
        if type(norm).forward not in (GateNorm.forward, LayerNorm.forward):  # the engine would not call it
            kind = type(norm).__name__
            raise TypeError(f"[{self.name}] expected {name} not to override forward, got a {kind} that does")
        found = norm.sizes if isinstance(norm, GateNorm) else norm.normalized_shape
        if found != sizes:
            raise ValueError(f"[{self.name}] expected {name} to normalize groups of {sizes} columns, got {norm}")
        return norm

    def _loop(self, suffix: str) -> tuple[Cell, Loop]:
        """Return the cell that the engine runs at every step, and its current parameters."""
        place, sizes = self._groups()
        gamma = beta = gamma_c = beta_c = None
        eps = eps_c = 0.0
        centered = self.norm == "layer"
        if place is not None:
            prefix = PREFIXES[self.norm]
            norm = self._norm_of((prefix if place == "sum" else f"{prefix}_hh") + suffix, sizes)
            gamma, beta, eps = norm.weight, norm.bias, norm.eps
        norm_c = place is not None and self.kind == "lstm" and self.norm_cell
        if norm_c:
            norm = self._norm_of(f"{prefix}_c{suffix}", (self.hidden_size,))
            gamma_c, beta_c, eps_c = norm.weight, norm.bias, norm.eps
        if self.kind == "rnn":
            cell = Cell("rnn_" + self.nonlinearity, place, sizes, eps=eps, centered=centered)
        elif self.kind == "gru":
            swap, slope = self.convention == "paper", SLOPES[self.gate_activation]
            cell = Cell("gru", place, sizes, swap=swap, slope=slope, eps=eps, centered=centered,
                        reset_after=self.reset_after)  # fmt: skip
        else:
            slope = SLOPES[self.gate_activation]
            cell = Cell("lstm", place, sizes, norm_c, self.carry_norm, slope=slope, eps=eps, eps_c=eps_c,
                        centered=centered)  # fmt: skip
        bias = getattr(self, "bias_hh" + suffix) if self.kind == "gru" else None
        return cell, (getattr(self, "weight_hh" + suffix), bias, gamma, beta, gamma_c, beta_c)

    def _source(self, suffix: str, x: Tensor) -> Source:
        """Return the arguments of `projected`, which computes the input's part of each step, with summed biases."""
        bias, other = getattr(self, "bias_ih" + suffix), getattr(self, "bias_hh" + suffix)
        if self.kind != "gru" and other is not None:
            bias = other if bias is None else bias + other
        weight = getattr(self, "weight_ih" + suffix)
        place, sizes = self._groups()
        if place != "state":
            return 0.0, x, weight, bias, None, None
        norm = self._norm_of(f"{PREFIXES[self.norm]}_ih{suffix}", sizes)
        return norm.eps, x, weight, bias, norm.weight, norm.bias

    def _options(self) -> str:
        """Return the options that differ from the defaults, for `repr`."""
        named = {
            "nonlinearity": "tanh", "bias": True, "num_layers": 1, "batch_first": False, "dropout": 0.0,
            "bidirectional": False, "norm": None, "gate_activation": "sigmoid", "norm_each_gate": False,
            "carry_norm": False, "norm_cell": True, "forget_bias": None, "convention": self._usual_convention(),
            "reset_after": True, "max_length": None, "eps": 1e-5,
        }  # fmt: skip
        changed = [f", {key}={value!r}" for key, default in named.items()
                   if (value := getattr(self, key, default)) != default]  # fmt: skip
        return "".join(changed)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}{self._options()}"
