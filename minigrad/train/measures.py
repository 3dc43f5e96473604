"""What is measured on batches: means over samples, outputs, hits, and which labels are taken for which."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from minigrad.arrays.creation import asarray, ones_like, zeros
from minigrad.autograd import no_grad
from minigrad.engine.ops.gather import scatter_add
from minigrad.engine.ops.join import concat
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.module import Module

Metric = Callable[[Tensor, Tensor], Tensor]
Row = dict[str, float]


def evaluate(model: Module, loader: Iterable[Any], loss: Metric, metrics: Mapping[str, Metric] | None = None) -> Row:
    """Return the mean loss and metrics of a model over all samples, in evaluation mode and without a tape.

    The result has "loss" and the metrics. Parameters are as for `fit`.

    Examples
    --------
    >>> from minigrad import data, nn, train
    >>> batches = data.DataLoader(data.ArrayDataset(mg.eye(3), [0, 1, 1]), batch_size=2)
    >>> found = train.evaluate(nn.Identity(), batches, nn.functional.cross_entropy, {"accuracy": train.accuracy})
    >>> round(found["accuracy"], 4)             # two of three, though the batches have 2 samples and 1
    0.6667
    """
    means = Means("evaluate", metrics)
    for outputs, target in outputs_of("evaluate", model, loader):
        with no_grad():
            value = loss(outputs, target)
        means.add(outputs, target, value)
    return means.result()


def predict(model: Module, loader: Iterable[Any]) -> tuple[Tensor, Tensor]:
    """Return the outputs of a model for all batches and the targets, in evaluation mode and without a tape.

    Parameters are as for `fit`.

    Returns
    -------
    outputs, targets : Tensor
        Of shape (N, …), for N samples in all.

    Examples
    --------
    >>> from minigrad import data, nn, train
    >>> outputs, labels = train.predict(nn.Identity(), data.DataLoader(data.ArrayDataset(mg.eye(3), [0, 1, 1]), 2))
    >>> outputs.argmax(1).tolist(), labels.tolist()
    ([0, 1, 2], [0, 1, 1])
    """
    outputs, targets = zip(*outputs_of("predict", model, loader), strict=True)
    return concat(outputs), concat(targets)


def accuracy(outputs: Tensor, target: Tensor) -> Tensor:
    """Return for each sample whether its largest output is at its label.

    Parameters
    ----------
    outputs : Tensor
        Scores of shape (N, C, …), with the classes on axis 1.
    target : Tensor
        Labels of shape (N, …).

    Examples
    --------
    >>> mg.train.accuracy(mg.tensor([[0.1, 0.9], [0.8, 0.2]]), mg.tensor([1, 1]))
    tensor([ True, False])
    """
    found = outputs.argmax(1)
    if found.shape != target.shape:
        raise ValueError(
            f"[accuracy] expected outputs (N, C, …) and labels (N, …), got shapes {outputs.shape} and {target.shape}"
        )
    return found == target


def confusion_matrix(predicted: Any, target: Any, classes: int) -> Tensor:
    """Count how often each label was predicted as each class.

    The result is (classes, classes), int64: row i, column j counts samples of label i that were predicted as j.

    Parameters
    ----------
    predicted, target : array-like of int
        Labels from 0 to `classes` − 1, of equal shape.
    classes : int

    Examples
    --------
    >>> mg.train.confusion_matrix([0, 1, 1, 1], [0, 1, 0, 1], 2)
    tensor([[1, 1],
            [0, 2]])
    """
    predicted, target = asarray(predicted), asarray(target)
    if predicted.shape != target.shape:
        raise ValueError(
            f"[confusion_matrix] expected equal shapes, got predictions {predicted.shape} and labels {target.shape}"
        )
    for labels in (predicted, target):
        if bool(((labels < 0) | (labels >= classes)).any()):
            raise ValueError(f"[confusion_matrix] expected labels from 0 to {classes - 1}, got others")
    places = (target.astype("int64") * classes + predicted).reshape(-1)  # small integers would not hold it
    counts = zeros(classes * classes, dtype="float64", device=places.device)
    counts = scatter_add(counts, 0, places, ones_like(places, dtype="float64"))
    return counts.reshape(classes, classes).astype("int64")


class Means:
    """Means over samples of what is computed for batches of different sizes."""

    def __init__(self, op: str, metrics: Mapping[str, Metric] | None) -> None:
        if not isinstance(metrics or {}, Mapping) or not all(callable(metric) for metric in (metrics or {}).values()):
            raise TypeError(f"[{op}] expected metrics as {{'accuracy': mg.train.accuracy}}, got {metrics!r:.60}")
        self.op, self.metrics, self.count = op, dict(metrics or {}), 0
        if "loss" in self.metrics:
            raise ValueError(f"[{op}] expected names of metrics other than 'loss', which is taken")
        self.sums: dict[str, Any] = {}

    def add(self, outputs: Tensor, target: Tensor, loss: Tensor) -> None:
        size = target.shape[0]
        with no_grad():
            values = {name: metric(outputs, target) for name, metric in self.metrics.items()}
            for name, value in {"loss": loss, **values}.items():
                # A mean times the size is the sum over samples, of values for each sample and of one value for all.
                self.sums[name] = self.sums.get(name, 0.0) + asarray(value).detach().astype("float64").mean() * size
        self.count += size

    def result(self) -> Row:
        if not self.count:
            raise ValueError(f"[{self.op}] expected a loader with batches, got none")
        return {name: float(total) / self.count for name, total in self.sums.items()}


def batches(op: str, loader: Iterable[Any]) -> Iterator[tuple[list[Any], Tensor]]:
    """Yield the inputs and the target of each batch."""
    for batch in loader:
        if not isinstance(batch, (tuple, list)) or len(batch) < 2:
            raise TypeError(
                f"[{op}] expected batches (*inputs, target), got {type(batch).__name__}: of arrays x and y, "
                "data.DataLoader(data.ArrayDataset(x, y), 32) makes them"
            )
        *inputs, target = batch
        yield inputs, target


def outputs_of(op: str, model: Module, loader: Iterable[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield outputs and targets in evaluation mode and without a tape; the model returns to its modes."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        for inputs, target in batches(op, loader):
            with no_grad():
                outputs = model(*inputs)
            yield outputs, target
    finally:
        for module, training in modes:
            module.training = training
