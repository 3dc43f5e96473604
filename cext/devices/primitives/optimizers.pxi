from minigrad.engine.memory.calls cimport refuse_in_capture

# flops: rule.flops * sum(x.size for x in p)
cpdef optimize(self, rule: Rule, list p: list[Tensor], list g: list[Tensor],
               list states: list[list[Tensor] | None], tuple numbers: tuple[float, ...]):
    """One step of an optimizer, a Rule of ops/optimizer, on all tensors of the lists; state lists may be None."""
    cdef TensorList tensors = TensorList([p, g, *states])
    cdef const Rule* found = rule_of(rule.name)
    cdef Update step
    cdef int i
    if len(numbers) != found.count:
        raise TypeError(f"[{rule.name}] expected {found.count} numbers, got {numbers}")
    for i in range(found.count):
        step.numbers[i] = numbers[i]
    launch(tensors.total, found.step[(<Array>p[0]).code - FLOAT32], tensors.list, step)

# flops: 2 * sum(x.size for x in g)
cpdef double sum_of_squares(self, list g: list[Tensor]) except *:
    """The sum of the squares of all elements of all tensors."""
    refuse_in_capture("the norm of gradients as a Python number")
    cdef TensorList tensors = TensorList([g, g])
    return kernels.sum_of_squares[(<Array>g[0]).code - FLOAT32](tensors.list)
