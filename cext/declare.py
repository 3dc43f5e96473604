"""Write the declarations that follow from the list of primitives and from the kernels, for Cython and C++ to include.

primitives.pxi states each primitive once, as a method of the CPU. From it follows the interface of all devices: the
class Backend, whose methods are abstract, its declaration, and the expressions by which a profile counts. A kernel is
declared by its definition, below the line ``MG_KERNEL(name[types])``; the members of the table of kernels follow.
"""

import re
from pathlib import Path

SOURCE = Path(__file__).parent
PRIMITIVE = re.compile(r'((?:    # \w+: .*\n)*)    cpdef (\w[^"]*?\)(?: except \*)?):(.*)\n(        """[^"]*"""\n)')
KERNEL = re.compile(r"^MG_KERNEL\((\w+)(\[\w+\])?\)\n(?:template <class T>\n)?void \w+(\([^)]*\))", re.MULTILINE)
INTERFACE = '''cimport cython

@cython.binding(False)
@cython.embedsignature(True)
@cython.embedsignature.format("clinic")
cdef class Backend:
    """The primitives; every method here is abstract."""
'''


def interface():
    """The class Backend, its declaration, and the expressions below its methods' names."""
    methods, declared, counts = [INTERFACE], ["cdef class Backend:\n"], []
    for notes, signature, result, contract in PRIMITIVE.findall(
        (SOURCE / "devices" / "primitives.pxi").read_text("utf-8")
    ):
        methods.append(f"    cpdef {signature}:{result}\n{contract}        raise NotImplementedError\n")
        declared.append(f"    cpdef {signature}\n")
        name = re.search(r"(\w+)\(", signature)[1]
        counts.append(f'    "{name}": {dict(re.findall("# (.*?): (.*)", notes))},\n')
    counts = ["COUNTS: dict[str, dict[str, str]] = {\n", *counts, "}\n"]
    return {"interface.pxi": "\n".join(methods) + "\n\n" + "".join(counts), "interface_declared.pxi": "".join(declared)}


def table():
    """The members of the table of kernels: pointers, one for each dtype."""
    fields, declared = [], ['cdef extern from "kernels/kernels.hpp" namespace "mg" nogil:\n    cppclass Table:\n']
    for path in sorted(SOURCE.glob("kernels/*.cpp")):
        text = path.read_text("utf-8")
        for name, types, parameters in KERNEL.findall(text):
            if not re.search(rf"\bk\.{name}\b|\bMG_FLOATS\({name}\)", text):
                raise SystemExit(f"{path}: MG_KERNEL({name}) is not put into the table by fill_{path.stem}")
            arguments = re.sub(r"(\b[ST]|Word<T>)\*", "void*", " ".join(parameters.split()))
            fields.append(f"    void (*{name}{types}){arguments};\n")
            declared.append(f"        Kernel{'*' if types else ''} {name}\n")
    return {"kernels/table.inc": "".join(["struct Table {\n", *fields, "};\n"]), "kernels/table.pxi": "".join(declared)}


def write(folder):
    """Write all of them below a folder, those that have changed."""
    for name, text in {**interface(), **table()}.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
