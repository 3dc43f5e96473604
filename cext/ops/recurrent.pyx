"""Recurrent layers: all steps of one layer in one operation, on inputs that are already projected."""
from functools import partial

cimport cython
from libc.stdint cimport int64_t

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.devices.kernel_list cimport repeat
from minigrad.engine.memory.array cimport Array, alias, check_same_device, empty, shape_of, view
from minigrad.engine.memory.calls cimport Call, begin, is_capturing
from minigrad.engine.memory.dtype cimport BOOL, INT64, is_float
from minigrad.engine.memory.listener cimport note_computed
from minigrad.engine.memory.shapes cimport device_name
from minigrad.engine.ops.arguments cimport float_operand, integer, number, operand, optional
from minigrad.engine.ops.layout cimport (
    cast, copy_array, dense, expand_dims, matrix_transpose, permute_raw, reshape_array, sum_axes,
)
from minigrad.engine.ops.logic cimport where
from minigrad.engine.ops.matmul cimport matmul, product
from minigrad.engine.ops.slices cimport zeros
from minigrad.engine.tape.backward cimport composed_backward
from minigrad.engine.tape.inspection cimport history_of
from minigrad.engine.tape.node cimport Node, Op, operation, recording
from minigrad.engine.tape.record cimport track_many

from minigrad.engine.ops.activation import relu, sigmoid
from minigrad.engine.ops.join import concat, split, stack, unstack
from minigrad.engine.ops.logic import clip
from minigrad.engine.ops.matmul import linear
from minigrad.engine.ops.norm import layer_norm, rms_norm
from minigrad.engine.ops.trigonometry import tanh


# In the order of the enumerations in kernels.hpp and recurrent.cu: the kinds of cells, and what is normalized
cdef tuple KINDS = ("rnn_tanh", "rnn_relu", "lstm", "gru"), NORMS = (None, "state", "sum")
GATES: dict[str, int] = {"rnn": 1, "lstm": 4, "gru": 3}


@cython.final
@cython.binding(False)
@cython.embedsignature(True)
cdef class Cell:
    """The kind and variant of the cell that a layer computes."""
    cdef readonly str kind, op      # "rnn_tanh", "rnn_relu", "lstm" or "gru", and the operation: "rnn", "lstm" or "gru"
    # A norm of "state" (what the state contributes), of the "sum", or None; then the numbers of columns that are
    # normalized together, one group after the other.
    cdef readonly str norm          # -> str | None
    cdef readonly tuple sizes       # -> tuple[int, ...]
    cdef readonly bint norm_cell    # LSTM: whether the cell state is normalized on its way to the output
    cdef readonly bint carry_norm   # LSTM: whether it is also carried to the next step normalized
    cdef readonly bint centered     # whether the norms subtract the mean: layer normalization, otherwise RMSNorm
    cdef readonly bint swap         # GRU: whether the update gate weighs the new state instead of the old one
    cdef readonly bint reset_after  # GRU: whether the reset gate multiplies the product with the state, not the state
    cdef readonly double slope      # the hard sigmoid is clip(slope x + 1/2, 0, 1), the logistic function has 0
    cdef readonly double eps        # the ε in the norm of the state's contribution or of the sum
    cdef readonly double eps_c      # the ε in the norm of the cell state

    def __cinit__(self, kind: str, norm: str | None = None, sizes: tuple[int, ...] = (), norm_cell: bool = False,
                  carry_norm: bool = False, swap: bool = False, slope: float = 0.0, eps: float = 1e-5,
                  eps_c: float = 1e-5, centered: bool = True, reset_after: bool = True):
        self.kind, self.norm, self.sizes = kind, norm, tuple([integer("recurrent", "size", n) for n in sizes])
        self.eps, self.eps_c = number("recurrent", "eps", eps, 0), number("recurrent", "eps_c", eps_c, 0)
        self.norm_cell, self.carry_norm, self.swap, self.slope = norm_cell, carry_norm, swap, slope
        self.centered, self.reset_after = centered, reset_after
        # a GRU's reset gate comes between the two summands: there is no sum to normalize
        if kind not in KINDS or norm not in NORMS or (kind, norm) == ("gru", "sum"):
            raise ValueError(f"[recurrent] no cell {kind!r} with norm {norm!r}")
        self.op = kind.partition("_")[0]
        if not (1 <= len(self.sizes) <= 4 and min(self.sizes) >= 1 if norm else not self.sizes):
            raise ValueError(f"[recurrent] expected one to four sizes of at least 1 with a norm and none without, "
                             f"got {self.sizes} with {norm!r}")
        if ((norm_cell and kind != "lstm") or (carry_norm and not norm_cell)
                or ((swap or not reset_after) and kind != "gru")):
            raise ValueError(f"[recurrent] a {kind!r} has no such variant: norm_cell={norm_cell}, "
                             f"carry_norm={carry_norm}, swap={swap}, reset_after={reset_after}")

    @property
    def codes(self) -> tuple[int, int]:
        """The numbers that the kernels know the kind and the norm by."""
        return KINDS.index(self.kind), NORMS.index(self.norm)

    def __repr__(self) -> str:
        return f"Cell{self.__reduce__()[1]}"

    def __reduce__(self) -> tuple[type[Cell], tuple[Any, ...]]:
        return Cell, (self.kind, self.norm, self.sizes, self.norm_cell, self.carry_norm, self.swap, self.slope,
                      self.eps, self.eps_c, self.centered, self.reset_after)


