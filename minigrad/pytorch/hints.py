"""Hints for PyTorch's names that do not work here, by module: what to write instead."""

from minigrad.pytorch.layer_hints import FUNCTIONAL, LAYERS, NEW

DTYPES_HERE = "dtypes are float32, float64, int32, int64, uint8 and bool here: "
# Methods of a Keras model. A program for PyTorch may define them itself, so its translation does not report them.
MODELS = {
    "fit": "is `mg.train.fit(model, loader, loss, optimizer, epochs)` here",
    "evaluate": "is `mg.train.evaluate(model, loader, loss)` here",
    "predict": "is `mg.train.predict(model, loader)` here, or `model(mg.tensor(x))` after `model.eval()`, within "
    "`mg.no_grad()`",
    "summary": "is `nn.summary(model, shape)` here, with the shape of an input",
    **dict.fromkeys(("save", "save_weights"), "is `mg.save(model.state_dict(), path)` here"),
    "load_weights": "is `model.load_state_dict(mg.load(path))` here",
    "get_weights": "is `model.state_dict()` here, or `mg.convert.to_keras(model)` for Keras",
    "set_weights": "is `model.load_state_dict(state)` here; `mg.convert.keras(weights, model)` makes one",
    "count_params": "is `sum(p.size for p in model.parameters())` here",
}
# Names of NumPy, Keras and JAX in modules.
FOREIGN = {
    "minigrad": {
        "keras": "is not available: `nn` has layers, and docs/reference/tutorials.md says what Keras's calls are here",
        "array": "is `mg.tensor(data)` here, or `mg.asarray(data)`, which shares the memory",
        "gradient": "of a function is `mg.grad(y, x)` of its result here",
    },
    "minigrad.random": {
        **dict.fromkeys(("rand", "random", "random_sample"), "is `mg.random.uniform(0, 1, shape)` here"),
        **dict.fromkeys(("randn", "standard_normal"), "is `mg.random.normal(0, 1, shape)` here"),
        **dict.fromkeys(
            ("seed", "default_rng", "RandomState", "Generator", "PRNGKey", "key"),
            "is not available: `mg.manual_seed(value)` seeds all random numbers",
        ),
        "integers": "is `mg.random.randint(low, high, shape)` here",
        "shuffle": "is `x[mg.random.permutation(len(x))]` here",
        "choice": "is `x[mg.random.randint(0, len(x), shape)]` here, or `mg.multinomial(weights, n)`",
    },
    "minigrad.train": {
        "EarlyStopping": "is `mg.train.fit(..., stop=epochs)` here, which also returns to the best epoch",
        "ModelCheckpoint": "is `mg.train.fit(..., checkpoint=path)` here, which also resumes",
    },
}
POINTERS = {
    "Tensor": {
        "repeat": "is `mg.tile(x, repetitions)` here; `mg.repeat(x, n)` repeats each element, as in NumPy",
        **dict.fromkeys(("half", "bfloat16"), DTYPES_HERE + 'write `x.astype("float32")`'),
        **dict.fromkeys(("short", "char"), DTYPES_HERE + 'write `x.astype("int32")`'),
        "byte": 'is `x.astype("uint8")` here, or `x.astype("bool")` for a mask',
        "values": "`x.max(axis)` gives the values and `x.argmax(axis)` the indices; PyTorch's x.max(dim) gives both",
        "indices": "`x.max(axis)` gives the values and `x.argmax(axis)` the indices; PyTorch's x.max(dim) gives both",
        "grad_fn": "the history of a tensor is a table here: `x.tape()`; `x.is_leaf` says whether it has one",
        "retains_grad": "is always false here, unless you call `x.retain_grad()`",
        **{
            f"{name}_": f"{NEW}`x.{name}()`"
            for name in "detach exp log sqrt abs round floor ceil tanh relu sigmoid squeeze softmax acos acosh asin "
            "asinh atan atanh cos cosh erf expm1 log10 log1p log2 rsqrt sign sin sinh square tan tril triu".split()
        },
        "t_": NEW + "`x.T`",
        "unsqueeze_": NEW + "`x.expand_dims(axis)`",
        "transpose_": NEW + "`x.permute_dims(axes)`",
        "resize_": NEW + "`x.reshape(shape)`",
        "random_": "is `x.copy_(mg.random.randint(low, high, x.shape))` here",
        "exponential_": "is `x.copy_(-mg.log(mg.random.uniform(shape=x.shape)))` here",
        "index_fill": "is not available: `y = x.copy()`, then y[index] = value",
        "index_fill_": "is an assignment here: `x[index] = value`, or `x[:, index] = value`",
        "index_copy_": "is an assignment here: `x[index] = source`, or `x[:, index] = source`",
        **dict.fromkeys(("index_put_", "put_"), "is an assignment here: `x[index] = value`"),
        **dict.fromkeys(
            "greater greater_equal less less_equal not_equal".split(), "is an operator here, as in `x > y`"
        ),
        "fill_diagonal_": "is an assignment here: `x[mg.arange(n), mg.arange(n)] = value`",
        "masked_scatter_": "is an assignment here: `x[mask] = source`",
        "fmod": "is `x % y` here, whose result has the sign of y",
        "frac": "is `x - x.trunc()` here",
        **dict.fromkeys(("addmm", "addmv", "baddbmm"), "is `x + a @ b` here"),
        "addcmul": "is `x + value * a * b` here",
        "addcdiv": "is `x + value * a / b` here",
        "logcumsumexp": "is not available; for small x: `x.exp().cumulative_sum(axis).log()`",
        "cummax": "is not available: `x.max(axis)` of each part `x[:n]`",
        "cummin": "is not available: `x.min(axis)` of each part `x[:n]`",
        "cross": "is `mg.linalg.cross(a, b)` here",
        "inverse": "is `mg.linalg.inv(x)` here",
        "det": "is not available: `np.linalg.det(x.numpy())`, without a gradient",
        "svd": "is not available: `np.linalg.svd(x.numpy())`, without a gradient",
        "median": "is `mg.median(x, axis)` here, the mean of the two in the middle; `x.argsort(axis)` gives indices",
        "mode": "is not available: `np.bincount(x.numpy()).argmax()`",
        "kthvalue": "is an element of `x.sort(axis)` here",
        "bincount": "is `nn.functional.one_hot(x, n).sum(0)` here",
        "histc": "is `np.histogram(x.numpy(), bins)` here",
        "renorm": "is `x / mg.maximum(1, x.norm(dim=1, keepdim=True) / most)` here",
        "rot90": "is `x.mT.flip(-2)` here",
        "fliplr": "is `x.flip(1)` here",
        "flipud": "is `x.flip(0)` here",
        "stride": "is `x.strides` here, in bytes",
        "storage": "is not available: `x.numpy()` shares the memory of a tensor on the CPU",
        "get_device": "is `x.device` here, a string",
        "is_sparse": "is false here: all tensors are dense; `x.shape` and `x.strides` describe the layout",
        "to_sparse": "is not available: all tensors are dense, and `x[mask]` picks elements",
        "is_complex": "is false here: `x.dtype` is a dtype of real numbers",
        "pin_memory": 'is not needed here: `x.to("cuda")`',
        "share_memory_": "is not available: pass `x.numpy()` to another process, or save with `mg.save`",
        **dict.fromkeys(("apply_", "map_"), "is not available: `mg.tensor([f(v) for v in x.reshape(-1).tolist()])`"),
        "unfold": "is not available: index with windows, as `x[mg.arange(n)[:, None] + mg.arange(size)]`",
        "hsplit": "is `x.split(n, axis=1)` here",
        "vsplit": "is `x.split(n, axis=0)` here",
        **dict.fromkeys(("true_divide", "divide"), "is `x / y` here"),
        "floor_divide": "is `x // y` here",
        "subtract": "is `x - y` here",
        "multiply": "is `x * y` here",
        "negative": "is `-x` here",
        "xlogy": "is `mg.where(x == 0, 0, x * mg.log(y))` here",
        "heaviside": "is `(x > 0).astype(x.dtype)` here",
        "vdot": "is `mg.vecdot(x, y)` here",
    },
    "minigrad": {
        **dict.fromkeys(("half", "float16", "bfloat16"), DTYPES_HERE + "write `mg.float32`"),
        **dict.fromkeys(("int8", "int16", "short"), DTYPES_HERE + "write `mg.int32`"),
        "complex64": DTYPES_HERE + "write the real and the imaginary part as two tensors of `mg.float32`",
        "FloatTensor": 'is `mg.tensor(data, dtype="float32")` here',
        "DoubleTensor": 'is `mg.tensor(data, dtype="float64")` here',
        "LongTensor": 'is `mg.tensor(data, dtype="int64")` here',
        "IntTensor": 'is `mg.tensor(data, dtype="int32")` here',
        "BoolTensor": 'is `mg.tensor(data, dtype="bool")` here',
        "ByteTensor": 'is `mg.tensor(data, dtype="uint8")` here, or dtype="bool" for a mask',
        "Size": "a shape is a tuple here: `x.shape`",
        "dtype": "is `mg.DType` here",
        "special": "functions are members of minigrad here, as `mg.erf`",
        **dict.fromkeys(("fft", "stft"), "is not available: np.fft on `x.numpy()`, without a gradient"),
        "sparse": "is not available: all tensors are dense; `nn.Embedding` reads rows of a table",
        "distributions": "is not available: `mg.random.normal(mean, std, shape)` and `mg.multinomial(p, n)` draw; "
        "their densities are `mg.exp(-mg.square((x - mean) / std) / 2) / (std * math.sqrt(2 * math.pi))` and `p[i]`",
        "multiprocessing": "is not available: kernels run in threads, see `mg.set_num_threads`",
        "jit": "is not available, and seldom needed: small operations are cheap; `mg.profile` shows what takes time",
        "compile": "is `mg.capture(step)` here, for whole training steps on the CPU and with other rules; "
        "`mg.profile` shows what takes time",
        "func": "these are members of minigrad here: `mg.grad`, `mg.vjp`, `mg.jvp`, `mg.jacobian`, `mg.hessian`",
        "vmap": "is not available: write the batch as an axis, as in `mg.einsum`, or call `mg.per_sample_grad`",
        **dict.fromkeys(("amp", "autocast"), DTYPES_HERE + "there is no mixed precision; write `mg.float32`"),
        "backends": "is not available: `mg.cuda.is_available()` and `mg.show_config()` describe the machine",
        "hub": "is not available: `mg.load(path)` reads safetensors",
        "version": "is `mg.__version__` here",
        "set_printoptions": "is np.set_printoptions here: tensors print as arrays, `x.numpy()`",
        "use_deterministic_algorithms": "is not needed: with the seed (`mg.manual_seed`) the results are the same",
        "set_default_device": 'is not available: write `x.to("cuda")` and device="cuda"',
        "set_default_tensor_type": "is not available: write dtype and device, as in `mg.zeros(2, dtype=mg.float64)`",
        "seed": "is `mg.manual_seed(value)` here",
        "initial_seed": 'is `mg.random.get_state()["seed"]` here',
        "get_rng_state": "is `mg.random.get_state()` here",
        "set_rng_state": "is `mg.random.set_state(state)` here",
        "Generator": "is not available: `mg.manual_seed(value)` seeds all random numbers",
        "logspace": "is `base ** mg.linspace(start, stop, n)` here",
        "complex": DTYPES_HERE + "write the real and the imaginary part as two tensors, and `mg.sin` and `mg.cos`",
        "cdist": "is `mg.sqrt(mg.square(a[:, None] - b[None]).sum(-1))` here",
        "poisson": "is not available: np.random.poisson on `x.numpy()`",
        "cartesian_prod": 'is `mg.stack(mg.meshgrid(a, b, indexing="ij"), axis=-1)`, reshaped, here',
        "combinations": "is not available: `mg.tensor(list(itertools.combinations(x.tolist(), 2)))`",
        "block_diag": "is `mg.concat` of matrices padded with `mg.pad` here",
        "tril_indices": "is `mg.nonzero(mg.tril(mg.ones((n, n))))` here",
        "triu_indices": "is `mg.nonzero(mg.triu(mg.ones((n, n))))` here",
        "dstack": "is `mg.concat(tensors, axis=2)` here",
        "column_stack": "is `mg.stack(tensors, axis=1)` here, for vectors",
        "take_along_dim": "is `mg.take_along_axis(x, index, axis)` here",
        "atleast_1d": "is `x.reshape(-1)` for a 0-d tensor here",
        "atleast_2d": "is `x.expand_dims(0)` for a vector here",
        "broadcast_tensors": "is `mg.broadcast_arrays(a, b)` here",
        "chain_matmul": "is `a @ b @ c` here",
        "addbmm": "is `x + (a @ b).sum(0)` here",
        "relu_": NEW + "`x.relu()`",
        "dropout": "is `nn.functional.dropout(x, p, training)` here",
        "embedding": "is `nn.functional.embedding(indices, weight)` here",
        "conv2d": "is `nn.functional.conv2d(x, weight)` here",
        "get_num_interop_threads": "is `mg.get_num_threads()` here",
        "set_num_interop_threads": "is `mg.set_num_threads(n)` here",
        "from_file": "is `mg.load(path)` here, or np.memmap with `mg.asarray`",
        "range": "is `mg.arange(start, stop)` here, without the last number",
        "std_mean": "is `mg.std(x, axis, correction=1)` and `mg.mean(x, axis)` here",
        "var_mean": "is `mg.var(x, axis, correction=1)` and `mg.mean(x, axis)` here",
        "aminmax": "is `mg.min(x, axis)` and `mg.max(x, axis)` here",
    },
    "minigrad.linalg": {
        "cond": "is not available: `np.linalg.cond(x.numpy())`, without a gradient",
        **{
            name: f"is not available: `np.linalg.{name}(x.numpy())`, without a gradient"
            for name in "det eig eigh eigvals eigvalsh lstsq matrix_rank pinv qr slogdet svd svdvals".split()
        },
        "vander": "is `x[:, None] ** mg.arange(n)` here",
        "multi_dot": "is `a @ b @ c` here",
    },
    "minigrad.nn.functional": FUNCTIONAL,
    "minigrad.nn": LAYERS,
    "minigrad.nn.Module": {
        "half": DTYPES_HERE + "write `mg.set_float32_matmul_precision(precision)` for faster products",
        "bfloat16": DTYPES_HERE + "write `mg.set_float32_matmul_precision(precision)` for faster products",
        "compile": "is `mg.capture(step)` here, for whole training steps and with other rules",
        "share_memory": "is not available: pass `model.state_dict()` to another process, or save it with `mg.save`",
        "get_submodule": "is `dict(model.named_modules())[path]` here",
        "get_parameter": "is `dict(model.named_parameters())[path]` here",
        "get_buffer": "is `dict(model.named_buffers())[path]` here",
        "set_submodule": "is `setattr(dict(model.named_modules())[path], name, module)` here",
        "get_extra_state": "is not available: a `model.register_buffer(name, tensor)` is part of the state",
        "set_extra_state": "is not available: a `model.register_buffer(name, tensor)` is part of the state",
        "to_empty": "is `model.to(device)` here, which keeps the values",
        "flatten_parameters": "is not needed here: `nn.LSTM` reads its weights where they are; leave the call out",
        "all_weights": "is `list(model.parameters())` here",
        "register_backward_hook": "is `model.register_full_backward_hook(hook)` here",
        "register_full_backward_pre_hook": "is `y.register_hook(hook)` of the output here, in a "
        "`model.register_forward_hook(hook)`",
        "register_state_dict_pre_hook": "is not available: define state_dict in a subclass, around "
        "`model.state_dict()`",
        "register_state_dict_post_hook": "is not available: change what `model.state_dict()` returns",
        "register_load_state_dict_pre_hook": "is not available: change the names before "
        "`model.load_state_dict(state_dict)`",
        "register_load_state_dict_post_hook": "is not available: call it after `model.load_state_dict(state_dict)`",
    },
    "minigrad.cuda": {
        **dict.fromkeys(
            ("manual_seed", "manual_seed_all", "seed", "seed_all"), "is `mg.manual_seed(value)` here, for all devices"
        ),
        **dict.fromkeys(("get_rng_state", "get_rng_state_all"), "is `mg.random.get_state()` here"),
        **dict.fromkeys(("set_rng_state", "set_rng_state_all"), "is `mg.random.set_state(state)` here"),
        "empty_cache": "is `mg.empty_cache()` here",
        **dict.fromkeys(
            ("memory_allocated", "max_memory_allocated", "memory_reserved", "mem_get_info", "memory_summary"),
            "cupy.get_default_memory_pool().used_bytes() counts a GPU's memory here, `mg.memory_allocated()` the CPU's",
        ),
        **dict.fromkeys(
            ("device", "set_device", "current_device"), 'is not available: write `x.to("cuda:1")` and device="cuda:1"'
        ),
        **dict.fromkeys(
            ("Stream", "stream", "current_stream", "Event"),
            "is CuPy's here: cupy.cuda.Stream and cupy.cuda.Event, see `mg.cuda.record_stream`",
        ),
        **dict.fromkeys(("CUDAGraph", "graph", "make_graphed_callables"), "is `mg.capture(step)` here"),
        **dict.fromkeys(
            ("get_device_name", "get_device_properties", "get_device_capability"),
            "`mg.show_config()` names the GPU here",
        ),
        "amp": DTYPES_HERE + 'there is no mixed precision; `mg.set_float32_matmul_precision("high")` allows TF32',
    },
    "minigrad.optim": {
        "Adamax": "is not available: `optim.Adam(params)`",
        "Rprop": "is not available: `optim.RMSprop(params)`",
        "ASGD": "is not available: `optim.SGD(params, lr)`",
        "SparseAdam": "is `optim.Adam(params)` here: all gradients are dense",
    },
    "minigrad.data": {
        "ConcatDataset": "is not available: a `data.Dataset` with __len__ and __getitem__ of the parts",
        "IterableDataset": "is not available: a `data.Dataset` has a length; or iterate over your own batches",
        "RandomSampler": "is `data.DataLoader(dataset, shuffle=True)` here",
        "SequentialSampler": "is `data.DataLoader(dataset)` here",
        "SubsetRandomSampler": "is `data.Subset(dataset, indices)` with shuffle=True here",
        "WeightedRandomSampler": "is `data.Subset(dataset, mg.multinomial(weights, n, True).tolist())` for each epoch",
        "BatchSampler": "is `data.DataLoader(dataset, batch_size=n)` here",
        "DistributedSampler": "is `data.DataLoader(dataset, n, shard=(distributed.rank(), distributed.size()))` here",
        "default_collate": "is `data.collate(samples)` here",
    },
    "minigrad.utils": {
        "tensorboard": "works on numbers: `from tensorboardX import SummaryWriter`; `mg.viz.curves(rows)` draws some",
    },
    "minigrad.utils.checkpoint": {
        "checkpoint": "is `mg.recompute(f)(x)` here, which has no use_reentrant: f may read any tensors",
        "checkpoint_sequential": "is `mg.recompute(block)(x)` here, for each block of the network",
    },
    "minigrad.nn.utils": {
        "clip_grad_norm": "is `nn.utils.clip_grad_norm_(parameters, max_norm)` here",
        "get_total_norm": "is the result of `nn.utils.clip_grad_norm_(parameters, math.inf)` here",
        "clip_grads_with_norm_": "is `nn.utils.clip_grad_norm_(parameters, max_norm)` here, or a product with `x.grad`",
        "parametrizations": "is `nn.utils.weight_norm(module)` or `nn.utils.spectral_norm(module)` here",
        "parametrize": "is `nn.utils.weight_norm(module)` here, or a product in forward",
        "prune": "is not available: multiply with a mask in forward, `x * mask`",
        "skip_init": "is not available: `nn.Linear(n, m)`",
        "fuse_conv_bn_eval": "is `nn.utils.fold_batch_norm(layer, bn)` here",
    },
    "minigrad.nn.utils.rnn": {
        "pack_padded_sequence": "is not needed here: pass lengths, as in `nn.LSTM`(…)(x, lengths=lengths)",
        "pad_packed_sequence": "is not needed here: pass lengths, as in `nn.LSTM`(…)(x, lengths=lengths)",
        "pack_sequence": "is not needed here: `data.collate_padded(samples)` pads, and `nn.LSTM` takes lengths",
        "PackedSequence": "is not needed here: pass lengths, as in `nn.LSTM`(…)(x, lengths=lengths)",
    },
    "minigrad.optim.Optimizer": {
        "register_step_pre_hook": "is not available: call the function before `optimizer.step()`",
        "register_step_post_hook": "is not available: call the function after `optimizer.step()`",
        "register_state_dict_pre_hook": "is not available: call the function before `optimizer.state_dict()`",
        "register_state_dict_post_hook": "is not available: call the function with `optimizer.state_dict()`",
        "register_load_state_dict_pre_hook": "is not available: change state before `optimizer.load_state_dict(state)`",
        "register_load_state_dict_post_hook": "is not available: call the function after `optimizer.load_state_dict()`",
    },
    "minigrad.autograd": {
        "Variable": "is `mg.tensor(data, requires_grad=True)` here",
        "functional": "`mg.jacobian`, `mg.hessian`, `mg.hvp`, `mg.jvp` and `mg.vjp` are members of minigrad here",
        "forward_ad": "is `mg.jvp(f, x, v)` here, which differentiates twice in reverse",
        "profiler": "is `mg.profile` here",
        "set_detect_anomaly": "is a block here: with `mg.detect_anomaly()`",
        "set_grad_enabled": "is `mg.no_grad()` or `mg.enable_grad()` here",
        "gradgradcheck": "is `mg.gradcheck(f, x, order=2)` here",
        "backward": "is `x.backward()` of each tensor here",
    },
}
TENSOR_POINTERS_OF_FUNCTIONS = """
    addcdiv addcmul addmm addmv baddbmm bincount cross cummax cummin fliplr flipud fmod frac heaviside histc
    hsplit index_fill inverse kthvalue logcumsumexp mode renorm rot90 true_divide vdot vsplit xlogy
    det svd is_complex
"""


