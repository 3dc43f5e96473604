"""Types as a user's checker sees them, and as `typing` and `inspect` find them at run time."""

import importlib.util
import inspect
import os
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from public_names import NAMES

import minigrad as mg

ROOT = Path(mg.__file__).parents[1]
PROGRAM = """
from collections.abc import Iterator
from typing import assert_type

import minigrad as mg
import minigrad.nn.functional as F
from minigrad import Tensor, data, distributed, linalg, nn, no_grad, optim, viz


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(4, width), nn.LayerNorm(width)
        self.second, self.gain = nn.Linear(width, 2), nn.Parameter(mg.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.relu(self.norm(self.first(x)))) * self.gain


class Square(mg.Function):
    @staticmethod
    def forward(ctx: object, x: mg.Tensor) -> mg.Tensor:
        return x * x

    @staticmethod
    def backward(ctx: object, g: mg.Tensor) -> mg.Tensor:
        return g * 2


class Signs(optim.Optimizer):
    def update(self, group: dict[str, object], batch: object, grads: list[Tensor]) -> None:
        pass


class Numbers(data.Dataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return index


def train(net: nn.Module, x: mg.Tensor, y: mg.Tensor) -> float:
    optimizer = optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    loss = mg.tensor(0.0)
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return float(loss)


def batches(x: mg.Tensor, y: mg.Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    for a, b in data.DataLoader(data.TensorDataset(x, y), batch_size=4, shuffle=True):
        yield a, b


@mg.no_grad()
def accuracy(net: Net, x: mg.Tensor, y: mg.Tensor) -> float:
    net.eval()
    return float((net(x).argmax(axis=1) == y).astype("float32").mean())


@mg.capture
def step(x: mg.Tensor) -> mg.Tensor:
    return x.exp()


x, y = mg.random.normal(shape=(8, 4)), mg.tensor([0, 1] * 4)
net = Net(8)
assert_type(net(x), mg.Tensor)
assert_type(nn.LSTM(4, 8)(x), tuple[mg.Tensor, tuple[mg.Tensor, mg.Tensor]])
assert_type(mg.grad(x.sum(), x), mg.Tensor)
assert_type(mg.grad(x.sum(), [x], create_graph=True), tuple[mg.Tensor, ...])
assert_type(step(x), mg.Tensor)
with mg.no_grad(), mg.enable_grad(), no_grad():
    z = mg.concat([net(x), net(x)], axis=1) @ mg.eye(4)
    assert_type(mg.concatenate([z, z], axis=1), mg.Tensor)
    assert_type(mg.cat([z, z], dim=1).cumsum(axis=1).quantile(0.5, axis=1, keepdims=True), mg.Tensor)
kind: mg.DType = z.dtype
loaded = net.load_state_dict(mg.load("x.safetensors"))
s: mg.Tensor = (2 * x - 1 / x).reshape(-1)[0] + linalg.norm(x) + mg.abs(x) + mg.pow(x, 2)
values = mg.float32, mg.int64, mg.bool, mg.long, mg.pi, mg.manual_seed, mg.value_and_grad, distributed.rank(), viz.graph
"""


def check(folder, *command, **variables):
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    environment = os.environ | variables
    done = subprocess.run(
        [sys.executable, "-m", *command, "program.py"], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="no mypy: pip install '.[lint]'")
def test_a_users_program_passes_mypy(tmp_path):
    silent = "[mypy-minigrad.*]\nfollow_imports = silent\n"  # as for an installed package
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nmypy_path = {ROOT}\n{silent}", encoding="utf-8")
    check(tmp_path, "mypy", "--strict")


@pytest.mark.skipif(importlib.util.find_spec("basedpyright") is None, reason="no basedpyright: pip install '.[lint]'")
def test_a_users_program_passes_pyright(tmp_path):
    """With pyright's own defaults; basedpyright is pyright, with Node.js in its wheel."""
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}', encoding="utf-8")
    check(tmp_path, "basedpyright", "--pythonpath", sys.executable, PYTHONPATH=os.pathsep.join([str(ROOT), *sys.path]))


METHODS = {
    f"{package.__name__}.{name}.{method}": getattr(kind, method)
    for package in (mg.nn, mg.optim, mg.optim.lr_scheduler, mg.data)
    for name, kind in vars(package).items()
    if isinstance(kind, type) and name in package.__all__
    for method in ("__init__", "forward", "step")
    if hasattr(kind, method)
}


def test_hints_of_public_functions_are_found():
    found = {name: typing.get_type_hints(value) for name, value in (NAMES | METHODS).items()}
    assert found["layer_norm"]["x"] == mg.engine.tensor.tensor.TensorLike
    assert found["functional.layer_norm"]["return"] is mg.Tensor
    assert found["minigrad.nn.LayerNorm.forward"]["return"] is mg.Tensor


def test_signatures_of_classes():
    assert str(inspect.signature(mg.Tensor)) == "(data, requires_grad=False)"
    for kind in (mg.no_grad, mg.enable_grad, mg.record_source, mg.detect_anomaly):
        assert str(inspect.signature(kind)) == "()"
        assert not kind.__doc__.startswith(kind.__name__)
