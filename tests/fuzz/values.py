"""Expressions for arguments: plausible ones, by the name of the parameter, and hostile ones."""

import functools
import re

# Nearly every length is 3, so that most things fit each other.
SHAPES = "(3,) (3, 3) (2, 3) (2, 3) (3, 3) (2, 3, 3) (2, 3, 3, 3) () (1, 3) (0, 3) (3, 0) (40, 3) (300, 70) (70000,) (1500, 700)".split(
    " ("
)
SHAPES = [shape if shape.startswith("(") else f"({shape}" for shape in SHAPES]
FLOATS = "0.1 0.5 1.0 2 1e-5 0.9".split()
SIZES = "3 3 3 1 2 (3, 3)".split(" ", 5)
CALLABLES = [
    "lambda *a: a[0]", "lambda *a: (a[0] * a[0]).sum()", "lambda *a: a[-1] * 2", "mg.exp", "lambda *a: None", "lambda *a: list(a)",
    "lambda *a: a[0].sum()", "lambda *a: VARIABLE", "lambda *a: VARIABLE.set_(mg.zeros(0)) and None",
]  # fmt: skip
MODULES = [
    "nn.Linear(3, 3)", "nn.ReLU()", "nn.Sequential(nn.Linear(3, 3), nn.Tanh())", "nn.LayerNorm(3)", "nn.BatchNorm1d(3)", "nn.Conv2d(3, 3, 3)",
    "nn.LSTM(3, 3)", "nn.GRU(3, 3)", "nn.GRUCell(3, 3)", "nn.Embedding(3, 3)", "nn.Dropout()", "Net()", "nn.RNN(3, 3, norm='layer')",
]  # fmt: skip
LAYOUTS = [
    "{}", "{}", "{}", "{}.T", "{}[::-1]", "mg.flip({})", "{}[..., ::2]", "mg.broadcast_to({}, (2, 3, 3))", "{}.detach()",
    "mg.from_dlpack({})", "mg.asarray({}.numpy())", "Sub({})", "{}.astype('float64')", "{}.requires_grad_()", "nn.Parameter({})", "{}[None, :, :1]",
]  # fmt: skip

# (pattern of the parameter's name, expressions; a word in capitals names a method of Values)
PLAUSIBLE = [
    (r"axis|axes|dim|start_dim|end_dim|destination|argnums|dims", "-1 0 1 None (0,1) (-1,) 0 -1".split()),
    (r"shape|normalized_shape|.*_shape|repetitions|output_size", ["(2, 3)", "3", "(3,)", "(3, 3)", "(-1,)", "(2, 3, 3)", "()"]),
    (r"indices|labels|key", ["INTS", "INTS", "1", "[0, 1]", "slice(1, None)", "(0, slice(None, None, -1))", "...", "None"]),
    (r"dtype", ["None", "mg.float32", "'float64'", "mg.int64", "mg.bool", "'int32'"]),
    (r"device", ["None", "'cpu'"]),
    (r"reduction", ["'mean'", "'sum'", "'none'"]),
    (r"mode", ["'fan_in'", "'fan_out'", "True", "'min'"]),
    (r"op|nonlinearity", ["'relu'", "'tanh'"]),
    (r"norm|norm_type", ["None", "'layer'", "2.0"]),
    (r"params|parameters", ["[TENSOR]", "MODULE.parameters()", "[nn.Parameter(mg.ones((3, 3)))]", "[{'params': [TENSOR]}]"]),
    (r"tensors|arrays|operands|xs|sequences|samples|inputs|tensors_.*", ["[TENSOR, TENSOR]", "[TENSOR]", "(TENSOR, TENSOR)", "TENSOR"]),
    (r"modules|module|model|layer|obj|names", ["MODULE"]),
    (r"bn", ["nn.BatchNorm1d(3)"]),
    (r"optimizer", ["optim.SGD(MODULE.parameters())", "optim.Adam([TENSOR])"]),
    (r"state|state_dict|parts|metadata", ["MODULE.state_dict()", "mg.random.get_state()", "{'a': TENSOR}"]),
    (r"dataset", ["data.ArrayDataset(np.ones((5, 3)), np.arange(5))", "[1, 2, 3]", "[TENSOR, TENSOR]"]),
    (r"path", ["'f0'", "'f1'", "'f2'"]),
    (r"folder", ["'.'"]),
    (r"f|hook|collate|fn|function|lr_lambda|.*activation|activation", CALLABLES),
    (r"subscripts", ["'ij,jk->ik'", "'ij->ji'", "'ij,ij->'", "'...j->...'", "'ii'"]),
    (r"split", ["'train'", "'test'"]),
    (r"texts|words|text", ["['a b', 'b c d']", "'a b'"]),
    (r"history", ["{'loss': [1.0, 2.0]}"]),
    (r"vocabulary", ["{'a': 0, 'b': 1}"]),
    (r"indices_or_sections|sections|repeats|shift|k|correction|num_layers|groups|num_groups", ["1", "3", "0", "[1]"]),
    (r"betas|steps_per_epoch|milestones", ["(0.9, 0.99)", "[1, 2]"]),
    (r"requires_grad|keepdims|copy|bias|affine|retain_graph|create_graph|descending|stable|.*first|on|training", ["True", "False"]),
    (r"(num|in|out|input|hidden|embedding|kernel|batch|max)_.*|n|num|count|padding|stride|dilation|maxlen|n_rows|n_cols|T_max|step_size", SIZES),
    (r"padding_idx|ignore_index|stop|step|start|high|low|value|seed|memo|index|protocol", ["1", "2", "3", "0"]),
    (r"pad_width", ["1", "(1, 2)", "((1, 1), (0, 2))"]),
]  # fmt: skip
BY_ANNOTATION = [(r"bool", ["True", "False"]), (r"^int", SIZES), (r"^float", FLOATS), (r"^str", ["'a'", "'mean'"]), (r"Callable", CALLABLES),
                 (r"Module", ["MODULE"])]  # fmt: skip

