"""The calls of PyTorch that mean something else here, and how each is written instead: `RULES`."""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minigrad.pytorch import COLLISIONS, DIVISORS, KEYWORDS

PURE = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.UnaryOp, ast.USub, ast.Load, ast.Tuple, ast.Slice)


class Call:
    """A call ``torch.name(x, ...)`` or ``x.name(...)``, and what is done with its result."""

    def __init__(self, translator: Any, node: ast.Call, name: str, kind: str | None) -> None:
        self.t, self.node, self.name, self.kind = translator, node, name, kind
        self.is_method = isinstance(node.func, ast.Attribute) and not str(translator.kind(node.func)).startswith(
            "torch"
        )
        self.keywords = {k.arg: k for k in node.keywords}
        first: list[Any] = [node.func.value] if isinstance(node.func, ast.Attribute) and self.is_method else []
        self.x, *self.args = [*first, *node.args] or [None]
        for given in ("input", "self", "tensor"):
            if not self.is_method and self.x is None and given in self.keywords:
                self.x = self.keywords[given].value
        self.sure = self.kind == "tensor" or not self.is_method  # whether the call is PyTorch's
        self.use, self.outer, self.place = self.find_use()
        self.why = ""  # besides the rule's

    def find_use(self) -> tuple[str, Any, Any]:
        """How the result is used: "item" with its number, "pair" with its targets, "unused", or "whole"."""
        parent = self.t.parents[self.node]
        if isinstance(parent, ast.Subscript) and parent.value is self.node:
            try:
                k = ast.literal_eval(parent.slice)
            except ValueError:
                k = None
            if k in (0, 1, -1, -2) and isinstance(parent.ctx, ast.Load):
                return "item", parent, k % 2
        if isinstance(parent, ast.Attribute) and parent.attr in ("values", "indices"):
            return "item", parent, int(parent.attr == "indices")
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            target = parent.targets[0]
            if isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == 2:
                return "pair", self.node, target
        return ("unused" if isinstance(parent, ast.Expr) else "whole"), self.node, None

    @property
    def starred(self) -> bool:
        return any(isinstance(a, ast.Starred) for a in self.args) or None in self.keywords

    def rename(self, new: str) -> bool:
        """Write another name of the function; False if it is not the last of a dotted name."""
        if not isinstance(self.node.func, ast.Attribute):
            return False
        end = self.t.span(self.node.func)[1]
        self.t.edit(end - len(self.node.func.attr.encode()), end, new)
        return True

    def rename_keywords(self, names: dict[str, str]) -> None:
        for given, keyword in self.keywords.items():
            if given in names:
                start = self.t.span(keyword)[0]
                self.t.edit(start, start + len(given), names[given])

    def name_argument(self, k: int, name: str) -> None:
        """Write the name of argument k, from 0, after x."""
        if k < len(self.args):
            start = self.t.span(self.args[k])[0]
            self.t.edit(start, start, f"{name}=")

    def add(self, argument: str) -> None:
        """Add an argument at the end."""
        end = self.t.span(self.node)[1] - 1
        inside = self.t.source[self.t.span(self.node.func)[1] : end].decode().rstrip()
        self.t.edit(end, end, argument if inside.endswith(("(", ",")) else f", {argument}")

    def drop(self, name: str) -> None:
        """Remove an argument that is given by name, with the comma before it."""
        start, end = self.t.span(self.keywords[name])
        before = self.t.source[:start].rstrip()
        self.t.edit(len(before) - before.endswith(b","), end, "")

    def value(self, k: int, name: str) -> Any:
        """Argument k, from 0, after x, or the one of this name."""
        return self.args[k] if k < len(self.args) else self.keywords[name].value if name in self.keywords else None


@dataclass
class Rule:
    """How a call is written here: `edit` returns whether it edited the text, or None if nothing differs."""

    edit: Callable[["Rule", Call], bool | None]
    why: str
    row: Any = None
    module: str = "torch"  # besides torch

    def apply(self, translator: Any, call: Call) -> bool:
        """Edit the call and report it; return False if it means the same here."""
        if call.starred:
            return False
        before = translator.edits
        edited = self.edit(self, call)
        if edited is None:
            return False
        if not (edited and call.sure):
            translator.edits = before
        edited = edited and call.sure
        why = call.why or self.why if edited or call.name not in ADVICE else ADVICE[call.name]
        if not call.sure:
            why = f"if `{translator.text(call.x, {})}` is a tensor: {why}"
        translator.report(call.outer, why, certain=call.sure, edited=edited)
        return True


