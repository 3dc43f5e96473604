"""capture: a run is recorded anew when something else has changed that the function reads."""

import array
import copy
import functools
import gc
import pickle
import sys
import types
import warnings
import weakref
from collections import UserDict, deque, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
from captured import bits, check, normal
from checks import agree, raises

import minigrad as mg
from minigrad import nn

FACTOR = 1.0  # changed by tests, as is this:
OPTIONS = {"factor": 2.0, "nested": [1.0, {"factor": 3.0}]}


@dataclass
class Settings:
    factor: float = 2.0


@dataclass(slots=True)
class Slotted:
    factor: float = 2.0


class Base:
    factor = 2.0

    def __init__(self):
        self.at_construction = FACTOR


class Outer(Base):
    def __init__(self):
        self._hidden, self.inner, self.more = 2.0, Settings(), UserDict(factor=2.0)

    @property
    def hidden(self):
        return self._hidden

    @functools.cached_property
    def cached(self):
        return lambda x: x * self._hidden

    @staticmethod
    def static(x):
        return x * FACTOR

    @classmethod
    def of_class(cls, x):
        return x * cls.factor

    def __call__(self, x):
        return x * self.inner.factor

    def __matmul__(self, x):
        return x * self._hidden

    def method(self, x):
        return self(x) * self.hidden

    def doubled(self, x):
        return x * 2


class Delegate:
    def __init__(self, inner):
        self.wrapped = inner

    def __getattr__(self, name):
        return getattr(self.wrapped, name)


class Multiply(mg.Function):
    @staticmethod
    def forward(ctx, x):
        return x * FACTOR

    @staticmethod
    def backward(ctx, g):
        return g


def with_global(x):
    return x * FACTOR


def with_options(x):
    return x * OPTIONS["nested"][1]["factor"]


def with_defaults(x, options=[2.0], *, more={"a": 1.0}):  # noqa: B006
    return x * options[0] * more["a"]


def with_attributes(x):
    return x * with_attributes.factor


def with_import(x):
    import settings_of_a_test

    return x * settings_of_a_test.FACTOR


def with_import_from(x):
    from settings_of_a_test import scaled

    return scaled(x)


def with_code(x):
    return x * 2


class Meta(type):
    @property
    def of_metaclass(cls):
        return cls.hidden_factor


class Made(metaclass=Meta):
    hidden_factor = 2.0

    def __getattribute__(self, name):
        return object.__getattribute__(self, "hidden_factor" if name == "factor" else name)


@functools.lru_cache
def factor_of_cache(_):
    return FACTOR if FACTOR == 1 else 3.0


