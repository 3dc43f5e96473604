"""The names that programs call: every public name, and every member of the objects created so far."""

import inspect
import re

import minigrad as mg
from fuzz.values import Values
from minigrad import data, nn, optim, viz
from minigrad.nn import functional as F

# Name as a program writes it: why it is left out.
EXCLUDED = {
    "mg.show_config": "prints",
    "nn.summary": "is called, but as a method of nothing",
    "mg.Function": "is subclassed by `custom`",
    "mg.cuda.*": "needs a GPU, and has a suite of its own",
    "mg.empty": "returns memory that was not written: `line` writes it at once",
    "mg.empty_like": "the same",
    "mg.set_num_threads": "is called with what a machine can bear",
    "viz.explore": "takes a second a page",
    "viz.curves": "imports Matplotlib, which takes seconds",
    "data.character_names": "reads all of Unicode",
    "data.digits": "reads scikit-learn's files, which takes a second",
}
SPACES = {
    "mg": (mg, None), "mg.random": (mg.random, mg.random.__all__), "F": (F, F.__all__), "nn": (nn, None), "nn.init": (nn.init, None),
    "nn.utils": (nn.utils, None), "optim": (optim, None), "optim.lr_scheduler": (optim.lr_scheduler, None), "data": (data, None),
    "viz": (viz, None),
}  # fmt: skip
# Python's own members, which do not test minigrad.
PYTHONS = {*dir(object), "__dict__", "__weakref__", "__module__", "__annotations__", "__abstractmethods__", "__dataclass_fields__"} - {
    "__init__", "__repr__", "__str__", "__eq__", "__lt__", "__hash__", "__reduce__", "__getstate__", "__format__",
}  # fmt: skip
BINARY = "add sub mul truediv floordiv mod pow matmul and_ or_ xor eq ne lt le gt ge divmod_ getitem contains".split()
IN_PLACE = "iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor".split()
UNARY = "neg pos abs invert index not_ truth".split()
BUILTINS = "float int bool complex len list iter next repr str hash round sum reversed format memoryview bytes set tuple np.asarray np.array type".split()
COPIES = ["copy({})", "deepcopy({})", "pickle.loads(pickle.dumps({}))", "pickle.loads(pickle.dumps({}, 2))"]


def public():
    """Return {name as a program writes it: object} of everything callable in minigrad's namespaces."""
    found = {}
    for space, (module, names) in SPACES.items():
        for name in names or [n for n in dir(module) if not n.startswith("_")]:
            value = getattr(module, name)
            home = getattr(value, "__module__", None) or ""
            mine = names or "." not in space or home == module.__name__
            if mine and callable(value) and home.startswith("minigrad") and f"{space}.{name}" not in EXCLUDED:
                found[f"{space}.{name}"] = value
    return found


def parameters(function):
    """Return [(name, annotation, required, form)], or one argument if there is no signature."""
    try:
        found = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return [("x", "", True, "positional")]
    kinds = {
        inspect.Parameter.KEYWORD_ONLY: "keyword",
        inspect.Parameter.VAR_POSITIONAL: "many",
        inspect.Parameter.VAR_KEYWORD: "no",
    }
    return [(p.name, str(p.annotation), p.default is p.empty, kinds.get(p.kind, "positional")) for p in found]


