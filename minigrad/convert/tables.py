"""The layers of each framework."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from minigrad.convert.rules import (
    CANDIDATE,
    CHANNELS_LAST,
    COLUMN,
    HEADS,
    HEADS_BIAS,
    HEADS_IN,
    HEADS_OUT,
    KERAS_KERNEL,
    KERNEL_LAST,
    SAME,
    TORCH_GRU,
    TRANSPOSED,
    UNSTATED,
    Argument,
    Formula,
    Rule,
    affine,
    arguments,
    both,
    gates,
    gelu,
    onnx_gates,
    row,
    running,
    slope,
)  # fmt: skip


class Framework(NamedTuple):
    """The rules of a framework, by kind of layer; several if it has several forms.

    Attributes
    ----------
    channels_last : bool
        Whether what is flattened has the channels last.
    ordered : bool
        Whether the order of its weights is the order of its layers, not the alphabet's.
    version : str
        The version whose recorded outputs the suite compares with.
    """

    version: str
    channels_last: bool
    ordered: bool
    rules: Mapping[str, tuple[Rule, ...]]


def kernel(*, conv: bool = False) -> Rule:
    return Rule({"weight": ("kernel", KERNEL_LAST if conv else TRANSPOSED), "bias": ("bias", SAME)})


PLAIN = Rule(affine("weight", "bias"))
EMBEDDING = {"weight": ("embedding", SAME)}
PROJECTED = "query", "key", "value"


def attention(
    leaf: str, bias: str, names: tuple[str, ...], out: str, into: Formula, flat: Formula,
    outward: Formula, **more: Argument,
) -> Rule:  # fmt: skip
    """Return the rule of four projections, each with a kernel and perhaps a bias."""
    parts = [f"{name}.{kind}" for name in (*names, out) for kind in (leaf, bias)]
    return Rule(
        {
            "in_proj_weight": (tuple(f"{name}.{leaf}" for name in names), into),
            "in_proj_bias": (tuple(f"{name}.{bias}" for name in names), flat),
            "out_proj.weight": (f"{out}.{leaf}", outward), "out_proj.bias": (f"{out}.{bias}", SAME),
        },
        more, tuple(parts),
    )  # fmt: skip


def recurrent(order: str, w: str, u: str, b: str, transposed: bool, **more: Argument) -> Rule:
    """Return the rule of fused gates with a single bias."""
    formula = gates(order, transposed)
    bias = gates(order)
    return Rule({"weight_ih": (w, formula), "weight_hh": (u, formula), "bias_ih": (b, bias)}, more)


def two_biases(**more: Argument) -> Rule:
    """Return the rule of PyTorch's recurrent layers."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return Rule({name: (name + "{s}", SAME) for name in names}, more, shared=True)


def same(rule: Rule, *kinds: str) -> dict[str, tuple[Rule, ...]]:
    """Return one rule for several kinds of layers."""
    return dict.fromkeys(kinds, (rule,))


def _sizes(value: Any) -> Any:
    """Return a stride as the tuple that modules have."""
    return value if value is UNSTATED else tuple(value)


def _groups(value: Any) -> Any:
    """Return the number of groups; -1 means one for each channel, whose number is not known here."""
    return UNSTATED if value == -1 else value