SCALARS = """None True False 0 -1 -0.0 float('nan') float('inf') -float('inf') 1e308 1e-320 2**31 -2**31 2**32 2**62 2**63-1 2**63 -2**63 -2**63-1
10**30 10**400 1j '' 'a' '\\ud800' 'mean' b'ab' bytearray(8) {} {'a':1} [] () [[]] [[],[]] [1,[2]] [[1.0],[1.0,2.0]] [None] ['a'] set() ... object()
object int len NotImplemented slice(None) slice(2**63) slice(None,None,-1) slice(None,None,0) slice(3,-9**30,-2) range(3) range(10**5) [0]*9 (1,)*9 (2**31,2**31) (2**62,4)
(0,2**62) (2**40,0,2**40) (-1,-1) (0,-1) (65536,65536) [2**63] [-2**63] [float('nan')] (i*1.0for-i-in-(1,2)) iter(()) circular() nested(7) nested(40) nested(3000) memoryview(b'abcdefgh')
np.float32(1) np.float64('nan') np.int64(2) np.uint64(2**63) np.bool_(True) np.str_('a') np.datetime64('2020') np.void(b'ab') np.longdouble(1) np.nan mg.float32 mg.Tensor
mg.Tensor.__new__(mg.Tensor) Sub.__new__(Sub) nn.Parameter.__new__(nn.Parameter) mg.exp nn.Linear nn.Module.__new__(nn.Module)""".split()
SCALARS = [text.replace("-i-in-", " i in ").replace("1.0for", "1.0 for") for text in SCALARS]
DTYPES = "? b B h H i I l L q Q e f d g F D G O S3 U3 M8[s] m8[s] V4 >f4 >f8 >i8 >i4 f4,i4".split()
ARRAYS = [
    *(f"np.zeros((2, 3), {dtype!r})" for dtype in DTYPES), "np.ones((2, 6))[:, ::-2]", "np.ones((6, 3))[::-2]",
    "np.broadcast_to(np.float32(1), (2, 3))", "np.broadcast_to(np.ones((1, 3)), (2, 3))", "np.asfortranarray(np.ones((2, 3)))", "np.ones(())",
    "np.ones((0, 3))", "np.ones((3, 0), 'f')", "np.ones((1,) * 9)", "np.ones((1,) * 32)", "np.matrix([[1.0, 2, 3]])",
    "np.ma.masked_array(np.ones(3), [0, 1, 0])", "np.frombuffer(b'abcdefghi', 'u1')[1:].view('f4')", "np.frombuffer(b'a' * 13, 'u1')[1:].view('f4')",
    "np.array([[1], None], object)", "np.array([TENSOR, 1], object)", "np.zeros(3, [('a', 'f4'), ('b', 'i8')])['a']", "np.zeros(9, 'f')[::0 or 4]",
    "np.lib.stride_tricks.as_strided(np.zeros(1, 'f'), (2, 3), (0, 0))", "np.lib.stride_tricks.as_strided(np.zeros(64, 'f'), (2**62,), (0,))",
    "np.array([0, -1, 2**62])", "np.array([-2**63])", "np.random.default_rng(0).random((3, 3), 'f')", "TENSOR.numpy()", "memoryview(TENSOR.numpy())",
    "TENSOR.__dlpack__()", "Twice(TENSOR)", "Twice(np.ones((2, 3), 'f'))",
]  # fmt: skip
BASES = ["object", "object", "int, 2", "float, 1.5", "str, 'a'", "list, [1, 2]", "tuple, (1, 2)", "dict, {'a': 1}", "mg.Tensor, TENSOR", "np.ndarray, (2, 3), float, bytes(48)",
         "Net", "list, [TENSOR, TENSOR]"]  # fmt: skip