def _check_lengths(str op, Array values: Tensor, int64_t steps) -> int:
    """Check lengths and return the shortest."""
    here = values.to("cpu")     # one wait for a GPU instead of two
    low, high = int(here.min()), int(here.max())
    if low < 0 or high > steps:
        raise ValueError(f"[{op}] expected lengths from 0 to {steps}, got {low if low < 0 else high}")
    return low


@cython.final
@cython.binding(False)
@cython.embedsignature(True)
cdef class Lengths:
    """The number of steps of each sample, from 0 to `steps`, checked on their own device, then moved to `device`."""
    cdef readonly Array values      # int64 [N]
    cdef readonly int64_t steps, shortest

    def __cinit__(self, lengths: TensorLike, int64_t steps, int64_t batch, str op="recurrent",
                  device: str | None = None):
        cdef Array a
        try:
            a = operand(op, lengths)
        except (TypeError, ValueError):
            raise TypeError(f"[{op}] expected lengths of int32 or int64, got {lengths!r:.80}") from None
        if shape_of(a) != (batch,):
            raise ValueError(f"[{op}] expected {batch} lengths, got {a.dtype} of shape {a.shape}")
        if batch and (is_float(a.code) or a.code == BOOL):
            raise TypeError(f"[{op}] expected lengths of int32 or int64, got {a.dtype}")
        # A copy is checked, as the caller may change the lengths at any time.
        self.values = copy_array(alias(cast(a, INT64)))
        self.shortest = repeat(_check_lengths, (op, self.values, steps)) if batch else 0
        if is_capturing():
            self.shortest = 0       # another run may have such a sample
        self.values = self.values.to(device)
        self.steps = steps

    def __repr__(self) -> str:
        return f"Lengths({self.values.tolist()}, {self.steps}, {self.values.shape[0]})"


# ── one step, composed: the equations, for reading, for the tests, and for derivatives of higher order ─────────────
#
#   A step returns h, c and its gates, by the names that they have in the equations.
#
#   u = LN(W h + b), segment by segment, or W h + b. x comes from the input: W_ih x_t and its biases, or LN of it.
#   LN is RMSNorm if the cell is not centered. With norm "sum" it is a = LN(x + W h + b) instead of a = x + u.

def normalized(z: Tensor, sizes: tuple[int, ...], gamma: Tensor | None, beta: Tensor | None, eps: float,
               centered: bool = True) -> Tensor:
    """LN of each group of columns separately, or x / RMS(x) γ + β (Zhang and Sennrich 2019, eq. 4)."""
    if len(sizes) == 1:
        if centered:
            return layer_norm(z, sizes[0], gamma, beta, eps)
        y = rms_norm(z, sizes[0], gamma, eps)
        return y if beta is None else y + beta
    bounds = [sum(sizes[:i]) for i in range(1, len(sizes))]
    parts = split(z, bounds, axis=-1)
    gammas = [None] * len(sizes) if gamma is None else split(gamma, bounds)
    betas = [None] * len(sizes) if beta is None else split(beta, bounds)
    each = [normalized(p, (n,), g, b, eps, centered) for p, n, g, b in zip(parts, sizes, gammas, betas)]
    return concat(each, axis=-1)


