"""Finds what a program for PyTorch means otherwise here, or cannot do, and edits its text; nothing is executed."""

import ast
import inspect
import re
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigrad import pytorch
from minigrad.engine.tensor.tensor import Tensor
from minigrad.pytorch.kinds import MODULE, MODULES, Kinds, Path, counterpart
from minigrad.pytorch.rules import RULES, Call

# Methods that other objects have, too: without more knowledge, a call of one is not taken for that of a tensor.
ELSEWHERE = {name for kind in (np.ndarray, str, bytes, list, dict, set, int, float) for name in dir(kind)}
POINTERS = pytorch.POINTERS


@dataclass
class Finding:
    """A place in a program that means something else here or does not work."""

    node: Any  # with the span that is shown
    line: int
    column: int
    why: str  # and what to write, if the text was not edited
    certain: bool  # or only if an object is a tensor
    edited: bool
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        said = f"{self.after}: {self.why}" if self.edited and self.why else self.after if self.edited else self.why
        return f"{self.before} -> {said}"


class Probe:
    """Stands for a function in `minigrad.pytorch.call`: accepts the arguments that the function accepts."""

    def __init__(self, function: Any) -> None:
        self.__code__, self.__name__ = function.__code__, function.__name__
        self.signature = inspect.signature(function)

    def __call__(self, *args: Any, **options: Any) -> bool:
        self.signature.bind(*args, **options)
        return True


def misfit(function: Any, args: list[Any], keywords: list[ast.keyword]) -> str:
    """Return why a function does not take these arguments, with advice, or "" if it does."""
    if any(isinstance(a, ast.Starred) for a in args) or any(k.arg is None for k in keywords):
        return ""
    wrapped = getattr(function, "__wrapped__", None)
    count = wrapped.__code__.co_argcount if wrapped is not None else 0
    unknown = [None if k < count else True for k in range(len(args))]  # what fits where a value is not known
    values = [a.value if isinstance(a, ast.Constant) else unknown[k] for k, a in enumerate(args)]
    options = {str(k.arg): k.value.value if isinstance(k.value, ast.Constant) else True for k in keywords}
    try:
        signature = inspect.signature(wrapped or function)
        signature.bind(*values, **options)
    except TypeError as error:
        name = function.__name__
        if wrapped is not None:
            if name == "where":
                return ""
            try:
                if pytorch.call(Probe(wrapped), tuple(values), dict(options)) is not NotImplemented:
                    return ""
            except TypeError as advice:
                return str(advice)
        return f"{name}() {error} here"
    except ValueError:  # no signature
        return ""
    others = getattr(sys.modules.get(getattr(function, "__module__", "")), "OTHERS", {})
    return next((f"[{k}] {others[k]}" for k in options if k in others and k not in signature.parameters), "")