EPS = {"eps": Argument("eps", 1e-5)}
KERAS_GATES = {  # its hard sigmoid has a slope of 1/6
    "activation": Argument("activation", "tanh"),
    "gate_activation": Argument("recurrent_activation", "sigmoid", lambda name: name.replace("hard", "another hard")),
}
KERAS_AROUND = {
    "go_backwards": Argument("go_backwards", False),
    "merge_mode": Argument("merge_mode", "concat", lambda mode: mode or "concat"),  # None for two results
}
KERAS_CONV = {
    "stride": Argument("strides", UNSTATED, _sizes), "dilation": Argument("dilation_rate", UNSTATED, _sizes),
}  # fmt: skip
KERAS = Framework("Keras 3.15.1", True, True, {
    "linear": (kernel(),),
    "conv": (Rule({"weight": ("kernel", KERAS_KERNEL), "bias": ("bias", SAME)}, KERAS_CONV),),
    "embedding": (Rule({"weight": ("embeddings", SAME)}),),
    **same(Rule(affine("gamma", "beta"), arguments(1e-3)), "layer_norm", "instance_norm"),
    "group_norm": (Rule(affine("gamma", "beta"), arguments(1e-3, num_groups=Argument("groups", UNSTATED, _groups))),),
    "rms_norm": (Rule({"weight": ("scale", SAME)}, arguments(1e-6)),),
    "batch_norm": (
        Rule(both("gamma", "beta", "moving_mean", "moving_variance"), arguments(1e-3, **running(0.99, False))),
    ),
    "rnn": (recurrent("h", "kernel", "recurrent_kernel", "bias", True, nonlinearity=Argument("activation", "tanh"),
                      **KERAS_AROUND),),
    "lstm": (recurrent("ifgo", "kernel", "recurrent_kernel", "bias", True, **KERAS_GATES, **KERAS_AROUND),),
    "gru": (
        Rule(
            {
                "weight_ih": ("kernel", gates("zrn", True)), "weight_hh": ("recurrent_kernel", gates("zrn", True)),
                "bias_ih": ("bias", row(0, gates("zrn"))), "bias_hh": ("bias", row(1, gates("zrn"))),
            },
            {**TORCH_GRU, **KERAS_GATES, **KERAS_AROUND}, fits=lambda given, options: given["bias"].ndim == 2,
        ),
        recurrent("zrn", "kernel", "recurrent_kernel", "bias", True,
                  convention=Argument(None, "torch"), reset_after=Argument(None, False), **KERAS_GATES, **KERAS_AROUND),
    ),
    "attention": (attention("kernel", "bias", PROJECTED, "attention_output", HEADS_IN, HEADS_BIAS, HEADS_OUT,
                            num_heads=HEADS),),
    "gelu": (gelu(False),),
    "leaky_relu": (slope(0.3),),
})  # fmt: skip

FLAX_GATES = {
    "ih": tuple(f"i{gate}.kernel" for gate in "ifgo"), "hh": tuple(f"h{gate}.kernel" for gate in "ifgo"),
    "bias": tuple(f"h{gate}.bias" for gate in "ifgo"),
}  # fmt: skip
FLAX_LSTM = Rule({
    "weight_ih": (FLAX_GATES["ih"], TRANSPOSED), "weight_hh": (FLAX_GATES["hh"], TRANSPOSED),
    "bias_ih": (FLAX_GATES["bias"], SAME),
})  # fmt: skip
NNX_LSTM = Rule({
    "weight_ih": (tuple(name.replace("if.", "if_.") for name in FLAX_GATES["ih"]), TRANSPOSED),
    "weight_hh": (FLAX_GATES["hh"], TRANSPOSED), "bias_ih": (FLAX_GATES["bias"], SAME),
})  # fmt: skip
FLAX = Framework("Flax 0.12.12", True, False, {
    "linear": (kernel(),),
    "conv": (kernel(conv=True),),
    "embedding": (Rule(EMBEDDING),),
    **same(Rule(affine("scale", "bias"), arguments(1e-6)), "layer_norm", "group_norm", "instance_norm"),
    "rms_norm": (Rule({"weight": ("scale", SAME)}, arguments(1e-6)),),
    "batch_norm": (Rule(both("scale", "bias", "mean", "var"), arguments(1e-5, **running(0.99, False))),),
    "rnn": (
        recurrent("h", "dense_i.kernel", "dense_h.kernel", "dense_i.bias", True),
        recurrent("h", "i.kernel", "h.kernel", "i.bias", True),
    ),
    "lstm": (recurrent("ifgo", "dense_i.kernel", "dense_h.kernel", "dense_h.bias", True), NNX_LSTM, FLAX_LSTM),
    "gru": (
        recurrent("rzn", "dense_i.kernel", "dense_h.kernel", "dense_i.bias", True, **TORCH_GRU),
        Rule(
            {
                "weight_ih": (tuple(f"i{gate}.kernel" for gate in "rzn"), TRANSPOSED),
                "weight_hh": (tuple(f"h{gate}.kernel" for gate in "rzn"), TRANSPOSED),
                "bias_ih": (tuple(f"i{gate}.bias" for gate in "rzn"), SAME), "bias_hh": ("hn.bias", CANDIDATE),
            },
            TORCH_GRU,
        ),
    ),
    "attention": (attention("kernel", "bias", PROJECTED, "out", HEADS_IN, HEADS_BIAS, HEADS_OUT, num_heads=HEADS),),
    "gelu": (gelu(True),),
    "leaky_relu": (slope(0.01),),
})  # fmt: skip

