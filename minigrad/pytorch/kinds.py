"""What the names in a program for PyTorch refer to, as far as its text shows: read by `Kinds`, nothing is executed."""

import ast
import importlib
import re
from typing import Any

from minigrad import data, nn, optim
from minigrad.engine.tensor.tensor import Tensor

# Where minigrad has PyTorch's modules; the others have the same place.
MODULES = {
    "torch.utils.data.dataset": "minigrad.data", "torch.utils.data.dataloader": "minigrad.data",
    "torch.utils.data": "minigrad.data", "torch.nn.modules": "minigrad.nn", "torch.nn.parameter": "minigrad.nn",
    "torch.autograd.function": "minigrad.autograd", "torch": "minigrad",
}  # fmt: skip
MODULE = re.compile("|".join(rf"^{name.replace('.', '[.]')}(?![\w])" for name in MODULES))

# Calls of functions and methods that return several tensors, and those that return none.
SEVERAL = {
    "aminmax", "broadcast_tensors", "chunk", "grad", "hsplit", "kthvalue", "max", "median", "meshgrid", "min", "mode",
    "sort", "split", "std_mean", "topk", "unbind", "var_mean", "vsplit",
}  # fmt: skip
NONE = {
    "allclose", "backward", "compile", "data_ptr", "device", "dim", "element_size", "enable_grad", "equal",
    "get_device", "inference_mode", "is_available", "is_contiguous", "is_floating_point", "is_grad_enabled",
    "is_tensor", "item", "load", "manual_seed", "ndimension", "nelement", "no_grad", "numel", "register_hook", "save",
    "set_default_dtype", "set_grad_enabled", "size", "stride", "tolist", "vmap",
}  # fmt: skip
TENSORS = {"H", "T", "data", "grad", "mH", "mT"}  # the attributes of a tensor that are tensors
RETURN_SEVERAL = {"GRU", "LSTM", "MultiheadAttention", "RNN"}  # modules
PLAIN = {"bool", "dict", "float", "int", "len", "list", "max", "min", "open", "range", "round", "set", "str", "tuple"}


class Path(str):
    """The dotted name of a module or of one of its members, as ``torch.nn.functional``."""

    __slots__ = ()

    @property
    def is_torch(self) -> bool:
        return self == "torch" or self.startswith("torch.")


def counterpart(path: str) -> tuple[Any, str]:
    """Return what minigrad has under one of PyTorch's dotted names, or None and the error that explains its absence."""
    if path == "torch" or path.startswith("torch."):
        path = MODULE.sub(lambda m: MODULES[m[0]], path)
    seen = "minigrad"
    found: Any = importlib.import_module(seen)
    for name in path.split(".")[1:]:
        try:
            found, seen = getattr(found, name), f"{seen}.{name}"
        except (AttributeError, ImportError) as error:
            try:
                found, seen = importlib.import_module(f"{seen}.{name}"), f"{seen}.{name}"
            except ImportError:
                says = str(error)
                return None, says if says.startswith("[") else f"[{name}] is not available"
    return found, ""


def kind_of_result(path: Path) -> str | None:
    """What a call of one of PyTorch's functions or classes returns."""
    module, _, name = path.rpartition(".")
    thing, _ = counterpart(path)
    if isinstance(thing, type):
        for kind, of in (
            ("tensor", Tensor), ("module", nn.Module), ("optimizer", optim.Optimizer), ("loader", data.DataLoader)
        ):  # fmt: skip
            if issubclass(thing, of):
                return "modules" if name in RETURN_SEVERAL else kind
        return None
    if name == "device":
        return "device"
    if path == "torch.nn.utils.clip_grad_norm_":
        return "number"
    if module in ("torch", "torch.nn.functional", "torch.linalg", "torch.special") and name not in NONE:
        return "several" if name in SEVERAL else "tensor"
    return "module" if module == "torch.nn" else None