def projected(Cell cell, double eps, x: Tensor, weight: Tensor, bias: Tensor | None, gamma: Tensor | None,
              beta: Tensor | None) -> Tensor:
    """The input's contribution to every step: W x + b, or with norm "state" LN(W x) + b."""
    if cell.norm != "state":
        return linear(x, weight, bias)
    shift = bias if beta is None else beta if bias is None else beta + bias
    return normalized(linear(x, weight), cell.sizes, gamma, shift, eps, cell.centered)


def summands(Cell cell, x: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None, gamma: Tensor | None,
             beta: Tensor | None) -> tuple[Tensor | float, Tensor]:
    """x and u; with norm "sum" 0 and a."""
    if cell.norm == "sum":
        z = of_state(cell, None, h, weight, bias, None, None) + x
        return 0.0, normalized(z, cell.sizes, gamma, beta, cell.eps, cell.centered)
    return x, of_state(cell, cell.sizes, h, weight, bias, gamma, beta)


def of_state(Cell cell, sizes: tuple[int, ...] | None, h: Tensor, weight: Tensor, bias: Tensor | None,
             gamma: Tensor | None, beta: Tensor | None) -> Tensor:
    """W h + b, normalized if there are sizes of groups."""
    z = matmul(h, matrix_transpose(weight))
    if bias is not None:
        z = z + bias
    return normalized(z, sizes, gamma, beta, cell.eps, cell.centered) if sizes else z


def gate(Cell cell, a: Tensor) -> Tensor:
    if cell.slope == 0:
        return sigmoid(a)
    y = cell.slope * a + 0.5
    return where((y > 0.0) & (y < 1.0), y, clip(y.detach(), 0.0, 1.0))      # no derivative at the corners either


def rnn_step(Cell cell, x: Tensor, h: Tensor, c: Tensor | None, weight: Tensor, bias: Tensor | None,
             gamma: Tensor | None, beta: Tensor | None, gamma_c: Tensor | None,
             beta_c: Tensor | None) -> tuple[Tensor, None, dict[str, Tensor]]:
    x, u = summands(cell, x, h, weight, bias, gamma, beta)
    return (tanh if cell.kind == "rnn_tanh" else relu)(x + u), None, {}


def lstm_step(Cell cell, x: Tensor, h: Tensor, c: Tensor, weight: Tensor, bias: Tensor | None, gamma: Tensor | None,
              beta: Tensor | None, gamma_c: Tensor | None,
              beta_c: Tensor | None) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    x, u = summands(cell, x, h, weight, bias, gamma, beta)
    i, f, g, o = split(x + u, 4, axis=-1)
    i, f, g, o = gate(cell, i), gate(cell, f), tanh(g), gate(cell, o)
    c = f * c + i * g
    m = normalized(c, (c.shape[-1],), gamma_c, beta_c, cell.eps_c, cell.centered) if cell.norm_cell else c
    return o * tanh(m), m if cell.carry_norm else c, {"σ(i)": i, "σ(f)": f, "tanh(g)": g, "σ(o)": o}


