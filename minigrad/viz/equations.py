"""The equation and the derivative of every operation that a tape may hold, in words for a reader.

g is the gradient of the output y, dx the gradient of the input x; a product without a sign is element by element, and a
capital letter is a matrix. Sums over axes that were broadcast are entries of their own (`broadcast_to`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Equation:
    """What an operation computes.

    Attributes
    ----------
    inputs : tuple of str
        Names of the inputs, in the tape's order; of any number of equal ones the name of one with an ellipsis.
    outputs : tuple of str
    forward, backward : str
        Lines of text.
    code : str
        Module and function of ``cext/ops`` that compute the derivative; empty if it is not there.
    source : str
        Author and year where the equation comes from a paper.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    forward: str
    backward: str
    code: str = ""
    source: str = ""


def one(forward: str, backward: str, code: str, source: str = "") -> Equation:
    """Of one input x and one output y."""
    return Equation(("x",), ("y",), forward, backward, code, source)


def two(forward: str, backward: str, code: str) -> Equation:
    """Of a and b."""
    return Equation(("a", "b"), ("y",), forward, backward, code)


NORM = "μ = Σ x / n\nσ² = Σ (x − μ)² / n\nr = 1 / √(σ² + ε)\nx̂ = (x − μ) r\ny = γ x̂ + β"