def is_integer(node: Any) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) is int


def is_bool(node: Any) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def is_pure(*nodes: Any) -> bool:
    return all(isinstance(n, (*PURE, ast.expr_context)) for node in nodes for n in ast.walk(node))


# ── edits ─────────────────────────────────────────────────────────────────────────────────────────


def pair(rule: Rule, call: Call) -> bool | None:
    """max, min and sort, whose results have values and indices."""
    index, elementwise, second = rule.row
    dim = call.value(0, "dim") or call.value(0, "axis")
    other = call.value(0, "other")
    if elementwise and other is not None and call.t.kind(other) == "tensor":
        call.sure, call.why = True, f"{call.name} takes an axis here"
        return call.rename(elementwise)
    if call.use == "unused" or (elementwise and dim is None) or len(call.args) > 2:
        return None
    foreign = call.keywords.keys() & {"dim", "keepdim", "descending", "stable"}
    call.sure = call.sure or call.use != "whole" or bool(foreign) or second == "descending"
    known = foreign or call.use != "whole" or is_integer(dim) or not elementwise or "axis" in call.keywords
    if not known:
        return False
    before = call.t.edits
    texts = []
    for name in (call.name, index):
        call.t.edits = before
        call.rename_keywords(KEYWORDS)
        call.name_argument(1, second)
        if name != call.name and not call.rename(name):
            return False
        texts.append((call.t.text(call.node), call.t.edits))
    if call.use == "item":
        call.t.edits = texts[call.place][1]
        call.t.edit(call.t.span(call.node)[1], call.t.span(call.outer)[1], "")
        return True
    call.t.edits = before
    if call.use == "pair":
        targets = call.place.elts
        for k in (0, 1):
            unused, kept = targets[k], targets[1 - k]
            if isinstance(unused, ast.Name) and unused.id.startswith("_") and unused.id not in call.t.read:
                start, end = call.t.span(call.place)
                call.t.edit(*call.t.span(call.node), texts[1 - k][0])
                call.t.edit(start, end, call.t.text(kept))
                call.outer = call.t.parents[call.node]
                return True
    if not is_pure(*call.args, *(k.value for k in call.node.keywords)) or call.x is None:
        return False
    if not is_pure(call.x):  # computed once, under the name of the first target
        name, x = first_name(call), call.t.text(call.x)
        if not name:
            return False
        once = f"({name} := {x})"
        texts = [(text.replace(x, word, 1), edits) for (text, edits), word in zip(texts, (once, name), strict=True)]
    both = f"{texts[0][0]}, {texts[1][0]}"
    call.t.edit(*call.t.span(call.node), both if call.use == "pair" else f"({both})")
    return True


def first_name(call: Call) -> str:
    """The first name that is assigned the result of the call, or its parts."""
    parent = call.t.parents[call.node]
    targets = call.place.elts if call.use == "pair" else getattr(parent, "targets", [None])
    return targets[0].id if isinstance(targets[0], ast.Name) else ""


def rename(rule: Rule, call: Call) -> bool | None:
    """A function that has another name here, and other names of its arguments."""
    new, names, certain = rule.row
    if not certain(call):
        return None
    call.rename_keywords(names)
    return call.rename(new)


def is_transpose(call: Call) -> bool:
    call.sure = True
    return len(call.args) == 2 or "dim0" in call.keywords


def is_split(call: Call) -> bool:
    size = call.value(0, "split_size")
    if size is None or (isinstance(size, ast.Constant) and not is_integer(size)):
        return size is None and "split_size_or_sections" in call.keywords
    listed = isinstance(size, (ast.List, ast.Tuple, ast.ListComp))
    call.sure = call.sure or is_integer(size) or listed or bool(call.keywords.keys() & {"dim", "split_size"})
    return True


def is_repeat(call: Call) -> bool:
    call.sure = call.kind == "tensor" or (call.sure and not call.is_method) or len(call.args) > 2
    return call.is_method and bool(call.args)


