"""The public class Tensor. Every method is the function of that name, with the tensor as its first argument."""
cimport cython

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.engine.memory.array cimport NOWHERE, Array, alias, hold, note_use, same_shape, set_result_type, shape_of
from minigrad.engine.memory.calls cimport in_operation, wait_for_operations
from minigrad.engine.memory.dlpack cimport dlpack_device, to_dlpack
from minigrad.engine.memory.dtype cimport dtype_of, is_float
from minigrad.engine.memory.interop cimport from_object
from minigrad.engine.memory.listener cimport current_listener, listeners, note_grad, note_read
from minigrad.engine.memory.pool cimport gpus
from minigrad.engine.memory.refusals cimport kind_of, place_of_copy
from minigrad.engine.memory.shapes cimport device_index
from minigrad.engine.ops.arguments cimport one_axis
from minigrad.engine.ops.in_place cimport fill_array
from minigrad.engine.ops.index cimport assign
from minigrad.engine.ops.layout cimport cast, copy_array, matrix_transpose, permute_dims
from minigrad.engine.ops.transfer cimport destination, move
from minigrad.engine.tape.node cimport Node
from minigrad.engine.tape.record cimport as_leaf, gradient_node, is_leaf, retire_leaf
from minigrad.engine.ops import layout
from minigrad.engine.tape import backward, hooks, record as tape
from minigrad.engine.tape.node import GradientError

include "tensor/operators.pxi"


class Extension:
    """A base class of Tensor, to which modules above the engine add methods: PyTorch's names, protocols, tables."""
    __slots__ = ()


