"""Write the type stub of a Cython module: the annotations in its source, and Python's names for its C types.

Annotations do not change the code that Cython generates (`annotation_typing` is off), so a parameter may have a C type,
an annotation, or both. Where Cython allows no annotation, a comment ``# -> T`` at the end of the line states what
Python gets: the value of a readonly attribute, or the result of a cpdef function, which has no C type if it returns
None. The cpdef methods of a derived class are left out: Cython checks them against those that they override.

PyTorch's names are read from minigrad/pytorch: the methods there go into the stub of Extension, from which Tensor
inherits them, and a function with an `axis` gets a second signature, with `dim` and `keepdim`; such methods of PyTorch
get one with `axis` and `keepdims`.
"""

import ast
import re
from pathlib import Path

from Cython.CodeWriter import ExpressionWriter
from Cython.Compiler import Errors
from Cython.Compiler.ExprNodes import AnnotationNode, ImportNode, NameNode
from Cython.Compiler.Main import Context
from Cython.Compiler.Options import CompilationOptions
from Cython.Compiler.Scanning import FileSourceDescriptor
from Cython.Compiler.Symtab import ModuleScope
from Cython.Compiler.Visitor import TreeVisitor

# Python's names of C types; every array that Python gets is a tensor.
PYTHON = {"Array": "Tensor", "bint": "bool", "double": "float", "void": "None"}
PYTHON |= dict.fromkeys(["int64_t", "uint64_t", "long"], "int")
PYTHON["tuple"] = "tuple[Any, ...]"
# The modules of names that a source may use in annotations without importing them.
MODULES = {
    "collections.abc": "Callable Generator Iterable Iterator Mapping Sequence",
    "enum": "IntEnum",
    "minigrad.engine.memory.dtype": "DType DTypeLike",
    "minigrad.engine.memory.shapes": "Size",
    "minigrad.engine.tape.hooks": "HookHandle",
    "minigrad.engine.tape.node": "Op",
    "minigrad.engine.ops.optimizer": "Rule",
    "minigrad.engine.ops.recurrent": "Cell",
    "minigrad.autograd.tape_table": "TapeTable",
    "minigrad.engine.tensor.tensor": "Tensor TensorLike",
    "minigrad.nn": "Module",
    "minigrad.pytorch.methods": "Axes TopK",
    "typing": "Any Literal Self TypeAlias TypeGuard overload",
}
LEFT_OUT = re.compile("_(?!_)|__(dealloc|getbuffer|releasebuffer)__")  # functions that Python code does not call


PACKAGE = Path(__file__).parent.parent / "minigrad"
PYTORCH = [*sorted(PACKAGE.glob("pytorch/*.py")), PACKAGE / "interop/protocols.py", PACKAGE / "autograd/tape_table.py"]
SHADOWED = re.compile(r"(?<![\w.\"'])(?<!def )(bool|float|int|type)\b(?!:)")  # types, where methods have their names


def pytorch(kind, name):
    """The syntax of a class or of the value of a variable in minigrad/pytorch."""
    for node in (node for path in PYTORCH for node in ast.parse(path.read_text(encoding="utf-8")).body):
        if kind is ast.ClassDef and isinstance(node, kind) and node.name == name:
            return node
        if kind is ast.Dict and isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node.value
    raise LookupError(name)


def added_methods():
    """The methods and properties that a tensor has from modules above the engine."""
    classes = ("TensorNames", "StorageNames", "Protocols", "TapeMethods")
    return [node for name in classes for node in pytorch(ast.ClassDef, name).body if isinstance(node, ast.FunctionDef)]


def signature(node):
    """The lines of a stub for a method in Python."""
    node.args.args[0].annotation = None
    node.body = [ast.Expr(ast.Constant(...))]
    *header, last, body = ast.unparse(node).split("\n")
    theirs = [*header, last + body[3:]]
    ours = re.sub(r"\b(keep)?dim:", lambda found: "keepdims:" if found[1] else "axis:", theirs[-1])
    return theirs if ours == theirs[-1] else ["@overload", ours, "@overload", *theirs]


