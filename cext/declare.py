"""Write what follows from other sources, for Cython and C++ to include.

devices/primitives states each primitive once, as a method of the CPU. From them follow that class, the interface of all
devices, which is the class Backend with abstract methods, and the expressions by which a profile counts. A kernel is
declared by its definition, below the line ``MG_KERNEL(name[types])``; the members of the table of kernels follow. The
rows of ops/wrappers.txt become functions, and those of OPERATORS and METHODS methods. The ``.pxd`` file of a module
in cext/ lacks the functions that other modules cimport: they are declared as the ``.pyx`` file defines them.
"""

import re
import textwrap
from pathlib import Path

SOURCE = Path(__file__).parent
PRIMITIVE = re.compile(r'((?:    # \w+: .*\n)*)    cpdef (\w[^"]*?\)(?: except \*)?):(.*)\n(        """[^"]*"""\n)')
KERNEL = re.compile(r"^MG_KERNEL\((\w+)(\[\w+\])?\)\n(?:template <class T>\n)?void \w+(\([^)]*\))", re.MULTILINE)
CLASS = '''cimport cython
{}
@cython.binding(False)
@cython.embedsignature(True)
cdef class {}:
    """The primitives{}."""

'''
IMPORT = re.compile(r"^(?:from|import) .*\n", re.MULTILINE)
ROW = re.compile(r"^(\w+)\((.*)\)\n? *= (.*)\n((?:    (?!>>>).*\n)+)((?:    .*\n)+)", re.MULTILINE)
WRAPPER = '''{header}:
    """{summary}

    Examples
    --------
{example}    """
    return {call}
'''
# Python's name of an operator, the function, and for its in-place form the symbol and the kernel, if there is one
OPERATORS = """
add       add                  +=   ADD
sub       subtract             -=   SUB
truediv   divide               /=   DIVIDE
floordiv  floor_divide         //=  -1
mod       remainder            %=   -1
and       bitwise_and          &=   -1
or        bitwise_or           |=   -1
xor       bitwise_xor          ^=   -1
lshift    bitwise_left_shift   <<=  -1
rshift    bitwise_right_shift  >>=  -1
"""
# The functions that are methods, too, by module; one has another name as a method
METHODS = """
layout        moveaxis swapaxes ravel expand_dims squeeze broadcast_to astype sum
slices        flip
join          split unstack
reduce        prod mean var std max min argmax argmin any all logsumexp cumulative_sum
gather        sort argsort take take_along_axis scatter_add nonzero
logic         clip maximum minimum
arithmetic    reciprocal
functions     exp expm1 exp2 log log1p log2 log10 sqrt rsqrt square erf
trigonometry  sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
rounding      abs=absolute sign floor ceil trunc round isnan isinf isfinite signbit
activation    relu sigmoid
softmax       softmax log_softmax
"""
COMPARISONS = "eq equal ne not_equal lt less le less_equal gt greater ge greater_equal"
CIMPORT = re.compile(r"^from ([\w.]+) cimport (\([^)]*\)|.*)$", re.MULTILINE)
DEFINITION = re.compile(r"^(cp?def [\w*, ]*?\b(\w+)\()((?:[^)]|\)(?=[\])]))*)(\)[^():\n]*):(?: *#.*)?$", re.MULTILINE)


def interface():
    """The classes CPU and Backend, the declaration of Backend, and the expressions below its methods' names."""
    paths = sorted(SOURCE.glob("devices/primitives/*.pxi"))
    text = "\n".join(path.read_text("utf-8") for path in paths)
    imports = "from minigrad.engine.devices.backend cimport Backend\n" + "".join(IMPORT.findall(text))
    primitives = textwrap.indent(IMPORT.sub("", text), "    ")
    methods, declared, counts = [], ["cdef class Backend:\n"], []
    for notes, signature, result, contract in PRIMITIVE.findall(primitives):
        methods.append(f"    cpdef {signature}:{result}\n{contract}        raise NotImplementedError\n")
        declared.append(f"    cpdef {signature}\n")
        name = re.search(r"(\w+)\(", signature)[1]
        counts.append(f'    "{name}": {dict(re.findall("# (.*?): (.*)", notes))},\n')
    counts = ["\n\nCOUNTS: dict[str, dict[str, str]] = {\n", *counts, "}\n"]
    return {
        "cpu.pxi": CLASS.format(imports, "CPU(Backend)", " on the CPU") + primitives,
        "interface.pxi": CLASS.format("", "Backend", "; every method here is abstract") + "\n".join(methods + counts),
        "interface_declared.pxi": "".join(declared),
    }


