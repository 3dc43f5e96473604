"""Sizes and numbers of modules, optimizers, schedulers and functions: invalid ones are rejected by name."""

import inspect

import numpy as np
import pytest
from checks import raises, refuses

import minigrad as mg
from minigrad import nn, optim
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.optim import lr_scheduler


def parameters():
    return [mg.ones((3, 4), requires_grad=True)]


def optimizer():
    return optim.SGD(parameters(), lr=0.1, momentum=0.9)


# Required arguments of the classes.
SIZES = (
    "in_features", "out_features", "normalized_shape", "num_features", "num_embeddings", "embedding_dim", "input_size",
    "hidden_size", "in_channels", "out_channels", "kernel_size", "output_size", "embed_dim", "num_heads", "d_model", "nhead",
    "condition_features", "width", "upscale_factor",
)  # fmt: skip
REQUIRED = {
    **dict.fromkeys((*SIZES, "num_groups", "num_channels", "max_length", "step_size", "T_max", "T_0"), lambda: 4),
    "params": parameters,
    "optimizer": optimizer,
    **dict.fromkeys(("gamma", "alpha"), lambda: 0.5),
    **dict.fromkeys(("base_lr", "max_lr"), lambda: 0.1),
    "milestones": lambda: [2],
    **dict.fromkeys(("padding", "dim"), lambda: 1),
    "value": lambda: 0.5,
    "unflattened_size": lambda: (2, 2),
}
ALSO = {"OneCycleLR": {"total_steps": 10}}
# Base classes, containers, classes that only take modules, functions or tensors, and one whose parts check the numbers.
OTHERS = {"ChainedScheduler", "MultiplicativeLR", "Transformer", "Identity", "Module", "ModuleDict", "ModuleList", "ParameterList", "Sequential", "Optimizer", "LRScheduler", "LambdaLR", "SequentialLR", "TransformerEncoder", "TransformerDecoder"}  # fmt: skip
# Arguments without an effect of their own, or that take words or lists.
SKIPPED = {("OneCycleLR", "epochs"), ("OneCycleLR", "steps_per_epoch")}
SKIPPED |= {("Conv1d", "padding"), ("Conv2d", "padding"), ("Upsample", "scale_factor")}
CLASSES = {
    name: getattr(module, name)
    for module in (nn, optim, lr_scheduler)
    for name in module.__all__
    if inspect.isclass(getattr(module, name)) and name not in OTHERS | {"Buffer", "Parameter", "Summary"}
}


def arguments(name):
    """Return (arguments to build the class, {argument: "integer" or "number"})."""
    given, kinds = dict(ALSO.get(name, {})), {}
    for argument in inspect.signature(CLASSES[name]).parameters.values():
        if argument.default is argument.empty:
            given[argument.name] = REQUIRED[argument.name]()
        kind = str(getattr(argument.annotation, "__name__", argument.annotation)).partition(" ")[0]
        if kind in ("int", "float") and (name, argument.name) not in SKIPPED:
            kinds[argument.name] = {"int": "integer", "float": "number"}[kind]
    return given, kinds


CASES = [(name, argument, kind) for name in CLASSES for argument, kind in arguments(name)[1].items()]
WRONG = {"text": "0.1", "list": [[1.0]], "object": object(), "complex": 1j, "array": np.ones(2), "tensor": mg.ones(2)}


def test_the_survey_sees_the_classes():
    assert {"Linear", "LayerNorm", "LSTM", "GRUCell", "Dropout", "CrossEntropyLoss", "Adam", "StepLR"} <= {
        case[0] for case in CASES
    }


def test_parameters_and_buffers_have_the_default_dtype():
    mg.set_default_dtype("float64")
    try:
        names = [name for name in nn.__all__ if name in CLASSES and issubclass(CLASSES[name], nn.Module)]
        layers = {name: CLASSES[name](**arguments(name)[0]) for name in names}
    finally:
        mg.set_default_dtype("float32")
    values = [(name, value) for name, layer in layers.items() for value in (*layer.parameters(), *layer.buffers())]
    assert len({name for name, _ in values}) > 30
    assert {name for name, value in values if value.dtype == "float32"} == set()


