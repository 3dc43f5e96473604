import minigrad as mg


def normalize(x, eps):
    centered = x - x.mean(axis=-1, keepdims=True)
    scale = 1 / mg.sqrt((centered * centered).mean(axis=-1, keepdims=True) + eps)
    return centered * scale, scale


def layer_norm(x, weight, bias, eps):
    n, _ = normalize(x, eps)
    return n * weight + bias


def layer_norm_backward(g, x, weight, eps):
    n, scale = normalize(x, eps)
    u = g * weight
    dx = (u - u.mean(axis=-1, keepdims=True) - n * (u * n).mean(axis=-1, keepdims=True)) * scale
    width = x.shape[-1]
    return dx, (g * n).reshape(-1, width).sum(axis=0), g.reshape(-1, width).sum(axis=0)
