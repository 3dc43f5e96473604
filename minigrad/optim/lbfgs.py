"""L-BFGS, a quasi-Newton method that evaluates the loss several times in a step."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from minigrad.arrays.creation import asarray, zeros
from minigrad.autograd import enable_grad, no_grad
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.ops.join import concat
from minigrad.engine.tensor.tensor import Tensor
from minigrad.optim.optimizer import Group, Optimizer, Params

NUMBERS = {"func_evals", "n_iter", "t", "ro", "H_diag", "prev_loss", "al"}


class Point(NamedTuple):
    """A point of a line search: the step t, and there the loss, its gradient, and its slope along the direction."""

    t: float
    loss: float
    grad: Tensor
    slope: float


class LBFGS(Optimizer):
    """The L-BFGS method (Liu & Nocedal 1989, https://doi.org/10.1007/BF01589116), with PyTorch's arguments.

    p ← p − t H g for the gradient g of all parameters and an estimate H of the inverse Hessian from the last changes
    s = Δp and y = Δg with y·s > 1e-10, by the two-loop recursion, which begins with H = (y·s / y·y) I of the last pair.
    In the first iteration, H = I and t = η min(1, 1 / ‖g‖₁), later t = η; a line search, if any, starts there.

    Suited to smooth losses of all data: pairs from different batches spoil H.

    Parameters
    ----------
    params : iterable of Tensor
        The tensors to train, in one group.
    lr : float
        η.
    max_iter : int
        The most iterations in a step.
    max_eval : int, optional
        About the most evaluations of the loss in a step; by default, 5/4 of `max_iter`.
    tolerance_grad : float
        A step ends if no element of the gradient is larger.
    tolerance_change : float
        A step ends if neither the loss nor a parameter changes by more.
    history_size : int
        The number of pairs.
    line_search_fn : {None, "strong_wolfe"}
        Without a line search, each iteration takes the step t. "strong_wolfe" searches for a t with
        L(t) ≤ L(0) + 1e-4 t L'(0) and |L'(t)| ≤ 0.9 |L'(0)|, by cubic interpolation (Nocedal & Wright 2006, §3.5).

    Raises
    ------
    TypeError
        If `params` contains anything but tensors, or an option is no number.
    ValueError
        For no parameters, duplicate parameters, several groups, options out of range, or an unknown line search.

    Examples
    --------
    >>> x = mg.tensor([-1.5, 2.0], dtype="float64", requires_grad=True)
    >>> optimizer = mg.optim.LBFGS([x], max_iter=100, line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    ...     loss.backward()
    ...     return loss
    >>> loss = optimizer.step(closure)
    >>> [round(value, 3) for value in x.tolist()]
    [1.0, 1.0]
    """

    def __init__(
        self, params: Params, lr: float = 1.0, max_iter: int = 20,
        max_eval: int | None = None, tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9,
        history_size: int = 100, line_search_fn: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter, "max_eval": integer("LBFGS", "max_iter", max_iter, 1) * 5 // 4
            if max_eval is None else max_eval, "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn,
        })  # fmt: skip

    def add_param_group(self, param_group: Group) -> None:
        """Set the only group; a second one is a ValueError, as the estimate of the Hessian is one for all tensors."""
        if self.param_groups:
            raise ValueError("[LBFGS] expected one group of parameters, got a second one")
        super().add_param_group(param_group)

    def check(self, group: Group) -> None:
        super().check(group)
        for option in ("max_iter", "max_eval", "history_size"):
            group[option] = integer("LBFGS", option, group[option], 1)
        for option in ("tolerance_grad", "tolerance_change"):
            group[option] = number("LBFGS", option, group[option], 0)
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise ValueError(f'[LBFGS] expected line_search_fn None or "strong_wolfe", got {group["line_search_fn"]!r}')

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Evaluate the loss and iterate until a limit or a tolerance is reached.

        Raises TypeError without a closure, or if it returns no number. The result is that of the first call of
        `closure`.

        Parameters
        ----------
        closure : callable
            Clears the gradients, computes the loss, calls its ``backward`` and returns it.
        """
        if not callable(closure):
            raise TypeError(
                f"[LBFGS] expected a closure that computes the loss and its gradients, got {kind_of(closure)}: "
                f"optimizer.step(closure)"
            )
        group = self.param_groups[0]
        self.check(group)
        with enable_grad():
            first = closure()
        self._check_gradients()
        with no_grad():
            self._iterate(group, closure, _number(first))
        return first

    def _iterate(self, group: Group, closure: Callable[[], Any], loss: float) -> None:
        """The iterations of a step, from the loss and the gradients at its beginning."""
        state = self.state.setdefault(group["params"][0], {"func_evals": 0, "n_iter": 0})
        state["func_evals"] += 1
        evaluations, grad = 1, self._gradient()
        if _largest(grad) <= group["tolerance_grad"]:
            return
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            first = state["n_iter"] == 1
            if first:
                state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            else:
                self._remember(state, grad, group["history_size"])
            direction = state["d"] = _direction(state, grad)
            state["prev_flat_grad"], state["prev_loss"] = grad, loss
            t = state["t"] = group["lr"] * (min(1.0, 1.0 / grad.abs().sum().item()) if first else 1.0)
            start = Point(0.0, loss, grad, _dot(grad, direction))
            if start.slope > -group["tolerance_change"]:
                return
            count = 0
            if group["line_search_fn"] is not None:
                end, count = self._search(closure, direction, start, t, group["max_eval"] - evaluations)
                t = state["t"] = end.t
                loss, grad = end.loss, end.grad
                self._move(direction, t)
            else:
                self._move(direction, t)
                if iteration < group["max_iter"]:  # the next step begins with an evaluation
                    loss, grad, count = *self._evaluate(closure), 1
            evaluations += count
            state["func_evals"] += count
            if (
                evaluations >= group["max_eval"]
                or _largest(grad) <= group["tolerance_grad"]
                or _largest(direction) * t <= group["tolerance_change"]
                or abs(loss - state["prev_loss"]) < group["tolerance_change"]
            ):
                return

    def _remember(self, state: dict[str, Any], grad: Tensor, most: int) -> None:
        """Add the last change of parameters and gradient to the history, if the curvature is positive."""
        y, s = grad - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = _dot(y, s)
        if curvature > 1e-10:
            for name, value in {"old_dirs": y, "old_stps": s, "ro": 1.0 / curvature}.items():
                state[name] = [*state[name], value][-most:]
            state["H_diag"] = curvature / _dot(y, y)

    # ── the line search ──

    def _search(
        self, closure: Callable[[], Any], direction: Tensor, start: Point, t: float, most: int
    ) -> tuple[Point, int]:
        """Find a point with the strong Wolfe conditions, and the number of evaluations, at most 1 + `most`.

        The parameters stay where they are.
        """
        least = self.param_groups[0]["tolerance_change"] / max(_largest(direction), 1e-300)
        origin = [parameter.copy() for parameter in self.param_groups[0]["params"]]
        count = 0

        def at(t: float) -> Point:
            nonlocal count
            count += 1
            self._move(direction, t)
            loss, grad = self._evaluate(closure)
            for parameter, value in zip(self.param_groups[0]["params"], origin, strict=True):
                parameter.copy_(value)
            return Point(t, loss, grad, _dot(grad, direction))

        def falls(point: Point) -> bool:
            return not point.loss > start.loss + 1e-4 * point.t * start.slope

        def is_flat(point: Point) -> bool:
            return abs(point.slope) <= -0.9 * start.slope

        # Go on until an interval contains such a point.
        last, new = start, at(t)
        for k in range(most):
            if not falls(new) or (k > 1 and new.loss >= last.loss) or (new.slope >= 0 and not is_flat(new)):
                break
            if is_flat(new):
                return new, count
            step = _minimum(last, new, new.t + 0.01 * (new.t - last.t), new.t * 10)
            last, new = new, at(step)
        else:
            last = start
        # Shrink the interval: `low` is the end with the smaller loss.
        low, high = (last, new) if last.loss <= new.loss else (new, last)
        was_close = False
        while count <= most and abs(high.t - low.t) >= least:
            left, right = min(low.t, high.t), max(low.t, high.t)
            step, margin = _minimum(low, high, left, right), 0.1 * (right - left)
            is_close = min(right - step, step - left) < margin
            if is_close and (was_close or step >= right or step <= left):
                step = right - margin if abs(step - right) < abs(step - left) else left + margin
                is_close = False
            was_close = is_close
            point = at(step)
            if not falls(point) or point.loss >= low.loss:
                low, high = (low, point) if low.loss <= point.loss else (point, low)
                continue
            if is_flat(point):
                return point, count
            low, high = point, low if point.slope * (high.t - low.t) >= 0 else high
        return low, count

    # ── parameters and gradients as vectors ──

    def _evaluate(self, closure: Callable[[], Any]) -> tuple[float, Tensor]:
        with enable_grad():
            loss = _number(closure())
        return loss, self._gradient()

    def _gradient(self) -> Tensor:
        """The gradients of all parameters as one new vector, with zeros for those that have none."""
        return concat([
            (zeros(p.shape, dtype=p.dtype, device=p.device) if p.grad is None else p.grad.detach()).reshape(-1)
            for p in self.param_groups[0]["params"]
        ])  # fmt: skip

    def _move(self, direction: Tensor, t: float) -> None:
        """Add t times the direction to the parameters."""
        first = 0
        for parameter in self.param_groups[0]["params"]:
            last = first + parameter.size
            parameter += t * direction[first:last].reshape(parameter.shape)
            first = last

    # ── state ──

    def _check_state(self, state: Any, parameter: Tensor) -> None:
        """Raise if a state that was loaded has no such names or values."""
        if parameter is not self.param_groups[0]["params"][0] or not isinstance(state, Mapping):
            raise ValueError("[LBFGS] expected one state, a dict, that of the first parameter")
        known = {*NUMBERS, "d", "old_dirs", "old_stps", "prev_flat_grad"}
        absent = known - {"al"} - state.keys() if state.get("n_iter") else {"func_evals", "n_iter"} - state.keys()
        if absent or state.keys() - known:
            raise ValueError(f"[LBFGS] expected a state with {', '.join(sorted(known))}, got {', '.join(state)}")

    def _restore(self, name: str, value: Any, parameter: Tensor) -> Any:
        """Restore an entry of a state: numbers, vectors of all parameters' elements, and lists of these."""
        if isinstance(value, list | tuple):
            return [self._restore(name, item, parameter) for item in value]
        if name in ("func_evals", "n_iter"):
            return integer("LBFGS", name, value, 0)
        if name in NUMBERS:
            return None if value is None else number("LBFGS", name, float(value))
        vector, count = asarray(value).detach(), len(self._gradient())
        if vector.shape != (count,):
            raise ValueError(f"[LBFGS] {name}: expected shape {(count,)}, got {vector.shape}")
        return vector.to(parameter.dtype).to(parameter.device).copy()


def _number(loss: Any) -> float:
    """The result of a closure as a number."""
    if loss is None or getattr(loss, "size", 1) != 1:
        found = loss if loss is None else f"shape {loss.shape}"
        raise TypeError(f"[LBFGS] expected a closure that returns the loss, got {found}: end it with return loss")
    return float(loss)


def _direction(state: dict[str, Any], grad: Tensor) -> Tensor:
    """−H g by the two-loop recursion."""
    d, factors = -grad, []
    history = list(zip(state["old_dirs"], state["old_stps"], state["ro"], strict=True))
    for y, s, ro in reversed(history):
        factors.append(_dot(s, d) * ro)
        d = d - factors[-1] * y
    d = d * state["H_diag"]
    for y, s, ro in history:
        d = d + s * (factors.pop() - _dot(y, d) * ro)
    return d


def _minimum(a: Point, b: Point, left: float, right: float) -> float:
    """The minimum of the cubic polynomial with the losses and slopes of two points, between two bounds."""
    if b.t < a.t:
        a, b = b, a
    mean = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = mean * mean - a.slope * b.slope
    if not square >= 0:
        return (left + right) / 2
    root = square**0.5
    divisor = b.slope - a.slope + 2 * root
    if divisor == 0:
        return (left + right) / 2
    return min(max(b.t - (b.t - a.t) * (b.slope + root - mean) / divisor, left), right)


def _dot(x: Tensor, y: Tensor) -> float:
    value: float = (x @ y).item()
    if not math.isfinite(value):  # in float32, from elements of 1.8e19
        value = (x.astype("float64") @ y.astype("float64")).item()
    return value


def _largest(x: Tensor) -> float:
    value: float = x.abs().max().item() if len(x) else 0.0
    return value
