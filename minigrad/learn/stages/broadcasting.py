"""The gradient of a product with broadcasting.

In y = a * b, NumPy repeats the smaller array: axes of size 1 are stretched,
and missing axes are added in front. For example (3, 1) * (4,) has the shape
(3, 4). In the backward pass there is a cotangent g for every element of y,
and the gradient of a must have the shape of a again.

A number that was used four times gets four contributions, and they add.
So: compute the gradient in the shape of y, then sum over every axis along
which a was repeated.

NumPy arrays in, NumPy arrays out, float64.
"""

import numpy as np


def unbroadcast(g, shape):  # ours
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))  # the axes that were added in front
    stretched = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return g.sum(axis=stretched, keepdims=True)


def multiply_backward(g, a, b):  # yours
    """The gradients of a and b, given the cotangent g of y = a * b."""
    return unbroadcast(g * b, a.shape), unbroadcast(g * a, b.shape)
