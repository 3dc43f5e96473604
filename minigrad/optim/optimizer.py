"""Optimizer: parameter groups, state by parameter, and the lists that one kernel call updates together."""

from collections.abc import Callable, Iterable, Mapping
from operator import is_
from typing import Any, NamedTuple

from minigrad.autograd import enable_grad
from minigrad.creation import asarray, full_like
from minigrad.engine.ops.arguments import number
from minigrad.engine.tensor import Tensor

Group = dict[str, Any]


class Batch:
    """Parameters of one group that a single kernel call updates: same dtype, device and number of steps so far.

    Attributes
    ----------
    parameters : list of Tensor
    states : list of dict
        The optimizer's state of each parameter.
    positions : list of int
        Where the parameters stand in their group.
    """

    __slots__ = ("_buffers", "parameters", "positions", "states")

    def __init__(self) -> None:
        self.parameters: list[Tensor] = []
        self.states: list[dict[str, Any]] = []
        self.positions: list[int] = []
        self._buffers: dict[str, list[Tensor]] = {}

    def has(self, name: str) -> bool:
        """Whether the parameters have a state buffer of this name already."""
        return name in self._buffers or self.states[0].get(name) is not None

    def buffers(self, name: str, fill: float = 0.0) -> list[Tensor]:
        """A state buffer for each parameter, of its shape; made and filled where it is absent."""
        found = self._buffers.get(name)
        if found is None:
            found = []
            for parameter, state in zip(self.parameters, self.states, strict=True):
                if state.get(name) is None:
                    state[name] = full_like(parameter, fill, requires_grad=False)
                found.append(state[name])
            self._buffers[name] = found
        return found

    def count(self) -> int:
        """Count a step; returns its number, from 1."""
        step: int = self.states[0].get("step", 0) + 1
        for state in self.states:
            state["step"] = step
        return step


class Plan(NamedTuple):
    """The batches of a group, and what they were made for: tensors, dtype and device of each gradient (or False)."""

    parameters: list[Tensor]
    key: list[Any]
    batches: list[Batch]