@pytest.fixture
def settings(monkeypatch):
    """A module of the user's, in which things are replaced."""
    module = types.ModuleType("settings_of_a_test")
    exec("FACTOR = 2.0\ndef scaled(x): return x * FACTOR", vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


Pair = namedtuple("Pair", "a b")


def changes(monkeypatch, settings):
    """Functions, each with a change that it notices."""
    outer, delegate, plain = Outer(), Delegate(Settings()), Settings()
    slotted, space, pair = Slotted(), types.SimpleNamespace(factor=2.0), Pair([2.0], 1)
    items, queue, several, numbers = [2.0, 3.0], deque([2.0]), {2.0}, np.array([2.0, 3.0])
    others, octets, box = array.array("d", [2.0]), bytearray([2]), {"a": {"b": [1, (2.0, [3.0])]}}
    made, read = Made(), {"factor": 2.0}
    proxy, view = types.MappingProxyType(read), read.values()
    factor, calls = 2.0, {"now": outer.doubled}

    def inner(x):
        return x * factor

    @functools.wraps(with_global)
    def wrapped(*args):
        return inner(*args)

    def nested(x):
        return next(inner(y) for y in (x,))

    def rebind():
        nonlocal factor
        factor = 3.0

    def set_global():
        monkeypatch.setitem(globals(), "FACTOR", 5.0)

    def attribute(owner, name, value=7.0):
        return lambda: monkeypatch.setattr(owner, name, value)

    def item(owner, key, value=7.0):
        return lambda: (
            monkeypatch.setitem(owner, key, value) if isinstance(owner, dict) else owner.__setitem__(key, value)
        )

    with_attributes.factor = 2.0
    return {
        "global": (with_global, set_global),
        "global of a called function": (lambda x: with_global(x), set_global),
        "global container": (with_options, item(OPTIONS["nested"][1], "factor")),
        "variable": (inner, rebind),
        "variable of a called function": (nested, rebind),
        "variable of a decorated function": (lambda x: wrapped(x), rebind),
        "default": (with_defaults, item(with_defaults.__defaults__[0], 0)),
        "default of a keyword": (with_defaults, item(with_defaults.__kwdefaults__["more"], "a")),
        "other defaults": (lambda x: with_defaults(x), attribute(with_defaults, "__defaults__", ([5.0],))),
        "code": (with_code, attribute(with_code, "__code__", with_global.__code__)),
        "attribute of a function": (with_attributes, attribute(with_attributes, "factor")),
        "dataclass": (lambda x: x * plain.factor, attribute(plain, "factor")),
        "slot": (lambda x: x * slotted.factor, attribute(slotted, "factor")),
        "namespace": (lambda x: x * space.factor, attribute(space, "factor")),
        "class": (lambda x: x * outer.factor, attribute(Base, "factor")),
        "class hidden": (lambda x: x * outer.factor, lambda: setattr(outer, "factor", 3.0)),
        "class itself": (lambda x: x * Base.factor, attribute(Base, "factor")),
        "class hidden by a class": (outer.of_class, lambda: monkeypatch.setattr(Outer, "factor", 3.0, raising=False)),
        "metaclass": (lambda x: x * Made.of_metaclass, attribute(Made, "hidden_factor")),
        "computed attribute": (lambda x: x * made.factor, attribute(Made, "hidden_factor")),
        "construction": (lambda x: x * Base().at_construction, set_global),
        "class method": (lambda x: outer.of_class(x), attribute(Base, "factor")),
        "static method": (lambda x: outer.static(x), set_global),
        "bound method": (outer.method, attribute(outer.inner, "factor")),
        "property": (outer.method, attribute(outer, "_hidden")),
        "cached property": (lambda x: outer.cached(x), attribute(outer, "_hidden")),
        "callable object": (outer, attribute(outer.inner, "factor")),
        "operator": (lambda x: outer @ x, attribute(outer, "_hidden")),
        "method in a dict": (lambda x: calls["now"](x), item(calls, "now", outer.method)),
        "method of a class": (lambda x: outer.doubled(x), attribute(Outer, "doubled", lambda self, x: x)),
        "attribute of an attribute": (lambda x: x * outer.inner.factor, attribute(outer.inner, "factor")),
        "mapping": (lambda x: x * outer.more["factor"], lambda: outer.more.update(factor=3.0)),
        "delegate": (lambda x: x * delegate.factor, attribute(delegate.wrapped, "factor")),
        "computed name": (lambda x: x * getattr(plain, "fac" + "tor"), attribute(plain, "factor")),
        "new attribute": (lambda x: x * getattr(plain, "other", 2.0), lambda: setattr(plain, "other", 3.0)),
        "vars": (lambda x: x * vars(plain)["factor"], attribute(plain, "factor")),
        "list": (lambda x: x * items[0], items.reverse),
        "appended": (lambda x: x * len(items), lambda: items.append(1.0)),
        "deque": (lambda x: x * queue[0], item(queue, 0)),
        "set": (lambda x: x * sum(several), lambda: several.add(4.0)),
        "tuple": (lambda x: x * pair.a[0], item(pair.a, 0)),
        "nested containers": (lambda x: x * box["a"]["b"][1][1][0], item(box["a"]["b"][1][1], 0)),
        "proxy": (lambda x: x * proxy["factor"], item(read, "factor")),
        "view": (lambda x: x * next(iter(view)), item(read, "factor")),
        "keys": (lambda x: x * len(next(iter(box))), lambda: box.update(long=box.pop("a"))),
        "NumPy array": (lambda x: x * float(numbers[1]), item(numbers, 1, 4.0)),
        "array": (lambda x: x * others[0], item(others, 0)),
        "bytes": (lambda x: x * octets[0], item(octets, 0, 3)),
        "partial": (functools.partial(lambda o, x: x * o.factor, plain), attribute(plain, "factor")),
        "keyword of a partial": (functools.partial(lambda x, o: x * o["a"], o={"a": plain.factor}), None),
        "Function": (lambda x: Multiply.apply(x), set_global),
        "module": (lambda x: x * settings.FACTOR, attribute(settings, "FACTOR")),
        "function of a module": (lambda x: settings.scaled(x), attribute(settings, "FACTOR")),
        "import": (with_import, attribute(settings, "FACTOR")),
        "import of a name": (with_import_from, attribute(settings, "FACTOR")),
        "cached function": (lambda x: x * factor_of_cache.__wrapped__(0), set_global),
    }


NAMES = list(changes(None, types.SimpleNamespace(scaled=None)))


@pytest.mark.parametrize("name", NAMES)
def test_changes_of_what_the_function_reads(name, monkeypatch, settings):
    step, change = changes(monkeypatch, settings)[name]
    check(step, change or (lambda: step.keywords["o"].update(a=3.0)))


def test_a_method(rng):
    class Trainer:
        def __init__(self, factor):
            self.factor = factor

        @mg.capture
        def step(self, x):
            return x * self.factor

    x, trainers = normal(rng, 3), [Trainer(2.0), Trainer(3.0)]
    for _ in range(4):
        for trainer in trainers:
            agree([trainer.step(x)], [x * trainer.factor])
    assert [trainer.step.recordings for trainer in trainers] == [1, 1]
    kept = [weakref.ref(trainer) for trainer in trainers]
    del trainers, trainer
    gc.collect()
    assert [one() for one in kept] == [None, None]


class Counted:
    """Its captured methods are assigned to the class, and its base class has one of the same name."""

    __slots__ = ("__dict__", "factor")

    def __init__(self, factor):
        self.factor = factor

    @mg.capture
    def step(self, x):
        return x * self.factor


class Twice(Counted):
    @mg.capture
    def step(self, x):
        return super().step(x) * 2


Twice.first = mg.capture(lambda self, x: x * self.factor)
Twice.second = mg.capture(lambda self, x: x * self.factor * 3)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_methods_of_other_classes_and_of_copies(duplicate, rng):
    x, one = normal(rng, 3), Twice(2.0)
    for _ in range(4):
        found = bits([one.step(x), one.first(x), one.second(x)])
        agree(found, bits([x * 4, x * 2, x * 6]))
    assert [one.step.recordings, one.first.recordings] == [1, 1]
    other = duplicate(one)
    other.factor = 5.0
    for _ in range(4):
        agree([other.step(x), one.step(x)], [x * 10, x * 4])
    assert [one.step.recordings, other.step.recordings] == [1, 1]


def test_a_method_of_an_object_without_dict():
    class Bare:
        __slots__ = ()
        step = mg.capture(lambda self, x: x)

    with pytest.raises(TypeError, match=r"\[capture\] expected a method of an object with a __dict__.*got Bare"):
        _ = Bare().step


@pytest.mark.parametrize("read", [list[int], int | str, types.MappingProxyType({"a": 1}), types.SimpleNamespace(a=1)])
def test_objects_whose_dict_is_not_their_own(read):
    """That of `list[int]` is the read-only one of list."""
    step = mg.capture(lambda x: x * len(str(read)), warmup=0)
    x = mg.ones(3)
    agree([step(x), step(x)], [x * len(str(read))] * 2)
    assert step.recordings == 1


# ── what cannot be repeated ───────────────────────────────────────────────────────────────────────


class Changing:
    def __init__(self):
        self.count, self.numbers, self.model = 0, [], nn.Dropout(0.5)

    def counts(self, x):
        self.count += 1
        return x * self.count

    def appends(self, x):
        self.numbers.append(1)
        return x * len(self.numbers)

    def switches(self, x):
        self.model.train(not self.model.training)
        return x * 2 if self.model.training else x * 3


@pytest.mark.parametrize("name, what", [("counts", "Changing.count"), ("appends", "an item of Changing.numbers"), ("switches", "an attribute of Dropout")])  # fmt: skip
def test_a_run_that_changes_what_it_reads_is_not_repeated(name, what, rng):
    changing, plain, x = Changing(), Changing(), normal(rng, 3)
    captured = mg.capture(getattr(changing, name), warmup=1, limit=3)
    with warnings.catch_warnings(record=True) as announced:
        for _ in range(6):
            agree([captured(x)], [getattr(plain, name)(x)])
    assert f"could not be recorded, so that the plain function runs: it changes {what}" in str(announced[-2].message)
    assert len(announced) == 2  # the other one is about the limit
    assert captured.recordings == 3


def test_iterators_are_refused(rng):
    batches = iter([mg.ones(3), mg.zeros(3)])
    numbers = {"next": (k for k in range(9))}
    for step, what in (
        (lambda x: x + next(batches), "batches, a list_iterator"),
        (lambda x: x * next(numbers["next"]), "an item of numbers, a generator"),
    ):
        match = f"takes nothing from an iterator.*got {what}: pass what changes as an argument"
        raises(mg.CaptureError, match, mg.capture(step, warmup=0), normal(rng, 3))
