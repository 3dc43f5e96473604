"""Observers of the tape get every operation and every gradient, and each entry has the modules it came from."""

import gc
import weakref

import numpy as np
import pytest
from checks import doubling, refuses
from hearers import told_to
from threaded import in_threads

import minigrad as mg
from minigrad import nn
from minigrad.engine.memory import listener
from minigrad.engine.tape import inspection


class Recorder(listener.Listener):
    def __init__(self):
        self.events, self.gradients = [], {}

    def recorded(self, sequence, op, outs):
        self.events.append(("recorded", sequence, op, [out.shape for out in outs]))

    def entered(self, sequence, op, grads):
        self.events.append(("entered", sequence, op))
        self.gradients[sequence] = grads

    def left(self, sequence):
        self.events.append(("left", sequence))


@pytest.fixture
def recorder():
    with told_to(Recorder()) as observer:
        yield observer


def sequences(x):
    return {row["op"]: row["sequence"] for row in x.tape()}


def test_an_observer_hears_of_operations_in_order(device, recorder):
    x = mg.ones((2, 3), device=device, requires_grad=True)
    y = mg.split(x.exp(), 3, axis=1)[1].sum()
    numbers = sequences(y)
    assert recorder.events == [
        ("recorded", numbers["exp"], "exp", [(2, 3)]),
        ("recorded", numbers["split"], "split", [(2, 1)] * 3),
        ("recorded", numbers["sum"], "sum", [()]),
    ]
    recorder.events.clear()
    y.backward()
    walk = [event[:2] for event in recorder.events]
    assert walk == [(way, numbers[op]) for op in ("sum", "split", "exp", "leaf") for way in ("entered", "left")]


def test_gradients_that_an_observer_keeps_do_not_change(device, recorder):
    """An intermediate gradient is only accumulated in place if nobody else holds it."""
    x = mg.asarray(np.random.default_rng(0).normal(size=(3, 4)), device=device, requires_grad=True)
    y = x * 2
    numbers = sequences(y)
    ((y * y).sum() + y.sum()).backward()
    found = recorder.gradients
    wanted = (2 * y.detach() + 1).to("cpu").numpy()
    np.testing.assert_allclose(found[numbers["multiply"]][0].to("cpu").numpy(), wanted, rtol=1e-12)
    np.testing.assert_allclose(found[numbers["leaf"]][0].to("cpu").numpy(), 2 * wanted, rtol=1e-12)
    np.testing.assert_allclose(x.grad.to("cpu").numpy(), 2 * wanted, rtol=1e-12)


def test_an_observer_hears_of_operations_that_no_gradient_reaches(recorder):
    class First(mg.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return g, None

    x = mg.ones(2, requires_grad=True)
    y = First.apply(x, x.exp()).sum()
    number = sequences(y)["exp"]
    y.backward()
    assert recorder.gradients[number] == (None,)


def test_what_is_not_recorded_is_not_told(recorder):
    with mg.no_grad():
        mg.ones(3, requires_grad=True).exp()
    nn.functional.relu(mg.ones((2, 3))).sin()
    assert recorder.events == []


def test_an_observer_belongs_to_its_thread(recorder):
    in_threads(lambda: mg.ones(3, requires_grad=True).exp().sum().backward())
    assert recorder.events == []


def test_an_error_of_the_observer_is_raised():
    class Refusing(Recorder):
        def recorded(self, sequence, op, outs):
            raise KeyError(op)

    with told_to(Refusing()), pytest.raises(KeyError, match="exp"):
        mg.ones(3, requires_grad=True).exp()


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))

    def forward(self, x):
        return self.layers[1](self.layers[0](x)).exp()  # past the Sequential, which is not called


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x) * 2