def gru_step(Cell cell, x: Tensor, h: Tensor, c: Tensor | None, weight: Tensor, bias: Tensor | None,
             gamma: Tensor | None, beta: Tensor | None, gamma_c: Tensor | None,
             beta_c: Tensor | None) -> tuple[Tensor, None, dict[str, Tensor]]:
    x_r, x_z, x_n = split(x, 3, axis=-1)
    if cell.reset_after:
        u_r, u_z, u_n = split(of_state(cell, cell.sizes, h, weight, bias, gamma, beta), 3, axis=-1)
        r, z = gate(cell, x_r + u_r), gate(cell, x_z + u_z)
        n = tanh(x_n + r * u_n)
    else:       # the same with the product of r h in the place of r u_n
        gates, candidate = zip(*[(None, None) if p is None else split(p, [2 * h.shape[-1]])
                                 for p in (weight, bias, gamma, beta)])
        u_r, u_z = split(of_state(cell, cell.sizes[:-1], h, *gates), 2, axis=-1)
        r, z = gate(cell, x_r + u_r), gate(cell, x_z + u_z)
        n = tanh(x_n + of_state(cell, cell.sizes[-1:], r * h, *candidate))
    return (z * n + (1.0 - z) * h if cell.swap else (1.0 - z) * n + z * h), None, {"r": r, "z": z, "n": n}


STEPS = {"rnn": rnn_step, "lstm": lstm_step, "gru": gru_step}


def composition(Cell cell, lengths: Tensor | None, x: Tensor, h: Tensor, c: Tensor | None,
                *parameters: Tensor | None, seen: Callable[..., None] | None = None) -> tuple[Tensor, ...]:
    """The states of all steps, the last h, and for an LSTM the last c, computed step by step.

    After each step ``seen(given, made, alive)`` is called with what it read and computed, by name, and, if there are
    lengths, with the samples that have not ended.
    """
    outputs, alive = [], None
    if lengths is not None:     # the first state of a sample without steps is its last, and is used nowhere else
        begun, first_h, first_c = expand_dims(lengths > 0, 1), h, c
        h, c = where(begun, h, 0.0), None if c is None else where(begun, c, 0.0)
    for t, share in enumerate(unstack(x)):
        if lengths is not None:
            alive = expand_dims(lengths > t, 1)
            share = where(alive, share, 0.0)
        next_h, next_c, gates = STEPS[cell.op](cell, share, h, c, *parameters)
        made = {**gates, "h_t": next_h, "c_t": next_c}
        if lengths is None:
            outputs.append(next_h)
        else:
            outputs.append(where(alive, next_h, 0.0))
            next_h = where(alive, next_h, h)
            next_c = None if c is None else where(alive, next_c, c)
        if seen is not None:
            seen({"x_t": share, "h_{t−1}": h, "c_{t−1}": c}, made, alive)
        h, c = next_h, next_c
    if lengths is not None:
        h, c = where(begun, h, first_h), None if c is None else where(begun, c, first_c)
    return (stack(outputs), h) if c is None else (stack(outputs), h, c)


# ── all steps in one kernel ───────────────────────────────────────────────────────────────────────
#
#   dW = sum over t of dz_tᵀ h_{t-1}: one product over all steps.  dh_{t-1} = dz_t W + what bypasses the product

cdef Array steps_of(Array states, int64_t first):
    """All but one of the steps of states[T + 1, N, H], from `first` on, sharing their memory."""
    cdef int64_t[3] extent
    extent[0], extent[1], extent[2] = states.extent[0] - 1, states.extent[1], states.extent[2]
    return view(states, 3, extent, states.step, states.data + first * states.step[0])


cdef Array before_all(Array states):
    """The first of the states, sharing their memory."""
    return view(states, 2, states.extent + 1, states.step + 1, states.data)


cdef Array flat(Array x):
    """The contiguous x[T, N, K] as a matrix of T N rows."""
    cdef int64_t[2] extent
    extent[0], extent[1] = x.extent[0] * x.extent[1], x.extent[2]
    return reshape_array(x, 2, extent)


# These are the equations of cells without a norm. `minigrad.viz` writes the options of a given cell into them.
cdef str INPUTS = "x, h₀, c₀, W_hh, b, γ, β, γ_c, β_c"
cdef str BACKWARD = ("dh_t = dy_t + what step t + 1 sends back; after the last step the gradient of h_T\n"
                     "da_t, dx_t = the gradients of a_t and of x_t\n"
                     "dh_{t−1} = da_t W_hh\n"
                     "dW_hh = Σ_t da_tᵀ h_{t−1}\n"
                     "db = Σ_t da_t")

