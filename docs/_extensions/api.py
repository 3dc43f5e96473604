"""The reference: `.. api::` lists names and documents them; signatures are read from the source and the stubs.

The build writes the signatures of compiled functions and classes, with types, to ``.pyi`` files next to them. Every
signature is read from the text, so that the whole reference looks alike.
"""

import ast
import functools
import importlib
import inspect
import re
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import minigrad

PACKAGE = Path(minigrad.__file__).parent
# Names in annotations that link to their documentation.
LINKS = {name: f"minigrad.{name}" for name in ("Tensor", "DType", "Function")}
LINKS |= {name: f"minigrad.nn.{name}" for name in ("Module", "Parameter")}
LINKS["bool"] = "builtins.bool"  # not the data type
# The addresses of other packages' functions; a build needs no network to know them.
ELSEWHERE = {
    "numpy": "https://numpy.org/doc/stable/reference/generated/{}.html",
    "torch": "https://docs.pytorch.org/docs/stable/generated/{}.html",
}


# ── signatures ────────────────────────────────────────────────────────────────────────────────────


@functools.cache
def parsed(module):
    """The syntax tree of a minigrad module, or of its stub if it has one."""
    package, *inner = module.split(".")
    stem = PACKAGE.joinpath(*inner)
    for path in (stem.with_suffix(".pyi"), stem.with_suffix(".py"), stem / "__init__.py"):
        if package == "minigrad" and path.exists():
            return ast.parse(path.read_text(encoding="utf-8"))
    return ast.Module([], [])


def definition(module, qualname):
    """The `def` or `class` of that name, or None."""
    node = parsed(module)
    for part in qualname.split("."):
        found = [n for n in node.body if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name == part]
        if not found:
            return None
        node = found[0]
    return node


class Linked(ast.NodeTransformer):
    """Rewrite annotations for display: without quotes, and with the full names of minigrad's classes for the links."""

    def visit_Constant(self, node):
        return self.visit(ast.parse(node.value, mode="eval").body) if isinstance(node.value, str) else node

    def visit_Subscript(self, node):
        literal = isinstance(node.value, ast.Name) and node.value.id == "Literal"
        return node if literal else self.generic_visit(node)

    def visit_Name(self, node):
        return ast.parse(LINKS.get(node.id, node.id), mode="eval").body


def linked(annotation):
    return Linked().visit(annotation) if annotation is not None else None


def arguments_of(value):
    """The syntax of a minigrad function's or class's arguments and result, and whether it is a method; or None."""
    if inspect.isclass(value):
        for base in value.__mro__:
            made = definition(base.__module__, f"{base.__qualname__}.__init__")
            if made is not None:
                return made.args, None, True
        return None
    value = inspect.unwrap(value)
    node = definition(getattr(value, "__module__", None) or "", getattr(value, "__qualname__", ""))
    if not isinstance(node, ast.FunctionDef):
        return None
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
    return node.args, node.returns, "." in value.__qualname__ and not static


def without_first(args):
    """The arguments of a method as its callers see them."""
    positional = (args.posonlyargs[1:], args.args) if args.posonlyargs else ([], args.args[1:])
    return ast.arguments(*positional, args.vararg, args.kwonlyargs, args.kw_defaults, args.kwarg, args.defaults)


def signature(value, member=None):
    """("(x: Tensor, ...)", "Tensor") of a function or class, or of the member of Tensor that is named."""
    found = arguments_of(value)
    if member is not None:  # a function of another module, or defined in the class
        node = definition("minigrad.engine.tensor.tensor", f"Tensor.{member}")
        node = node or definition("minigrad.engine.memory.array", f"Array.{member}")
        found = (node.args, node.returns, True) if node else found and (*found[:2], True)
    if found is None:
        return None
    args, returns, method = found
    args = ast.parse(f"def f({ast.unparse(without_first(args) if method else args)}): ...").body[0].args
    for argument in [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]:
        if argument is not None:
            argument.annotation = linked(argument.annotation)
    return f"({ast.unparse(args)})", ast.unparse(linked(returns)) if returns is not None else ""


def process_signature(app, what, name, value, options, given, returned):
    """Replace the signature that autodoc found for a minigrad object by the one in the source."""
    if given is not None and name.startswith("minigrad.") and (inspect.isclass(value) or inspect.isroutine(value)):
        return signature(value, name.rpartition(".")[2] if name.startswith("minigrad.Tensor.") else None)
    return None


# ── names in backticks ────────────────────────────────────────────────────────────────────────────