def table():
    """The members of the table of kernels, pointers, one for each dtype; and what puts the kernels of a file there."""
    fields, declared = [], ['cdef extern from "kernels/kernels.hpp" namespace "mg" nogil:\n    cppclass Table:\n']
    puts = []
    for path in sorted(SOURCE.glob("kernels/*.cpp")):
        text, put = path.read_text("utf-8"), ""
        for name, types, parameters in KERNEL.findall(text):
            if types == "[DTYPES]" and not re.search(rf"\bk\.{name}\b", text):
                raise SystemExit(f"{path}: MG_KERNEL({name}) is not put into the table by fill_{path.stem}")
            put += {"": f"put_kernel<{name}>(k.{name}); ", "[FLOATS]": f"MG_FLOATS({name}); "}.get(types, "")
            arguments = re.sub(r"(\b[ST]|Word<T>)\*", "void*", " ".join(parameters.split()))
            fields.append(f"    void (*{name}{types}){arguments};\n")
            declared.append(f"        Kernel{'*' if types else ''} {name}\n")
        puts.append(f"#define MG_PUT_{path.stem.upper()} {put}\n")
    return {
        "kernels/table.inc": "".join(["struct Table {\n", *fields, "};\n"]),
        "kernels/table.pxi": "".join(declared),
        "kernels/put.inc": "".join(puts),
    }


def wrappers():
    """The functions of ops/wrappers.txt, one file for each module."""
    found = {}
    for part in (SOURCE / "ops" / "wrappers.txt").read_text("utf-8").split("\n[")[1:]:
        module, _, rows = part.partition("]\n")
        if rest := ROW.sub("", rows).strip():
            raise SystemExit(f"ops/wrappers.txt: this is not a row: {rest}")
        texts, shared = [], sorted({*re.findall(r" = (function\w*)\(", rows)})  # functions of arithmetic.pyx
        if shared and module != "arithmetic":
            texts.append(f"from minigrad.engine.ops.arithmetic cimport {', '.join(shared)}\n")
        for name, names, call, summary, example in ROW.findall(rows):
            parameters = ", ".join(f"{one}: TensorLike" if one.isidentifier() else one for one in names.split(", "))
            header = f"def {name}({parameters}) -> Tensor" if ":" in names else f"cpdef Array {name}({parameters})"
            texts.append(WRAPPER.format(header=header, summary=summary.strip(), example=example, call=call))
        found[f"ops/{module}.pxi"] = "\n\n".join(texts)
    return found


def operators():
    """The methods that Python calls for operators, and those that are functions, in their class."""
    methods, imports = [], []

    def add_method(name, call, result="Tensor"):
        methods.append(f"    def __{name}__(self, other: TensorLike) -> {result}:\n        return {call}\n")

    for name, function, symbol, kernel in map(str.split, OPERATORS.strip().splitlines()):
        add_method(name, f"{function}(self, other) if acceptable(other) else NotImplemented")
        add_method(f"r{name}", f"{function}(other, self) if acceptable(other) else NotImplemented")
        module = "logic" if function.startswith("bitwise") else "arithmetic"
        add_method(f"i{name}", f'in_place("{symbol}", {module}.{function}, {kernel}, self, other)', "Self")
    for name, function in re.findall(r"(\w+) (\w+)", COMPARISONS):
        add_method(name, f"{function}(self, other) if acceptable(other) else NotImplemented")
    for module, *names in map(str.split, METHODS.strip().splitlines()):
        imports.append(f"from minigrad.engine.ops import {module} as {module}_functions\n")
        for name, function in ((name.partition("=")[0], name.rpartition("=")[2]) for name in names):
            methods.append(f"    {name} = {module}_functions.{function}\n")
    text = (SOURCE / "tensor" / "operators.pxi").read_text("utf-8")
    place = "    # The methods of OPERATORS, COMPARISONS and METHODS in cext/declare.py\n"
    return {"tensor/operators.pxi": "".join(imports) + text.replace(place, "\n".join(methods))}


def declarations(included):
    """The .pxd file of every module, with the functions that other modules cimport, and those of the packages."""
    texts = {path: path.read_text("utf-8") for path in sorted(SOURCE.glob("*/*.p[xy][dix]"))}
    wanted = {}
    for text in [*texts.values(), *included.values()]:
        for module, names in CIMPORT.findall(re.sub("#.*", "", text)):
            wanted.setdefault(module, set()).update(re.findall(r"\w+", names))
    found = {"__init__.pxd": "", **{f"{path.parent.name}/__init__.pxd": "" for path in texts}}
    for path in sorted({path.with_suffix("") for path in texts if path.suffix != ".pxi"}):
        module, own = path.relative_to(SOURCE), texts.get(path.with_suffix(".pxd"), "")
        names = wanted.get(".".join(["minigrad.engine", *module.parts]), set())
        text = texts.get(path.with_suffix(".pyx"), "")
        text = re.sub('^include "(.*)"', lambda line: included.get(line[1], ""), text, flags=re.MULTILINE)
        lines = [
            f"{begin.replace('inline ', '')}{re.sub(' ?= ?[^,]*', '=*', parameters)}{end}\n"
            for begin, function, parameters, end in DEFINITION.findall(text)
            if function in names and not re.search(rf"\b{function}\(", own)
        ]
        types = {*re.findall(r"\w+", "".join(lines))} - {*re.findall(r"\w+", own)}
        for other, names in CIMPORT.findall(text):
            used = sorted(types & {*re.findall(r"\w+", names)})
            if used:
                lines.insert(0, f"from {other} cimport {', '.join(used)}\n")
        found[f"{module}.pxd"] = own + "".join(lines)
    return {f"minigrad/engine/{name}": text for name, text in found.items()}


def write(folder):
    """Write all of them below a folder, those that have changed."""
    included = {**interface(), **wrappers(), **operators()}
    for name, text in {**included, **table(), **declarations(included)}.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