class Translator(Kinds):
    """Reads a program and keeps its `findings`, and the `edits` of its text as ``{(start, end): text}`` in bytes."""

    def __init__(self, source: bytes) -> None:
        super().__init__()
        self.source, self.tree = source, ast.parse(source.decode())
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        names = [n for n in ast.walk(self.tree) if isinstance(n, ast.Name)]
        self.strings = [self.span(n) for n in ast.walk(self.tree) if isinstance(n, ast.JoinedStr)]
        self.read = {n.id for n in names if isinstance(n.ctx, ast.Load)}
        self.root = "minigrad" if "mg" in {n.id for n in names} else "mg"
        self.has_root = False
        self.saved: dict[ast.Call, Any] = {}  # the calls of torch.save, and the kind of what each saves
        self.visit(self.tree)  # what is assigned at the end is known to functions at the beginning
        self.findings: list[Finding] = []
        self.edits: dict[tuple[int, int], str] = {}
        imported = re.findall(rb"^\s*(?:import|from)\s+(torch|minigrad)\b", source, re.MULTILINE)
        if b"torch" in imported or not imported:  # a program for minigrad is left alone
            self.visit(self.tree)
        for finding in self.findings:
            finding.before = shorten(self.text(finding.node, {}))
            finding.after = shorten(self.text(finding.node))
        self.findings.sort(key=lambda f: (f.line, f.column))

    # text

    def span(self, node: Any) -> tuple[int, int]:
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def text(self, node: Any, edits: dict[tuple[int, int], str] | None = None) -> str:
        """Return the text of a node, edited."""
        return self.render(*self.span(node), self.edits if edits is None else edits)

    def render(self, start: int, end: int, edits: dict[tuple[int, int], str]) -> str:
        parts, at = [], start
        for (first, last), new in sorted(edits.items()):
            if at <= first and last <= end:
                parts += [self.source[at:first].decode(), new]
                at = last
        return "".join(parts) + self.source[at:end].decode()

    def edit(self, start: int, end: int, new: str) -> None:
        """Replace a part of the text, with all edits inside it; quotes are those that an f-string around it allows."""
        for first, last in self.strings:
            if first < start and end < last and re.match(rb'[fFrR]*"(?!"")', self.source[first:last]):
                new = new.replace('"', "'")
        self.edits = {
            (a, b): text for (a, b), text in self.edits.items() if not (start <= a and b <= end and start < end)
        }
        self.edits[start, end] = new

    def rewritten(self) -> str:
        """Return the whole text, edited."""
        return self.render(0, len(self.source), self.edits)

    def report(self, node: Any, why: str, *, certain: bool = True, edited: bool = False) -> None:
        """Keep a finding; of several in one place, the first."""
        start = self.span(node)
        if all(self.span(f.node) != start for f in self.findings):
            column = len(self.source[self.starts[node.lineno - 1] : start[0]].decode()) + 1
            self.findings.append(Finding(node, node.lineno, column, advice(why), certain, edited))

    # what is read

    def visit(self, node: ast.AST) -> Any:
        super().visit(node)
        if isinstance(node, ast.Call) and len(node.args) == 2 and self.kind(node.func) == "torch.save":
            self.saved[node] = self.kind(node.args[0])
        if hasattr(self, "edits"):
            check = getattr(self, f"check_{type(node).__name__.lower()}", None)
            if check is not None:
                check(node)

    def check_import(self, node: ast.Import) -> None:
        for alias in node.names:
            path = Path(alias.name)
            if path.is_torch and not alias.asname:
                self.has_root = True
                new = f"minigrad as {self.root}" if self.root != "minigrad" else "minigrad"
                self.edit(*self.span(alias), new)
                self.report(alias if node.names[1:] else node, "", edited=True)
            elif path.is_torch:
                self.module(alias, path, self.span(alias)[0], node if not node.names[1:] else alias)
            elif alias.name.startswith("torch") or alias.name.startswith("pytorch"):
                self.report(node, OTHER_PACKAGES)

    def check_importfrom(self, node: ast.ImportFrom) -> None:
        path = Path(node.module or "")
        if node.level == 0 and path.is_torch:
            start, end = self.span(node)
            found = re.match(rb"from\s+", self.source[start:end])
            self.module(node, path, start + len(found[0]) if found else start, node)
            for alias in node.names:
                thing, why = counterpart(f"{path}.{alias.name}")
                if thing is None and alias.name != "*":
                    self.report(alias, why)
        elif node.level == 0 and path.startswith(("torch", "pytorch")):
            self.report(node, OTHER_PACKAGES)

    def module(self, node: Any, path: Path, start: int, whole: Any) -> None:
        """Edit the name of a module in an import."""
        thing, why = counterpart(path)
        if thing is None:
            self.report(node, why)
        else:
            self.edit(start, start + len(path), MODULE.sub(lambda m: MODULES[m[0]], path))
            self.report(whole, "", edited=True)

    def check_name(self, node: ast.Name) -> None:
        if node.id == "torch" and self.kind(node) == "torch":
            self.edit(*self.span(node), self.root)

    def check_attribute(self, node: ast.Attribute) -> None:
        parent, base = self.parents[node], self.kind(node.value)
        called = isinstance(parent, ast.Call) and parent.func is node
        if isinstance(base, Path):
            if base.is_torch and not isinstance(parent, ast.Attribute) and not (called and node.attr in RULES):
                thing, why = counterpart(f"{base}.{node.attr}")
                if thing is None:
                    self.report(node, why)
        elif base == "device" and node.attr in ("type", "index"):
            part = f'str({self.text(node.value)}).partition(":")[{0 if node.attr == "type" else 2}]'
            self.edit(*self.span(node), part)
            self.report(node, "a device is a string here", edited=True)
        elif base == "number" and called and node.attr in ("item", "detach", "cpu", "float", "clone"):
            self.edit(self.span(node.value)[1], self.span(parent)[1], "")
            self.report(parent, "clip_grad_norm_ returns a number here", edited=True)
        elif node.attr == "is_floating_point" and getattr(node.value, "attr", "") == "dtype":
            new = f'{self.text(node.value)}.kind == "f"'
            whole = isinstance(parent, (ast.If, ast.IfExp, ast.BoolOp, ast.comprehension, ast.Assign, ast.Return))
            self.edit(*self.span(node), new if whole else f"({new})")
            self.report(node, "a dtype has a kind here", edited=True)
        elif base in OWNERS and (not called or node.attr not in RULES):
            why = OWNERS[base].get(node.attr, "")
            if not why and base == "tensor" and not hasattr(Tensor, node.attr):
                why = f"a tensor has no member {node.attr!r} here"
            if why:
                self.report(parent if called else node, why)
        elif base is None and called and node.attr in POINTERS["Tensor"].keys() - ELSEWHERE - RULES.keys():
            certain, why = node.attr.endswith("_"), advice(POINTERS["Tensor"][node.attr])
            self.report(
                parent, why if certain else f"if `{self.text(node.value, {})}` is a tensor: {why}", certain=certain
            )

    def check_call(self, node: ast.Call) -> None:
        path = self.kind(node.func)
        if isinstance(path, Path):
            if not path.is_torch:
                return
            name = path.rpartition(".")[2]
            rule = RULES.get(name)
            if rule is not None and path.rpartition(".")[0] in ("torch", rule.module):
                taken = rule.apply(self, Call(self, node, name, None))
            else:
                taken = False
            thing, _ = counterpart(path)
            if not taken and callable(thing):
                self.arguments(node, thing, node.args)
        elif isinstance(node.func, ast.Attribute):
            base, name = self.kind(node.func.value), node.func.attr
            if base not in ("tensor", None):
                return
            rule = RULES.get(name)
            taken = rule is not None and rule.apply(self, Call(self, node, name, base))
            if base == "tensor" and not taken and callable(getattr(Tensor, name, None)):
                self.arguments(node, getattr(Tensor, name), [node.func.value, *node.args])

    def arguments(self, node: ast.Call, thing: Any, args: list[Any]) -> None:
        why = misfit(thing, args, node.keywords)
        if why:
            self.report(node, why)


OWNERS: dict[Any, dict[str, str]] = {
    "tensor": POINTERS["Tensor"], "module": POINTERS["minigrad.nn.Module"], "modules": POINTERS["minigrad.nn.Module"],
    "optimizer": POINTERS["minigrad.optim.Optimizer"],
}  # fmt: skip
OTHER_PACKAGES = (
    "computes with PyTorch's tensors: mg.asarray(x) takes them over; `minigrad.data` has data sets, loaders and a "
    "tokenizer"
)


def advice(why: str) -> str:
    """Return the text of a pointer as what to write."""
    return re.sub(r"^is (.*?) here\b", r"\1", re.sub(r"^\[\w+\] ", "", why)).strip()


def shorten(text: str) -> str:
    """Return a text in one line of at most 100 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 100 else line[:97] + "..."
