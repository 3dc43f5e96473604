"""Module, the base class of networks: a tree of parameters, buffers and submodules."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from types import FunctionType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from minigrad.arrays.creation import empty
from minigrad.engine.memory.dtype import DType, DTypeLike
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.memory.shapes import names_device
from minigrad.engine.tape.record import enter, leave
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.loading import IncompatibleKeys, load_state
from minigrad.nn.module_hooks import HookHandle, add_hook, call_with_hooks
from minigrad.nn.parameter import Parameter
from minigrad.nn.registry import Registry, join

Self = TypeVar("Self", bound="Module")
Parameters = ParamSpec("Parameters")
Output = TypeVar("Output", covariant=True)


class HasForward(Protocol[Parameters, Output]):
    """A module to a type checker, which finds the arguments and the result of a call in `forward`."""

    def forward(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Output: ...


class Module(Registry):
    """The base class of networks: holds parameters, buffers and submodules, and computes `forward`.

    A subclass calls ``super().__init__()``, assigns `Parameter` objects and other modules to attributes, and defines
    ``forward``. Calling the module runs `forward` between its hooks. An error in it gets a note that says in which
    submodule it occurred, such as ``in Sequential.2: Linear(in_features=16, out_features=10, bias=True)``. Raises
    AttributeError if a parameter or module is assigned before ``super().__init__()``.

    Attributes
    ----------
    training : bool
        True after construction and `train()`, False after `eval()`. Dropout and batch normalization depend on it.

    Examples
    --------
    >>> class Scale(mg.nn.Module):
    ...     def __init__(self, size):
    ...         super().__init__()
    ...         self.gain = mg.nn.Parameter(mg.ones(size))
    ...     def forward(self, x):
    ...         return self.gain * x
    >>> model = mg.nn.Sequential(mg.nn.Linear(2, 3), Scale(3))
    >>> [name for name, _ in model.named_parameters()]
    ['0.weight', '0.bias', '1.gain']
    >>> model(mg.ones((4, 2))).shape
    (4, 3)
    """

    training: bool
    _shown = ""  # the text of `extra_repr`, with attributes in braces

    def __init__(self) -> None:
        self.__dict__.update(training=True, _parameters={}, _buffers={}, _modules={})

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output; every subclass must define it."""
        raise NotImplementedError(f"[{type(self).__name__}] forward is not defined")

    if TYPE_CHECKING:

        @property
        def __call__(self: HasForward[Parameters, Output]) -> Callable[Parameters, Output]: ...
    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            outer = enter(self)  # operations recorded from here on belong to this module
            try:
                if self._hooks is None:
                    return self.forward(*args, **kwargs)
                return call_with_hooks(self, self._hooks, args, kwargs)
            except Exception as error:
                if outer is None:  # the outermost call notes where it happened, once for all levels
                    _note_place(self, error)
                raise
            finally:
                leave(outer)

    # ── registration ──

    def register_parameter(self, name: str, parameter: Parameter | None) -> None:
        """Add a parameter, or None in place of an optional one; a parameter of that name is replaced.

        Raises TypeError if `parameter` is neither a `Parameter` nor None, and ValueError if another attribute of that
        name exists, or the name is empty or contains a dot.
        """
        if not isinstance(parameter, Parameter | None):
            raise TypeError(f"[register_parameter] expected a Parameter or None, got {kind_of(parameter)}")
        self._check_new("_parameters", name)
        self._register("_parameters", name, parameter)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that belongs to the module's state but is not trained, such as a running mean.

        Raises TypeError if `tensor` is neither a `Tensor` nor None, and ValueError if another attribute of that name
        exists, or the name is empty or contains a dot.

        Parameters
        ----------
        name : str
            The name of the attribute; a buffer of that name is replaced.
        tensor : Tensor or None
            Any shape and dtype.
        persistent : bool
            Whether `state_dict` includes it.

        Examples
        --------
        >>> module = mg.nn.Module()
        >>> module.register_buffer("steps", mg.zeros(1, dtype=mg.int64))
        >>> list(module.state_dict())
        ['steps']
        """
        if not isinstance(tensor, Tensor | None) or isinstance(tensor, Parameter):
            raise TypeError(f"[register_buffer] expected a Tensor that is not a Parameter, got {kind_of(tensor)}")
        self._check_new("_buffers", name)
        self._register("_buffers", name, tensor, persistent)

    def register_module(self, name: str, module: "Module | None") -> None:
        """Add a submodule, or None in place of an optional one; errors as for `register_parameter`."""
        if not isinstance(module, Module | None):
            raise TypeError(f"[register_module] expected a Module or None, got {type(module).__name__}")
        self._check_new("_modules", name)
        self._register("_modules", name, module)

    def add_module(self, name: str, module: "Module | None") -> None:
        """Do the same as `register_module`."""
        self.register_module(name, module)

    # ── traversal ──

    def named_children(self) -> Iterator[tuple[str, "Module"]]:
        """Iterate over (name, module) of the direct submodules, each once."""
        return self._children()

    def children(self) -> Iterator["Module"]:
        """Iterate over the direct submodules, each once."""
        return (module for _, module in self.named_children())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, "Module"]]:
        """Iterate over (dotted path, module) of this module and all submodules, depth first, each once."""
        return self._walk(prefix, set())

    def modules(self) -> Iterator["Module"]:
        """Iterate over this module and all submodules, each once."""
        return (module for _, module in self.named_modules())

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Iterate over (dotted path, parameter), including submodules unless `recurse` is false; shared ones once.

        Examples
        --------
        >>> [(name, p.shape) for name, p in mg.nn.Linear(3, 2).named_parameters()]
        [('weight', (2, 3)), ('bias', (2,))]
        """
        return self._named_members("_parameters", prefix, recurse)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Iterate over the parameters, including those of submodules unless `recurse` is false; shared ones once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Iterate over (dotted path, buffer), persistent or not, as `named_parameters` does."""
        return self._named_members("_buffers", prefix, recurse)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Iterate over the buffers, persistent or not, as `parameters` does."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def apply(self: Self, function: Callable[["Module"], object]) -> Self:
        """Call `function` on every submodule, in their order, then on this module, and return this module.

        Examples
        --------
        >>> def zero(module):
        ...     if isinstance(module, mg.nn.Linear):
        ...         mg.nn.init.zeros_(module.bias)
        >>> mg.nn.Sequential(mg.nn.Linear(2, 1)).apply(zero)[0].bias.tolist()
        [0.0]
        """
        for module in self.children():
            module.apply(function)
        function(self)
        return self

    # ── modes and gradients ──

    def train(self: Self, mode: bool = True) -> Self:
        """Set `training` on this module and all submodules, and return this module."""
        for module in self.modules():
            module.__dict__["training"] = bool(mode)
        return self

    def eval(self: Self) -> Self:
        """Do the same as ``train(False)``."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Unfreeze or, with False, freeze every parameter, and return this module."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the gradients of all parameters, or set them to zeros if `set_to_none` is false."""
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad = parameter.grad.detach().zero_()

    def to(
        self: Self, *args: str | DType, device: str | None = None, dtype: DTypeLike = None,
        non_blocking: bool = False,
    ) -> Self:  # fmt: skip
        """Move every parameter and buffer to a device, and convert those that hold floats to a float dtype.

        Parameters and buffers stay the same objects, so an existing optimizer continues to train them.

        Parameters
        ----------
        *args : str or DType
            A device, a dtype, or both: ``"cpu"``, ``"cuda:1"``, ``minigrad.float64``.
        device : str, optional
        dtype : DType, optional
            The same by name; they override `args`.
        non_blocking : bool
            Accepted for compatibility with PyTorch; has no effect.

        Raises
        ------
        TypeError
            For an argument that is neither a device nor a dtype of floats.
        ValueError
            For an invalid device name, such as ``"cuda:one"``.
        RuntimeError
            If there is no such GPU, or in a hook or other code that a backward pass calls; see `Tensor.set_`.

        Examples
        --------
        >>> layer = mg.nn.Linear(2, 1)
        >>> weight = layer.weight
        >>> layer.to(mg.float64).weight is weight, weight.dtype
        (True, minigrad.float64)
        """
        where: str | None = None
        kind: Any = None
        for arg in args:
            if names_device(arg):
                where = arg
            else:
                kind = arg
        where, kind = where if device is None else device, kind if dtype is None else dtype
        try:
            fits = not isinstance(kind, Tensor) and (kind is None or empty(0, dtype=kind).dtype.kind == "f")
        except TypeError:
            fits = False
        if not fits:
            raise TypeError(
                f'[{type(self).__name__}.to] expected a device ("cpu", "cuda" or "cuda:N") or a dtype of floats, '
                f"got {kind!r}"
            )
        empty(0, device=where)  # fails before anything is moved
        for tensor in (*self.parameters(), *self.buffers()):
            _convert(tensor, where, kind if tensor.dtype.kind == "f" else None)
        return self

    def cpu(self: Self) -> Self:
        """Do the same as ``to("cpu")``."""
        return self.to("cpu")

    def cuda(self: Self, device: int | str | None = None) -> Self:
        """Do the same as ``to("cuda")``, or ``to("cuda:1")`` for the number 1."""
        return self.to("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)

    def float(self: Self) -> Self:
        """Do the same as ``to("float32")``."""
        return self.to("float32")

    def double(self: Self) -> Self:
        """Do the same as ``to("float64")``."""
        return self.to("float64")

    # ── state ──

    def state_dict(self, prefix: str = "") -> dict[str, Tensor]:
        """Return the parameters and persistent buffers by dotted path, as PyTorch names them.

        Returns
        -------
        dict of str to Tensor
            Detached tensors that share memory with the module. Shared parameters are listed under each of their names.

        Examples
        --------
        >>> {name: x.shape for name, x in mg.nn.Linear(3, 2).state_dict().items()}
        {'weight': (2, 3), 'bias': (2,)}
        """
        return {name: tensor.detach() for name, tensor in self._state(prefix)}

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy values into parameters and persistent buffers, converting them to the dtypes of this module.

        Floats are rounded. The values may be views of the module's own memory, even in another order.

        Parameters
        ----------
        state_dict : mapping of str to Tensor
            As returned by `state_dict`. The values may also be arrays of NumPy and other libraries, such as PyTorch's
            tensors and parameters, in any dtype of real numbers. One name of a shared parameter suffices, the counter
            of a batch normalization may be absent and stays as it is then, and the names that
            ``torch.nn.utils.parametrizations`` gives to the parts of a weight are understood.
        strict : bool
            Whether missing and unexpected names are errors.
        assign : bool
            Only False: the parameters stay the objects that an optimizer knows.

        Returns
        -------
        IncompatibleKeys
            ``(missing_keys, unexpected_keys)``, both empty if `strict`.

        Raises
        ------
        ValueError
            If names are missing or unexpected (if `strict`), shapes differ, floats would become integers, an integer or
            bool dtype of this module cannot hold a value, or the elements of a buffer share memory. The message lists
            all such entries, and nothing is copied.

        Examples
        --------
        >>> layer = mg.nn.Linear(2, 1)
        >>> layer.load_state_dict({"weight": mg.ones((1, 3))})
        Traceback (most recent call last):
            ...
        ValueError: [Linear] this state_dict does not fit:
          missing: bias
          other shape: weight, expected (1, 2), got (1, 3)
        """
        if assign:
            raise TypeError(
                f"[{type(self).__name__}] expected assign=False, got {assign!r}: values are copied; "
                f"`model.to(dtype)` first keeps the dtype of the file"
            )
        return load_state(self, self.state_dict(), state_dict, strict)

    # ── hooks ──

    def register_forward_pre_hook(self, hook: Callable[["Module", tuple[Any, ...]], Any]) -> HookHandle:
        """Call ``hook(module, args)`` before `forward`; its result, if not None, replaces `args`."""
        return add_hook(self, "before", hook)

    def register_forward_hook(self, hook: Callable[["Module", tuple[Any, ...], Any], Any]) -> HookHandle:
        """Call ``hook(module, args, output)`` after `forward`; its result, if not None, replaces `output`.

        ``remove()`` of the handle removes the hook.

        Examples
        --------
        >>> layer = mg.nn.ReLU()
        >>> handle = layer.register_forward_hook(lambda module, args, output: print("saw", output.shape))
        >>> _ = layer(mg.zeros(3))
        saw (3,)
        >>> handle.remove()
        """
        return add_hook(self, "after", hook)

    def register_full_backward_hook(
        self, hook: Callable[["Module", tuple[Tensor | None, ...], tuple[Tensor | None, ...]], Any]
    ) -> HookHandle:
        """Call ``hook(module, grad_input, grad_output)`` when a backward pass has the gradients of a call's arguments.

        Raises ValueError in the backward pass, if the hook returns another number of gradients.

        Parameters
        ----------
        hook : callable
            `grad_output` has the gradient of each tensor that `forward` returned, as its result or within a tuple, and
            `grad_input` the gradient of each positional argument; None where there is none. The result of the hook, if
            not None, replaces `grad_input`. If no argument requires grad, all of `grad_input` is None, and the hook is
            called as soon as `grad_output` is known. ``remove()`` of the handle removes it from later calls.

        Examples
        --------
        >>> layer = mg.nn.ReLU()
        >>> handle = layer.register_full_backward_hook(lambda module, grad_input, grad_output: (grad_output[0] * 10,))
        >>> x = mg.tensor([-1.0, 2.0], requires_grad=True)
        >>> layer(x).sum().backward()
        >>> x.grad.tolist()
        [10.0, 10.0]
        """
        return add_hook(self, "backward", hook)

    # ── text ──

    def extra_repr(self) -> str:
        """Return the text between the parentheses of `repr`; a subclass lists its arguments."""
        return self._shown.format_map(vars(self))

    def __repr__(self) -> str:
        children = [f"({name}): {self.__dict__[name]!r}" for name in self._modules]
        lines = [*filter(None, [self.extra_repr()]), *children]
        if not children:
            return f"{type(self).__name__}({''.join(lines)})"
        return f"{type(self).__name__}(\n" + "".join(f"  {line}\n" for line in "\n".join(lines).split("\n")) + ")"

    def _repr_html_(self) -> str:
        from minigrad.nn.tree import module_as_html

        return module_as_html(self)


