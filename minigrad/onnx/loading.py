"""Weights of an ONNX model, read back into a module of the same layers."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from minigrad.nn.layers.conv import Conv1d, Conv2d, ConvTranspose2d
from minigrad.nn.layers.linear import Linear
from minigrad.nn.module import Module
from minigrad.nn.norm.batch_norm import _BatchNorm, _InstanceNorm
from minigrad.nn.norm.row_norms import LayerNorm, RMSNorm
from minigrad.nn.recurrent.layers import GRU, LSTM, RNN
from minigrad.nn.recurrent.sequences import Sequences
from minigrad.onnx.recurrent import ORDERS
from minigrad.tools.files import check_path

State = dict[str, np.ndarray | None]  # arrays by the names of parameters and buffers
Found = tuple[str, State, dict[str, Any]]  # the kind of a layer, its weights, and what else has to agree

KINDS: dict[str, tuple[type, ...]] = {
    "linear": (Linear,), "conv": (Conv1d, Conv2d), "conv_transpose": (ConvTranspose2d,), "batch_norm": (_BatchNorm,),
    "instance_norm": (_InstanceNorm,), "layer_norm": (LayerNorm,), "rms_norm": (RMSNorm,), "rnn": (RNN,),
    "lstm": (LSTM,), "gru": (GRU,),
}  # fmt: skip


class _Model:
    """The nodes of a model, and the arrays that are constants in it."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.nodes = list(graph.node)
        self.arrays = {x.name: numpy_helper.to_array(x) for x in graph.initializer}
        self.readers: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            given = [self.array(node, k) for k in range(len(node.input))]
            options = _options(node)
            if node.op_type == "Constant" and "value" in options:
                self.arrays[node.output[0]] = numpy_helper.to_array(options["value"])
            elif given and given[0] is not None and node.op_type in ("Identity", "Transpose"):
                self.arrays[node.output[0]] = given[0].transpose(options.get("perm")) if options else given[0]
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def array(self, node: NodeProto, k: int) -> np.ndarray | None:
        """Return input k of a node if it is constant."""
        return self.arrays.get(node.input[k]) if k < len(node.input) else None

    def bias_after(self, node: NodeProto) -> np.ndarray | None:
        """Return the constant that the only reader of a node's result adds to it, without axes of length one."""
        readers = self.readers.get(node.output[0], [])
        if len(readers) != 1 or readers[0].op_type != "Add":
            return None
        found = [a for k in range(2) if (a := self.array(readers[0], k)) is not None]
        return found[0].reshape(-1) if found and found[0].size == max(found[0].shape, default=0) else None


def _options(node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _gemm(model: _Model, node: NodeProto, o: dict[str, Any]) -> Iterator[Found]:
    weight, bias = model.array(node, 1), model.array(node, 2)
    if weight is not None:
        w = weight if o.get("transB") else weight.T
        yield "linear", {"weight": o.get("alpha", 1) * w, "bias": None if bias is None else o.get("beta", 1) * bias}, {}


def _matmul(model: _Model, node: NodeProto, o: dict[str, Any]) -> Iterator[Found]:
    weight = model.array(node, 1)
    if weight is not None and weight.ndim == 2:
        yield "linear", {"weight": weight.T, "bias": model.bias_after(node)}, {}


def _conv(kind: str) -> Callable[[_Model, NodeProto, dict[str, Any]], Iterator[Found]]:
    def read(model: _Model, node: NodeProto, o: dict[str, Any]) -> Iterator[Found]:
        bias = model.array(node, 2)
        yield kind, {"weight": model.array(node, 1), "bias": model.bias_after(node) if bias is None else bias}, {}

    return read


def _norm(kind: str, *names: str, eps: float = 1e-5) -> Callable[[_Model, NodeProto, dict[str, Any]], Iterator[Found]]:
    def read(model: _Model, node: NodeProto, o: dict[str, Any]) -> Iterator[Found]:
        yield (
            kind,
            {name: model.array(node, k) for k, name in enumerate(names, 1)},
            {"eps": float(f"{o.get('epsilon', eps):.6g}")},
        )

    return read


def _recurrent(kind: str) -> Callable[[_Model, NodeProto, dict[str, Any]], Iterator[Found]]:
    """Gates come in the order of minigrad; each direction is a layer of its own."""
    gates = len(ORDERS[kind])
    back = np.argsort(ORDERS[kind])

    def read(model: _Model, node: NodeProto, o: dict[str, Any]) -> Iterator[Found]:
        w, r, b = (model.array(node, k) for k in (1, 2, 3))
        if w is None or r is None:
            return
        usual = {"rnn": ["Tanh"], "lstm": ["Sigmoid", "Tanh", "Tanh"], "gru": ["Sigmoid", "Tanh"]}[kind]
        functions = [name.decode() for name in o.get("activations", [])] or usual * len(w)
        odd = [name for name in ("clip", "input_forget") if o.get(name)]
        odd += ["P"] if len(node.input) > 7 and node.input[7] else []
        nonlinearity = {"Tanh": "tanh", "Relu": "relu"}.get(functions[0])
        if kind != "rnn" and functions != usual * len(w):
            odd.append(f"activations={functions}")
        if odd:
            raise ValueError(
                f"[onnx.load] expected the {kind.upper()} of minigrad.nn, got {', '.join(odd)} in {node.name!r}"
            )
        for d in range(len(w)):
            parts = [w[d], r[d], *(np.split(b[d], 2) if b is not None else (None, None))]
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            state = {name: None if p is None else np.concatenate([np.split(p, gates)[k] for k in back])
                     for name, p in zip(names, parts, strict=True)}  # fmt: skip
            options: dict[str, Any] = {"nonlinearity": nonlinearity} if kind == "rnn" else {}
            if kind == "gru":
                options["reset_after"] = bool(o.get("linear_before_reset"))
            yield kind, state, options

    return read


READERS: dict[str, Callable[[_Model, NodeProto, dict[str, Any]], Iterator[Found]]] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Conv": _conv("conv"),
    "ConvTranspose": _conv("conv_transpose"),
    "BatchNormalization": _norm("batch_norm", "weight", "bias", "running_mean", "running_var"),
    "InstanceNormalization": _norm("instance_norm", "weight", "bias"),
    "LayerNormalization": _norm("layer_norm", "weight", "bias"),
    "RMSNormalization": _norm("rms_norm", "weight"),
    "RNN": _recurrent("rnn"),
    "LSTM": _recurrent("lstm"),
    "GRU": _recurrent("gru"),
}