cdef Op rnn_op = operation("rnn", backward,
                           "h₀: the state before the first step\n"
                           "x_t = the input's contribution to step t\n"
                           "a_t = W_hh h_{t−1} + b\n"
                           "h_t = tanh(x_t + a_t), or max(x_t + a_t, 0)\n"
                           "y = h₁ … h_T", BACKWARD, "", INPUTS, "Elman (1990)", "y, h_T")

cdef Op lstm_op = operation("lstm", backward,
                            "h₀, c₀: the states before the first step\n"
                            "x_t = the input's contribution to step t\n"
                            "a_t = W_hh h_{t−1} + b\n"
                            "(i, f, g, o) = the four parts of x_t + a_t\n"
                            "c_t = σ(f) c_{t−1} + σ(i) tanh(g)\n"
                            "h_t = σ(o) tanh(c_t)\n"
                            "y = h₁ … h_T",
                            BACKWARD.replace("\nda_t", "\n"
                                                       "dc_t = the gradient through h_t + what step t + 1 sends back\n"
                                                       "dc_{t−1} = σ(f) dc_t\nda_t"),
                            "", INPUTS, "Hochreiter and Schmidhuber (1997); Gers et al. (2000)", "y, h_T, c_T")

cdef Op gru_op = operation("gru", backward,
                           "h₀: the state before the first step\n"
                           "x_t = the input's contribution to step t\n"
                           "a_t = W_hh h_{t−1} + b\n"
                           "(x_r, x_z, x_n) = the three parts of x_t\n"
                           "(u_r, u_z, u_n) = the three parts of a_t\n"
                           "r = σ(x_r + u_r)\n"
                           "z = σ(x_z + u_z)\n"
                           "n = tanh(x_n + r u_n)\n"
                           "h_t = (1 − z) n + z h_{t−1}\n"
                           "y = h₁ … h_T", BACKWARD.replace("da_t W_hh", "da_t W_hh + z dh_t"), "", INPUTS,
                           "Cho et al. (2014)", "y, h_T")
cdef int backward(Node node, Array g) except -1:
    cdef Cell cell = node.extra[0]
    cdef list inputs
    if recording():
        composed, inputs = composition_of(node)
        return composed_backward(node, composed, inputs, g)
    inputs = [node.value(i) for i in range(node.inputs)]
    cdef dict arrays = dict(zip(ARRAYS, node.extra[2:]))
    cdef Array h = <Array>inputs[1], weight = <Array>inputs[3]
    cdef int64_t[3] extent
    extent[0], extent[1], extent[2] = (<Array>arrays["h"]).extent[0] - 1, h.extent[0], weight.extent[0]
    arrays["lengths"] = None if node.extra[1] is None else (<Lengths>node.extra[1]).values
    arrays.update(zip(PARAMETERS, [None if p is None else dense(<Array>p) for p in inputs[3:]]))
    given = node.gradient(0)
    arrays["gy"] = None if given is None else dense(given)
    for i, name in ((1, "dh"), (2, "dc")):
        if i < node.outputs:
            given = node.gradient(i)
            arrays[name] = zeros(shape_of(h), h.code, h.buffer.device) if given is None else copy_array(given)
    arrays["dx"] = arrays["dz"] = empty(h.code, 3, extent, h.buffer.device)
    if cell.kind == "gru" or cell.norm == "state":
        arrays["dz"] = like(<Array>arrays["dx"])
    for i, name in enumerate(PARAMETERS[2:], 5):
        if node.needs(i):
            arrays["d" + name] = like(<Array>inputs[i])
    backend(h).recurrent_backward(cell, arrays)
    cdef Array dz = flat(<Array>arrays["dz"])
    for i, name in enumerate(("dx", "dh", "dc")):
        if node.needs(i):
            node.give(i, <Array>arrays[name])
    if node.needs(3):
        node.give(3, product(permute_raw(dz, [1, 0]), flat(steps_of(<Array>arrays["h"], 0)), None))
    if node.needs(4):
        node.give(4, sum_axes(dz, [0], False))
    for i, name in enumerate(PARAMETERS[2:], 5):
        if node.needs(i):
            node.give(i, <Array>arrays["d" + name])
    return 0