@cython.binding(False)
@cython.embedsignature(True)
cdef class Tensor(Operators, Extension):
    """Tensor(data, requires_grad=False)\n--\n\nAn n-dimensional array of numbers that can remember how it was computed.

    Tensors are made by `minigrad.tensor`, `minigrad.zeros` and similar functions, and by operations. An operation on a
    tensor with ``requires_grad`` is recorded on the tape, and ``y.backward()`` walks the tape back from y.

    Attributes
    ----------
    shape : tuple of int
    ndim, size, nbytes : int
    dtype : DType
    device : str
    T, mT : Tensor
        With the axes reversed; with the last two axes exchanged. Views.
    requires_grad : bool
        Whether operations on this tensor are recorded.
    grad : Tensor or None
        The gradient accumulated by backward passes so far; only on leaves. A gradient that has a history, as
        ``backward(create_graph=True)`` makes it, forms a reference cycle with this tensor that nothing frees until
        ``grad`` is None again.
    is_leaf : bool
        Whether the tensor was made by the user and not by a recorded operation.

    Examples
    --------
    >>> x = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    tensor([2., 4., 6.])
    """

    def __init__(self, data: TensorLike, bint requires_grad=False):
        if self.buffer == NOWHERE:
            source = from_object(data, -1, -1, False, "Tensor", False, True)
            if not in_operation():      # an operation may call code that makes a tensor
                wait_for_operations("Tensor")
            hold(self, source)
        self.requires_grad = requires_grad

    # ── the tape ──

    @property
    def requires_grad(self) -> bool:
        return bool(self.needs_grad)

    @requires_grad.setter
    def requires_grad(self, bint on) -> None:
        if on and not is_float(self.code):
            raise TypeError(f"[requires_grad] expected a floating-point tensor, got {self.dtype}")
        if not tape.leaf(self):
            if on:
                return
            raise GradientError("[requires_grad] this tensor was computed: use x.detach() for one without history")
        self.needs_grad = on        # what was recorded of it counts again once this is back on

    def requires_grad_(self, bint on=True) -> Self:
        """Set ``requires_grad`` and return the tensor."""
        self.requires_grad = on
        return self

    @property
    def is_leaf(self) -> bool:
        return tape.leaf(self)

    @property
    def grad(self) -> Tensor | None:
        if listeners:
            note_grad(self, False)
        if self.grad_ is None and self.node is not None and not is_leaf(self) and not (<Node>self.node).hooks:
            warnings.warn("[grad] this tensor was computed, and only leaves keep a gradient: call y.retain_grad() "
                          "before the backward pass, or mg.grad(loss, y); `with mg.no_grad(): p -= lr * p.grad` "
                          "updates a parameter, which stays a leaf")
        return self.grad_

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        cdef Array g
        if value is not None:
            if not isinstance(value, Array):
                raise TypeError(f"[grad] expected a tensor or None, got {kind_of(value)}")
            g = <Array>value
            if not same_shape(g, self) or g.code != self.code or g.buffer.device != self.buffer.device:
                raise ValueError(f"[grad] expected shape {shape_of(self)}, {self.dtype} on {self.device}, "
                                 f"got {shape_of(g)}, {g.dtype} on {g.device}")
            while g is not None:        # a cycle would never be freed
                if g is self:
                    raise ValueError("[grad] expected a tensor that does not lead back to this one through "
                                     "its grad: assign a copy")
                g = g.grad_
        if listeners:
            note_grad(self, True)
        self.grad_ = value

    def backward(self, grad: Tensor | None = None, retain_graph: bool = False, create_graph: bool = False) -> None:
        """Add the gradient of this tensor with respect to every leaf it depends on to the leaf's ``grad``.

        Parameters
        ----------
        grad : Tensor, optional
            The gradient of the quantity of interest with respect to this tensor, of its shape and dtype. May be omitted
            for a tensor of one element: then it is 1.
        retain_graph : bool
            Keep the tape for another backward pass. (`create_graph` implies it.)
        create_graph : bool
            Record the backward pass itself, so that the gradients can be differentiated. A leaf's ``grad`` then has a
            history that leads back to the leaf: a cycle, which keeps both and the whole tape alive until ``grad`` is
            None again. `minigrad.grad` returns such gradients without making the cycle.

        Raises
        ------
        GradientError
            If the tensor has several elements and no `grad` is given, if the tape was freed by an earlier pass, or if a
            value it needs has since been written in place.

        Examples
        --------
        >>> x = mg.tensor(3.0, requires_grad=True)
        >>> (x ** 2).backward()
        >>> x.grad
        tensor(6.)
        """
        backward.differentiate([self], [grad], None, retain_graph, create_graph)

    def detach(self) -> Tensor:
        """The same memory as a tensor without history."""
        note_read(self)
        return alias(self)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
        """Call ``hook(gradient)`` whenever this tensor's gradient is complete.

        What the hook returns, if not None, replaces the gradient.

        A hook may hold its own tensor: the garbage collector finds that cycle. It does not find one that passes through
        the tape, as for speed it does not track nodes: a hook that holds a result computed from its tensor
        keeps that result and its tape alive until ``remove()`` is called or backward frees the tape.

        Returns
        -------
        HookHandle
            With a method ``remove()``.
        """
        return hooks.add_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> HookHandle:
        """Call ``hook(x)`` with this leaf in each ``backward`` that reaches it, as soon as ``x.grad`` is complete.

        Returns
        -------
        HookHandle
            With a method ``remove()``.

        Raises
        ------
        GradientError
            If the tensor is not a leaf that requires grad.

        Examples
        --------
        >>> x = mg.ones(2, requires_grad=True)
        >>> handle = x.register_post_accumulate_grad_hook(lambda x: print(x.grad))
        >>> (3 * x).sum().backward()
        tensor([3., 3.])
        """
        return hooks.add_grad_hook(self, hook)

    # ── exports ──

    def __dlpack_device__(self) -> tuple[int, int]:
        """(device type, device id) of the DLPack standard: (1, 0) on the CPU, (2, i) on cuda:i."""
        return dlpack_device(self)

    def to_numpy(self) -> np.ndarray:
        """``x.numpy()``, by the name of pandas, polars and xarray, by which matplotlib asks for it."""
        return self.numpy()

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """A DLPack capsule over the same memory (https://dmlc.github.io/dlpack), of version 1 if `max_version` allows.

        A tensor with negative strides, which not every consumer can represent, is copied, and refused for copy=False.

        On a GPU, `stream`, on which the consumer will use the memory, waits for the work of the current stream.
        """
        return to_dlpack(self, stream, max_version, dl_device, copy)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """How CuPy, Numba and others see the memory of a tensor on a GPU (the CUDA array interface, version 3)."""
        if self.buffer.device == 0:
            raise AttributeError("[cuda_array_interface] the tensor is on the CPU")
        if self.needs_grad:
            raise BufferError("[cuda_array_interface] this tensor requires grad: export x.detach()")
        note_use(self)
        name = dtype_of(self.code).name
        return {"shape": self.shape, "typestr": np.dtype(name).str, "data": (self.data_ptr(), False),
                "strides": self.strides, "version": 3, "stream": gpus.current_stream(self.buffer.device - 1)}

    # ── the Python array API standard ──

    def to_device(self, device: str, *, stream: None = None) -> Tensor:
        """``x.to(device)``, by the name of the Python array API standard."""
        if stream is not None:
            raise ValueError(f"[to_device] expected stream None, the current one of the device, got {stream!r}")
        return move(self, device_index(device, "to_device"))

    # ── conversions ──

    def to(self, *args: str | DType | Tensor, device: str | None = None, dtype: str | DType | None = None,
           copy: bool = False, non_blocking: bool = False) -> Tensor:
        """This tensor on a device and/or of a dtype; the tensor itself if nothing changes.

        The gradient is brought back to the device and dtype of this tensor. Moving to the CPU waits for the GPU.

        Parameters
        ----------
        *args : str, DType or Tensor
            A device (``"cpu"``, ``"cuda"``, ``"cuda:1"``) and a dtype in any order; a tensor stands for its own device
            and dtype.
        device : str, optional
        dtype : DType, optional
            The same by keyword, which takes precedence over `args`.
        copy : bool
            Whether to copy even if nothing changes.
        non_blocking : bool
            Accepted for compatibility with PyTorch; has no effect.

        Returns
        -------
        Tensor

        Raises
        ------
        TypeError
            If an argument is neither a device nor a dtype.
        ValueError
            If a device has another form, such as ``"cuda:one"``.
        RuntimeError
            If there is no such GPU.
        MemoryError
            If the device is out of memory.
        IndexError
            When moving to the CPU, if an earlier operation on the GPU found an index out of range.

        Examples
        --------
        >>> x = mg.tensor([1.5, 2.5])
        >>> x.to("int32"), x.to("cpu") is x
        (tensor([1, 2], dtype=int32), True)
        >>> if mg.cuda.is_available():
        ...     y = x.to("cuda")
        """
        where, code = destination(self, args, device, dtype)
        cdef Array out = cast(move(self, where), code)
        return copy_array(out) if copy and out is self else out

    def contiguous(self) -> Tensor:
        """This tensor itself if its elements lie in row-major order without gaps, else a copy that does."""
        return self if self.packed else copy_array(self)

    def copy(self) -> Tensor:
        """A contiguous copy, on the tape."""
        return copy_array(self)

    def __dir__(self) -> list[str]:     # without PyTorch's names
        return [name for name in object.__dir__(self) if name.startswith("__") or name not in vars(Extension)]

    def __copy__(self) -> Tensor:
        return copy_array(self) if type(self) is Tensor else self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if not tape.leaf(self):
            raise GradientError(f"[deepcopy] this tensor{place_of_copy()} was computed: deep-copy x.detach()")
        note_read(self)
        cdef Array out = copy_array(alias(self))
        made = rebuild(type(self), out, self.device, self.needs_grad)
        if self.grad_ is not None:
            made.grad = copy_array(alias(self.grad_))
        memo[id(self)] = made
        return made

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return rebuild, (type(self), self._detached_numpy().copy(), self.device, bool(self.needs_grad))

    # ── writing in place ──

    def copy_(self, source: TensorLike) -> Self:
        """Write `source`, broadcast and converted, into this tensor; a tensor may be on another device."""
        if isinstance(source, Array) and (<Array>source).buffer.device != self.buffer.device:
            source = source.to(self.device)
        assign("copy_", self, Ellipsis, source)
        return self

    def set_(self, source: Tensor) -> Self:
        """Become `source`: take over its memory, shape, dtype and device (as a module does to move its parameters).

        Gradients no longer reach this tensor from what was recorded before: backward raises, unless this tensor does
        not require grad now. The call waits for the operations and backward passes that other threads are running.

        Raises
        ------
        RuntimeError
            In code that an operation or a backward pass of this thread calls, such as a hook; or if one of another
            thread does not end within a minute.
        TypeError
            If `source` is not a tensor, or is not of a floating dtype although this tensor requires grad.
        GradientError
            If this tensor was computed by a recorded operation, or within a function given to `recompute`.
        """
        if not isinstance(source, Array):
            raise TypeError(f"[set_] expected a tensor, got {kind_of(source)}")
        if current_listener() is not None:
            (<object>current_listener()).before_set()
        wait_for_operations("set_")
        if self.needs_grad and not is_float((<Array>source).code):
            raise TypeError(f"[set_] expected a floating dtype for a tensor that requires grad, got {source.dtype}")
        if not tape.leaf(self):
            raise GradientError("[set_] this tensor was computed: only a leaf can become another tensor")
        attached = None if self.node is None else (<Node>self.node).hooks
        retire_leaf(self)
        hold(self, <Array>source)
        self.grad_ = None
        if attached is not None:
            gradient_node(self).hooks = attached
        return self

    def fill_(self, value: float) -> Self:
        """Set every element to one number."""
        fill_array("fill_", self, value)
        return self

    def zero_(self) -> Self:
        """Set every element to 0."""
        return self.fill_(0)

    # ── shape ──

    @property
    def T(self) -> Tensor:
        return permute_dims(self, range(self.ndim_ - 1, -1, -1))

    @property
    def mT(self) -> Tensor:
        return matrix_transpose(self)

    def reshape(self, *shape: int | Sequence[int], copy: bool | None = None) -> Tensor:
        """See `minigrad.reshape`; the lengths may be separate arguments."""
        return layout.reshape(self, shape[0] if len(shape) == 1 else shape, copy)

    def permute_dims(self, *axes: int | Sequence[int]) -> Tensor:
        """See `minigrad.permute_dims`; the axes may be separate arguments."""
        return layout.permute_dims(self, axes[0] if len(axes) == 1 and hasattr(axes[0], "__iter__") else axes)

    def transpose(self, *axes: int | Sequence[int]) -> Tensor:
        """The axes in the given order, or reversed: NumPy's transpose.

        Two integers that PyTorch would exchange raise a ValueError: `swapaxes` does so.
        """
        if len(axes) == 2 and self.ndim_ >= 2:
            first, second = [one_axis("transpose", k, self.ndim_) for k in axes]
            if self.ndim_ > 2 or first < second:
                raise ValueError(f"[transpose] expected all {self.ndim_} axes in their new order, got {axes}: "
                                 f"x.swapaxes({axes[0]}, {axes[1]}) exchanges these two")
        return self.permute_dims(*axes) if axes else self.T


set_result_type(Tensor)
TensorLike: TypeAlias = Tensor | np.ndarray | np.generic | float | Sequence[Any]


def rebuild(cls: type[Tensor], values: Any, device: str, requires_grad: bool) -> Tensor:
    """The inverse of `Tensor.__reduce__`, with arguments from a file that cannot be trusted."""
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"[rebuild] expected a class of tensors, got {cls!r}")
    cdef Array held = from_object(values, -1, device_index(device, "rebuild"), False, "rebuild", False, True), made
    new = cls.__new__(cls)
    if not isinstance(new, Array) or (<Array>new).buffer != NOWHERE:
        raise TypeError(f"[rebuild] expected a new tensor of {cls!r}, got {type(new).__name__}")
    made = <Array>new
    hold(made, held)
    return as_leaf("rebuild", made, requires_grad)