@pytest.mark.parametrize("name", [name for name in CLASSES if issubclass(CLASSES[name], nn.Module)])
@pytest.mark.parametrize("recorded", [True, False])
def test_the_results_of_a_layer_are_no_tensor(name, recorded):
    """A pair is never stacked to one tensor, and the error says where the tensor is."""
    layer = CLASSES[name](**arguments(name)[0])
    pair = (mg.ones((4, 4, 4), requires_grad=recorded), (mg.ones(4),))
    inputs = [
        pair if k == 0 else pair[0]
        for k, p in enumerate(inspect.signature(layer.forward).parameters.values())
        if k == 0 or p.default is p.empty
    ]
    with pytest.raises(TypeError, match=r"tuple \(Tensor, tuple\), whose \[0\] is one") as caught:
        layer(*inputs)
    assert "numpy()" not in str(caught.value)


@pytest.mark.parametrize("call", [lambda x: F.pad(x, (1, 1)), lambda x: nn.utils.vector_to_parameters(x, [])])
def test_pairs_given_to_functions_are_no_tensor(call):
    raises(TypeError, r"tuple \(Tensor, Tensor\), whose \[0\] is one", call, (mg.ones(2), mg.ones(2)))


@pytest.mark.parametrize("name, argument, kind", CASES)
def test_what_is_no_number_is_refused(name, argument, kind):
    optional = inspect.signature(CLASSES[name]).parameters[argument]
    wrong = {**WRONG, **({"float": 2.0} if kind == "integer" else {})}
    if "None" not in str(optional.annotation):
        wrong["none"] = None
    for value in wrong.values():
        given = {**arguments(name)[0], argument: value}
        if isinstance(value, list) and "Sequence" in str(optional.annotation):
            given[argument] = value[0] * 2  # one number for each group
        with pytest.raises((TypeError, ValueError)) as caught:
            CLASSES[name](**given)
        assert str(caught.value).startswith(f"[{name}] expected"), caught.value
        assert argument in str(caught.value)
        if not isinstance(value, list):
            assert type(caught.value) is TypeError
            assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", sorted({name for name, _, _ in CASES}))
def test_numbers_of_numpy_are_numbers(name):
    """The module or optimizer is the same, and has Python numbers."""
    given, kinds = arguments(name)
    defaults = {k: p.default for k, p in inspect.signature(CLASSES[name]).parameters.items() if k in kinds}
    plain = {k: given.get(k, default) for k, default in defaults.items()}
    plain = {k: value for k, value in plain.items() if isinstance(value, int | float)}
    mg.manual_seed(0)
    expected = CLASSES[name](**arguments(name)[0])
    mg.manual_seed(0)
    numbers = {k: np.int64(value) if kinds[k] == "integer" else np.float64(value) for k, value in plain.items()}
    found = CLASSES[name](**{**arguments(name)[0], **numbers})
    if isinstance(found, nn.Module | optim.Optimizer):
        assert repr(found) == repr(expected)
    for k in plain:
        value = vars(expected).get(k)
        if isinstance(value, int):
            assert type(vars(found)[k]) is int
            assert vars(found)[k] == value


@pytest.mark.parametrize("name, argument", [(name, argument) for name, argument, kind in CASES if argument in SIZES])
def test_sizes_below_one(name, argument):
    for value in (0, -1):
        with pytest.raises(ValueError, match=rf"^\[{name}\] expected {argument} >= 1, got {value}$"):
            CLASSES[name](**{**arguments(name)[0], argument: value})


