"""The loop, and its measures, against loops that are written out."""

import sys
from types import ModuleType

import numpy as np
import pytest
from checks import refuses

import minigrad as mg
from minigrad import data, nn, optim, train
from minigrad.nn import functional as F
from minigrad.optim import lr_scheduler

X, Y = (np.random.default_rng(3).standard_normal((n, 3)) for n in (37, 21))
LABELS, OTHERS = (x.sum(1) > 0 for x in (X, Y))


def loader(x=X, labels=LABELS, size=8, shuffle=True):
    return data.DataLoader(data.ArrayDataset(x.astype("float32"), labels.astype("int64")), size, shuffle, seed=5)


def held_out():
    return loader(Y, OTHERS, shuffle=False)


def network(device="cpu"):
    mg.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2)).to(device)
    return model, optim.Adam(model.parameters(), 0.05)


def run(epochs, **options):
    model, optimizer = network()
    history = train.fit(model, loader(), F.cross_entropy, optimizer, epochs, **options)
    return model, history


def test_fit_is_the_loop_written_out():
    metrics = {"accuracy": train.accuracy}
    model, history = run(3, validation=held_out(), metrics=metrics, clip=0.5)
    other, optimizer = network()
    batches = loader()
    for row in history:
        total = hits = 0.0
        other.train()
        for x, y in batches:
            optimizer.zero_grad()
            scores = other(x)
            loss = F.cross_entropy(scores, y)
            loss.backward()
            nn.utils.clip_grad_norm_(other.parameters(), 0.5)
            optimizer.step()
            total += loss.item() * len(y)
            hits += float((scores.argmax(1) == y).sum().item())
        other.eval()
        with mg.no_grad():
            scores = other(mg.tensor(Y.astype("float32")))
            validation = F.cross_entropy(scores, mg.tensor(OTHERS.astype("int64"))).item()
        assert row["loss"] == pytest.approx(total / len(X), rel=1e-12)
        assert row["accuracy"] == hits / len(X)
        assert row["validation loss"] == pytest.approx(validation, rel=1e-6)
        assert row["validation accuracy"] == (scores.numpy().argmax(1) == OTHERS).mean()
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert mine.tolist() == theirs.tolist()


def test_evaluate_keeps_modes_and_records_nothing(device):
    model, _ = network(device)
    model[1].eval()
    batches = [(mg.tensor(Y, dtype="float32", device=device), mg.tensor(OTHERS.astype("int64"), device=device))]
    before = model[1].running_mean.tolist()
    outputs, targets = train.predict(model, batches)
    found = train.evaluate(model, batches, F.cross_entropy, {"rows": lambda scores, y: scores.sum(1)})
    assert [module.training for module in model] == [True, False, True, True, True]
    assert model[1].running_mean.tolist() == before
    assert not outputs.requires_grad
    assert targets.tolist() == OTHERS.astype(int).tolist()
    assert found["rows"] == pytest.approx(outputs.to("cpu").numpy().sum() / len(Y), rel=1e-5)


def test_the_schedule_makes_a_step_after_each_batch():
    model, optimizer = network()
    batches = loader()
    schedule = lr_scheduler.CosineAnnealingLR(optimizer, 2 * len(batches))
    train.fit(model, batches, F.cross_entropy, optimizer, 2, schedule=schedule)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("reached", [1, 2, 4])
def test_a_run_continues_from_its_checkpoint(tmp_path, reached):
    def part(epochs, path):
        model, optimizer = network()
        schedule = lr_scheduler.ExponentialLR(optimizer, 0.99)
        options = {"validation": held_out(), "schedule": schedule, "stop": 50, "checkpoint": path}
        return model, train.fit(model, loader(), F.cross_entropy, optimizer, epochs, **options)

    whole, expected = part(4, None)
    path = tmp_path / "run.safetensors"
    part(reached, path)
    mg.manual_seed(99)
    model, history = part(4, path)
    assert history == expected
    assert [p.tolist() for p in model.parameters()] == [p.tolist() for p in whole.parameters()]


@pytest.mark.parametrize("validation", [True, False])
def test_stop_returns_to_the_epoch_with_the_lowest_loss(validation):
    losses = iter([3.0, 2.0, 2.5, 2.0, 1.0, 9.0])
    weight = nn.Parameter(mg.zeros(1))
    model = nn.Module()
    model.weight, model.forward = weight, lambda x: x * weight
    optimizer = optim.SGD([weight], 1.0)

    def loss(outputs, target):
        value = outputs.sum()
        if model.training is not validation:
            value = value + (next(losses) - value.detach())
        return value

    batches = [(mg.ones(1), mg.ones(1))]
    history = train.fit(model, batches, loss, optimizer, 10, validation=batches if validation else None, stop=2)
    assert [row["validation loss" if validation else "loss"] for row in history] == [3.0, 2.0, 2.5, 2.0]
    assert weight.item() == -2  # the second of four epochs: an equal loss is not a lower one


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_a_confusion_matrix_counts_pairs(dtype, device):
    rng = np.random.default_rng(0)
    target, predicted = rng.integers(0, 20, (2, 900)).astype(dtype)
    expected = np.zeros((20, 20), int)
    np.add.at(expected, (target, predicted), 1)
    found = train.confusion_matrix(mg.tensor(predicted, device=device), mg.tensor(target, device=device), 20)
    assert (str(found.dtype), found.tolist()) == ("int64", expected.tolist())