PADDLE = Framework("Paddle 3.3.1", False, True, {
    "linear": (Rule({"weight": ("weight", TRANSPOSED), "bias": ("bias", SAME)}),),
    "conv": (PLAIN,),
    "embedding": (PLAIN,),
    **same(Rule(affine("weight", "bias"), arguments(1e-5)), "layer_norm", "group_norm"),
    "instance_norm": (Rule(affine("scale", "bias"), arguments(1e-5)),),
    "batch_norm": (Rule(both("weight", "bias", "_mean", "_variance"), arguments(1e-5, **running(0.9, False))),),
    **same(two_biases(), "rnn", "lstm"),
    "gru": (two_biases(**TORCH_GRU),),
    "attention": (
        attention("weight", "bias", ("q_proj", "k_proj", "v_proj"), "out_proj", TRANSPOSED, SAME, TRANSPOSED),
    ),
    "gelu": (gelu(False),),
    "leaky_relu": (slope(0.01),),
})  # fmt: skip

MINDSPORE = Framework("MindSpore 2.10.0", False, True, {
    "linear": (PLAIN,),
    "conv": (PLAIN,),
    "embedding": (Rule({"weight": ("embedding_table", SAME)}),),
    "layer_norm": (Rule(affine("gamma", "beta"), arguments(1e-7)),),
    "group_norm": (Rule(affine("gamma", "beta"), arguments(1e-5)),),
    "batch_norm": (
        Rule(both("gamma", "beta", "moving_mean", "moving_variance"), arguments(1e-5, **running(0.9, True))),
        # the names of a layer that is in no other
        Rule(both("gamma", "beta", "mean", "variance"), arguments(1e-5, **running(0.9, True))),
    ),
    **same(two_biases(), "rnn", "lstm"),
    "gru": (two_biases(**TORCH_GRU),),
    "gelu": (gelu(True),),
    "leaky_relu": (slope(0.2),),
})  # fmt: skip

MLX = Framework("MLX 0.32.4", True, True, {
    "linear": (PLAIN,),
    "conv": (Rule({"weight": ("weight", CHANNELS_LAST), "bias": ("bias", SAME)}),),
    "embedding": (PLAIN,),
    **same(Rule(affine("weight", "bias"), EPS), "layer_norm", "instance_norm"),
    "rms_norm": (Rule({"weight": ("weight", SAME)}, EPS),),
    "group_norm": (Rule(affine("weight", "bias"), {
        **EPS, "interleaved": Argument("pytorch_compatible", False, lambda value: not value),
    }),),
    "batch_norm": (Rule(both("weight", "bias", "running_mean", "running_var"), {
        **EPS, "momentum": Argument("momentum", 0.1), "unbiased_running_var": Argument(None, True),
    }),),
    "rnn": (recurrent("h", "Wxh", "Whh", "bias", False),),
    "lstm": (recurrent("ifgo", "Wx", "Wh", "bias", False),),
    "gru": (Rule({
        "weight_ih": ("Wx", SAME), "weight_hh": ("Wh", SAME), "bias_ih": ("b", SAME), "bias_hh": ("bhn", CANDIDATE),
    }, TORCH_GRU),),
    "attention": (
        attention("weight", "bias", ("query_proj", "key_proj", "value_proj"), "out_proj", SAME, SAME, SAME),
    ),
    "gelu": (gelu("none"),),
    "leaky_relu": (slope(0.01),),
})  # fmt: skip