def parsed(path, module, include_path=()):
    """The syntax tree of a .pyx or .pxd file."""
    Errors.init_thread()
    context = Context.from_options(CompilationOptions(language_level=3, include_path=[*include_path]))
    scope = ModuleScope(module, None, context)
    return context.parse(FileSourceDescriptor(str(path)), scope, path.suffix == ".pxd", module)


def text(node):
    """The source of an expression."""
    return node.string.value if isinstance(node, AnnotationNode) else ExpressionWriter().write(node)


def parameter(arg):
    name, kind, default = arg.declarator.name, arg.base_type.name, arg.default and text(arg.default)
    if not name:  # Cython takes an untyped parameter of a cpdef function for a type without a name
        name, kind = kind, None
    if arg.annotation:
        kind = text(arg.annotation)
    elif kind:
        kind = PYTHON.get(kind, kind) + (" | None" if arg.or_none or default == "None" else "")
    return name + (f": {kind}" if kind else "") + (f" = {default}" if default else "")


def several(arg):
    """The parameter after * or **."""
    return arg.name + (f": {text(arg.annotation)}" if arg.annotation else "")


def parameters(args, star=None, double_star=None):
    """The parameters of a function, as in Python's source."""
    parts = [parameter(arg) for arg in args if not arg.kw_only]
    keywords = [parameter(arg) for arg in args if arg.kw_only]
    if star or keywords:
        parts.append("*" + (several(star) if star else ""))
    return ", ".join([*parts, *keywords, *(["**" + several(double_star)] if double_star else [])])


class Returns(TreeVisitor):
    """Whether a function returns a value."""

    def __init__(self, function):
        super().__init__()
        self.value = False
        self.visitchildren(function)

    def visit_Node(self, node):
        self.visitchildren(node)

    def visit_ReturnStatNode(self, node):
        self.value = self.value or node.value is not None


