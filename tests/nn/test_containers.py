"""Sequential and ModuleList."""

import pytest
from checks import raises

import minigrad as mg
from minigrad import nn


class Add(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x):
        return x + self.value


def values(container):
    return [module.value for module in container]


@pytest.fixture(params=[lambda *modules: nn.Sequential(*modules), lambda *modules: nn.ModuleList(modules)],
                ids=["Sequential", "ModuleList"])  # fmt: skip
def container(request):
    return request.param(Add(0), Add(1), Add(2))


def test_list_behavior(container):
    assert len(container) == 3
    assert values(container) == [0, 1, 2]
    assert container[0].value == 0
    assert container[-1].value == 2
    assert values(container[1:]) == [1, 2]
    assert values(container[::-1]) == [2, 1, 0]
    assert type(container[1:]) is type(container)
    assert container[1] in list(container)


def test_append_extend_insert_return_the_container(container):
    assert container.append(Add(3)) is container
    assert container.extend([Add(4), Add(5)]) is container
    assert container.insert(1, Add(9)) is container
    assert values(container) == [0, 9, 1, 2, 3, 4, 5]
    assert [name for name, _ in container.named_children()] == list("0123456")
    container.insert(-1, Add(8))
    assert values(container) == [0, 9, 1, 2, 3, 4, 8, 5]
    container.insert(100, Add(7))
    assert values(container)[-1] == 7


def test_set_and_delete(container):
    container[-1] = Add(7)
    assert values(container) == [0, 1, 7]
    del container[0]
    assert values(container) == [1, 7]
    assert [name for name, _ in container.named_children()] == ["0", "1"]
    container.extend([Add(8), Add(9)])
    del container[1:3]
    assert values(container) == [1, 9]


@pytest.mark.parametrize("index", [3, -4])
def test_index_out_of_range(container, index):
    with pytest.raises(IndexError, match=f"expected an index from -3 to 2, got {index}"):
        container[index]
    with pytest.raises(IndexError):
        container[index] = Add(1)
    with pytest.raises(IndexError):
        del container[index]
    assert values(container) == [0, 1, 2]


def test_only_modules(container):
    for change in (
        lambda: container.append(3), lambda: container.insert(0, mg.relu), lambda: container.__setitem__(0, None),
        lambda: nn.Sequential(nn.ReLU(), mg.relu), lambda: nn.ModuleList([1]),
    ):  # fmt: skip
        raises(TypeError, "expected a Module", change)
    assert values(container) == [0, 1, 2]


def test_sequential_runs_in_order_and_follows_changes():
    model = nn.Sequential(Add(1.0), nn.ReLU())
    assert model(mg.tensor([-3.0, 1.0])).tolist() == [0.0, 2.0]
    model.insert(0, nn.ReLU())
    assert model(mg.tensor([-3.0, 1.0])).tolist() == [1.0, 2.0]
    del model[2]
    model[1] = Add(-2.0)
    assert model(mg.tensor([-3.0, 1.0])).tolist() == [-2.0, -1.0]
    assert nn.Sequential()(5) == 5
    raises(TypeError, r"expected modules, got a list: nn.Sequential\(\*modules\)", nn.Sequential, [nn.ReLU()])


def test_sequential_of_names():
    model = nn.Sequential({"up": Add(1.0), "act": nn.ReLU()})
    assert model.up.value == 1.0
    assert model[1] is model.act
    assert model(mg.tensor([-3.0])).tolist() == [0.0]
    model.append(Add(5.0))
    assert [name for name, _ in model.named_children()] == ["up", "act", "2"]


def test_the_same_module_twice():
    shared = Add(1.0)
    model = nn.Sequential(shared, shared)
    assert len(model) == 2
    assert model(mg.zeros(1)).tolist() == [2.0]
    assert len(list(model.children())) == 1


def test_module_list_registers_parameters():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 2)])
            self.layers.append(nn.Linear(2, 2))

    assert [name for name, _ in Net().named_parameters()] == [
        "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias",
    ]  # fmt: skip
    with pytest.raises(NotImplementedError):
        nn.ModuleList()(1)