HAIKU_GATES = gates("igfo", True)
HAIKU_INPUT = Formula(lambda a, slot: HAIKU_GATES.to(a[: -slot.layer.hidden_size], slot), HAIKU_GATES.back)
HAIKU_STATE = Formula(lambda a, slot: HAIKU_GATES.to(a[-slot.layer.hidden_size :], slot), HAIKU_GATES.back)
HAIKU_PAPER = {"convention": Argument(None, "paper"), "reset_after": Argument(None, False)}
HAIKU = Framework("haiku 0.0.17", True, False, {
    "linear": (Rule({"weight": ("w", TRANSPOSED), "bias": ("b", SAME)}),),
    "conv": (Rule({"weight": ("w", KERNEL_LAST), "bias": ("b", SAME)}),),
    "embedding": (Rule({"weight": ("embeddings", SAME)}),),
    **same(Rule(affine("scale", "offset"), EPS), "layer_norm", "group_norm", "instance_norm"),
    "rms_norm": (Rule({"weight": ("scale", SAME)}, EPS),),
    "batch_norm": (Rule({
        "weight": ("scale", COLUMN), "bias": ("offset", COLUMN), "running_mean": ("~.mean_ema.average", COLUMN),
        "running_var": ("~.var_ema.average", COLUMN),
    }, {**EPS, **running(0.9, False, theirs="decay_rate")}),),
    "rnn": (
        Rule({
            "weight_ih": ("linear.w", TRANSPOSED), "bias_ih": ("linear.b", SAME),
            "weight_hh": ("linear_1.w", TRANSPOSED), "bias_hh": ("linear_1.b", SAME),
        }),
    ),
    "lstm": (Rule({
        "weight_ih": ("linear.w", HAIKU_INPUT), "weight_hh": ("linear.w", HAIKU_STATE),
        "bias_ih": ("linear.b", gates("igfo", forget=1.0)),
    }),),
    "gru": (recurrent("zrn", "w_i", "w_h", "b", True, **HAIKU_PAPER),),
    "attention": (attention("w", "b", PROJECTED, "linear", TRANSPOSED, SAME, TRANSPOSED),),
    "gelu": (gelu(True),),
    "leaky_relu": (slope(0.01),),
})  # fmt: skip

EQUINOX = Framework("equinox 0.13.8", False, True, {
    "linear": (PLAIN,),
    "conv": (Rule({"weight": ("weight", SAME), "bias": ("bias", COLUMN)}),),
    "embedding": (PLAIN,),
    **same(Rule(affine("weight", "bias"), EPS), "layer_norm", "group_norm"),
    "rms_norm": (Rule({"weight": ("weight", SAME)}, EPS),),
    "lstm": (recurrent("ifgo", "weight_ih", "weight_hh", "bias", False),),
    "gru": (Rule({
        "weight_ih": ("weight_ih", SAME), "weight_hh": ("weight_hh", SAME), "bias_ih": ("bias", SAME),
        "bias_hh": ("bias_n", CANDIDATE),
    }, TORCH_GRU),),
    "attention": (
        attention("weight", "bias", ("query_proj", "key_proj", "value_proj"), "output_proj", SAME, SAME, SAME),
    ),
    "gelu": (gelu(True),),
    "leaky_relu": (slope(0.01),),
})  # fmt: skip

SIGMOID = {"gate_activation": Argument(None, "sigmoid")}
TORCH = Framework("PyTorch 2.13.0", False, True, {  # what its layers cannot be made with
    "lstm": (Rule({}, SIGMOID),),
    "gru": (Rule({}, {"convention": Argument(None, "torch"), "reset_after": Argument(None, True), **SIGMOID}),),
    "group_norm": (Rule({}, {"interleaved": Argument(None, False)}),),
    "batch_norm": (Rule({}, {"unbiased_running_var": Argument(None, True)}),),
})  # fmt: skip


def onnx_recurrent(order: str, **more: Argument) -> Rule:
    return Rule({
        "weight_ih": ("W", onnx_gates(order)), "weight_hh": ("R", onnx_gates(order)),
        "bias_ih": ("B", onnx_gates(order, 0)), "bias_hh": ("B", onnx_gates(order, 1)),
    }, more, shared=True)  # fmt: skip


ONNX = Framework("onnxruntime 1.31.1", False, True, {
    "linear": (
        Rule({"weight": ("B", TRANSPOSED), "bias": ("C", SAME)}, fits=lambda given, options: not options("transB", 0)),
        Rule({"weight": ("B", SAME), "bias": ("C", SAME)}),
    ),
    "conv": (Rule({"weight": ("W", SAME), "bias": ("B", SAME)}),),
    "layer_norm": (Rule(affine("Scale", "B"), arguments(1e-5)),),
    "group_norm": (Rule(affine("scale", "bias"), arguments(1e-5)),),
    "instance_norm": (Rule(affine("scale", "B"), arguments(1e-5)),),
    "batch_norm": (Rule(both("scale", "B", "input_mean", "input_var"), arguments(1e-5, **running(0.9, False))),),
    "rnn": (onnx_recurrent("h"),),
    "lstm": (onnx_recurrent("iofg"),),
    "gru": (
        onnx_recurrent("zrn", convention=Argument(None, "torch"), reset_after=Argument("linear_before_reset", 0, bool)),
    ),
    "gelu": (gelu("none"),),
    "leaky_relu": (slope(0.01),),
})  # fmt: skip
