"""Operations written in Python: what `minigrad.Function` records."""
from collections.abc import Callable

from minigrad.engine.memory.array cimport Array, alias, join_ring
from minigrad.engine.memory.refusals cimport kind_of
from minigrad.engine.tape.backward cimport check_gradient
from minigrad.engine.tape.hooks cimport show_collector
from minigrad.engine.tape.node cimport Node, function_op
from minigrad.engine.tape.record cimport track_many
from minigrad.engine.tape.node import GradientError


cdef int function_backward(Node node, Array g) except -1:
    function, *saved = node.extra
    given = [g] if node.outputs == 1 else [node.gradient(k) for k in range(node.outputs)]
    cdef list gradients = function(node, given, saved)
    if len(gradients) != node.inputs:
        raise GradientError(f"[{node.op.name}] backward: expected {node.inputs} gradients, one for each tensor "
                            f"input, got {len(gradients)}")
    for i, grad in enumerate(gradients):
        if grad is None or not node.needs(i):
            continue
        check_gradient(node.op.name, <Node>node.slots[i].edge, grad, node.slots[i].output)
        node.send(i, <Array>grad)
    return 0


cdef dict functions = {}    # name -> Op


def record_function(str name, list inputs: list[Tensor], list outputs: list[Tensor],
                    function: Callable[..., list[Tensor | None]] | None,
                    tuple saved: tuple[Tensor | None, ...]) -> None:
    """Record an operation written in Python: function(node, gradients of the outputs, saved) -> those of the inputs.

    `saved` are the tensors that it reads, whose versions are checked before it is called.
    """
    for x in inputs + outputs:
        if not isinstance(x, Array):
            raise TypeError(f"[{name}] expected tensors, got {kind_of(x)}")
    if name not in functions:
        functions[name] = function_op(name, function_backward)
    if track_many(functions[name], outputs, inputs, [], (function, *saved)) is not None:
        for y in outputs:
            if (<Array>y).node is not None:
                show_collector(<Array>y)


def result_over(Array memory: Tensor, list others: list[Tensor]) -> Tensor:
    """The same memory as another tensor, a view of those among `others` that have it."""
    cdef Array result = alias(memory)
    for x in others:
        if (<Array>x).buffer == result.buffer:
            join_ring(result, <Array>x)
            break
    return result


def attach(Array saved, Node node, int output) -> Tensor:
    """Put a saved output, kept without its node, back on the tape, so that backward itself can be differentiated."""
    cdef Array attached = alias(saved)
    attached.node, attached.needs_grad, attached.output = node, True, output
    return attached