def test_an_entry_knows_its_modules():
    model = Outer()
    rows = model(mg.ones((2, 3))).sum().tape()
    around = ((None, "Outer"), ("inner", "Inner"))
    assert {row["op"]: row["scope"] for row in rows if row["op"] != "leaf"} == {
        "linear": (*around, ("layers.0", "Linear")),
        "layer_norm": (*around, ("layers.1", "LayerNorm")),
        "exp": around,
        "multiply": around[:1],
        "sum": (),
    }


def test_an_entry_knows_which_outputs_it_read_and_which_inputs_it_keeps():
    x = mg.ones((3, 2), requires_grad=True)
    parts = mg.split(x, 3)
    rows = {row["op"]: row for row in (parts[2] * parts[1].detach()).sum().tape()}
    assert [rows["multiply"][name] for name in ("outputs", "saved_inputs")] == [[2, None], [1]]
    assert [rows["split"][name] for name in ("outputs", "saved_inputs")] == [[0], []]


def test_the_scope_ends_where_forward_raises():
    class Failing(nn.Module):
        def forward(self, x):
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        Failing()(mg.ones(2))
    assert mg.ones(2, requires_grad=True).exp().tape()[1]["scope"] == ()


def test_a_tape_keeps_no_module_alive():
    """Also one that keeps its result, which would be a cycle unknown to the garbage collector."""

    class Keeping(nn.Linear):
        def forward(self, x):
            self.__dict__["last"] = super().forward(x)
            return self.last

    model = Keeping(2, 2)
    y, dead = model(mg.ones((1, 2))), weakref.ref(model)
    del model
    gc.collect()
    assert dead() is None
    assert [row["scope"] for row in y.tape()][-1] == ((None, "Keeping"),)


def test_a_leaf_belongs_to_no_module():
    """A tensor that another tape used first belongs to no module of this tape."""
    v = mg.ones(3, requires_grad=True)
    nn.Sequential(nn.ReLU())(v)
    assert [row["scope"] for row in (v * 2).sum().tape()] == [()] * 3