def test_accuracy_of_positions():
    scores = np.random.default_rng(0).standard_normal((2, 5, 3))
    labels = np.array([[0, 1, 2], [3, 4, 0]])
    found = train.accuracy(mg.tensor(scores), mg.tensor(labels))
    assert found.tolist() == (scores.argmax(1) == labels).tolist()


@pytest.mark.parametrize("validation", [False, True])
def test_a_plateau_is_one_of_epochs(validation, tmp_path):
    def train_for(epochs, **options):
        model, optimizer = network()
        schedule = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.3)
        held = held_out() if validation else None
        history = train.fit(
            model, loader(), F.cross_entropy, optimizer, epochs, validation=held, schedule=schedule, **options
        )
        return [row["validation loss" if validation else "loss"] for row in history], optimizer.param_groups[0]["lr"]

    losses, rate = train_for(6)
    expected, best = 0.05, float("inf")
    for loss in losses:
        best, expected = (loss, expected) if loss < best * 0.7 else (best, expected / 2)
    assert rate == expected < 0.05
    path = tmp_path / "run.safetensors"
    train_for(3, checkpoint=path)
    assert train_for(6, checkpoint=path) == (losses, rate)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    model, optimizer = network()
    path = tmp_path / "run.safetensors"
    batches = [(mg.full((2, 3), np.nan), mg.tensor([0, 1]))]
    with pytest.raises(FloatingPointError, match=r"^\[fit\] expected a finite loss, got nan in epoch 0: lower the"):
        train.fit(model, batches, F.cross_entropy, optimizer, 3, checkpoint=path)
    assert not path.exists()


def test_errors(tmp_path):
    path = tmp_path / "run.safetensors"
    run(1, checkpoint=path)
    refuses(ValueError, "fit", "of a run with stop", run, 2, checkpoint=path, stop=3)
    model, optimizer = network()
    fit = [train.fit, model, [(mg.ones((2, 3)), mg.tensor([0, 1]))], F.cross_entropy, optimizer]
    refuses(ValueError, "fit", "expected epochs", *fit, -1)
    refuses(ValueError, "fit", "expected stop", *fit, 1, stop=0)
    refuses(ValueError, "fit", "other than 'loss'", *fit, 1, metrics={"loss": train.accuracy})
    refuses(TypeError, "fit", "a function as loss, such as", *fit[:3], "mse", optimizer, 1)
    refuses(TypeError, "fit", "expected an optimizer, such as", *fit[:4], "adam", 1)
    for metrics in (["accuracy"], train.accuracy, {"accuracy": "accuracy"}):
        refuses(TypeError, "fit", "expected metrics as {'accuracy': mg.train.accuracy}, got", *fit, 1, metrics=metrics)
    refuses(TypeError, "fit", "expected a loader as validation, got 0.2", *fit, 1, validation=0.2)
    refuses(TypeError, "fit", "data.ArrayDataset(x, y)", train.fit, model, (X, LABELS), F.cross_entropy, optimizer, 1)
    refuses(ValueError, "fit", "a loader with batches, got none", train.fit, model, [], F.cross_entropy, optimizer, 1)
    refuses(TypeError, "fit", r"got Tensor", train.fit, model, [mg.ones((2, 3))], F.cross_entropy, optimizer, 1)
    refuses(ValueError, "accuracy", "shapes (2, 3) and (3,)", train.accuracy, mg.ones((2, 3)), mg.tensor([0, 1, 1]))
    refuses(ValueError, "confusion_matrix", "from 0 to 1", train.confusion_matrix, [0, 2], [0, 1], 2)
    refuses(ValueError, "confusion_matrix", "from 0 to 1", train.confusion_matrix, [0, 1], [-1, 1], 2)
    refuses(ValueError, "confusion_matrix", "equal shapes", train.confusion_matrix, [0, 1], [0], 2)


@pytest.mark.parametrize("progress", [True, False])
def test_the_bar_shows_the_means_of_each_epoch(monkeypatch, progress):
    from tqdm import auto as tqdm

    shown = []

    class Bar(tqdm.tqdm):
        def set_postfix(self, row, refresh):
            shown.append(row)

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    _, history = run(2, progress=progress)
    assert shown == [{"loss": f"{row['loss']:.4g}"} for row in history] * progress


def test_a_notebook_without_widgets_shows_no_warning_of_tqdm(monkeypatch, recwarn):
    for name in ("tqdm.auto", "tqdm.autonotebook", "tqdm.notebook"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("ipykernel.zmqshell", "IPython", "ipywidgets"):  # a package that is None cannot be imported
        monkeypatch.setitem(sys.modules, name, None if name == "ipywidgets" else ModuleType(name))
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", object, raising=False)
    run(1)
    assert [str(warning.message) for warning in recwarn] == []
