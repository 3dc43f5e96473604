"""The same workloads in PyTorch (eager and compiled) and JAX, and their matrix products alone in NumPy."""

import numpy as np
from workloads import LEAVES, MATRIX_OPS, Unavailable, inputs, is_single, norm_shapes


def torch_step(work, threads, compiled=False, recorded=False, autocast=False):
    """Return a function that runs one step of the workload in PyTorch."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(threads)
    torch.backends.cudnn.allow_tf32 = False  # as in every other product
    torch.set_default_device(work.device)
    x, y = (None if array is None else torch.from_numpy(array).to(work.device) for array in inputs(work))

    if work.kind == "chain":
        if compiled:
            raise Unavailable("the chain measures the eager tape")
        a = torch.ones(4, 4, requires_grad=True)

        def chain():
            v = a
            for _ in range(500):
                v = v * a
                v = v + a
            a.grad = None
            v.sum().backward()

        return chain

    if work.kind == "attn":
        leaves = [(u.bfloat16() if autocast else u.clone()).requires_grad_() for u in x]
        g = torch.randn_like(leaves[0])
        attend = torch.compile(F.scaled_dot_product_attention) if compiled else F.scaled_dot_product_attention
        return lambda: torch.autograd.grad(attend(*leaves, is_causal=True), leaves, g)

    if is_single(work.kind):
        if compiled:
            raise Unavailable("a single op has nothing to fuse with")

        def batch_norm(x, gain, bias):
            return F.batch_norm(x, None, None, gain, bias, training=True)

        norm, way = work.kind.split("_")
        other = x + 1
        function = {
            "ln": lambda x, gain, bias: F.layer_norm(x, gain.shape, gain, bias),
            "rms": lambda x, gain: F.rms_norm(x, gain.shape, gain, 1e-5),
            "gn4": lambda x, gain, bias: F.group_norm(x, 8, gain, bias),
            "in4": lambda x, gain, bias: F.instance_norm(x, None, None, gain, bias),
            "bn": batch_norm,
            "bn4": batch_norm,
            "softmax": lambda x: F.softmax(x, -1),
            "copy": lambda x: out.copy_(x) if way == "fwd" else x.clone(),
            "relu": torch.relu,
            "add": lambda x: x + other,
            "row": lambda x, gain: x + gain,
            "number": lambda x: x + 1.5,
            "transpose": lambda x: x.T.contiguous(),
            "sum": lambda x: x.sum(-1),
        }[norm]
        shape = norm_shapes(work)[1]
        leaves = [x.requires_grad_(), torch.ones(shape, requires_grad=True), torch.zeros(shape, requires_grad=True)]
        leaves = leaves[: LEAVES.get(norm, 3)]
        if way == "fwd":
            out = torch.empty_like(x)

            def forward():
                with torch.no_grad():
                    function(*leaves)

            return forward
        out = function(*leaves)
        g = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, leaves, g, retain_graph=True)

    if work.kind == "lstm":
        if compiled:
            raise Unavailable("PyTorch's own layer is already fused")
        layer, g = nn.LSTM(100, work.hidden), torch.randn(80, work.batch, work.hidden)
        x.requires_grad_()
        return lambda: torch.autograd.grad(layer(x)[0], [x, *layer.parameters()], g)

    class LNRNN(nn.Module):
        def __init__(self, inputs, hidden):
            super().__init__()
            self.hidden = hidden
            self.xh, self.hh = nn.Linear(inputs, hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
            self.ln = nn.LayerNorm(hidden)

        def forward(self, x):
            h = x.new_zeros(x.shape[1], self.hidden)
            xs = self.xh(x)
            for t in range(x.shape[0]):
                h = torch.tanh(self.ln(xs[t] + self.hh(h)))
            return h

    class MinGRU(nn.Module):
        def __init__(self, inputs, hidden):
            super().__init__()
            self.z, self.c = nn.Linear(inputs, hidden), nn.Linear(inputs, hidden)

        def forward(self, x):  # PyTorch has no scan
            z = torch.sigmoid(self.z(x))
            a, b = 1 - z, z * self.c(x)
            h = b[0]
            for t in range(1, x.shape[0]):
                h = torch.addcmul(b[t], a[t], h)
            return h

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(128), nn.LayerNorm(128)
            self.qkv, self.out = nn.Linear(128, 384), nn.Linear(128, 128)
            self.up, self.down = nn.Linear(128, 512), nn.Linear(512, 128)

        def forward(self, x):
            heads = self.qkv(self.ln1(x)).unflatten(-1, (3, 4, 32)).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
            x = x + self.out(attended)
            return x + self.down(F.gelu(self.up(self.ln2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(96, 128)
            self.positions = nn.Parameter(0.02 * torch.randn(128, 128))
            self.blocks = nn.Sequential(*(Block() for _ in range(4)), nn.LayerNorm(128), nn.Linear(128, 96))

        def forward(self, x):
            return self.blocks(self.words(x) + self.positions).flatten(0, 1)

    class LNLSTM(nn.Module):
        def __init__(self, inputs, hidden):
            super().__init__()
            self.hidden = hidden
            self.xh, self.hh = nn.Linear(inputs, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=False)
            self.lx, self.lh, self.lc = nn.LayerNorm(4 * hidden), nn.LayerNorm(4 * hidden), nn.LayerNorm(hidden)

        def forward(self, x):
            h = c = x.new_zeros(x.shape[1], self.hidden)
            xs = self.lx(self.xh(x))
            for t in range(x.shape[0]):
                i, f, g, o = (xs[t] + self.lh(self.hh(h))).chunk(4, 1)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(self.lc(c))
            return h

    loss_of, hidden = F.cross_entropy, work.hidden
    if work.kind == "tiny":
        model, loss_of = nn.Sequential(nn.Linear(4, 32), nn.LayerNorm(32), nn.Tanh(), nn.Linear(32, 2)), F.mse_loss
    elif work.kind.startswith("mlp"):
        model = nn.Sequential(
            nn.Linear(784, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, 10),
        )
    elif work.kind == "lenet":
        model = nn.Sequential(
            nn.Conv2d(1, 6, 5),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(256, 120),
            nn.Tanh(),
            nn.LayerNorm(120),
            nn.Linear(120, 84),
            nn.Tanh(),
            nn.LayerNorm(84),
            nn.Linear(84, 10),
        )
    elif work.kind == "lnrnn":
        model = nn.Sequential(LNRNN(28, 128), nn.Linear(128, 10))
    elif work.kind == "mingru":
        model = nn.Sequential(MinGRU(28, 128), nn.Linear(128, 10))
    elif work.kind == "gpt":
        model, y = GPT(), y.flatten()
    else:
        model = nn.Sequential(nn.Embedding(20000, 100), LNLSTM(100, hidden), nn.Linear(hidden, 1), nn.Flatten(0))
        loss_of, y = F.binary_cross_entropy_with_logits, y.float()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True, capturable=recorded)

    def loss(x, y):
        with torch.autocast(work.device, torch.bfloat16, enabled=autocast):
            return loss_of(model(x), y)

    if compiled:
        loss = torch.compile(loss)

    def step():
        optimizer.zero_grad()
        loss(x, y).backward()
        optimizer.step()

    return step


def torchc_step(work, threads):
    """Return the same under torch.compile."""
    return torch_step(work, threads, compiled=True)


def torchm_step(work, threads):
    """Return the same with the precision "medium"."""
    import torch

    torch.set_float32_matmul_precision("medium")
    return torch_step(work, threads)


def torcha_step(work, threads):
    """Return the same under autocast to bfloat16; attention alone gets operands of that type."""
    if is_single(work.kind) or work.kind == "lstm":
        raise Unavailable("only training steps are cast")
    return torch_step(work, threads, autocast=True)


def torchg_step(work, threads):
    """Return the same recorded as a CUDA Graph, which the GPU replays."""
    import torch

    if work.device == "cpu" or work.kind not in ("mlp256", "mlp1000", "lenet", "lnrnn", "lnlstm", "mingru", "gpt"):
        raise Unavailable("only training steps on a GPU are recorded")
    step = torch_step(work, threads, recorded=True)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def jax_step(work, threads):
    """Return a function that starts one compiled step of the workload in JAX and returns its future result.

    It uses as many threads as the process may use cores, and a GPU if there is one, unless configured otherwise.
    """
    import jax
    import jax.numpy as jnp
    import optax

    jax.config.update("jax_default_matmul_precision", "highest")  # on a GPU, its default is TF32
    keys = iter(jax.random.split(jax.random.key(0), 100))
    x, y = (None if array is None else jnp.asarray(array) for array in inputs(work))

    def normal(*shape, scale=0.1):
        return jax.random.normal(next(keys), shape) * scale

    def linear_init(inputs, outputs):
        return {"w": normal(inputs, outputs, scale=0.05), "b": jnp.zeros(outputs)}

    def norm_init(width):
        return {"g": jnp.ones(width), "b": jnp.zeros(width)}

    def linear(p, x):
        return x @ p["w"] + p["b"]

    def norm(p, x):
        mean = x.mean(-1, keepdims=True)
        var = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(var + 1e-5) * p["g"] + p["b"]

    def cross_entropy(z, y):
        return optax.softmax_cross_entropy_with_integer_labels(z, y).mean()

    if work.kind == "chain":

        def chain(a):
            v = a
            for _ in range(500):
                v = v * a
                v = v + a
            return v.sum()

        grad, a = jax.jit(jax.grad(chain)), jnp.ones((4, 4))
        return lambda: grad(a)

    if is_single(work.kind):
        name, way = work.kind.split("_")
        if name in MATRIX_OPS and work.kind != "copy_fwd":
            raise Unavailable("compare it with PyTorch")

        def function(p, x):
            if name == "softmax":
                return jax.nn.softmax(x, -1)
            axes = {"ln": (-1,), "rms": (-1,), "in4": (2, 3), "gn4": (2, 3, 4), "bn": (0,), "bn4": (0, 2, 3)}[name]
            rows = x.reshape(x.shape[0], 8, 8, *x.shape[2:]) if name == "gn4" else x
            mean = 0 if name == "rms" else rows.mean(axes, keepdims=True)
            var = ((rows - mean) ** 2).mean(axes, keepdims=True)
            y = ((rows - mean) * jax.lax.rsqrt(var + 1e-5)).reshape(x.shape)
            gain, bias = ((p[k][:, None, None] if x.ndim == 4 else p[k]) for k in "gb")
            return y * gain if name == "rms" else y * gain + bias

        p = norm_init(norm_shapes(work)[1][0])
        if way == "fwd":
            forward = jax.jit((lambda p, x: x + 0) if name == "copy" else function)
            return lambda: forward(p, x)
        g = normal(*x.shape, scale=1.0)
        backward = jax.jit(lambda p, x, g: jax.vjp(function, p, x)[1](g))
        return lambda: backward(p, x, g)

    if work.kind == "attn":

        def attend(*heads):  # JAX's layout is (B, T, heads, width)
            return jax.nn.dot_product_attention(*(u.swapaxes(1, 2) for u in heads), is_causal=True).swapaxes(1, 2)

        q, k, v = x
        g = normal(*q.shape, scale=1.0)
        backward = jax.jit(lambda q, k, v, g: jax.vjp(attend, q, k, v)[1](g))
        return lambda: backward(q, k, v, g)

    if work.kind == "lstm":
        raise Unavailable("JAX has no such layer")

    hidden = work.hidden
    if work.kind.startswith("mlp"):
        params = [
            linear_init(784, hidden),
            norm_init(hidden),
            linear_init(hidden, hidden),
            norm_init(hidden),
            linear_init(hidden, 10),
        ]

        def loss(p, x, y):
            h = jax.nn.relu(norm(p[1], linear(p[0], x)))
            h = jax.nn.relu(norm(p[3], linear(p[2], h)))
            return cross_entropy(linear(p[4], h), y)
    elif work.kind == "tiny":
        params = [linear_init(4, 32), norm_init(32), linear_init(32, 2)]

        def loss(p, x, y):
            h = jnp.tanh(norm(p[1], linear(p[0], x)))
            return ((linear(p[2], h) - y) ** 2).mean()
    elif work.kind == "lenet":
        params = [
            normal(6, 1, 5, 5),
            jnp.zeros(6),
            normal(16, 6, 5, 5),
            jnp.zeros(16),
            linear_init(256, 120),
            norm_init(120),
            linear_init(120, 84),
            norm_init(84),
            linear_init(84, 10),
        ]

        def conv(x, w, b):
            return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID") + b[None, :, None, None]

        def pool(x):
            return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

        def loss(p, x, y):
            h = pool(jnp.tanh(conv(x, p[0], p[1])))
            h = pool(jnp.tanh(conv(h, p[2], p[3]))).reshape(x.shape[0], -1)
            h = norm(p[5], jnp.tanh(linear(p[4], h)))
            h = norm(p[7], jnp.tanh(linear(p[6], h)))
            return cross_entropy(linear(p[8], h), y)
    elif work.kind == "lnrnn":
        params = [normal(28, 128), normal(128, 128), norm_init(128), linear_init(128, 10)]

        def loss(p, x, y):
            def cell(h, xt):
                return jnp.tanh(norm(p[2], xt + h @ p[1])), None

            h, _ = jax.lax.scan(cell, jnp.zeros((x.shape[1], 128)), x @ p[0])
            return cross_entropy(linear(p[3], h), y)
    elif work.kind == "mingru":
        params = [linear_init(28, 128), linear_init(28, 128), linear_init(128, 10)]

        def loss(p, x, y):
            def cell(h, step):
                return step[0] * h + step[1], None

            z = jax.nn.sigmoid(linear(p[0], x))
            h, _ = jax.lax.scan(cell, jnp.zeros((x.shape[1], 128)), (1 - z, z * linear(p[1], x)))
            return cross_entropy(linear(p[2], h), y)
    elif work.kind == "gpt":
        blocks = [
            {"ln1": norm_init(128), "qkv": linear_init(128, 384), "out": linear_init(128, 128),
             "ln2": norm_init(128), "up": linear_init(128, 512), "down": linear_init(512, 128)}
            for _ in range(4)
        ]  # fmt: skip
        words, positions = normal(96, 128, scale=1.0), normal(128, 128, scale=0.02)
        params = [words, positions, blocks, norm_init(128), linear_init(128, 96)]

        def loss(p, x, y):
            h = p[0][x] + p[1]
            for block in p[2]:
                heads = linear(block["qkv"], norm(block["ln1"], h)).reshape(*h.shape[:2], 3, 4, 32)
                attended = jax.nn.dot_product_attention(*(heads[:, :, k] for k in range(3)), is_causal=True)
                h = h + linear(block["out"], attended.reshape(h.shape))
                up = jax.nn.gelu(linear(block["up"], norm(block["ln2"], h)), approximate=False)
                h = h + linear(block["down"], up)
            return cross_entropy(linear(p[4], norm(p[3], h)), y)
    else:
        params = [
            normal(20000, 100, scale=1.0),
            linear_init(100, 4 * hidden),
            normal(hidden, 4 * hidden),
            norm_init(4 * hidden),
            norm_init(4 * hidden),
            norm_init(hidden),
            linear_init(hidden, 1),
        ]

        def loss(p, x, y):
            def cell(state, xt):
                h, c = state
                i, f, g, o = jnp.split(xt + norm(p[4], h @ p[2]), 4, 1)
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                return (jax.nn.sigmoid(o) * jnp.tanh(norm(p[5], c)), c), None

            zero = jnp.zeros((x.shape[1], hidden))
            (h, _), _ = jax.lax.scan(cell, (zero, zero), norm(p[3], linear(p[1], p[0][x])))
            return optax.sigmoid_binary_cross_entropy(linear(p[6], h)[:, 0], y).mean()

    optimizer = optax.adam(1e-3)

    def update(params, state, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    update = jax.jit(update, donate_argnums=(0, 1))
    held = [params, optimizer.init(params)]

    def step():
        held[0], held[1], value = update(*held, x, y)
        return value

    return step


def gemm_step(work, threads):
    """Return a function that runs only the matrix products of the step, in NumPy: not a peer but a yardstick."""
    rng, batch, hidden = np.random.default_rng(0), work.batch, work.hidden

    def product(m, k, n):
        a, b = rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)
        return a, b, np.empty((m, n), np.float32)

    if work.kind.startswith("mlp"):
        sizes = [(784, hidden), (hidden, hidden), (hidden, 10)]
        calls = (
            [product(batch, i, o) for i, o in sizes]
            + [product(i, batch, o) for i, o in sizes]
            + [product(batch, o, i) for i, o in sizes[1:]]
        )
    elif work.kind == "lnrnn":
        calls = (
            [product(28 * batch, 28, 128)]
            + [product(batch, 128, 128)] * 56
            + [product(128, 28 * batch, 128), product(28, 28 * batch, 128)]
        )
    elif work.kind == "lnlstm":
        gates = 4 * hidden
        calls = (
            [product(80 * batch, 100, gates)]
            + [product(batch, hidden, gates)] * 80
            + [product(batch, gates, hidden)] * 80
            + [product(hidden, 80 * batch, gates), product(100, 80 * batch, gates), product(80 * batch, gates, 100)]
        )
    else:
        raise Unavailable(f"the matrix products of {work.kind} are not defined")

    def step():
        for a, b, out in calls:
            np.matmul(a, b, out=out)

    return step