def test_a_module_is_named_within_a_model_that_is_empty_by_its_own_word():
    class Empty(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def __len__(self):
            return 0

        def forward(self, x):
            return self.layer(x)

    model = Empty()
    assert model(mg.ones((1, 2))).tape()[-1]["scope"] == ((None, "Empty"), ("layer", "Linear"))


def test_a_class_that_keeps_a_result_of_its_own_dies():
    def make():
        class Layer(nn.Linear):
            pass

        Layer.last = Layer(2, 2)(mg.ones((1, 2)))
        return weakref.ref(Layer)

    dead = make()
    gc.collect()
    assert dead() is None


def test_parameters_have_the_names_of_the_outermost_module():
    """A later module does not rename what an earlier one named; other leaves and parameters of dead modules have none."""
    encoder = nn.Sequential(nn.Linear(2, 3, bias=False))
    head = nn.Linear(3, 1)
    x = mg.ones((1, 2), requires_grad=True)
    y = head(encoder(x))
    names = {str(row["shape"]): row["name"] for row in y.tape() if row["op"] == "leaf"}
    assert names == {"(1, 2)": None, "(3, 2)": "0.weight", "(1, 3)": "weight", "(1,)": "bias"}
    assert all(row["name"] is None for row in y.tape() if row["op"] != "leaf")
    assert "0.weight" in str(y.tape())
    assert "0.weight" in y.tape()._repr_html_()
    weight = encoder[0].weight
    del encoder
    assert sum(row["name"] is not None for row in y.tape()) == 2
    assert weight.requires_grad


def test_names_of_leaves_can_be_given():
    model, x = nn.Sequential(nn.Linear(2, 3)), mg.ones((1, 2), requires_grad=True)
    y = model(x)
    assert {row["name"] for row in y.tape({"x": x, "net": model})} == {"x", "net.0.weight", "net.0.bias", None}
    assert {row["name"] for row in y.tape(model[0])} == {"weight", "bias", None}
    assert "name" not in str((x * x).tape()).splitlines()[0]
    refuses(TypeError, "tape", "expected names as a module or a mapping, got list", y.tape, [model])


def test_contents_are_the_leaf_and_what_is_saved():
    x = mg.asarray([1.0, 2.0], requires_grad=True)
    y = x.exp()
    found = inspection.contents(y)
    numbers = sequences(y)
    assert found[numbers["leaf"]][0] is x
    leaf, saved, options = found[numbers["exp"]]
    assert leaf is None
    assert options == ()
    assert [value.tolist() for value in saved] == [y.tolist()]


def test_saved_bytes_are_those_of_memory():
    """A number that is broadcast to the shape of the other operand takes no additional memory."""
    x = mg.ones((100, 100), requires_grad=True)
    row = mg.ones(100)
    assert [node["saved_bytes"] for node in (x * row).tape()] == [0, 400]
    assert [node["saved_bytes"] for node in (x * mg.ones((1, 1))).tape()] == [0, 4]


def test_an_operand_that_fits_is_not_broadcast():
    x = mg.ones(3, requires_grad=True)
    assert [node["inputs"] for node in (x - x.mean()).tape() if node["op"] == "subtract"] == [[0, 2]]
    assert [node["op"] for node in (x - x.mean()).tape()].count("broadcast_to") == 1


def test_an_entry_says_whether_it_is_a_function_of_the_users(device):
    x = mg.ones((2, 2), requires_grad=True, device=device)
    y, _ = nn.LSTM(2, 3).to(device)(doubling("multiply").apply(x * x).reshape(1, 2, 2))
    rows = inspection.entries(y.sum())
    assert [row["op"] for row in rows if row["function"]] == ["multiply"]
    assert [row["op"] for row in rows].count("multiply") == 2


class Computations(listener.Listener):
    """The operations, with the places of their inputs and results among all arrays seen."""

    def __init__(self):
        self.found, self.kept = [], []

    def place(self, x):
        known = [k for k, y in enumerate(self.kept) if (y.data_ptr(), y.shape) == (x.data_ptr(), x.shape)]
        self.kept.append(x)
        return known[0] if known else len(self.kept) - 1

    def computed(self, op, outs, inputs, options):
        given = [self.place(x) for x in inputs if x is not None]
        self.found.append((op, given, [self.place(x) for x in outs]))


COMPUTED = {
    "recorded or not": (lambda x: mg.exp(x) * x, ["exp", "multiply"]),
    "comparisons": (lambda x: (x > x) | ~(x == x), ["greater", "equal", "bitwise_invert", "bitwise_or"]),
    "tests": (lambda x: mg.isnan(x).any(), ["isnan", "any"]),
    "conversions": (lambda x: x.astype("int64").astype("float64"), ["astype", "astype"]),
    "views": (lambda x: x[1:].reshape(1, 2).broadcast_to((3, 2)), ["slice", "reshape", "broadcast_to"]),
    "means": (lambda x: x.mean(), ["broadcast_to", "multiply", "mean"]),
    "indices": (lambda x: x[x.argsort()], ["argsort", "index", "slice", "reshape", "reshape", "take", "reshape"]),
    "pieces": (lambda x: mg.concat(mg.split(x, 3)), ["split", "concat"]),
}


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_listener_is_told_of_every_operation(name, requires_grad):
    function, ops = COMPUTED[name]
    x = mg.tensor([3.0, 1.0, 2.0], requires_grad=requires_grad)
    with told_to(Computations()) as heard:
        function(x)
    assert [op for op, _, _ in heard.found] == ops
    reached = {0}  # everything follows from x
    for _, given, outs in heard.found:
        if reached & {*given}:
            reached |= {*outs}
    assert reached >= {*heard.found[-1][2]}


def test_what_python_composes_is_one_operation():
    x = mg.ones((2, 3))
    with told_to(Computations()) as heard:
        listener.note_composed("twice", (x + x,), [x], None)
    assert [op for op, _, _ in heard.found] == ["add", "twice"]
    listener.note_composed("nobody listens", (x,), [x], None)