def _table(text: str) -> dict[str, str]:
    """Return the hints of a text with a line for one or several names; {} is the name."""
    lines = (line.split(": ", 1) for line in text.strip().split("\n"))
    return {name: hint.replace("{}", name) for names, hint in lines for name in names.split()}


BOTH = _table("""
absolute: is `abs(x)` here
arccos arcsin arctan arccosh arcsinh arctanh: has the array API's name here, as `mg.acos(x)`
arctan2: is `mg.atan2(y, x)` here
cholesky: is `mg.linalg.cholesky(x)` here
cov corrcoef: is not available: `np.{}(x.numpy())`, without a gradient
diag_embed: is `x.expand_dims(-1) * mg.eye(n)` here
digamma erfinv lgamma polygamma: is not available: scipy.special on `x.numpy()`, without a gradient
dist: is `(x - y).norm()` here
index_copy index_put masked_scatter select_scatter slice_scatter: is not available: `y = x.copy()`, then y[i] = value
inner: is `x @ y.mT` here
logdet: is not available; for a positive definite x: `2 * mg.log(mg.linalg.cholesky(x).diagonal()).sum()`
nanmean: is `x[~mg.isnan(x)].mean()` here, for all elements together
nansum: is `mg.where(mg.isnan(x), 0, x).sum(axis)` here
pinverse qr lstsq: is not available: np.linalg on `x.numpy()`, without a gradient
scatter_reduce: is `x.scatter_add(axis, index, source)` here, for sums
tensor_split: is `x.split(indices, axis)` here
unique_consecutive: is `x[mg.concat([mg.ones(1, dtype=bool), x[1:] != x[:-1]])]` here, for a vector
""")
POINTERS["Tensor"] |= BOTH
POINTERS["minigrad"] |= BOTH | {name: POINTERS["Tensor"][name] for name in TENSOR_POINTERS_OF_FUNCTIONS.split()}
POINTERS["minigrad"] |= dict.fromkeys(("polar", "view_as_complex", "view_as_real"), POINTERS["minigrad"]["complex"])
POINTERS["minigrad"] |= _table("""
avg_pool1d batch_norm conv1d cosine_similarity ctc_loss kl_div max_pool1d max_pool2d selu: is `nn.functional.{}` here
bucketize: is `mg.searchsorted(boundaries, x)` here
isin: is `(x.expand_dims(-1) == values).any(-1)` here
promote_types: is `mg.result_type(a, b)` here
randint_like: is `mg.randint(low, high, x.shape)` here
scalar_tensor: is `mg.tensor(value)` here
trapezoid trapz: is `((y[1:] + y[:-1]) / 2 * (x[1:] - x[:-1])).sum()` here, for vectors
""")