def load(path: Any, module: Module) -> Module:
    """See `minigrad.onnx.load`."""
    model = _Model(onnx.load(check_path("onnx.load", path)).graph)
    found = [x for node in model.nodes for x in READERS.get(node.op_type, lambda *_: ())(model, node, _options(node))]
    places = [
        (kind, name, part, suffix) for name, part in module.named_modules() for kind, types in KINDS.items()
        if isinstance(part, types) for suffix in (part._all_suffixes() if isinstance(part, Sequences) else [""])
    ]  # fmt: skip
    for _, name, part, _ in places:
        if isinstance(part, Sequences) and part.norm is not None:
            where = name or type(part).__name__
            raise ValueError(
                f"[onnx.load] expected recurrent layers without a norm, got {where} with norm={part.norm!r}"
            )
    state: dict[str, np.ndarray] = {}
    for kind in KINDS:
        here, there = [p for p in places if p[0] == kind], [x for x in found if x[0] == kind]
        if len(here) != len(there):
            names = ", ".join(name or "itself" for _, name, _, _ in here)
            raise ValueError(
                f"[onnx.load] expected {len(there)} layers of kind {kind!r} as in the model, got {len(here)} ({names})"
            )
        for (_, name, part, suffix), (_, arrays, options) in zip(here, there, strict=True):
            state.update(_fitted(f"{name}." if name else "", part, suffix, arrays, options, kind))
    module.load_state_dict(state, strict=False)
    return module


def _fitted(
    prefix: str, part: Module, suffix: str, arrays: State, options: dict[str, Any], kind: str
) -> dict[str, np.ndarray]:
    """Return the state of one layer, which must have the model's options and a place for all of its arrays."""
    where = prefix[:-1] or type(part).__name__
    for option, value in options.items():
        own = getattr(part, option)
        same = abs((own or 0) - value) <= 1e-4 * value if option == "eps" else own == value
        if not same:
            raise ValueError(f"[onnx.load] expected {where} with {option}={value!r} as in the model, got {own!r}")
    if getattr(part, "gate_activation", "sigmoid") != "sigmoid" or getattr(part, "convention", None) == "paper":
        raise ValueError(f"[onnx.load] expected {where} with the gates of ONNX, got {part}")
    if part.__dict__.get("bias") == "input" and arrays.get("bias_hh") is not None:
        b_ih, b_hh = arrays["bias_ih"], arrays["bias_hh"]
        assert b_ih is not None
        assert b_hh is not None
        # The last bias of a GRU that resets after the product is multiplied by its reset gate.
        last = len(b_hh) * 2 // 3 if kind == "gru" and part.__dict__["reset_after"] else len(b_hh)
        arrays = {**arrays, "bias_ih": b_ih + np.where(np.arange(len(b_hh)) < last, b_hh, 0), "bias_hh": b_hh[last:]}
    made = {}
    for name, a in arrays.items():
        own = getattr(part, name + suffix)
        neutral = 1 if name in ("weight", "running_var") else 0
        if own is None:
            if a is not None and (kind == "linear" or (a != neutral).any()):
                raise ValueError(f"[onnx.load] expected {where} with {name + suffix}, which the model has, got none")
            continue
        a = np.full(own.shape, neutral, np.float32) if a is None and name != "running_mean" else a
        if a is not None and a.ndim == 4 and own.ndim == 3 and a.shape[2] == 1:
            a = a[:, :, 0]
        if a is None or a.shape != own.shape:
            got = None if a is None else a.shape
            raise ValueError(
                f"[onnx.load] expected {prefix}{name + suffix} of shape {own.shape}, got {got} in the model"
            )
        made[f"{prefix}{name}{suffix}"] = np.array(a)
    return made