class Optimizer:
    """The base of all optimizers: ``update`` is what each of them adds.

    Parameters
    ----------
    params : iterable of Tensor, or iterable of dict
        The tensors to train; or groups, each a dict with its tensors under "params" and options of its own.
    defaults : dict
        The options of groups that do not set them.

    Attributes
    ----------
    param_groups : list of dict
        The options in force, which may be changed between steps, and the tensors under "params".
    state : dict
        From tensor to a dict of what the optimizer remembers about it.

    Raises
    ------
    TypeError
        For what is no iterable of tensors or dicts (a set has no order), and for options that are no numbers.
    ValueError
        For no tensors at all, a tensor given twice, a tensor that is not a leaf, and options out of range.
    """

    def __init__(self, params: Iterable[Tensor] | Iterable[Group], defaults: Group) -> None:
        if isinstance(params, Tensor | Mapping | set | str) or not isinstance(params, Iterable):
            raise TypeError(f"[{self.name}] expected a list of tensors or of groups, got a {type(params).__name__}")
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.state: dict[Tensor, dict[str, Any]] = {}
        self._plans: list[Plan | None] = []
        entries = list(params)
        if not entries:
            raise ValueError(f"[{self.name}] expected at least one parameter, got none")
        groups: list[Any] = entries if isinstance(entries[0], dict) else [{"params": entries}]
        for group in groups:
            self.add_param_group(group)

    @property
    def name(self) -> str:
        """str: the name of the class."""
        return type(self).__name__

    def add_param_group(self, param_group: Group) -> None:
        """Train further tensors, with options of their own.

        Parameters
        ----------
        param_group : dict
            The tensors under "params"; options that are absent come from the defaults.

        Raises
        ------
        TypeError, ValueError
            As for the constructor.
        """
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise TypeError(f"[{self.name}] expected a dict with the key 'params', got {param_group!r}")
        params = param_group["params"]
        if isinstance(params, set):
            raise TypeError(f"[{self.name}] expected a list of tensors, got a set, which has no order")
        if not isinstance(params, Iterable):
            raise TypeError(f"[{self.name}] expected a list of tensors, got {params!r}")
        params = [params] if isinstance(params, Tensor) else list(params)
        known = {id(parameter) for group in self.param_groups for parameter in group["params"]}
        for parameter in params:
            if not isinstance(parameter, Tensor):
                raise TypeError(f"[{self.name}] expected tensors, got {type(parameter).__name__}")
            if not parameter.is_leaf:
                raise ValueError(f"[{self.name}] expected leaves, got a computed tensor of shape {parameter.shape}")
            if not parameter.is_contiguous():
                raise ValueError(f"[{self.name}] expected contiguous tensors, got a view of shape {parameter.shape}")
            if id(parameter) in known:
                raise ValueError(f"[{self.name}] a parameter of shape {parameter.shape} was given twice")
            known.add(id(parameter))
        group = {**self.defaults, **param_group, "params": params}
        self.check(group)
        self.param_groups.append(group)
        self._plans.append(None)

    def check(self, group: Group) -> None:
        """Make numbers of the options; raise TypeError for what is none, ValueError for those out of range."""
        for option in ("lr", "weight_decay", "eps", "momentum", "alpha", "lr_decay", "initial_accumulator_value"):
            if option in group:
                group[option] = number(self.name, option, group[option], 0)
        if group.get("maximize"):  # an option of PyTorch's that changes what its state means
            raise ValueError(f"[{self.name}] expected maximize=False, got {group['maximize']}: negate the loss")

    def update(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        """Update the parameters of a batch by their gradients and the options of its group."""
        raise NotImplementedError(f"[{self.name}] update is not defined")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or set them to zeros if `set_to_none` is false."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none:
                    parameter.grad = None
                elif parameter.grad is not None:
                    parameter.grad = parameter.grad.detach().zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        Parameters
        ----------
        closure : callable, optional
            Computes loss and gradients anew; it is called first.

        Returns
        -------
        object
            What `closure` returned, or None.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for index, group in enumerate(self.param_groups):
            parameters = group["params"]
            grads = [parameter.grad for parameter in parameters]
            key = [grad is not None and (grad.dtype, grad.device) for grad in grads]
            plan = self._plans[index]
            if plan is None or plan.key != key or not all(map(is_, plan.parameters, parameters)):
                plan = self._plans[index] = Plan(list(parameters), key, self._batches(parameters))
            for batch in plan.batches:
                whole = len(batch.positions) == len(grads)
                self.update(group, batch, grads if whole else [grads[i] for i in batch.positions])
        return loss

    def _batches(self, parameters: list[Tensor]) -> list[Batch]:
        """Group those with a gradient by all that has to agree within a kernel call."""
        found: dict[tuple[Any, ...], Batch] = {}
        for position, parameter in enumerate(parameters):
            if parameter.grad is None:
                continue
            state = self.state.setdefault(parameter, {})
            for name, value in state.items():
                if isinstance(value, Tensor):   # the parameter may have moved since
                    state[name] = value.to(parameter.dtype).to(parameter.device)
            names = tuple(sorted(name for name, value in state.items() if value is not None))
            key = (parameter.dtype, parameter.device, state.get("step", 0), names)
            batch = found.setdefault(key, Batch())
            batch.parameters.append(parameter)
            batch.states.append(state)
            batch.positions.append(position)
        return list(found.values())

    def state_dict(self) -> dict[str, Any]:
        """Options and state in PyTorch's structure.

        Returns
        -------
        dict
            "state": from the position of a parameter to its state, whose tensors are shared, not copied;
            "param_groups": the options, with positions in place of tensors.
        """
        positions: dict[Tensor, int] = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                positions[parameter] = len(positions)
        groups = [{**group, "params": [positions[p] for p in group["params"]]} for group in self.param_groups]
        return {"state": {positions[p]: dict(state) for p, state in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over options and state, converted to each parameter's dtype and device.

        Parameters
        ----------
        state_dict : dict
            As `state_dict` gives it, or PyTorch's optimizer of the same kind.

        Raises
        ------
        ValueError
            If groups, their sizes, their options or shapes differ. Nothing is taken over then.
        """
        groups, state = list(state_dict["param_groups"]), state_dict["state"]
        sizes, own = ([len(group["params"]) for group in each] for each in (groups, self.param_groups))
        if sizes != own:
            raise ValueError(f"[{self.name}] expected groups of {own} parameters, got {sizes}")
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        places = dict(zip((i for group in groups for i in group["params"]), parameters, strict=True))
        loaded = {
            places[i]: {name: self._restored(name, value, places[i]) for name, value in entries.items()}
            for i, entries in state.items()
        }
        for group in groups:
            absent = [option for option in self.defaults if option not in group]
            if absent:
                raise ValueError(f"[{self.name}] expected groups with {', '.join(absent)}, got {', '.join(group)}")
            self.check(dict(group))
        self.state = loaded
        for group, new in zip(self.param_groups, groups, strict=True):
            params = group["params"]
            group.clear()
            group.update(new, params=params)
        self._plans = [None] * len(groups)

    def _restored(self, name: str, value: Any, parameter: Tensor) -> Any:
        """A state entry: a count, None, or a tensor like the parameter."""
        if name == "step":
            return int(value)
        if value is None or isinstance(value, int | float):
            return value
        tensor = asarray(value)
        if tensor.shape != parameter.shape:
            raise ValueError(f"[{self.name}] {name}: expected shape {parameter.shape}, got {tensor.shape}")
        return tensor.detach().to(parameter.dtype).to(parameter.device).copy()

    def __repr__(self) -> str:
        lines = []
        for k, group in enumerate(self.param_groups):
            lines.append(f"Parameter group {k}")
            lines += [f"    {name}: {value}" for name, value in sorted(group.items()) if name != "params"]
        return f"{self.name} (\n" + "\n".join(lines) + "\n)"