class Steps(Values):
    """Chooses the lines of a program."""

    def __init__(self, rng, pool, targets, alone=False):
        super().__init__(rng, pool)
        self.targets, self.alone, self.count, self.wrong = targets, alone, 0, None

    def next(self):
        """Return the next line, mostly ``v7 = mg.something(...)``."""
        self.count += 1
        # At most one argument of a line is wrong, and usually none: a call that is rejected immediately tests little.
        self.wrong = self.rng.choice([0, 0, 1, 2]) if self.rng.random() < 0.4 else None
        if len(self.pool) > 12:
            return f"del {self.rng.choice(list(self.pool))}"
        kinds = {self.function: 45, self.member: 22, self.operator: 15, self.object: 6, self.other: 12}
        if self.alone or not self.pool:
            kinds = {self.function: 4, self.object: 1}
        line = self.rng.choices(list(kinds), kinds.values())[0]()
        if line.startswith(("del ", "with ", "setattr")) or re.match(r"v\d+[.\[]", line):
            return line
        target = f"v{self.count}"
        if self.rng.random() < 0.03:
            return f"with {self.rng.choice(['mg.no_grad()', 'mg.enable_grad()', 'mg.detect_anomaly()', 'mg.profile()', 'viz.record()'])}: {target} = {line}"
        return f"{target} = {line}"

    def argument(self, name, annotation=""):
        if self.wrong is not None:
            self.wrong -= 1
            if self.wrong < 0:
                self.wrong = None
                return self.HOSTILE()
        return self.plausible(name, annotation)

    def arguments(self, function, skip=0):
        """Return the source of an argument list."""
        given = []
        for name, annotation, required, form in parameters(function)[skip:]:
            if form == "no" or (form != "many" and not required and self.rng.random() < 0.7):
                if form == "positional":
                    skip = -1  # later arguments must be keywords
                continue
            for _ in range(self.rng.choice([1, 2]) if form == "many" else 1):
                value = self.argument(name, annotation)
                given.append(value if form == "many" or (form == "positional" and skip >= 0) else f"{name}={value}")
        if self.wrong is not None and self.rng.random() < 0.1:
            given.append(
                self.HOSTILE()
                if skip >= 0 and not any("=" in g.split("(")[0] for g in given)
                else f"nothing={self.HOSTILE()}"
            )
        return ", ".join(given)

    def function(self):
        name = self.rng.choice(list(self.targets))
        if self.rng.random() < 0.03:
            return f"mg.empty({self.argument('shape')}).zero_()"
        return f"{name}({self.arguments(self.targets[name])})"

    def member(self):
        """Use a method or attribute of an object of the pool, or of a class with any value as self."""
        name = self.rng.choice(list(self.pool))
        kind = type(self.pool[name])
        if kind.__module__ == "numpy":
            return f"np.asarray({name})"  # leaks tensors given as `out`
        members = [n for n in dir(kind) if n not in PYTHONS and (not n.startswith("_") or n.startswith("__"))]
        if not members:
            return f"repr({name})"
        chosen = self.rng.choice(members)
        if chosen == "__enter__" and self.rng.random() < 0.9:
            return f"repr({name})"  # a mode that stays on ends the process: see `Runner.entered`
        if chosen == "new_empty":  # memory that was not written, as that of mg.empty
            return f"{name}.new_empty({self.argument('shape')}).zero_()"
        function = inspect.getattr_static(kind, chosen, None)
        if callable(getattr(kind, chosen, None)):
            bound = getattr(kind, chosen)
            skip = 0 if isinstance(function, (classmethod, staticmethod)) else 1
            if self.rng.random() < 0.04:
                return f"type({name}).{chosen}({self.HOSTILE()}, {self.arguments(bound, skip)})"
            return f"{name}.{chosen}({self.arguments(bound, skip)})"
        if self.rng.random() < 0.25:
            return self.rng.choice([f"{name}.{chosen} = {self.argument(chosen)}", f"del {name}.{chosen}"])
        return f"{name}.{chosen}"

    def operator(self):
        chosen = self.rng.choice(BINARY * 2 + IN_PLACE * 2 + UNARY + BUILTINS + ["setitem"] * 6 + ["call"] * 8)
        x, y = self.argument("x"), self.argument("indices" if chosen == "getitem" else "y")
        if chosen == "setitem":
            return f"operator.setitem({x}, {self.argument('indices')}, {y})"
        if chosen == "call":
            return f"{self.MODULE()}({x})"
        if chosen == "divmod_":
            return f"divmod({x}, {y})"
        if chosen in BINARY or chosen in IN_PLACE:
            return f"operator.{chosen}({x}, {y})"
        return f"operator.{chosen}({x})" if chosen in UNARY else f"{chosen}({x})"

    def object(self):
        """Create an object to work with."""
        return self.rng.choice([self.TENSOR, self.MODULE, lambda: f"[{self.TENSOR()}, {self.TENSOR()}]", self.INTS])()

    def other(self):
        """Return a line that is not the call of a single function."""
        x, name = self.TENSOR(), self.VARIABLE()
        return self.fill(self.rng.choice([
            f"{x}.sum().backward()", f"{x}.sum().backward(retain_graph=True)", f"({x} * {x}).sum().backward(create_graph=True)",
            f"mg.grad({x}.sum(), {x})", "MODULE(TENSOR).sum().backward()", f"{x}.register_hook({self.argument('hook')})",
            f"del {name}", f"del {name}", "mg.empty_cache()", "gc.collect()", f"{x}.set_({self.argument('x')})",
            self.rng.choice(COPIES).format(name), self.rng.choice(COPIES).format(name), "MODULE.load_state_dict(MODULE.state_dict())",
            "mg.save(MODULE, 'f0')", "spoil('f0', 1)", f"spoil('f{self.rng.choice('012')}', {self.count})",
            "mg.set_num_threads(2)", f"mg.set_num_threads({self.rng.choice(['1', '3', '0', '-1', 'None', '2**31', '2**70'])})",
            f"together(lambda: {self.operator()}, lambda: {self.function()})", f"together(lambda: {self.operator()}, lambda: {self.operator()})",
            f"together(lambda: {x}.sum().backward(), lambda: {self.operator()})",
            f"together(lambda: {x}.set_(mg.zeros(3)), lambda: {self.function()}, lambda: {x}.set_(mg.ones((1500, 700))))",
            f"collecting({self.rng.randint(0, 30)}, lambda: {x}.set_(mg.zeros(0)), lambda: {self.operator()})",
            f"collecting({self.rng.randint(0, 30)}, lambda: {x}.set_(mg.zeros(0)), lambda: {x}.sum().backward())",
            f"custom({self.rng.choice(CALLS)}, {self.rng.choice(CALLS)}).apply({x}, {self.argument('y')})",
            f"next(iter(data.DataLoader([TENSOR, TENSOR, TENSOR], prefetch={self.rng.choice('012')})))",
            f"{name}.step()", f"{name}.zero_grad()",
        ]))  # fmt: skip


CALLS = [
    "lambda ctx, *a: a[0]", "lambda ctx, *a: a[0] * 2", "lambda ctx, *a: (a[0] + 1, a[0] * 2)", "lambda ctx, *a: None", "lambda ctx, *a: fail()",
    "lambda ctx, *a: ctx.save_for_backward(*a) or mg.exp(a[0])", "lambda ctx, *a: a[0].sum()", "lambda ctx, *a: (None, a[0])",
    "lambda ctx, *a: a[0].set_(mg.zeros(2))", "lambda ctx, *a: a[0].zero_()", "lambda ctx, *a: VARIABLE",
    "lambda ctx, *a: VARIABLE.set_(mg.zeros(0)) and a[0]",
]  # fmt: skip