METHODS = """__index__ __index__ __int__ __float__ __len__ __iter__ __next__ __array__ __bool__ __getitem__ __eq__ __hash__ __repr__ __str__ __call__ __dlpack__
__dlpack_device__ __array_interface__ __array_struct__ __radd__ __rmul__ __lt__ __contains__ __getattr__ __del__ __fspath__ keys items shape dtype __add__ __mul__
__iadd__ __deepcopy__ __reduce__ __enter__ __exit__ __complex__ __buffer__ forward state_dict parameters detach backward step""".split()
RESULTS = "1 1 0 -1 2**31 2**63 None 'a' 1.5 True TENSOR [TENSOR] (1,0) iter([1,2]) np.ones((2,3)) fail() fail(ValueError) fail(StopIteration) 10**9 [] HOSTILE".split()
ACTIONS = [
    "mg.empty_cache()", "gc.collect()", "TENSOR.set_(TENSOR)", "TENSOR.set_(mg.zeros((50, 2), dtype='float64'))", "TENSOR.set_(mg.zeros(0))",
    "TENSOR.fill_(2)", "TENSOR.zero_()", "TENSOR.requires_grad_(False)", "TENSOR.requires_grad_()", "TENSOR.sum().backward()", "LIST.clear()",
    "LIST.append(TENSOR)", "globals().pop('VARIABLE', 0)", "mg.manual_seed(0)", "operator.iadd(TENSOR, 1)", "TENSOR.__init__(TENSOR)",
    "mg.set_num_threads(1)", "setattr(TENSOR, 'grad', None)",
]  # fmt: skip


class Values:
    """Chooses expressions by `rng`; refers to what `pool`, a dict of name to object, contains."""

    def __init__(self, rng, pool):
        self.rng, self.pool = rng, pool

    def named(self, kind):
        """Return the name of an object of the pool, or None."""
        found = [name for name, value in self.pool.items() if isinstance(value, kind)]
        return self.rng.choice(found) if found else None

    def fill(self, template):
        """Fill a template with an expression for every word in capitals."""
        return re.sub(
            r"\b(TENSOR|INTS|MODULE|LIST|VARIABLE|HOSTILE)\b", lambda match: getattr(self, match[0])(), template
        )

    def TENSOR(self):
        import minigrad as mg

        name = self.named(mg.Tensor) if self.rng.random() < 0.65 else None
        if name:
            return name
        shape, kind = self.rng.choice(SHAPES), self.rng.random()
        if kind < 0.1:
            return self.INTS()
        if kind < 0.15:
            return f"(mg.random.normal(shape={shape}) > 0)"
        return self.rng.choice(LAYOUTS).format(f"mg.random.normal(shape={shape})")

    def INTS(self):
        dtype = self.rng.choice(["", "", ".astype('int32')"])
        return f"mg.random.randint(0, 3, {self.rng.choice(SHAPES[:9])}){dtype}"

    def MODULE(self):
        from minigrad import nn

        return (self.rng.random() < 0.6 and self.named(nn.Module)) or self.rng.choice(MODULES)

    def LIST(self):
        return self.named((list, dict)) or "[]"

    def VARIABLE(self):
        return self.rng.choice([*self.pool, "v0"])

    def HOSTILE(self):
        """Return a value that no caller should pass."""
        kind = self.rng.random()
        if kind < 0.35:
            return self.rng.choice(SCALARS)
        if kind < 0.55:
            return self.fill(self.rng.choice(ARRAYS))
        if kind < 0.65:
            return self.rng.choice(["[{}, {}]", "({}, {})", "[{}] * 3", "iter([{}])", "{{'a': {}}}"]).format(
                self.HOSTILE(), self.any()
            )
        if kind < 0.75:
            return self.any()
        methods = ", ".join(
            f"{m}=lambda: {self.reaction()}"
            for m in dict.fromkeys(self.rng.choices(METHODS, k=self.rng.choice([1, 1, 2])))
        )
        return f"hostile({self.fill(self.rng.choice(BASES))}, {methods})"

    def reaction(self):
        """Return the body of a method of a hostile object."""
        result = self.fill(self.rng.choice(RESULTS))
        if self.rng.random() < 0.5:
            return result
        return f"({self.fill(self.rng.choice(ACTIONS))}, {result})[1]"

    def any(self):
        """Return an object of the pool, or another valid value."""
        return (
            self.fill(self.rng.choice(["VARIABLE", "TENSOR", "MODULE", "INTS", *CALLABLES]))
            if self.pool
            else self.TENSOR()
        )

    def plausible(self, name, annotation=""):
        """Return an expression for a parameter."""
        return self.fill(self.rng.choice(expressions(name, annotation)))


@functools.cache
def expressions(name, annotation):
    """Return a plausible value for a parameter."""
    for pattern, found in PLAUSIBLE:
        if re.fullmatch(pattern, name):
            return found
    return next((found for pattern, found in BY_ANNOTATION if re.search(pattern, annotation)), ["TENSOR"])
