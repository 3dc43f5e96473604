"""Hooks: functions that a backward pass calls with a complete gradient, or with the leaf that has received it."""

from minigrad.engine.memory.array cimport Array, shape_of
from minigrad.engine.memory.listener cimport current_listener
from minigrad.engine.tape.node cimport Node, Pass, running_pass
from minigrad.engine.tape.record cimport gradient_node, is_leaf
from minigrad.engine.tape.node import GradientError

cdef extern from "Python.h":
    void PyObject_GC_Track(void*)
    bint PyObject_GC_IsTracked(object)


class HookHandle:
    """The handle of a hook, which `Tensor.register_hook` returns; ``remove()`` removes the hook."""

    def __init__(self, hooks: list[Any], entry: tuple[int, Any]):
        self._hooks, self._entry = hooks, entry

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        if self._entry in self._hooks:
            self._hooks.remove(self._entry)


def add_hook(Array x, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
    """Call hook(gradient) whenever the gradient of x is complete."""
    if not callable(hook):
        raise TypeError(f"[register_hook] expected a function of the gradient, got {hook!r}")
    if not x.needs_grad:
        raise GradientError(f"[register_hook] the tensor of shape {shape_of(x)} does not require grad")
    return hooked(x, (x.output, hook))


def add_grad_hook(Array x, hook: Callable[[Tensor], None]) -> HookHandle:
    """Call hook(x) in each backward pass that adds to x.grad, as soon as that is complete."""
    if not callable(hook):
        raise TypeError(f"[register_post_accumulate_grad_hook] expected a function of the tensor, got {hook!r}")
    if not x.needs_grad or not is_leaf(x):
        raise GradientError(f"[register_post_accumulate_grad_hook] expected a leaf that requires grad, got a tensor of "
                            f"shape {shape_of(x)} that {'was computed' if x.needs_grad else 'does not require grad'}")
    return hooked(x, (AFTER, hook))


def call_after_pass(callback: Callable[[], None]) -> None:
    """Call callback() once when the outermost backward pass that this thread runs has ended without an error.

    It can be called in a hook or a Function. In one pass, equal callbacks are called once.
    """
    cdef Pass running = running_pass()
    if running is None:
        raise GradientError("[call_after_pass] expected a running backward pass, got none")
    if running.callbacks is None:
        running.callbacks = {}
    running.callbacks[callback] = None


cdef int show_collector(Array x) except -1:
    """Let the garbage collector see x and its node, because user code that the node holds may lead to x."""
    for tracked in (x, x.node):
        if not PyObject_GC_IsTracked(tracked):
            PyObject_GC_Track(<void*>tracked)
    return 0


cdef object hooked(Array x, tuple entry):
    """Add an entry to the hooks of x, and return its handle."""
    cdef Node node = gradient_node(x)
    if current_listener() is not None and not (<object>current_listener()).adds_hook(x):
        return HookHandle([], entry)
    if node.hooks is None:
        node.hooks = []
    node.hooks.append(entry)
    show_collector(x)       # from here on a cycle tensor -> node -> hook -> tensor is possible
    return HookHandle(node.hooks, entry)
