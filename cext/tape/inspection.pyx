"""Inspection of the tape: its rows, what each row holds, and the modules it was recorded in."""
cimport cython
from libc.stdint cimport int64_t

from minigrad.engine.memory.array cimport Array, shape_of
from minigrad.engine.memory.dtype cimport dtype_of, itemsize
from minigrad.engine.tape.node cimport Node, saved_arrays
from minigrad.engine.tape.python_function cimport function_backward
from minigrad.engine.tape.record cimport gradient_node


cdef list history_of(list roots):
    """The nodes of the roots and every node that they depend on, in the order of recording, leaves first."""
    cdef Node node
    cdef int i
    cdef dict seen = {}
    cdef list stack = [gradient_node(<Array>x) for x in roots if (<Array?>x).needs_grad]
    while stack:
        node = stack.pop()
        if node.sequence in seen:
            continue
        seen[node.sequence] = node
        for i in range(node.inputs):
            if node.slots[i].edge != NULL:
                stack.append(<Node>node.slots[i].edge)
    return [seen[sequence] for sequence in sorted(seen)]


cdef object name_within(object outer, object module, dict names):
    """The dotted name of a module within the one that called it; None if that one does not own it, or is gone."""
    if outer is None or module is None or outer is module:
        return None
    if id(outer) not in names:
        names[id(outer)] = {id(member): name for name, member in outer.named_modules()}
    return names[id(outer)].get(id(module))


cdef tuple path_of(object scope, dict known, dict names):
    """The modules around a node, outermost first, each as (its name in the enclosing module, its class name).

    Also returns a number for each of these calls: two calls of one module have different numbers.
    """
    cdef list inner = []
    cdef tuple path = (), calls = ()
    while scope is not None and id(scope) not in known:
        inner.append(scope)
        scope = scope[0]
    if scope is not None:
        path, calls = known[id(scope)]
    for scope in reversed(inner):
        outer, module, kind = scope
        name = name_within(outer[1](), module(), names) if outer is not None else None
        path, calls = known[id(scope)] = (*path, (name, kind)), (*calls, len(known))
    return path, calls


cpdef int64_t bytes_of(Array x: Array):
    """The bytes of memory that x covers: a repeated axis takes none."""
    cdef int64_t size = itemsize(x.code)
    cdef int i
    for i in range(x.ndim_):
        if x.step[i] != 0:
            size *= x.extent[i]
    return size if x.count else 0


@cython.final
@cython.no_gc       # listeners make many, and none can be part of a cycle
@cython.binding(False)
cdef class Outline:
    """The shape and the sizes of an array whose memory may be freed."""
    cdef readonly tuple shape       # -> tuple[int, ...]
    cdef readonly int64_t size      # the number of its elements
    cdef readonly int64_t nbytes    # the bytes of as many elements
    cdef readonly int64_t bytes     # the bytes of memory that it covers, see bytes_of


cdef Outline outline_of(Array x):
    cdef Outline found = Outline.__new__(Outline)
    found.shape, found.size, found.bytes = shape_of(x), x.count, bytes_of(x)
    found.nbytes = x.count * <int64_t>itemsize(x.code)
    return found


def outlined(values: Any) -> Any:
    """A tuple, list or dict with outlines in place of the arrays in it, at any depth."""
    if type(values) is dict:
        return {key: outlined(value) for key, value in (<dict>values).items()}
    if type(values) is tuple:
        return tuple([outline_of(<Array>x) if isinstance(x, Array) else outlined(x) if type(x) in (tuple, list, dict)
                      else x for x in <tuple>values])
    if type(values) is list:
        return list(outlined(tuple(<list>values)))
    return outline_of(<Array>values) if isinstance(values, Array) else values


cdef dict names_of_parameters(list nodes):
    """The parameters of the outermost modules around the nodes: id of a tensor -> its dotted name in the first one."""
    cdef dict modules = {}, names = {}
    for node in nodes:
        scope = (<Node>node).scope
        while scope is not None and scope[0] is not None:
            scope = scope[0]
        if scope is not None:
            modules[id(scope[1])] = scope[1]()
    for module in modules.values():
        if module is not None:
            for name, parameter in module.named_parameters():
                names.setdefault(id(parameter), name)
    return names


def entries(*roots: Tensor) -> list[dict[str, Any]]:
    """The history of tensors as a list of dicts, first operation first: the rows of `Tensor.tape`.

    ``name`` is that of a leaf in the outermost module that ran, None for others and for operations.
    ``inputs`` are indices of rows, None where no gradient flows; ``outputs`` say which output of that row each one is.
    ``function`` says whether the operation is a user's `minigrad.Function`, which may have any name.
    ``saved_inputs`` are the positions of the saved inputs, which come first among the tensors in `contents`.
    """
    cdef Node node
    cdef list nodes = history_of(list(roots)), rows = []
    cdef dict paths = {}        # id of a scope -> its path; the nodes keep the scopes alive
    cdef dict names = {}        # id of a module -> the names of those within it
    cdef dict parameters = names_of_parameters(nodes)
    cdef dict numbers = {(<Node>entry).sequence: k for k, entry in enumerate(nodes)}
    for k, entry in enumerate(nodes):
        node = entry
        scope, calls = path_of(node.scope, paths, names)
        rows.append({
            "index": k, "op": node.op.name, "function": node.op.differentiate == function_backward,
            "name": parameters.get(<size_t>node.leaf) if node.leaf != NULL else None,
            "equation": node.op.forward, "derivative": node.op.backward,
            "inputs": [numbers[(<Node>node.slots[i].edge).sequence] if node.slots[i].edge != NULL else None
                       for i in range(node.inputs)],
            "outputs": [node.slots[i].output if node.slots[i].edge != NULL else None for i in range(node.inputs)],
            "saved_inputs": [i for i in range(node.inputs) if node.slots[i].value != NULL],
            "shape": tuple([node.extent[i] for i in range(node.ndim)]), "dtype": dtype_of(node.code),
            "saved_bytes": sum({a.data_ptr(): bytes_of(a) for a in saved_arrays(node)}.values()), "where": node.where,
            "freed": bool(node.freed), "scope": scope, "calls": calls, "sequence": node.sequence,
        })
    return rows


def count_leaves(list roots: list[Tensor]) -> int:
    """How many leaves the roots depend on, including roots that are leaves."""
    return sum([(<Node>entry).sequence < 0 for entry in history_of(roots)])


def contents(*roots: Tensor) -> dict[int, tuple[Tensor | None, list[Tensor], tuple[Any, ...]]]:
    """List what the history of tensors holds.

    Returns sequence number -> (the leaf or None, the tensors saved for backward, what else is kept for it: axes, a
    recurrent cell, ...).
    """
    cdef Node node
    cdef dict found = {}
    for entry in history_of(list(roots)):
        node = entry
        extra = node.extra if type(node.extra) is tuple else (node.extra,)
        options = tuple([value for value in extra if value is not None and not isinstance(value, Array)])
        found[node.sequence] = <Array>node.leaf if node.leaf != NULL else None, saved_arrays(node), options
    return found


def operations(*roots: Tensor) -> dict[int, Op]:
    """The record of each operation in the history of tensors: sequence number -> Op."""
    return {(<Node>entry).sequence: (<Node>entry).op for entry in history_of(list(roots))}
