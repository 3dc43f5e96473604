def unbroadcast(g, shape):
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))  # the axes that were added in front
    stretched = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return g.sum(axis=stretched, keepdims=True)


def multiply_backward(g, a, b):
    return unbroadcast(g * b, a.shape), unbroadcast(g * a, b.shape)