X, LABELS = mg.ones((2, 4)), mg.tensor([0, 1])
CALLS = [
    ("layer_norm", "eps", lambda v: F.layer_norm(X, 4, eps=v)),
    ("layer_norm", "normalized_shape", lambda v: F.layer_norm(X, v)),
    ("rms_norm", "normalized_shape", lambda v: F.rms_norm(X, v)),
    ("group_norm", "num_groups", lambda v: F.group_norm(X, v)),
    ("group_norm", "eps", lambda v: F.group_norm(X, 2, eps=v)),
    ("instance_norm", "eps", lambda v: F.instance_norm(mg.ones((2, 3, 4)), eps=v)),
    ("batch_norm", "eps", lambda v: F.batch_norm(X, None, None, training=True, eps=v)),
    ("batch_norm", "eps", lambda v: F.batch_norm(X, mg.zeros(4), mg.ones(4), eps=v)),
    ("batch_norm", "momentum", lambda v: F.batch_norm(X, mg.zeros(4), mg.ones(4), training=True, momentum=v)),
    ("dropout", "p", lambda v: F.dropout(X, v)),
    ("elu", "alpha", lambda v: F.elu(X, v)),
    ("leaky_relu", "negative_slope", lambda v: F.leaky_relu(X, v)),
    ("dropout1d", "p", lambda v: F.dropout1d(X, v)),
    ("hardtanh", "min_val", lambda v: F.hardtanh(X, v)),
    ("hardtanh", "max_val", lambda v: F.hardtanh(X, 0.0, v)),
    ("gumbel_softmax", "tau", lambda v: F.gumbel_softmax(X, v)),
    ("pixel_shuffle", "upscale_factor", lambda v: F.pixel_shuffle(mg.ones((1, 1, 1)), v)),
    ("triplet_margin_loss", "margin", lambda v: F.triplet_margin_loss(X, X, X, v)),
    ("triplet_margin_loss", "p", lambda v: F.triplet_margin_loss(X, X, X, p=v)),
    ("gaussian_nll_loss", "eps", lambda v: F.gaussian_nll_loss(X, X, X, eps=v)),
    ("one_hot", "num_classes", lambda v: F.one_hot(LABELS, v)),
    ("cross_entropy", "ignore_index", lambda v: F.cross_entropy(X, LABELS, ignore_index=v)),
    ("cross_entropy", "label_smoothing", lambda v: F.cross_entropy(X, LABELS, label_smoothing=v)),
    ("nll_loss", "ignore_index", lambda v: F.nll_loss(X, LABELS, ignore_index=v)),
    ("smooth_l1_loss", "beta", lambda v: F.smooth_l1_loss(X, X, beta=v)),
    ("uniform_", "a", lambda v: init.uniform_(X.copy(), v)),
    ("normal_", "std", lambda v: init.normal_(X.copy(), 0.0, v)),
    ("trunc_normal_", "mean", lambda v: init.trunc_normal_(X.copy(), v)),
    ("constant_", "val", lambda v: init.constant_(X.copy(), v)),
    ("xavier_uniform_", "gain", lambda v: init.xavier_uniform_(X.copy(), v)),
    ("xavier_normal_", "gain", lambda v: init.xavier_normal_(X.copy(), v)),
    ("kaiming_uniform_", "a", lambda v: init.kaiming_uniform_(X.copy(), v)),
    ("orthogonal_", "gain", lambda v: init.orthogonal_(X.copy(), v)),
    ("clip_grad_norm_", "max_norm", lambda v: nn.utils.clip_grad_norm_(parameters(), v)),
    ("clip_grad_norm_", "norm_type", lambda v: nn.utils.clip_grad_norm_(parameters(), 1.0, v)),
    ("clip_grad_value_", "clip_value", lambda v: nn.utils.clip_grad_value_(parameters(), v)),
]


@pytest.mark.parametrize(
    "k", range(len(CALLS)), ids=[f"{op}-{argument}-{k}" for k, (op, argument, _) in enumerate(CALLS)]
)
@pytest.mark.parametrize("value", ["0.1", None, object(), 1j], ids=["text", "none", "object", "complex"])
def test_functions_refuse_what_is_no_number(k, value):
    op, argument, call = CALLS[k]
    with pytest.raises(TypeError) as caught:
        call(value)
    assert str(caught.value).startswith(f"[{op}] expected")
    assert f" {argument}, got {value!r}" in str(caught.value)


def test_a_number_that_is_differentiated_is_refused():
    """It would silently lose its gradient."""
    slope = mg.tensor(0.1, requires_grad=True)
    refuses(TypeError, "leaky_relu", "expected a number negative_slope", F.leaky_relu, X, slope)
    assert F.leaky_relu(-X, slope.detach()).tolist() == F.leaky_relu(-X, 0.1).tolist()