EQUATIONS: dict[str, Equation] = {
    # ── the tape's own ────────────────────────────────────────────────────────────────────────────
    "leaf": Equation((), ("x",), "x is given: a parameter, or data", "x.grad ← x.grad + g"),
    "identity": one("y = x", "dx = g", ""),
    "copy": one("y = x, in memory of its own", "dx = g", "layout.copy_backward"),
    "to": one("y = x, on another device", "dx = g, brought back", ""),
    "astype": one("y = x in another dtype", "dx = g in the dtype of x", "layout.cast_backward"),
    # ── arithmetic ────────────────────────────────────────────────────────────────────────────────
    "add": two("y = a + b", "da = g\ndb = g", "arithmetic.add_backward"),
    "subtract": two("y = a − b", "da = g\ndb = −g", "arithmetic.subtract_backward"),
    "multiply": two("y = a b", "da = g b\ndb = g a", "arithmetic.multiply_backward"),
    "divide": two("y = a / b", "da = g / b\ndb = −g a / b²", "arithmetic.divide_backward"),
    "remainder": two("y = a − b ⌊a / b⌋", "da = g\ndb = −g ⌊a / b⌋", "arithmetic.remainder_backward"),
    "reciprocal": one("y = 1 / x", "dx = −g y²", "arithmetic.reciprocal_backward"),
    "negative": one("y = −x", "dx = −g", "arithmetic.negative_backward"),
    "power": two(
        "y = aᵇ",
        "da = g b aᵇ⁻¹, 0 where b = 0\ndb = g y ln a, 0 where a = 0 and b ≥ 0",
        "functions.power_backward",
    ),
    "square": one("y = x²", "dx = 2 g x", "functions.square_backward"),
    "sqrt": one("y = √x", "dx = g / (2 y)", "functions.sqrt_backward"),
    "rsqrt": one("y = 1 / √x", "dx = −g y³ / 2", "functions.rsqrt_backward"),
    "abs": one("y = |x|", "dx = g sign x", "functions.abs_backward"),
    "sign": one("y = sign x", "dx = 0", "functions.no_gradient"),
    "floor": one("y = ⌊x⌋", "dx = 0", "functions.no_gradient"),
    "ceil": one("y = ⌈x⌉", "dx = 0", "functions.no_gradient"),
    "round": one("y = the integer nearest to x, of two the even one", "dx = 0", "functions.no_gradient"),
    # ── exponentials, logarithms, angles ──────────────────────────────────────────────────────────
    "exp": one("y = eˣ", "dx = g y", "functions.exp_backward"),
    "expm1": one("y = eˣ − 1", "dx = g (y + 1)", "functions.expm1_backward"),
    "exp2": one("y = 2ˣ", "dx = g y ln 2", "functions.exp2_backward"),
    "log": one("y = ln x", "dx = g / x", "functions.log_backward"),
    "log1p": one("y = ln (1 + x)", "dx = g / (1 + x)", "functions.log1p_backward"),
    "log2": one("y = log₂ x", "dx = g / (x ln 2)", "functions.log2_backward"),
    "log10": one("y = log₁₀ x", "dx = g / (x ln 10)", "functions.log10_backward"),
    "erf": one("y = 2/√π ∫₀ˣ exp(−t²) dt", "dx = g 2/√π exp(−x²)", "functions.erf_backward"),
    "sin": one("y = sin x", "dx = g cos x", "trigonometry.sin_backward"),
    "cos": one("y = cos x", "dx = −g sin x", "trigonometry.cos_backward"),
    "tan": one("y = tan x", "dx = g (1 + y²)", "trigonometry.tan_backward"),
    "asin": one("y = arcsin x", "dx = g / √(1 − x²)", "trigonometry.asin_backward"),
    "acos": one("y = arccos x", "dx = −g / √(1 − x²)", "trigonometry.acos_backward"),
    "atan": one("y = arctan x", "dx = g / (1 + x²)", "trigonometry.atan_backward"),
    "atan2": two(
        "y = the angle of the point (b, a)",
        "da = g b / (a² + b²)\ndb = −g a / (a² + b²), both 0 at the origin",
        "trigonometry.atan2_backward",
    ),
    "sinh": one("y = sinh x", "dx = g cosh x", "trigonometry.sinh_backward"),
    "cosh": one("y = cosh x", "dx = g sinh x", "trigonometry.cosh_backward"),
    "tanh": one("y = tanh x", "dx = g (1 − y²)", "trigonometry.tanh_backward"),
    "asinh": one("y = arsinh x", "dx = g / √(x² + 1)", "trigonometry.asinh_backward"),
    "acosh": one("y = arcosh x", "dx = g / √(x² − 1)", "trigonometry.acosh_backward"),
    "atanh": one("y = artanh x", "dx = g / (1 − x²)", "trigonometry.atanh_backward"),
    # ── activations ───────────────────────────────────────────────────────────────────────────────
    "relu": one("y = max(x, 0)", "dx = g where x > 0, else 0", "activation.relu_backward"),
    "sigmoid": one("y = σ(x) = 1 / (1 + e⁻ˣ)", "dx = g y (1 − y)", "activation.sigmoid_backward"),
    "silu": one("y = x σ(x)", "dx = g σ(x) (1 + x σ(−x))", "activation.silu_backward"),
    "elu": one(
        "y = x where x > 0, else α (eˣ − 1)", "dx = g where x > 0, else g α eˣ", "activation.elu_backward"
    ),
    "gelu": one(
        "y = x Φ(x)", "dx = g (Φ(x) + x φ(x)), with the standard normal Φ and its density φ", "activation.gelu_backward"
    ),
    "softplus": one("y = ln (1 + eˣ)", "dx = g σ(x)", "activation.softplus_backward"),
    "dropout": one(
        "y = x k / (1 − p), with k = 1 of probability 1 − p, else 0",
        "dx = g k / (1 − p), with the same k",
        "activation.dropout_backward",
    ),
    # ── shape and place ───────────────────────────────────────────────────────────────────────────
    "reshape": one("y = the elements of x, in the same order", "dx = g in the shape of x", "layout.reshape_backward"),
    "permute_dims": one(
        "y = x with its axes in another order", "dx = g with its axes back in place", "layout.permute_backward"
    ),
    "broadcast_to": one(
        "y = x repeated along axes", "dx = Σ g over the axes that were repeated", "layout.broadcast_backward"
    ),
    "slice": one("y = a window of x", "dx = g in that window, 0 elsewhere", "layout.slice_backward"),
    "place": one("y = x in a window, 0 elsewhere", "dx = that window of g", "layout.place_backward"),
    "concat": Equation(
        ("x…",), ("y",), "y = x₀, x₁, … side by side along an axis", "dxᵢ = the window of g that xᵢ is in y",
        "join.concat_backward",
    ),
    "split": Equation(
        ("x",), ("y…",), "y₀, y₁, … = windows of x along an axis", "dx = g₀, g₁, … side by side", "join.split_backward"
    ),
    "take": one(
        "y_j = x at index i_j along an axis", "dx at i = Σ g_j over all j with i_j = i", "index.take_backward"
    ),
    "scatter": one(
        "y = 0, then x_j added at index i_j along an axis", "dx_j = g at i_j", "index.scatter_backward"
    ),
    "take_along_axis": one(
        "y[o, j, i] = x[o, index[o, j, i], i]",
        "dx = 0, then g[o, j, i] added at [o, index[o, j, i], i]",
        "index.take_along_backward",
    ),
    "add_along_axis": one(
        "y = 0, then x[o, j, i] added at [o, index[o, j, i], i]",
        "dx[o, j, i] = g[o, index[o, j, i], i]",
        "index.add_along_backward",
    ),
    "setitem": Equation(
        ("x", "v"), ("y",), "y = x with a part replaced by v", "dx = g, with 0 in that part\ndv = that part of g",
        "index.setitem_backward",
    ),
    "where": Equation(
        ("a", "b", "c"), ("y",), "y = a where c holds, else b",
        "da = g where c holds, else 0\ndb = 0 where c holds, else g", "logic.where_backward",
    ),
    "clip": one(
        "y = x limited to [low, high]", "dx = 0 where x < low or x > high, else g", "logic.clip_backward"
    ),
    "maximum": two(
        "y = max(a, b)", "da = g where a > b\ndb = g where b > a\nwhere they are equal, g / 2 for each",
        "logic.extremum_backward",
    ),
    "minimum": two(
        "y = min(a, b)", "da = g where a < b\ndb = g where b < a\nwhere they are equal, g / 2 for each",
        "logic.extremum_backward",
    ),
    # ── reductions ────────────────────────────────────────────────────────────────────────────────
    "sum": one("y = Σ x over axes", "dx = g, repeated over these axes", "layout.sum_backward"),
    "prod": one("y = ∏ x over axes", "dxᵢ = g ∏ of the other x", "reduce.prod_backward"),
    "var": one(
        "y = Σ (x − μ)² / (n − c), with the mean μ of the n elements", "dx = 2 g (x − μ) / (n − c)",
        "reduce.var_backward",
    ),
    "std": Equation(
        ("v",), ("y",), "y = √v, v the variance", "dv = g / (2 y), 0 where y = 0", "reduce.std_backward"
    ),
    "max": one(
        "y = max x over axes", "dx = g where x = y, shared equally among ties, else 0", "reduce.extremum_backward"
    ),
    "min": one(
        "y = min x over axes", "dx = g where x = y, shared equally among ties, else 0", "reduce.extremum_backward"
    ),
    "logsumexp": one("y = ln Σ eˣ over axes", "dx = g exp(x − y)", "reduce.logsumexp_backward"),
    "cumulative_sum": one(
        "yᵢ = x₀ + … + xᵢ along an axis", "dxᵢ = gᵢ + … + gₙ₋₁", "reduce.cumulative_sum_backward"
    ),
    # ── products ──────────────────────────────────────────────────────────────────────────────────
    "matmul": Equation(("A", "B"), ("Y",), "Y = A B", "dA = G Bᵀ\ndB = Aᵀ G", "matmul.product_backward"),
    "linear": Equation(
        ("X", "W", "b"), ("Y",), "Y = X Wᵀ + b", "dX = G W\ndW = Gᵀ X\ndb = Σ G over rows", "matmul.linear_backward"
    ),
    "conv2d": Equation(
        ("x", "w", "b"), ("y",),
        "y = x ⋆ w + b, with stride s, padding p, dilation d\n"
        "y[n, o, i, j] = b[o] + Σ_ckl w[o, c, k, l] x[n, c, i s − p + k d, j s − p + l d]",
        "dx: each g[n, o, i, j] sends w[o, c, k, l] g to the x it was made of\n"
        "dw: each g[n, o, i, j] sends x g to the w it was made with\n"
        "db = Σ g over n, i, j",
        "conv.convolved_backward",
    ),
    "conv2d_backward_data": Equation(
        ("g", "w"), ("y",), "y = dx(g, w), the gradient of x in x ⋆ w\n⟨y, v⟩ = ⟨g, v ⋆ w⟩ for every v",
        "with the gradient v of y:\ndg = v ⋆ w\ndw = dw(v, g)", "conv.data_gradient_backward",
    ),
    "conv2d_backward_weight": Equation(
        ("x", "g"), ("y",), "y = dw(x, g), the gradient of w in x ⋆ w\n⟨y, u⟩ = ⟨g, x ⋆ u⟩ for every u",
        "with the gradient u of y:\ndx = dx(g, u)\ndg = x ⋆ u", "conv.weight_gradient_backward",
    ),
    "max_pool2d": one(
        "y = the largest x of each window", "dx = g at the place of that x, 0 elsewhere", "pooling.max_pool2d_backward"
    ),
    "avg_pool2d": one(
        "y = the mean of x over each window", "dx = Σ over the windows around x of g / their size",
        "pooling.averaged_backward",
    ),
    "avg_pool2d_backward": one(
        "y = Σ over the windows around a place of x / their size", "dx = the mean of g over each window",
        "pooling.spread_backward",
    ),
    # ── softmax and normalization ─────────────────────────────────────────────────────────────────
    "softmax": one("yᵢ = exp xᵢ / Σ exp x along an axis", "dx = y (g − Σ g y)", "softmax.softmax_backward"),
    "log_softmax": one("y = x − ln Σ exp x along an axis", "dx = g − exp(y) Σ g", "softmax.log_softmax_backward"),
    "cross_entropy": Equation(
        ("z",), ("loss",), "loss = w_t (ln Σ exp z − z_t) for the label t of each row, without label smoothing",
        "dz = g w_t (softmax z − onehot t)", "softmax.cross_entropy_backward",
    ),
    "layer_norm": Equation(
        ("x", "γ", "β"), ("y",), "over the n elements of each row:\n" + NORM,
        "dx = r (γ g − mean(γ g) − x̂ mean(γ g x̂))\ndγ = Σ g x̂ over rows\ndβ = Σ g over rows",
        "norm.layer_norm_backward", "Ba, Kiros and Hinton (2016), eq. 3 and 4",
    ),
    "rms_norm": Equation(
        ("x", "γ"), ("y",), "over the n elements of each row:\nr = 1 / √(Σ x² / n + ε)\nx̂ = x r\ny = γ x̂",
        "dx = r (γ g − x̂ mean(γ g x̂))\ndγ = Σ g x̂ over rows", "norm.rms_norm_backward",
        "Zhang and Sennrich (2019), eq. 4",
    ),
    "group_norm": Equation(
        ("x", "γ", "β"), ("y",), "over the n elements of each group of channels of a sample:\n" + NORM,
        "dx = r (γ g − mean(γ g) − x̂ mean(γ g x̂))\ndγ, dβ = Σ g x̂, Σ g over each channel's elements",
        "norm.group_norm_backward", "Wu and He (2018), eq. 1 and 7",
    ),
    "instance_norm": Equation(
        ("x", "γ", "β"), ("y",), "over the n elements of each channel of a sample:\n" + NORM,
        "dx = r (γ g − mean(γ g) − x̂ mean(γ g x̂))\ndγ, dβ = Σ g x̂, Σ g over each channel's elements",
        "norm.group_norm_backward", "Ulyanov, Vedaldi and Lempitsky (2016)",
    ),
    "batch_norm": Equation(
        ("x", "γ", "β"), ("y",), "over the n elements of each channel in the batch:\n" + NORM,
        "dγ = Σ g x̂\ndβ = Σ g\ndx = γ r (g − dβ / n − x̂ dγ / n)",
        "batch_norm.train_backward", "Ioffe and Szegedy (2015), algorithm 1",
    ),
}  # fmt: skip