cdef tuple composition_of(Node node):
    """The composition of a recorded layer, and its inputs."""
    cdef Cell cell = node.extra[0]
    cdef Array lengths = None if node.extra[1] is None else (<Lengths>node.extra[1]).values
    cdef list inputs = [node.value(i) for i in range(node.inputs)]
    if inputs[0] is None:
        inputs[0] = node.attach(0, projected(cell, *node.extra[2 + len(ARRAYS):]))
    return partial(composition, cell, lengths), inputs


def compositions(Array x: Tensor) -> dict[int, tuple[Callable[..., tuple[Tensor, ...]], list[Tensor | None]]]:
    """The recurrent layers in the history of x: sequence number -> (the composition of the layer, its inputs)."""
    return {(<Node>node).sequence: composition_of(<Node>node)
            for node in history_of([x]) if (<Node>node).op.differentiate == backward}


cdef Array like(Array x):
    return empty(x.code, x.ndim_, x.extent, x.buffer.device)


cdef tuple PARAMETERS = ("w", "bias", "gamma", "beta", "gamma_c", "beta_c")
# The arrays that the forward pass keeps for the backward pass.
cdef tuple ARRAYS = ("h", "c", "z", "act", "stats", "stats_c", "raw_c")


def recurrent(Cell cell, x: TensorLike, h: TensorLike, c: TensorLike | None, weight: TensorLike,
              bias: TensorLike | None = None, gamma: TensorLike | None = None, beta: TensorLike | None = None,
              gamma_c: TensorLike | None = None, beta_c: TensorLike | None = None,
              lengths: TensorLike | Lengths | None = None,
              source: tuple[float, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None] | None = None,
              ) -> tuple[Tensor, ...]:
    """All steps of one recurrent layer: the state after each step, 0 after a sample's end, and the last states.

    Parameters
    ----------
    cell : Cell
        The equations, which the layers in ``minigrad.nn`` show.
    x : Tensor, shape (T, N, G H)
        The input's contribution to every step, ``W_ih x_t`` and its bias, normalized if the layer does so. G is 1 for
        an RNN, 4 for an LSTM (gates i, f, g, o), 3 for a GRU (r, z, n).
    h, c : Tensor, shape (N, H)
        The initial states; c is None except for an LSTM.
    weight, bias, gamma, beta : Tensor, shape (G H, H) and (G H,)
        The matrix of h, the bias added to the product, and the weight and bias of its norm.
    gamma_c, beta_c : Tensor, shape (H,), optional
        The weight and bias of the norm of c.
    lengths : Tensor or Lengths, shape (N,), optional
        The number of steps of each sample, from 0 to T. `Lengths` are not checked again.
    source : tuple, optional
        eps, input, weight, bias, gamma and beta from which `projected` made `x`. The tape keeps them instead of x: the
        backward pass needs x only with ``create_graph=True``, and then computes it again.
    """
    cdef str op = cell.op
    cdef Op record = lstm_op if op == "lstm" else gru_op if op == "gru" else rnn_op
    cdef Call _call = begin(record)
    cdef list inputs = [optional(op, given) for given in (x, h, c, weight, bias, gamma, beta, gamma_c, beta_c)]
    cdef Array a = float_operand(op, inputs[0]), first, mask = None
    cdef Lengths ends = None
    cdef bint wanted = False
    cdef int i
    for i in range(len(inputs)):
        if inputs[i] is not None:
            inputs[i] = float_operand(op, inputs[i])
            check_same_device(op, a, <Array>inputs[i])
            if (<Array>inputs[i]).code != a.code:
                raise TypeError(f"[{op}] expected one dtype, got an input of {a.dtype} and {NAMES[i]} of "
                                f"{(<Array>inputs[i]).dtype}")
            wanted = wanted or (<Array>inputs[i]).needs_grad
    wanted = wanted and recording()
    gates = GATES[op]
    if a.ndim_ != 3 or a.extent[0] < 1 or a.extent[2] < 1 or a.extent[2] % gates:
        raise ValueError(f"[{op}] expected a projected input (T, N, {gates} H) with T and H at least 1, got {a.shape}")
    T, N, columns = shape_of(a)
    H = columns // gates
    state, column, of_c = (N, H), (columns,), (H,)
    shapes = (None, state, state, (columns, H), column, column, column, of_c, of_c)
    for i in range(1, len(inputs)):
        if inputs[i] is not None and shape_of(<Array>inputs[i]) != shapes[i]:
            raise ValueError(f"[{op}] expected {NAMES[i]} of shape {shapes[i]}, got {shape_of(<Array>inputs[i])}")
    if cell.norm is not None and sum(cell.sizes) != columns:
        raise ValueError(f"[{op}] expected sizes that add up to {columns} columns, got {cell.sizes}")
    if cell.kind == "gru" and cell.norm is not None and cell.sizes[-1] != H:
        raise ValueError(f"[gru] expected the candidate's {H} columns to be normalized separately, got {cell.sizes}")
    if (cell.kind == "lstm") != (c is not None):
        raise ValueError(f"[{op}] expected a first cell state c for an LSTM and for no other, got {c}")
    if lengths is not None:
        ends = lengths if isinstance(lengths, Lengths) else Lengths(lengths, T, N, op, device_name(a.buffer.device))
        if (ends.steps, shape_of(ends.values)) != (T, (N,)):
            raise ValueError(f"[{op}] expected lengths of {N} samples of {T} steps, got {ends}")
        mask = ends.values
    if not cell.reset_after:    # its second product of a step needs the gates that the first one gives
        found = composition(cell, mask, *inputs)
        note_computed(op, found, inputs, (cell, ends, *[None] * len(ARRAYS), *(source or ())))
        return found

    # the state before each step and the last one, so that y and the h_{t-1} of all steps are views of one array
    cdef dict arrays = {"x": dense(a), "lengths": mask}
    cdef int64_t[4] extent
    extent[0], extent[1], extent[2] = T + 1, N, H
    for name, start in (("h", inputs[1]), ("c", inputs[2])):
        if start is not None:
            arrays[name] = empty(a.code, 3, extent, a.buffer.device)
            first = before_all(<Array>arrays[name])
            backend(a).copy(<Array>start, first)
            # a sample without steps ends where it began
            arrays[name + "_last"] = like(first) if mask is None else copy_array(first)
    arrays.update(zip(PARAMETERS, [None if p is None else dense(<Array>p) for p in inputs[3:]]))
    extent[0] = T if wanted and (cell.norm is not None or gates > 1) else 1
    extent[2] = columns
    arrays["z"] = arrays["act"] = empty(a.code, 3, extent, a.buffer.device)
    if gates > 1 and (cell.norm is not None or cell.kind == "gru"):
        arrays["act"] = empty(a.code, 3, extent, a.buffer.device)
    extent[2], extent[3] = len(cell.sizes), 3
    if cell.norm is not None:
        arrays["stats"] = empty(a.code, 4, extent, a.buffer.device)
    extent[2] = 3
    if cell.norm_cell:
        arrays["stats_c"] = empty(a.code, 3, extent, a.buffer.device)
    extent[2] = H
    if cell.carry_norm:
        arrays["raw_c"] = empty(a.code, 3, extent, a.buffer.device)
    if N:
        backend(a).recurrent(cell, arrays)
    if wanted and ends is not None and ends.shortest == 0:
        # no step reads the first state of a sample without steps, but dW would: 0 times NaN is NaN
        first = before_all(<Array>arrays["h"])
        backend(a).copy(where(expand_dims(mask > 0, 1), first, 0.0), first)
    cdef list outs = [steps_of(<Array>arrays["h"], 1), arrays["h_last"]]
    if "c" in arrays:
        outs.append(arrays["c_last"])
    # the composition needs all inputs, including x, which the kernel's backward pass does not need
    track_many(record, outs, inputs,
               list(range(source is not None, len(inputs))),
               (cell, ends, *[arrays.get(name) for name in ARRAYS], *(source or ())))
    return tuple(outs)


cdef tuple NAMES = ("the input", "h", "c", "the weight", "the bias", "gamma", "beta", "gamma_c", "beta_c")