METHODS = frozenset(name for kind in Module.__mro__ for name, x in vars(kind).items() if isinstance(x, FunctionType))
Module._methods = METHODS


def _note_place(outermost: Module, error: Exception) -> None:
    """Add a note that says in which module an error occurred: its path from the outermost module, and its options."""
    with suppress(Exception):  # code of the user's modules may fail here; the original error must be raised
        # The frame of the outermost call holds the error: reading its locals would make a cycle.
        called, step = [outermost], error.__traceback__ and error.__traceback__.tb_next
        while step is not None:
            if step.tb_frame.f_code is Module.__call__.__code__:
                called.append(step.tb_frame.f_locals["self"])
            step = step.tb_next
        place, inner = type(called[0]).__name__, called[-1]
        for outer, module in pairwise(called):
            names = [name for name, member in outer.named_modules() if member is module and name]
            place = join(place, names[0] if names else type(module).__name__)
        text = type(inner).__name__ if inner._modules else repr(inner)
        error.add_note(f"in {text}" if len(called) == 1 else f"in {place}: {text}")


def check_module(op: str, module: object) -> None:
    """Raise TypeError if an argument is not a module."""
    if not isinstance(module, Module):
        raise TypeError(f"[{op}] expected a Module, got {kind_of(module)}")


def _convert(tensor: Tensor, device: str | None, dtype: Any) -> None:
    """Move and convert a tensor and its gradient in place, so that it stays the same object."""
    converted, grad = tensor.detach().to(device=device, dtype=dtype), tensor.grad
    if (converted.dtype, converted.device) == (tensor.dtype, tensor.device):
        return
    tensor.grad = None
    tensor.set_(converted)
    if grad is not None:
        tensor.grad = grad.detach().to(device=device, dtype=dtype)