GIVEN_STATISTICS = Equation(
    ("x", "μ", "σ²", "γ", "β"), ("y",), "with μ and σ² given:\nr = 1 / √(σ² + ε)\nx̂ = (x − μ) r\ny = γ x̂ + β",
    "dx = γ r g\ndγ = Σ g x̂\ndβ = Σ g\ndμ = −γ r dβ\ndσ² = −γ r² dγ / 2", "batch_norm.eval_backward",
    "Ioffe and Szegedy (2015), algorithm 2",
)  # fmt: skip

VARIANTS: dict[tuple[str, int], Equation] = {
    ("power", 1): Equation(("x",), ("y",), "y = xⁿ", "dx = g n xⁿ⁻¹", "functions.constant_power_backward"),
    ("batch_norm", 5): GIVEN_STATISTICS,
    ("instance_norm", 5): GIVEN_STATISTICS,
}


def equation_of(op: str, inputs: int = 0, function: bool = False) -> Equation:
    """The equation of an operation with a number of inputs, or of a `Function` of the user's, whatever its name.

    Those of recurrent layers depend on more: see `cells`.
    """
    found = None if function else VARIANTS.get((op, inputs)) or EQUATIONS.get(op)
    if found is not None:
        return found
    return Equation(("x…",), ("y…",), f"{op}.forward, written in Python", f"{op}.backward, written in Python")
