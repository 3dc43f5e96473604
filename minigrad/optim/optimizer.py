"""Optimizer: parameter groups, the state of each parameter, and the batches that one kernel call updates."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from minigrad.arrays.creation import asarray, full
from minigrad.autograd import enable_grad
from minigrad.engine.devices.kernel_list import repeated
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import number
from minigrad.engine.ops.optimizer import are_same, grads_of, states_hold
from minigrad.engine.tensor.tensor import Tensor
from minigrad.tools.arguments import Constructed

Group = dict[str, Any]
Params = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[Group]
ABSENT: Any = object()  # not None, which a state may contain
# Called with the parameters of an optimizer before each of its steps. `DataParallel` checks their gradients.
checks_before_step: list[Callable[[list[Tensor]], None]] = []


class Batch:
    """Parameters of a group that one kernel call updates: they share dtype, device, step count and state names.

    Attributes
    ----------
    parameters : list of Tensor
    states : list of dict
        The optimizer's state of each parameter.
    positions : list of int
        The indices of the parameters in their group.
    """

    __slots__ = ("_entries", "_seen", "parameters", "positions", "states")

    def __init__(self) -> None:
        self.parameters: list[Tensor] = []
        self.states: list[dict[str, Any]] = []
        self.positions: list[int] = []
        self._seen: dict[str, list[Any]] = {}  # by name, the values in the states when last read or written
        self._entries = 0  # the total number of entries in the states

    def look(self) -> None:
        """Remember what the states contain."""
        names = dict.fromkeys(name for state in self.states for name in state)
        self._seen = {name: [state.get(name, ABSENT) for state in self.states] for name in names}
        self._entries = sum(map(len, self.states))

    def holds(self, state: dict[Tensor, dict[str, Any]]) -> bool:
        """Whether the state of the parameters still contains the remembered objects under the same names."""
        return states_hold(state, self.parameters, self.states, self._seen, self._entries, ABSENT)

    def has(self, name: str) -> bool:
        """Whether the parameters already have a state buffer of this name."""
        return self.states[0].get(name) is not None

    def buffers(self, name: str, fill: float = 0.0, shapes: list[tuple[int, ...]] | None = None) -> list[Tensor]:
        """Return a state buffer of each parameter, by default of its shape, created and filled if it is absent."""
        if self.states[0].get(name) is None:
            found = [state.get(name) for state in self.states]
            for i, parameter in enumerate(self.parameters):
                if found[i] is None:
                    shape = shapes[i] if shapes else parameter.shape
                    found[i] = full(shape, fill, dtype=parameter.dtype, device=parameter.device)
            for state, buffer in zip(self.states, found, strict=True):  # all or none, in case memory runs out
                state[name] = buffer
            self.look()
        return self._seen[name]

    def number(self, name: str, default: float) -> Any:
        """Return a number that the states share."""
        return self.states[0].get(name, default)

    def put(self, name: str, value: float) -> None:
        """Set a number that the states share."""
        for state in self.states:
            state[name] = value
        if name in self._seen:
            self._seen[name] = [value] * len(self.states)
        else:
            self.look()

    def count(self) -> int:
        """Count a step and return its number, starting at 1."""
        step: int = self.states[0].get("step", 0) + 1
        self.put("step", step)
        return step


class Plan(NamedTuple):
    """The batches of a group, and what they depend on: its tensors, and the kinds of their gradients."""

    parameters: list[Tensor]
    key: list[int]  # see grads_of
    batches: list[Batch]


class Optimizer(Constructed):
    """The base class of optimizers; each of them defines ``update``.

    Raises TypeError if `params` is not an iterable of tensors or dicts (a set has no order), and for options that are
    not numbers; ValueError for no tensors, duplicate tensors, a tensor that is not a leaf, and options out of range.

    Parameters
    ----------
    params : iterable of Tensor, of (name, Tensor), or of dict
        The tensors to train, or groups: dicts with their tensors under "params" and their own options. Names, as
        ``model.named_parameters()`` gives them, are kept in the group under "param_names".
    defaults : dict
        The options of groups that do not set them. Every optimizer has "maximize": whether to climb, by the negative
        gradients, instead of to descend.

    Attributes
    ----------
    param_groups : list of dict
        The current options, which may be changed between steps, and the tensors under "params".
    state : dict
        Maps each tensor to a dict of its state, which has all names in `needed`, or is empty before the first step. It
        may be edited between steps; floating-point tensors added to it are converted to the tensor's dtype and device.
    needed, optional, numbers : tuple of str
        The names in such a dict, defined by the class. An optional entry may be absent or None, and is created when
        first used. The entries in `numbers`, by default only "step", the number of steps so far, are numbers, all
        others tensors, usually of the shape of the tensor they belong to.
    nonnegative : tuple of str
        The options that must be numbers of at least 0, defined by the class.
    """

    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ("step",)
    nonnegative: tuple[str, ...] = ("lr", "weight_decay")

    def __init_subclass__(cls) -> None:
        if "step" in cls.__dict__:
            cls.step = repeated(cls.step)  # type: ignore[method-assign]

    def __init__(self, params: Params, defaults: Group) -> None:
        module = hasattr(params, "parameters") and not isinstance(params, type)
        if module or isinstance(params, Tensor | Mapping | set | str) or not isinstance(params, Iterable):
            found = f"a {type(params).__name__}" + (": use its parameters()" if module else "")
            raise TypeError(f"[{self.name}] expected a list of tensors or of groups, got {found}")
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.state: dict[Tensor, dict[str, Any]] = {}
        self._plans: dict[int, Plan] = {}
        self._checked: dict[int, list[Any]] = {}
        self._rates: Any = None  # the rates of its schedules, see lr_scheduler/rates.py
        entries = list(params)
        if not entries:
            raise ValueError(
                f"[{self.name}] expected at least one parameter, got none: a module only sees attributes that "
                f"are nn.Parameter or nn.Module; layers in a list go into an nn.ModuleList"
            )
        groups: list[Any] = entries if isinstance(entries[0], dict) else [{"params": entries}]
        for group in groups:
            self.add_param_group(group)

    @property
    def name(self) -> str:
        """str: the name of the class."""
        return type(self).__name__

    def add_param_group(self, param_group: Group) -> None:
        """Add tensors to train, with their own options. Errors are as for the constructor.

        Parameters
        ----------
        param_group : dict
            The tensors under "params", and options; those that are absent are set to the defaults.
        """
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise TypeError(f"[{self.name}] expected a dict with the key 'params', got {param_group!r}")
        params = param_group["params"]
        if isinstance(params, set):
            raise TypeError(f"[{self.name}] expected a list of tensors, got a set, which has no order")
        if not isinstance(params, Iterable):
            raise TypeError(f"[{self.name}] expected a list of tensors, got {params!r}")
        params = [params] if isinstance(params, Tensor) else list(params)
        names: list[str] = [entry[0] for entry in params if isinstance(entry, tuple) and isinstance(entry[0], str)]
        if names:
            if len(names) < len(params):
                raise ValueError(f"[{self.name}] expected a name for each tensor or for none, got {len(names)} names")
            params, param_group = [entry[1] for entry in params], {**param_group, "param_names": names}
        known = {id(parameter) for group in self.param_groups for parameter in group["params"]}
        for parameter in params:
            if not isinstance(parameter, Tensor):
                raise TypeError(f"[{self.name}] expected tensors, got {kind_of(parameter)}")
            if not parameter.is_leaf:
                raise ValueError(f"[{self.name}] expected leaves, got a computed tensor of shape {parameter.shape}")
            if not parameter.is_contiguous():
                raise ValueError(f"[{self.name}] expected contiguous tensors, got a view of shape {parameter.shape}")
            if id(parameter) in known:
                raise ValueError(
                    f"[{self.name}] expected distinct parameters, got one of shape {parameter.shape} twice"
                )
            known.add(id(parameter))
        group = {**self.defaults, **param_group, "params": params}
        self.check(group)
        self.param_groups.append(group)

    def check(self, group: Group) -> None:
        """Convert the options to numbers; raise TypeError if one is not, ValueError if absent or out of range.

        Options that are on or off are off if they are absent, as from the states of older versions and of PyTorch; but
        where AdamW's decay acts is not an option there.
        """
        for option, default in ("maximize", False), *self.defaults.items():
            if isinstance(default, bool):
                group[option] = bool(group.get(option, option == "decoupled_weight_decay" and default))
        if not self.defaults.keys() <= group.keys():
            absent = ", ".join(option for option in self.defaults if option not in group)
            raise ValueError(f"[{self.name}] expected groups with {absent}, got {', '.join(map(str, group))}")
        for option in self.nonnegative:
            if option in group:
                group[option] = number(self.name, option, group[option], 0)
        if "betas" in group:
            betas = group["betas"]
            if not isinstance(betas, tuple | list):
                raise TypeError(f"[{self.name}] expected two betas, got {betas!r}")
            if len(betas) != 2:
                raise ValueError(f"[{self.name}] expected two betas, got {betas}")
            group["betas"] = betas = tuple(number(self.name, "betas", beta, 0) for beta in betas)
            if not max(betas) < 1:
                raise ValueError(f"[{self.name}] expected two betas in [0, 1), got {betas}")

    def decay(self, group: Group) -> tuple[float, float]:
        """Return the factor of p that is added to the gradient, and the factor that shrinks p."""
        if group["decoupled_weight_decay"]:
            return 0.0, 1 - group["lr"] * group["weight_decay"]
        return group["weight_decay"], 1.0

    def update(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        """Update the parameters of a batch with their gradients and the options of the group."""
        raise NotImplementedError(f"[{self.name}] update is not defined")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the gradients, or set them to zeros if `set_to_none` is false."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none:
                    parameter.grad = None
                elif parameter.grad is not None:
                    parameter.grad = parameter.grad.detach().zero_()

    @repeated
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        Raises TypeError or ValueError for options or states that were edited and are invalid; no parameter is changed
        then.

        Parameters
        ----------
        closure : callable, optional
            Recomputes the loss and the gradients; called first.

        Returns
        -------
        object
            The result of `closure`, or None.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        if checks_before_step:
            self._check_gradients()
        if not isinstance(self.state, dict):
            raise TypeError(f"[{self.name}] expected state to be a dict, got {self.state!r}")
        work = [self._plan(index, group) for index, group in enumerate(self.param_groups)]
        for group, batches, grads in work:
            for batch in batches:
                whole = len(batch.positions) == len(grads)
                given = grads if whole else [grads[i] for i in batch.positions]
                if group["maximize"]:
                    given = [-grad.detach() for grad in given]
                try:
                    self.update(group, batch, given)
                except BaseException:  # for example, memory ran out while a first state was created
                    for state, parameter in zip(batch.states, batch.parameters, strict=True):
                        if not self._is_whole(state, parameter):
                            state.clear()
                    raise
        return loss

    def _check_gradients(self) -> None:
        for check in checks_before_step:
            check([parameter for group in self.param_groups for parameter in group["params"]])

    def _plan(self, index: int, group: Group) -> tuple[Group, list[Batch], list[Any]]:
        """Return a group, its batches and its gradients, checking options and states that have been edited."""
        options = self._checked.get(index)
        if options is None or not are_same(group.values(), options):
            self.check(group)
            self._checked[index] = list(group.values())
        parameters = group["params"]
        grads, key = grads_of(parameters)
        plan = self._plans.get(index)
        if (
            plan is None
            or plan.key != key
            or not are_same(parameters, plan.parameters)
            or not all(batch.holds(self.state) for batch in plan.batches)
        ):
            plan = self._plans[index] = Plan(list(parameters), key, self._batches(parameters))
        return group, plan.batches, grads

    def _batches(self, parameters: list[Tensor]) -> list[Batch]:
        """Group the parameters with a gradient by everything that must be equal within a kernel call."""
        found: dict[tuple[Any, ...], Batch] = {}
        for position, parameter in enumerate(parameters):
            if parameter.grad is None:
                continue
            state = self.state.setdefault(parameter, {})
            self._check_state(state, parameter)
            for name, value in state.items():
                if name in self.numbers:
                    state[name] = self._number(name, value)
                elif self._is_tensor(name) and value is not None:  # the parameter may have moved to another device
                    state[name] = self._like(name, value, parameter)
                elif isinstance(value, Tensor):
                    state[name] = value.to(parameter.dtype).to(parameter.device)
            names = tuple(sorted(name for name, value in state.items() if value is not None))
            needed = tuple(self.shapes(parameter))
            key = (parameter.dtype, parameter.device, *map(state.get, self.numbers), needed, names)
            batch = found.setdefault(key, Batch())
            batch.parameters.append(parameter)
            batch.states.append(state)
            batch.positions.append(position)
        for batch in found.values():
            batch.look()
        return list(found.values())

    def _check_state(self, state: Any, parameter: Tensor) -> None:
        """Raise if the state is not a dict, or is neither empty nor complete."""
        if not isinstance(state, dict):
            raise TypeError(
                f"[{self.name}] expected a dict as the state of a parameter of shape {parameter.shape}, got {state!r}"
            )
        if state and not self._is_whole(state, parameter):
            got = ", ".join(str(name) for name, value in state.items() if value is not None)
            raise ValueError(
                f"[{self.name}] expected {', '.join(self.shapes(parameter))} in the state of a parameter of shape "
                f"{parameter.shape}, got {got or 'only None'}"
            )

    def shapes(self, parameter: Tensor) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the needed entries of a parameter's state."""
        return {name: () if name in self.numbers else parameter.shape for name in self.needed}

    def _is_whole(self, state: dict[str, Any], parameter: Tensor) -> bool:
        return all(state.get(name) is not None for name in self.shapes(parameter))

    def _is_tensor(self, name: str) -> bool:
        return name in self.needed or name in self.optional

    def _number(self, name: str, value: Any) -> float:
        """Check and convert a number of a state."""
        if name != "step":
            return number(self.name, name, value)
        count = number(self.name, name, value, 0, 2**53)
        if count != int(count):
            raise ValueError(f"[{self.name}] expected an integer step, got {count}")
        return int(count)

    def _like(self, name: str, value: Any, parameter: Tensor) -> Tensor:
        """Convert an entry of a state to a tensor of the parameter's dtype and device."""
        try:
            if isinstance(value, int | float):
                raise TypeError
            tensor = asarray(value).detach() if not isinstance(value, Tensor) or value.requires_grad else value
        except (TypeError, ValueError):
            raise TypeError(f"[{self.name}] {name}: expected a tensor, got {value!r}") from None
        shape = self.shapes(parameter).get(name, parameter.shape)
        if tensor.shape != shape:
            raise ValueError(f"[{self.name}] {name}: expected shape {shape}, got {tensor.shape}")
        if not str(tensor.dtype).startswith("float"):
            raise TypeError(f"[{self.name}] {name}: expected floating-point elements, got {tensor.dtype}")
        return tensor.to(parameter.dtype).to(parameter.device).contiguous()

    def state_dict(self) -> dict[str, Any]:
        """Return the options and the state in PyTorch's structure.

        Returns
        -------
        dict
            "state" maps the position of each parameter to its state, whose tensors are shared, not copied;
            "param_groups" has the options, with positions in place of tensors.
        """
        positions: dict[Tensor, int] = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                positions[parameter] = len(positions)
        groups = [{**group, "params": [positions[p] for p in group["params"]]} for group in self.param_groups]
        states = {positions[p]: dict(state) for p, state in self.state.items() if p in positions}
        return {"state": states, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load options and state, converted to each parameter's dtype and device.

        Raises TypeError or ValueError if groups, their sizes, their options, the names in states or shapes differ, or
        if `state_dict` is not such a state, for example because its file is damaged; nothing is loaded then.

        Parameters
        ----------
        state_dict : dict
            As returned by `state_dict`, or by the PyTorch optimizer of the same kind.
        """
        groups, state = self._parts(state_dict)
        sizes, own = ([len(group["params"]) for group in each] for each in (groups, self.param_groups))
        if sizes != own:
            raise ValueError(f"[{self.name}] expected groups of {own} parameters, got {sizes}")
        for group in groups:
            self.check(group)
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        positions = [position for group in groups for position in group["params"]]
        places = dict(zip(positions, parameters, strict=True))
        if len(places) < len(positions):
            raise ValueError(f"[{self.name}] expected each parameter once under 'params', got {positions}")
        loaded = {}
        for position, entries in state.items():
            if position not in places:
                raise ValueError(f"[{self.name}] expected states of parameters {positions}, got one of {position!r}")
            parameter = places[position]
            self._check_state(entries, parameter)
            loaded[parameter] = {name: self._restore(name, value, parameter) for name, value in entries.items()}
        self.state = loaded
        for group, new in zip(self.param_groups, groups, strict=True):
            kept = {name: group[name] for name in ("params", "param_names") if name in group}
            group.clear()
            group.update(new, **kept)

    def _parts(self, state_dict: Any) -> tuple[list[Group], Mapping[Any, Any]]:
        """Return the copied groups and the states of a state dict; raise TypeError or ValueError if it is invalid."""
        expected = f"[{self.name}] expected a state dict with 'param_groups' and 'state'"
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"{expected}, got {state_dict!r}")
        if not {"param_groups", "state"} <= state_dict.keys():
            raise ValueError(f"{expected}, got {', '.join(map(str, state_dict)) or 'an empty one'}")
        groups, state = state_dict["param_groups"], state_dict["state"]
        if not isinstance(state, Mapping):
            raise TypeError(f"[{self.name}] expected a dict under 'state', got {state!r}")
        if not isinstance(groups, list | tuple):
            raise TypeError(f"[{self.name}] expected a list under 'param_groups', got {groups!r}")
        for group in groups:
            params = group.get("params") if isinstance(group, Mapping) else None
            if not isinstance(params, list | tuple) or not all(isinstance(position, int) for position in params):
                raise TypeError(f"[{self.name}] expected groups with a list of integers under 'params', got {group!r}")
        return [dict(group) for group in groups], state

    def _restore(self, name: str, value: Any, parameter: Tensor) -> Any:
        """Restore an entry of a state: a number, None, or a tensor like the parameter."""
        if name in self.numbers:
            return self._number(name, value)
        if value is None or (isinstance(value, int | float) and not self._is_tensor(name)):
            return value
        return self._like(name, value, parameter).copy()

    def __repr__(self) -> str:
        lines = []
        for k, group in enumerate(self.param_groups):
            lines.append(f"Parameter group {k}")
            lines += [f"    {name}: {value}" for name, value in sorted(group.items()) if name != "params"]
        return f"{self.name} (\n" + "\n".join(lines) + "\n)"
