"""Weights of other frameworks for a module of minigrad, and back.

Each function takes a framework's arrays and a module with the same layers, and returns a state for
``module.load_state_dict``. It transposes kernels, reorders gates, splits or adds biases, leaves out duplicates, and
moves the channels to the front of what is flattened. Where an argument of a layer, such as `eps`, `momentum`,
``bias="input"`` or `approximate`, contradicts the source, it raises a ValueError that names the argument.

Arrays do not say with which arguments a layer was made, so each argument is taken to be the framework's default, unless
`arguments` has another value. No framework needs to be installed. A square kernel cannot be told from its transpose:
its layout is taken to be the framework's. In place of arrays, the path of an npz or safetensors file may be given.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np

from minigrad.convert import tables
from minigrad.convert.mechanism import Conversion
from minigrad.nn.module import Module
from minigrad.tools.files import Path

__all__ = ["equinox", "flax", "haiku", "keras", "mindspore", "mlx", "onnx", "paddle", "to_keras", "to_torch"]

Arrays = Mapping[str, Any] | Path
State = dict[str, np.ndarray[Any, Any]]


class Options(TypedDict, total=False):
    """What all of the functions take, see `keras`."""

    names: Mapping[str, str]
    arguments: Mapping[str, Any]
    channels: Mapping[str, int]


def keras(
    arrays: Arrays | Sequence[Any], module: Module, *, names: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None, channels: Mapping[str, int] | None = None,
) -> State:  # fmt: skip
    """Return the state of a module with the weights of a Keras 3 model.

    Parameters
    ----------
    arrays : list of array, mapping or path
        ``model.get_weights()``, in whose order the module has its layers, or ``{w.path: w for w in model.weights}``,
        or an npz file of ``np.savez(path, *model.get_weights())``. A file of ``model.save("model.keras")`` also states
        the arguments; reading it needs the package h5py.
    module : Module
        A module whose layers correspond to the model's.
    names : mapping of str to str, optional
        For arrays by path: for a layer's path in the module, the path of its arrays, where it is not the same, and
        order and shapes do not say it. In a recurrent layer, ``"lstm.l0_reverse"`` is the first layer's second
        direction.
    arguments : mapping, optional
        The source's own names and values of arguments that are not its framework's defaults: ``{"epsilon": 1e-5}``
        for all layers, ``{"norm1.epsilon": 1e-5}`` for one path in the module.
    channels : mapping of str to int, optional
        For a Linear that follows a flattening, the number of channels of what was flattened, with the channels last;
        needed where the module flattens without an `nn.Flatten`. 1 says that nothing has to move.

    Returns
    -------
    dict of str to numpy.ndarray
        For `Module.load_state_dict`.

    Raises
    ------
    ValueError
        For arrays that belong to no layer, layers without arrays, an argument that contradicts the source, and a
        file of another kind.
    TypeError
        For a source of another type.
    ImportError
        For a .keras file without h5py.

    Examples
    --------
    >>> import numpy as np
    >>> import minigrad as mg
    >>> net = mg.nn.LSTM(3, 4, bias="input", batch_first=True)
    >>> weights = [np.ones((3, 16)), np.ones((4, 16)), np.zeros(16)]  # kernel, recurrent_kernel, bias
    >>> state = mg.convert.keras(weights, net)
    >>> {name: value.shape for name, value in state.items()}
    {'weight_ih_l0': (16, 3), 'weight_hh_l0': (16, 4), 'bias_ih_l0': (16,)}
    """
    return Conversion("keras", tables.KERAS, module, names or {}, arguments or {}, channels or {}).convert(arrays)


def flax(arrays: Arrays, module: Module, **options: Unpack[Options]) -> State:
    """Return the state of a module with the weights of a Flax model, of nnx or linen.

    Parameters
    ----------
    arrays : mapping
        ``nnx.to_pure_dict(nnx.state(model))``, or linen's ``variables``. As JAX sorts names, layers of
        equal shapes have to have the same names in the module, or an entry in `names`.
    module, **options
        As in `keras`, and so is what is returned.

    Examples
    --------
    >>> import numpy as np
    >>> import minigrad as mg
    >>> net = mg.nn.GRU(3, 4, bias="input", batch_first=True)  # nnx.GRUCell has no bias of the state
    >>> cell = {"dense_i": {"kernel": np.ones((3, 12)), "bias": np.zeros(12)}, "dense_h": {"kernel": np.ones((4, 12))}}
    >>> sorted(mg.convert.flax({"cell": cell}, net))
    ['bias_ih_l0', 'weight_hh_l0', 'weight_ih_l0']
    """
    return Conversion("flax", tables.FLAX, module, **options).convert(arrays)


def paddle(arrays: Arrays, module: Module, **options: Unpack[Options]) -> State:
    """Return the state of a module with the weights of a Paddle network.

    Parameters
    ----------
    arrays : mapping
        ``net.state_dict()``, or what ``paddle.load(path, return_numpy=True)`` returns.
    module, **options
        As in `keras`, and so is what is returned.

    Examples
    --------
    >>> import numpy as np
    >>> import minigrad as mg
    >>> net = mg.nn.Sequential(mg.nn.Linear(3, 3), mg.nn.ReLU())
    >>> state = mg.convert.paddle({"0.weight": np.arange(9.0).reshape(3, 3), "0.bias": np.zeros(3)}, net)
    >>> state["0.weight"][0].tolist()
    [0.0, 3.0, 6.0]
    """
    return Conversion("paddle", tables.PADDLE, module, **options).convert(arrays)


def mindspore(arrays: Arrays, module: Module, **options: Unpack[Options]) -> State:
    """Return the state of a module with the weights of a MindSpore network.

    Parameters
    ----------
    arrays : mapping
        ``net.parameters_dict()``, or a safetensors file of ``mindspore.save_checkpoint``, read by `mg.load`.
    module, **options
        As in `keras`, and so is what is returned.

    Examples
    --------
    >>> import numpy as np
    >>> import minigrad as mg
    >>> norm = {"gamma": np.ones(3), "beta": np.zeros(3)}
    >>> sorted(mg.convert.mindspore(norm, mg.nn.LayerNorm(3, eps=1e-7)))
    ['bias', 'weight']
    """
    return Conversion("mindspore", tables.MINDSPORE, module, **options).convert(arrays)


def mlx(arrays: Arrays, module: Module, **options: Unpack[Options]) -> State:
    """Return the state of a module with the weights of an MLX model.

    Parameters
    ----------
    arrays : mapping
        ``model.parameters()``, or its safetensors file, read by `mg.load`.
    module, **options
        As in `keras`, and so is what is returned.

    Examples
    --------
    >>> import numpy as np
    >>> import minigrad as mg
    >>> conv = mg.nn.Conv2d(3, 8, 5)
    >>> mg.convert.mlx({"weight": np.ones((8, 5, 5, 3)), "bias": np.zeros(8)}, conv)["weight"].shape
    (8, 3, 5, 5)
    """
    return Conversion("mlx", tables.MLX, module, **options).convert(arrays)


def haiku(arrays: Arrays, module: Module, **options: Unpack[Options]) -> State:
    """Return the state of a module with the weights of a haiku network.

    Parameters
    ----------
    arrays : mapping
        Its parameters, and its state if it has one: ``{**params, **state}`` with one mapping for each module. As in
        `flax`, names decide between equal shapes.
    module, **options
        As in `keras`, and so is what is returned.

    Examples
    --------
    >>> import numpy as np
    >>> import minigrad as mg
    >>> net = mg.nn.LSTM(3, 4, bias="input")
    >>> state = mg.convert.haiku({"lstm/linear": {"w": np.ones((7, 16)), "b": np.zeros(16)}}, net)
    >>> state["bias_ih_l0"].tolist()[3:9]  # haiku adds 1 to f in every step
    [0.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    """
    return Conversion("haiku", tables.HAIKU, module, **options).convert(arrays)


def equinox(arrays: Arrays, module: Module, **options: Unpack[Options]) -> State:
    """Return the state of a module with the weights of an equinox model.

    Parameters
    ----------
    arrays : mapping
        By path: ``{jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(model)}`` of
        its arrays.
    module, **options
        As in `keras`, and so is what is returned.

    Examples
    --------
    >>> import numpy as np
    >>> import minigrad as mg
    >>> conv = mg.nn.Conv2d(3, 8, 5)
    >>> mg.convert.equinox({".weight": np.ones((8, 3, 5, 5)), ".bias": np.zeros((8, 1, 1))}, conv)["bias"].shape
    (8,)
    """
    return Conversion("equinox", tables.EQUINOX, module, **options).convert(arrays)


def onnx(arrays: Arrays, module: Module, **options: Unpack[Options]) -> State:
    """Return the state of a module with the weights of nodes of an ONNX graph.

    Parameters
    ----------
    arrays : mapping
        For each layer of the module by path, the node's weights by the names of the operator's inputs: ``W``, ``R``,
        ``B`` of LSTM and GRU, ``Scale``, ``B`` of LayerNormalization, ``B``, ``C`` of Gemm, ``B`` of MatMul. Attributes
        that are not ONNX's defaults belong into `arguments`: ``transB``, ``linear_before_reset``, ``epsilon``.
    module, **options
        As in `keras`, and so is what is returned.

    Examples
    --------
    >>> import numpy as np
    >>> import minigrad as mg
    >>> gru = mg.nn.GRU(3, 4, batch_first=True)
    >>> node = {"W": np.ones((1, 12, 3)), "R": np.ones((1, 12, 4)), "B": np.zeros((1, 24))}
    >>> sorted(mg.convert.onnx(node, gru, arguments={"linear_before_reset": 1}))
    ['bias_hh_l0', 'bias_ih_l0', 'weight_hh_l0', 'weight_ih_l0']
    """
    return Conversion("onnx", tables.ONNX, module, **options).convert(arrays)


def to_keras(module: Module, *, arguments: Mapping[str, Any] | None = None) -> list[np.ndarray[Any, Any]]:
    """Return the weights of a module as Keras 3 has them, in the order of ``model.set_weights``.

    Parameters
    ----------
    module : Module
        A module of layers that Keras has.
    arguments : mapping, optional
        As in `keras`: what the Keras layers are made with, if not the defaults.

    Returns
    -------
    list of numpy.ndarray
        For ``set_weights`` of a model with the same layers in the same order. A convolution in groups is
        ``Conv2D(groups=...)`` there; ``DepthwiseConv2D`` takes its kernel as ``kernel.reshape(*size, channels, -1)``.

    Raises
    ------
    ValueError
        For a layer or an argument that the Keras layer does not have.

    Examples
    --------
    >>> import minigrad as mg
    >>> net = mg.nn.Sequential(mg.nn.Linear(3, 5), mg.nn.LayerNorm(5, eps=1e-3))
    >>> [value.shape for value in mg.convert.to_keras(net)]
    [(3, 5), (5,), (5,), (5,)]
    """
    return [*Conversion("to_keras", tables.KERAS, module, arguments=arguments or {}).invert().values()]


def to_torch(module: Module) -> State:
    """Return the state of a module for the same layers of PyTorch, which have two biases in recurrent layers.

    Where ``bias="input"`` left one, the second is 0. All else has PyTorch's names and shapes already.

    Parameters
    ----------
    module : Module
        A module of layers that PyTorch has.

    Returns
    -------
    dict of str to numpy.ndarray
        For ``load_state_dict`` of PyTorch's module, as ``{name: torch.tensor(a) for name, a in state.items()}``.

    Raises
    ------
    ValueError
        For a layer or an argument that PyTorch does not have.

    Examples
    --------
    >>> import minigrad as mg
    >>> sorted(mg.convert.to_torch(mg.nn.LSTM(3, 4, bias="input")))
    ['bias_hh_l0', 'bias_ih_l0', 'weight_hh_l0', 'weight_ih_l0']
    """
    return Conversion("to_torch", tables.TORCH, module).complete()