class Kinds(ast.NodeVisitor):
    """Visits a program in the order of its text, and knows of each name whether it is a tensor, a module, or other.

    A kind is a `Path`, "tensor", "several" (tensors), "module", "modules" (which returns several), "network" (a
    class of modules), "optimizer", "loader", "state" (a module's state_dict), "device", "number" (of a function that
    returns a tensor in PyTorch), "numpy", "plain" (anything else that is known), or None.
    """

    def __init__(self) -> None:
        self.scopes: list[dict[str, Any]] = [{}]
        self.attributes: dict[str, dict[str, Any]] = {}  # the attributes of self, by class
        self.classes: list[str] = []

    def look_up(self, name: str) -> Any:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def kind(self, node: ast.AST | None) -> Any:
        """Return the kind of an expression."""
        finder = getattr(self, f"kind_of_{type(node).__name__.lower()}", None)
        if finder is not None:
            return finder(node)
        plain = (
            ast.Constant, ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp, ast.JoinedStr, ast.Lambda
        )  # fmt: skip
        return "plain" if isinstance(node, plain) else None

    def kind_of_name(self, node: ast.Name) -> Any:
        return self.look_up(node.id)

    def kind_of_attribute(self, node: ast.Attribute) -> Any:
        base = self.kind(node.value)
        if isinstance(base, Path):
            return Path(f"{base}.{node.attr}")
        if base == "tensor":
            return "tensor" if node.attr in TENSORS else "device" if node.attr == "device" else "plain"
        if base == "several":
            return "tensor" if node.attr in ("values", "indices") else None
        if base == "numpy":
            return "numpy"
        if isinstance(node.value, ast.Name) and node.value.id == "self" and self.classes:
            return self.attributes.get(self.classes[-1], {}).get(node.attr)
        return None

    def kind_of_call(self, node: ast.Call) -> Any:
        called = self.kind(node.func)
        if called in ("copy.copy", "copy.deepcopy") and node.args:
            return self.kind(node.args[0])
        if isinstance(called, Path):
            if called.split(".")[0] == "numpy":
                return "numpy"
            found = kind_of_result(called) if called.is_torch else None
            alone = called in ("torch.max", "torch.min") and (not node.args[1:] or self.kind(node.args[1]) == "tensor")
            return "tensor" if alone else found
        if called in ("module", "modules"):
            return "tensor" if called == "module" else "several"
        if called == "network":
            return "module"
        if isinstance(node.func, ast.Name):
            return "plain" if called is None and node.func.id in PLAIN else None
        if not isinstance(node.func, ast.Attribute):
            return None
        base, name = self.kind(node.func.value), node.func.attr
        if name == "state_dict" and base in ("module", "modules", None):
            return "state"
        if base == "number":
            return "number"
        if base == "tensor":
            if name in SEVERAL and (name not in ("max", "min") or node.args or node.keywords):
                return "several"
            return "numpy" if name == "numpy" else "plain" if name in NONE else "tensor"
        if base in ("module", "modules") and name in ("to", "cuda", "cpu", "double", "float", "eval", "train"):
            return base
        return "numpy" if base == "numpy" else None

    def kind_of_subscript(self, node: ast.Subscript) -> Any:
        base = self.kind(node.value)
        return "tensor" if base in ("tensor", "several") else "numpy" if base == "numpy" else None

    def kind_of_binop(self, node: ast.BinOp) -> Any:
        kinds = {self.kind(node.left), self.kind(node.right)}
        return (
            "tensor" if "tensor" in kinds else "numpy" if "numpy" in kinds else "plain" if kinds == {"plain"} else None
        )

    def kind_of_unaryop(self, node: ast.UnaryOp) -> Any:
        return self.kind(node.operand)

    def kind_of_compare(self, node: ast.Compare) -> Any:
        kinds = {self.kind(side) for side in (node.left, *node.comparators)}
        return "tensor" if "tensor" in kinds and not isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.In)) else "plain"

    def kind_of_ifexp(self, node: ast.IfExp) -> Any:
        return self.kind(node.body) if self.kind(node.body) == self.kind(node.orelse) else None

    def kind_of_namedexpr(self, node: ast.NamedExpr) -> Any:
        return self.kind(node.value)

    def kind_of_dictcomp(self, node: ast.DictComp) -> Any:
        items = node.generators[0].iter  # a state may be copied, as {name: x.clone() for name, x in state.items()}
        if isinstance(items, ast.Call) and isinstance(items.func, ast.Attribute) and items.func.attr == "items":
            return "state" if self.kind(items.func.value) == "state" else "plain"
        return "plain"

    # bindings

    def bind(self, target: ast.AST, kind: Any, value: ast.AST | None = None) -> None:
        """Record what a target of an assignment refers to from here on."""
        if isinstance(target, ast.Name):
            self.scopes[-1][target.id] = kind
        elif isinstance(target, ast.Attribute):
            if isinstance(target.value, ast.Name) and target.value.id == "self" and self.classes:
                self.attributes[self.classes[-1]][target.attr] = kind
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else None
            several = kind in ("tensor", "several")
            for k, element in enumerate(target.elts):
                inner = self.kind(parts[k]) if parts else "tensor" if several else kind if kind == "numpy" else None
                self.bind(element, inner, parts[k] if parts else None)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self.bind(target, self.kind(node.value), node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        self.bind(node.target, self.read_annotation(node.annotation) or self.kind(node.value))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.generic_visit(node)
        self.bind(node.target, self.kind(node.value))

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self.bind_items(node.target, node.iter)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    def bind_items(self, target: ast.AST, source: ast.AST) -> None:
        """Record what a loop over `source` assigns."""
        called = source.func if isinstance(source, ast.Call) else None
        if isinstance(called, ast.Name) and isinstance(source, ast.Call) and source.args:
            if called.id == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
                self.bind(target.elts[0], "plain")
                return self.bind_items(target.elts[1], source.args[0])
            if called.id in ("tqdm", "reversed", "iter"):
                return self.bind_items(target, source.args[0])
        kind = self.kind(source)
        known = {"loader": "several" if isinstance(target, ast.Tuple) else None, "several": "tensor"}
        self.bind(target, known.get(kind, kind if kind in ("tensor", "numpy") else None))
        return None

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)
        self.bind_items(node.target, node.iter)
        for condition in node.ifs:
            self.visit(condition)

    def visit_with_generators(self, node: Any) -> None:
        for generator in node.generators:
            self.visit(generator)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.comprehension):
                self.visit(child)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_with_generators

    def read_annotation(self, node: ast.AST | None) -> Any:
        """Return the kind that an annotation names."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return "tensor" if node.value.rpartition(".")[2] == "Tensor" else None
        kind = self.kind(node)
        if isinstance(kind, Path):
            return kind_of_result(kind) if kind.is_torch else "numpy" if kind.startswith("numpy.") else None
        return "plain" if isinstance(node, ast.Name) and node.id in PLAIN else "module" if kind == "network" else None

    def visit_FunctionDef(self, node: Any) -> None:
        for outside in (*node.decorator_list, node.args, *([node.returns] if node.returns else [])):
            self.visit(outside)
        forward = bool(self.classes) and node.name == "forward"
        scope: dict[str, Any] = {}
        given = node.args
        defaults = [None] * (len(given.posonlyargs + given.args) - len(given.defaults)) + given.defaults
        pairs = zip(given.posonlyargs + given.args + given.kwonlyargs, defaults + given.kw_defaults, strict=True)
        for argument, default in pairs:
            plain = isinstance(default, ast.Constant) and default.value is not None
            scope[argument.arg] = self.read_annotation(argument.annotation) or (
                "plain" if plain else "tensor" if forward and argument.arg not in ("self", "ctx") else None
            )
        for more in (given.vararg, given.kwarg):
            if more is not None:
                scope[more.arg] = "plain"
        self.scopes.append(scope)
        for statement in node.body:
            self.visit(statement)
        self.scopes.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.scopes.append({argument.arg: None for argument in node.args.args})
        self.generic_visit(node)
        self.scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        bases = [self.kind(base) for base in node.bases]
        is_module = any(
            b == "network" or (isinstance(b, Path) and kind_of_result(b) in ("module", "modules")) for b in bases
        )
        self.scopes[-1][node.name] = "network" if is_module else "plain"
        self.attributes.setdefault(node.name, {})
        self.classes.append(node.name)
        self.scopes.append({})
        self.generic_visit(node)
        self.scopes.pop()
        self.classes.pop()

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.split(".")[0]
            self.scopes[-1][alias.asname or name] = Path(name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self.scopes[-1][alias.asname or alias.name] = Path(f"{node.module}.{alias.name}")