def as_rest(value, text):
    """A docstring line as reST: `x` is a reference unless x is a parameter, and |x| and *shape are literal."""
    found = arguments_of(value) if inspect.isclass(value) or inspect.isroutine(value) else None
    names = {a.arg for a in ast.walk(found[0]) if isinstance(a, ast.arg)} if found is not None else ()
    text = re.sub(r"(?<![`:])`(\w+)`(?!`)", lambda m: f"``{m[1]}``" if m[1] in names else m[0], text)
    if ">>>" in text or "``" in text:
        return text
    return re.sub(r"\|(?=\S[^|`]*\|)|(?<=\S)\|(?!\|)|(?<=[ (])\*(?=[\w)])", r"\\\g<0>", text)  # |x|, *shape


def process_docstring(app, what, name, value, options, lines):
    lines[:] = [as_rest(value, line) for line in lines]


def resolve(app, env, node, shown):
    """Resolve shortened names such as `Tensor.backward` and `LayerNorm`, and functions of NumPy and PyTorch.

    Names of other packages are shown as code.
    """
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py":
        return None
    package = target.partition(".")[0]
    if package in ELSEWHERE and node["reftype"] == "obj":
        return nodes.reference("", "", shown, internal=False, refuri=ELSEWHERE[package].format(target))
    domain, ours = env.get_domain("py"), target.startswith("minigrad.")
    if ours:  # an annotation names the module that defines a class, not the one that exports it
        target = target.rpartition(".")[2]
    if re.match(r"[A-Z]\w*(\.\w+)?$|\w+\.\w+$", target):
        matches = sorted((n for n in domain.objects if n.endswith("." + target)), key=lambda n: (n.count("."), n))
        if matches:
            return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", matches[0], node, shown)
    # an internal module, or an internal class in an annotation, may be undocumented
    return None if ours and node["reftype"] != "class" and not parsed(node["reftarget"]).body else shown


# ── the directive ─────────────────────────────────────────────────────────────────────────────────


def find(path):
    """The object of a dotted name; a function takes precedence over a module of the same name."""
    first, *rest = path.split(".")
    value, walked = importlib.import_module(first), first
    for name in rest:
        walked += f".{name}"
        value = getattr(value, name) if hasattr(value, name) else importlib.import_module(walked)
    return value


def attribute(value):
    """The type and the description of an attribute, from a docstring such as "int: the number of axes."."""
    kind, _, says = inspect.getdoc(value).partition(": ")
    return kind, says[:1].upper() + says[1:]


def entry(prefix, name):
    """The lines that document one name."""
    path = f"{prefix}.{name}"
    value = find(path)
    short = name.rpartition(".")[2]
    member = short if prefix == "minigrad.Tensor" else None
    if prefix != "minigrad" and hasattr(minigrad, short) and getattr(minigrad, short) is value:
        text, returned = signature(value, member)
        kind = "method" if member else "function"
        arrow = f" -> {returned}" if returned else ""
        module, local = ("minigrad", f"Tensor.{name}") if member else (prefix, name)
        return [f".. py:{kind}:: {local}{text}{arrow}", f"   :module: {module}", "", f"   See `minigrad.{short}`.", ""]
    if inspect.isdatadescriptor(value) and member:
        kind, says = attribute(value)
        return [f".. py:attribute:: {path}", f"   :type: {kind}", "", f"   {says}", ""]
    if inspect.isclass(value):
        members = ["   :members:"] if value is not minigrad.Tensor and not issubclass(value, tuple) else []
        kind = "exception" if issubclass(value, BaseException) else "class"
        return [f".. auto{kind}:: {path}{''.join(signature(value) or ())}", *members, ""]
    return [f".. auto{'method' if member else 'function'}:: {path}", ""]


def summary(prefix, name):
    """A row of the table: the name, and the first paragraph of its docstring."""
    value = find(f"{prefix}.{name}")
    text = attribute(value)[1] if inspect.isdatadescriptor(value) else inspect.getdoc(value)
    first = " ".join(text.partition("\n\n")[0].split())
    return [f"   * - :py:obj:`~{prefix}.{name}`", f"     - {as_rest(value, first)}"]


class Api(SphinxDirective):
    """`.. api:: package` with names of that package in its body: a table of them, then their documentation."""

    required_arguments = 1
    has_content = True

    def run(self):
        prefix = self.arguments[0]
        names = " ".join(self.content).split()
        table = [".. list-table::", "   :class: names", "   :widths: 30 70", ""]
        table += [line for name in names for line in summary(prefix, name)] + [""]
        entries = [line for name in names for line in entry(prefix, name)]
        return self.parse_text_to_nodes("\n".join(table * (len(names) > 1) + entries))


def setup(app):
    app.add_directive("api", Api)
    app.connect("autodoc-process-signature", process_signature)
    app.connect("autodoc-process-docstring", process_docstring, priority=400)  # before numpydoc's
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