def divide(rule: Rule, call: Call) -> bool | None:
    """std and var."""
    given = call.keywords.keys()
    call.sure = call.sure or bool(given & {"dim", "keepdim", "unbiased"})
    if len(call.args) == 1 and is_bool(call.args[0]):
        call.name_argument(0, "unbiased")
        call.sure = True
    elif 1 < len(call.args) < 4:
        call.name_argument(1, "unbiased")
        call.name_argument(2, "keepdim")
        call.sure = True
    elif given & {"correction", "unbiased", "ddof"} or len(call.args) > 3:
        return None
    else:
        call.add("correction=1")
    return True


def grid(rule: Rule, call: Call) -> bool | None:
    if "indexing" in call.keywords:
        return None
    call.add('indexing="ij"')
    return True


def positions(rule: Rule, call: Call) -> bool | None:
    """nonzero."""
    given = call.keywords.get("as_tuple")
    call.sure = call.sure or given is not None
    if given is None:
        return call.rename("argwhere")
    call.drop("as_tuple")
    return is_bool(given.value) and (bool(given.value.value) or call.rename("argwhere"))  # type: ignore[attr-defined]


def equal(rule: Rule, call: Call) -> bool | None:
    if call.is_method:
        return None
    if call.x is None or len(call.args) != 1 or call.keywords:
        return False
    x = call.t.text(call.x)
    atom = isinstance(call.x, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    call.t.edit(*call.t.span(call.node), f"{x if atom else f'({x})'}.equal({call.t.text(call.args[0])})")
    return True


def construct(rule: Rule, call: Call) -> bool | None:
    """torch.Tensor and the like, whose integers are lengths."""
    values = [v for v in (call.x, *call.args) if v is not None]
    if call.is_method:
        return None
    dtype = f'dtype="{rule.row}"'
    if not values or all(map(is_integer, values)) or len(values) > 1:
        done, dtype = call.rename("empty"), dtype if values else f"0, {dtype}"
    else:
        lists = isinstance(values[0], (ast.List, ast.ListComp, ast.Tuple)) or call.t.kind(values[0]) in (
            "numpy",
            "tensor",
        )
        done = lists and call.rename("tensor")
    if done:
        call.add(dtype)
    return done


def save(rule: Rule, call: Call) -> bool | None:
    """save of a state as it is, and of a dict of other things by save_checkpoint."""
    path, kind = call.value(0, "f"), call.t.kind(call.x)
    if is_parts(call.x) and kind == "plain" and path is not None and call.rename("save_checkpoint"):
        start, end = call.t.span(call.x)[0], call.t.span(path)[1]
        call.t.edit(start, end, f"{call.t.text(path)}, **{call.t.text(call.x)}")
        return True
    return False if kind in ("module", "plain") else None


def is_parts(node: ast.AST) -> bool:
    """Whether a dict is saved, and not only a state."""
    return isinstance(node, (ast.Dict, ast.Name))


def load(rule: Rule, call: Call) -> bool | None:
    """load of what this program saves, a state or a checkpoint, without options."""
    path = ast.dump(call.x)
    saved = [n for n in call.t.saved if ast.dump(n.args[1]) == path] or call.t.saved
    if saved and all(is_parts(n.args[0]) and call.t.saved[n] != "state" for n in saved):
        call.rename("load_checkpoint")
    elif not call.args and not call.keywords.keys() & {"map_location", "weights_only"}:
        return None
    call.t.edit(call.t.span(call.x)[1], call.t.span(call.node)[1] - 1, "")
    return True


def only_report(rule: Rule, call: Call) -> bool | None:
    return False if rule.row(call) else None


def is_without_axis(call: Call) -> bool:
    return not call.is_method and not call.args and not call.keywords.keys() & {"dim", "axis"}


def is_module_without_axis(call: Call) -> bool:
    return call.x is None and not call.keywords


def is_median(call: Call) -> bool:
    call.sure = call.sure or bool(call.args or call.keywords)
    return True


def seed(rule: Rule, call: Call) -> bool | None:
    """random_split with the seed of its generator."""
    given = call.keywords.get("generator")
    if call.is_method or given is None:
        return None
    (start, end), value = call.t.span(given), given.value
    spans = [(finding, call.t.span(finding.node)) for finding in call.t.findings]
    call.t.findings = [finding for finding, (first, last) in spans if not (start <= first and last <= end)]
    if not (isinstance(value, ast.Call) and len(value.args) == 1 and isinstance(value.func, ast.Attribute)):
        return False
    if value.func.attr != "manual_seed":
        return False
    call.t.edit(start, end, f"seed={call.t.text(value.args[0])}")
    call.why = "the parts differ from PyTorch's"
    return True


def is_export(call: Call) -> bool:
    names = {"input_names", "output_names", "dynamic_axes", "dynamic_shapes", "opset_version", "export_params"}
    return not call.is_method and bool(call.keywords.keys() & names)


def name_second(rule: Rule, call: Call) -> bool | None:
    if len(call.args) != 2:
        return None
    call.sure = True
    call.name_argument(1, rule.row)
    return True


def flat(rule: Rule, call: Call) -> bool | None:
    """take, which counts the elements of all axes."""
    if (call.kind != "tensor" and call.is_method) or len(call.args) != 1 or call.keywords or call.x is None:
        return None
    end = call.t.span(call.x)[1]
    call.t.edit(end, end, ".reshape(-1)")
    return True


ADVICE = COLLISIONS | dict.fromkeys(("std", "var"), DIVISORS)
ONE = "{} along an axis returns only the values here"
DIVISOR = "PyTorch divides by n - 1, minigrad by n"
IMPLICIT = "without dim, PyTorch takes axis 0 of 0, 1 or 3 axes, else axis 1; here it is the last one: write dim"
LENGTHS = "torch.{}(2, 3) is a tensor of this shape, and torch.{}([2, 3]) one with these elements"
TENSORS = {"Tensor": "float32", "FloatTensor": "float32", "DoubleTensor": "float64", "LongTensor": "int64",
           "IntTensor": "int32", "BoolTensor": "bool"}  # fmt: skip
RULES = {
    "max": Rule(pair, ONE.format("max"), ("argmax", "maximum", "keepdims")),
    "min": Rule(pair, ONE.format("min"), ("argmin", "minimum", "keepdims")),
    "sort": Rule(pair, "sort returns only the values here", ("argsort", "", "descending")),
    "argsort": Rule(name_second, "descending is given by name here", "descending"),
    "median": Rule(only_report, COLLISIONS["median"], is_median),
    "split": Rule(
        rename, "x.split(n) makes n parts here, and a list has the indices between parts",
        ("split_with_sizes", dict.fromkeys(("split_size", "split_size_or_sections"), "split_sizes"), is_split),
    ),
    "transpose": Rule(
        rename, "x.transpose(axes) is the new order of all axes here, as in NumPy; x.swapaxes exchanges two",
        ("swapaxes", {"dim0": "axis1", "dim1": "axis2"}, is_transpose),
    ),
    "repeat": Rule(rename, "mg.repeat(x, n) repeats each element here, as in NumPy", ("tile", {}, is_repeat)),
    "std": Rule(divide, DIVISOR),
    "var": Rule(divide, DIVISOR),
    "meshgrid": Rule(grid, 'here, indexing="xy" is the default, as in NumPy'),
    "nonzero": Rule(positions, "x.nonzero() is a tuple here, with one tensor for each axis, as in NumPy"),
    "equal": Rule(equal, "mg.equal compares element by element here, as in NumPy"),
    "take": Rule(flat, "x.take(i, axis) picks along an axis here"),
    "softmax": Rule(only_report, IMPLICIT, is_without_axis, "torch.nn.functional"),
    "log_softmax": Rule(only_report, IMPLICIT, is_without_axis, "torch.nn.functional"),
    "Softmax": Rule(only_report, IMPLICIT, is_module_without_axis, "torch.nn"),
    "LogSoftmax": Rule(only_report, IMPLICIT, is_module_without_axis, "torch.nn"),
    **{name: Rule(construct, LENGTHS.format(name, name), dtype) for name, dtype in TENSORS.items()},
    "export": Rule(
        only_report, "write `dynamic={'x': {0: 'N'}}` for `dynamic_axes`, and `opset=20`; inputs have forward's names",
        is_export, "torch.onnx",
    ),
    "random_split": Rule(seed, "write `seed=0` in place of a generator", module="torch.utils.data"),
    "save": Rule(save, "mg.save stores tensors: a state_dict; mg.save_checkpoint(path, **parts) stores all else"),
    "load": Rule(
        load, "mg.load reads onto the CPU, and no pickles; mg.load_checkpoint(path) reads what save_checkpoint wrote"
    ),
}  # fmt: skip