class Stub(TreeVisitor):
    """Collects the lines of a stub from the syntax trees of a module's .pxd and .pyx files."""

    def __init__(self, module, pyx, include_path=()):
        super().__init__()
        self.lines, self.indent, self.derived, self.attributes = [], "", False, {}
        self.collisions = {key.value for key in pytorch(ast.Dict, "COLLISIONS").keys}
        others = {other: names.split() for other, names in MODULES.items() if other != module}
        self.imports = {name: f"from {other} import {name}" for other, names in others.items() for name in names}
        self.imports["builtins"] = "import builtins"
        for path in (pyx.with_suffix(".pxd"), pyx):
            if path.exists():
                self.visit(parsed(path, module, include_path))

    def __str__(self):
        used = {node.id for node in ast.walk(ast.parse("\n".join(self.lines))) if isinstance(node, ast.Name)}
        return "\n".join([*sorted(self.imports[name] for name in used & {*self.imports}), *self.lines, ""])

    def write(self, line):
        self.lines.append(self.indent + line)

    def result(self, node):
        """The type that Python gets: the T of a comment ``# -> T`` at the end of the header, or the C type."""
        source, line, _ = node.pos
        header = "\n".join([*source.get_lines()][line - 1 :])
        stated = re.match(r"(?:[^#\n]*[,(]\n)*[^#\n]*# -> (.*)", header)
        if not stated and not node.base_type.name and Returns(node).value:
            raise Errors.CompileError(node.pos, "state the type of the result: # -> T")
        return stated[1] if stated else PYTHON.get(node.base_type.name, node.base_type.name) or "None"

    def visit_Node(self, node):
        """Skip what Python does not see."""

    def visit_StatListNode(self, node):
        self.visitchildren(node)

    visit_ModuleNode = visit_CDefExternNode = visit_StatListNode

    # ── imports, variables and types ──

    def visit_FromImportStatNode(self, node):
        module = node.module.module_name.value
        self.imports |= {target.name: f"from {module} import {name} as {target.name}" for name, target in node.items}

    def visit_FromCImportStatNode(self, node):
        self.imports |= {name: f"from {node.module_name} import {name}" for _, name, _ in node.imported_names}

    def visit_SingleAssignmentNode(self, node):
        if isinstance(node.rhs, ImportNode):
            self.imports[node.lhs.name] = f"import {node.rhs.module_name.value} as {node.lhs.name}"
        elif isinstance(node.lhs, NameNode):
            kind = f": {text(node.lhs.annotation)}" if node.lhs.annotation else ""
            makes_type = kind == ": TypeAlias" or getattr(getattr(node.rhs, "function", None), "name", "") == "TypeVar"
            if self.indent or makes_type:  # in a class the value is a function of another module
                self.write(f"{node.lhs.name}{kind} = {text(node.rhs)}")
            elif kind:
                self.write(f"{node.lhs.name}{kind}")

    def visit_CEnumDefNode(self, node):
        if node.create_wrapper:
            self.lines += [f"class {node.name}(IntEnum):", *(f"    {item.name} = ..." for item in node.items)]

    # ── classes and functions ──

    def visit_CClassDefNode(self, node):
        if node.in_pxd:  # its attributes; the .pyx file has everything else
            lines, self.lines = self.lines, self.attributes.setdefault(node.class_name, [])
            self.visit_members(node)
            self.lines = lines
        elif "cython.internal" not in [text(decorator.decorator) for decorator in node.decorators or []]:
            self.visit_PyClassDefNode(node, node.class_name)

    def visit_PyClassDefNode(self, node, name=None):
        name, bases = name or node.name, ", ".join(map(text, node.bases.args))
        self.write(f"class {name}({bases}):" if bases else f"class {name}:")
        before = len(self.lines)
        self.lines += self.attributes.get(name, [])
        self.visit_members(node, bool(bases))
        if name == "Extension":
            self.lines += [f"    {line}" for method in added_methods() for line in signature(method)]
            self.lines[before:] = [SHADOWED.sub(r"builtins.\1", line) for line in self.lines[before:]]
        if len(self.lines) == before:
            self.lines[-1] += " ..."

    def visit_members(self, node, derived=False):
        self.indent, self.derived = "    ", derived
        self.visit(node.body)
        self.indent, self.derived = "", False

    def visit_CVarDefNode(self, node):
        if node.visibility == "readonly":
            for declarator in node.declarators:
                self.write("@property")
                self.write(f"def {declarator.name}(self) -> {self.result(node)}: ...")

    def visit_CFuncDefNode(self, node):
        if node.overridable and not self.derived:
            name, given = node.declarator.base.name, parameters(node.declarator.args)
            self.write_function(name, given, f" -> {self.result(node)}")

    def write_function(self, name, given, result, note=""):
        """A function; if it has an axis, its signature with PyTorch's names precedes its own."""
        if "axis:" in given and not self.indent and name not in self.collisions:
            theirs = given.replace("axis:", "dim:").replace("keepdims:", "keepdim:")
            theirs = theirs.replace("correction: float = 0", "correction: float")  # has to be stated
            self.write(f"@overload\ndef {name}({theirs}){result}: ...\n@overload")
        self.write(f"def {name}({given}){result}: ...{note}")

    def visit_DefNode(self, node):
        internal = node.name == "__cinit__" and not any(arg.annotation for arg in node.args)  # no Python code calls it
        if internal or LEFT_OUT.match(node.name):
            return
        for decorator in node.decorators or []:
            self.write(f"@{text(decorator.decorator)}")
        name = "__init__" if node.name == "__cinit__" else node.name
        result = "None" if name == "__init__" else node.return_type_annotation and text(node.return_type_annotation)
        # `object` promises that comparing returns a bool.
        note = "  # type: ignore[override]" if name in ("__eq__", "__ne__") and result != "bool" else ""
        given = parameters(node.args, node.star_arg, node.starstar_arg)
        self.write_function(name, given, f" -> {result}" if result else "", note)
