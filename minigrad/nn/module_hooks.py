"""The hooks of a module: functions that are called before and after `forward`, and with gradients."""

from collections.abc import Callable
from typing import Any

from minigrad.engine.devices.kernel_list import refuse
from minigrad.engine.tape.node import is_grad_enabled
from minigrad.engine.tape.python_function import record_function, result_over
from minigrad.engine.tensor.tensor import Tensor


class HookHandle:
    """The handle of a registered hook; ``remove()`` removes the hook."""

    def __init__(self, module: Any, kind: str) -> None:
        self._module, self._kind = module, kind

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        hooks = self._module._hooks
        if hooks is not None:
            hooks[self._kind].pop(self, None)
            if not any(hooks.values()):
                del self._module.__dict__["_hooks"]


def add_hook(module: Any, kind: str, hook: Callable[..., Any]) -> HookHandle:
    """Register a hook of a module that is called "before" or "after" `forward`, or in the "backward" pass."""
    if not callable(hook):
        raise TypeError(f"[{type(module).__name__}] expected a function as a hook, got {hook!r}")
    if module._hooks is None:
        module.__dict__["_hooks"] = {"before": {}, "after": {}, "backward": {}}
    handle = HookHandle(module, kind)
    module._hooks[kind][handle] = hook
    return handle


class BackwardHooks:
    """The backward hooks of one call: identities around `forward` see the gradients of its results and arguments."""

    def __init__(self, module: Any, hooks: list[Callable[..., Any]]) -> None:
        self.module, self.hooks = module, hooks
        self.count, self.places = 0, list[int]()  # the places are those of the arguments that require grad
        self.result_count, self.result_places = 0, list[int]()
        self.grad_output: tuple[Tensor | None, ...] | None = None

    def arguments(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments for `forward`, whose gradients the hooks may replace."""
        self.count = len(args)
        passed, self.places = _pass_through("BackwardHookOfInputs", args, self._at_inputs)
        return passed

    def results(self, output: Any) -> Any:
        """The results of `forward`, whose gradients are kept for the hooks."""
        passed, self.result_places = _pass_through(
            "BackwardHookOfOutputs", output if isinstance(output, tuple) else (output,), self._at_outputs
        )
        self.result_count = len(passed)
        return passed if isinstance(output, tuple) else passed[0]

    def _at_outputs(self, node: Any, grads: list[Tensor | None], saved: Any) -> list[Tensor | None]:
        self.grad_output = _spread(grads, self.result_places, self.result_count)
        if not self.places:
            self._call((None,) * self.count)
        return grads

    def _at_inputs(self, node: Any, grads: list[Tensor | None], saved: Any) -> list[Tensor | None]:
        found = self._call(_spread(grads, self.places, self.count))
        return [found[place] for place in self.places]

    def _call(self, grad_input: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        if self.grad_output is None:  # the arguments got gradients in another way than through the results
            return grad_input
        for hook in self.hooks:
            changed = hook(self.module, grad_input, self.grad_output)
            if changed is not None:
                changed = changed if isinstance(changed, tuple) else (changed,)
                if len(changed) != self.count:
                    raise ValueError(
                        f"[{type(self.module).__name__}] expected a backward hook to return {self.count} gradients, "
                        f"one for each argument, got {len(changed)}"
                    )
                grad_input = changed
        self.grad_output = None
        return grad_input


def _pass_through(
    name: str, values: tuple[Any, ...], backward: Callable[..., list[Tensor | None]]
) -> tuple[tuple[Any, ...], list[int]]:
    """The values, with each tensor that requires grad after one identity with that backward, and their places."""
    places = [k for k, value in enumerate(values) if isinstance(value, Tensor) and value.requires_grad]
    passed = [result_over(values[k], [values[k]]) for k in places]
    if places:
        record_function(name, [values[k] for k in places], passed, backward, ())
    aliases = dict(zip(places, passed, strict=True))
    return tuple(aliases.get(k, value) for k, value in enumerate(values)), places


def _spread(grads: list[Tensor | None], places: list[int], count: int) -> tuple[Tensor | None, ...]:
    """The gradients at their places among `count` values, of which the others have none."""
    found: list[Tensor | None] = [None] * count
    for place, grad in zip(places, grads, strict=True):
        found[place] = grad
    return tuple(found)


def call_with_hooks(
    module: Any, hooks: dict[str, dict[HookHandle, Callable[..., Any]]], args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:  # fmt: skip
    """Return the result of `forward`, after its hooks."""
    refuse("a module's hook")
    for hook in list(hooks["before"].values()):
        changed = hook(module, args)
        if changed is not None:
            args = changed if isinstance(changed, tuple) else (changed,)
    watched = None
    if hooks["backward"] and is_grad_enabled():
        watched = BackwardHooks(module, list(hooks["backward"].values()))
    output = module.forward(*(args if watched is None else watched.arguments(args)), **kwargs)
    for hook in list(hooks["after"].values()):
        changed = hook(module, args, output)
        if changed is not None:
            output = changed
    return output if watched is None else watched.results(output)
