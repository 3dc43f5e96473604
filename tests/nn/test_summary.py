"""The table of layers."""

import pytest
from checks import raises, refuses

import minigrad as mg
from minigrad import nn


def mlp():
    return nn.Sequential(nn.Linear(784, 256), nn.LayerNorm(256), nn.ReLU(), nn.Dropout(), nn.Linear(256, 10))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(28, 128, norm="layer")
        self.head = nn.Linear(128, 10)
        self.unused = nn.Linear(3, 3)

    def forward(self, x):
        return self.head(self.rnn(x)[1][0])


def test_rows_and_totals():
    summary = nn.summary(mlp(), (None, 784))
    assert [row[:3] for row in summary.rows] == [
        ("0 (Linear)", (None, 256), 784 * 256 + 256), ("1 (LayerNorm)", (None, 256), 512), ("2 (ReLU)", (None, 256), 0),
        ("3 (Dropout)", (None, 256), 0), ("4 (Linear)", (None, 10), 2570),
    ]  # fmt: skip
    assert (summary.total, summary.trainable, summary.not_trainable) == (204042, 204042, 0)


def test_text():
    model = nn.Sequential(nn.Linear(784, 10), nn.Softmax())
    model[0].bias.requires_grad_(False)
    assert str(nn.summary(model, (32, 784))) == (
        "Layer (type)  Output shape  Parameters\n"
        "======================================\n"
        "0 (Linear)    (32, 10)           7,850\n"
        "1 (Softmax)   (32, 10)               0\n"
        "======================================\n"
        "Total parameters: 7,850\n"
        "Trainable: 7,840\n"
        "Not trainable: 10"
    )


def test_open_lengths_anywhere_and_modules_with_parameters_of_their_own():
    summary = nn.summary(Classifier(), (28, None, 28))
    assert [tuple(row) for row in summary.rows] == [
        ("rnn (RNN)", (28, None, 128), 128 * 28 + 128 * 128 + 256, None), ("rnn.ln_l0 (GateNorm)", None, 256, "rnn"),
        ("head (Linear)", (None, 10), 1290, None), ("unused (Linear)", None, 12, None),
    ]  # fmt: skip
    assert [line.split()[:4] for line in str(summary).splitlines()[3:6:2]] == [
        ["rnn.ln_l0", "(GateNorm)", "inside", "rnn"], ["unused", "(Linear)", "not", "called"],
    ]  # fmt: skip
    assert nn.summary(Classifier(), (None, None, 28)).rows[0].output_shape == (None, None, 128)


@pytest.mark.parametrize("kind, options", [
    ("RNN", {}), ("LSTM", {}), ("LSTM", {"norm_each_gate": True}), ("GRU", {"num_layers": 2, "bidirectional": True}),
    ("RNNCell", {}), ("LSTMCell", {}), ("GRUCell", {}),
])  # fmt: skip
def test_norms_inside_recurrent_layers(kind, options):
    """They are computed though not called; other modules that were not called are not shown as computed."""
    layer = getattr(nn, kind)(3, 4, norm="layer", **options)
    norms = {f"{name} ({type(norm).__name__})" for name, norm in layer.named_children()}
    layer.unused = nn.LayerNorm(4)
    found = {row.layer: row.inside for row in nn.summary(layer, (2, 3) if "Cell" in kind else (6, 2, 3)).rows}
    assert found == {kind: None, "unused (LayerNorm)": None, **dict.fromkeys(norms, kind)}
    assert len(norms) > 0

    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return x

    assert {row.inside for row in nn.summary(Idle(), (1,)).rows} == {None}


def test_batch_norms_of_a_recurrent_layer_are_called():
    rows = nn.summary(nn.RNN(3, 4, norm="batch", max_length=5), (6, None, 3)).rows
    assert [(row.layer, row.output_shape, row.inside) for row in rows[1:]] == [
        (f"bn_{name}_l0 (RecurrentBatchNorm1d)", (None, 4), None) for name in ("ih", "hh")
    ]


def test_inputs_that_are_not_zeros():
    """Tensors replace shapes: indices and the lengths of sequences. The model writes into a copy."""

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.lstm = nn.Embedding(20, 3), nn.LSTM(3, 4, batch_first=True)

        def forward(self, x, lengths=None):
            return self.lstm(self.words(x), lengths=lengths)

    class InPlace(nn.Module):
        def forward(self, x):
            x += 1
            return x

    lengths = mg.tensor([5, 2])
    rows = nn.summary(Words(), [mg.zeros((2, 5), dtype="int64"), lengths]).rows
    assert [row.output_shape for row in rows] == [(2, 5, 3), (2, 5, 4)]
    assert nn.summary(Words(), mg.zeros((2, 5), dtype="int64")).rows[1].output_shape == (2, 5, 4)
    given = mg.ones(2)
    nn.summary(InPlace(), given)
    assert given.tolist() == [1, 1]
    assert nn.summary(Words(), [(None, 5)], dtype="int64").rows[1].output_shape == (None, 5, 4)


def test_running_statistics_count_as_not_trainable_and_counters_do_not():
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(mg.ones(3))
            self.register_buffer("running_mean", mg.zeros(3))
            self.register_buffer("batches", mg.tensor(0))
            self.register_buffer("scratch", mg.zeros(100), persistent=False)

        def forward(self, x):
            return x * self.weight

    summary = nn.summary(nn.Sequential(Norm()), (None, 3))
    assert summary.rows[0].parameters == 6
    assert (summary.trainable, summary.not_trainable) == (3, 3)


def lenet(norm=None):
    """Make three networks for handwritten digits: plain, and with a norm after each of the two hidden linear layers."""
    hidden = [[nn.Linear(n, m), nn.Tanh(), *([norm(m)] if norm else [])] for n, m in ((256, 120), (120, 84))]
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.Tanh(), nn.MaxPool2d(2, 2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2, 2), nn.Flatten(),
        *hidden[0], *hidden[1], nn.Linear(84, 10),
    )  # fmt: skip


@pytest.mark.parametrize("norm, total, buffers", [
    (None, 44_426, 0), (nn.LayerNorm, 44_834, 0), (nn.BatchNorm1d, 45_242, 408),
])  # fmt: skip
def test_lenets(norm, total, buffers):
    """They match Keras's numbers, which include the running statistics of batch normalization."""
    summary = nn.summary(lenet(norm), (None, 1, 28, 28))
    shapes = [row.output_shape for row in summary.rows]
    assert shapes[:7] == [
        (None, 6, 24, 24), (None, 6, 24, 24), (None, 6, 12, 12), (None, 16, 8, 8), (None, 16, 8, 8), (None, 16, 4, 4), (None, 256),
    ]  # fmt: skip
    assert shapes[-1] == (None, 10)
    assert (summary.total, summary.not_trainable, summary.buffers) == (total, buffers, buffers)
    assert summary.trainable == sum(p.size for p in lenet(norm).parameters())
    text = str(summary)
    assert f"Total parameters: {total:,}" in text
    assert text.endswith("Not trainable: 408 (running statistics: 408)" if buffers else "Not trainable: 0")


class Review(nn.Module):
    """A network for movie reviews: word embedding, LSTM, one probability from its last output."""

    def __init__(self, **options):
        super().__init__()
        self.embedding, self.head = nn.Embedding(10000, 100), nn.Linear(128, 1)
        self.lstm = nn.LSTM(100, 128, bias="input", batch_first=True, **options)

    def forward(self, words):
        return nn.functional.sigmoid(self.head(self.lstm(self.embedding(words))[0][:, -1]))


@pytest.mark.parametrize("options, norms", [
    ({"gate_activation": "hard_sigmoid"}, 0),
    ({"norm": "layer"}, 2 * (512 + 512 + 128)),
    ({"norm": "layer", "norm_each_gate": True, "carry_norm": True}, 2 * (512 + 128)),
])  # fmt: skip
def test_reviews(options, norms):
    """It matches Keras's number for IMDB, 1,117,377, plus the weights and biases of the norms."""
    summary = nn.summary(Review(**options), (None, 80), dtype="int64")
    assert summary.rows[0][:3] == ("embedding (Embedding)", (None, 80, 100), 1_000_000)
    assert ("head (Linear)", (None, 1), 129) in [row[:3] for row in summary.rows]
    assert (
        sum(row.parameters for row in summary.rows if row.layer.startswith("lstm")) == 4 * 128 * (100 + 128 + 1) + norms
    )
    assert (summary.total, summary.trainable) == (1_117_377 + norms,) * 2
    assert f"Total parameters: {1_117_377 + norms:,}" in str(summary)


def test_shared_parameters_count_once_in_the_total():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    summary = nn.summary(model, (None, 4))
    assert [row.parameters for row in summary.rows] == [16, 16]
    assert summary.total == 16


def test_the_model_is_left_as_it_was():
    model = mlp()
    model[1].eval()
    modes = [module.training for module in model.modules()]
    state = mg.random.get_state()
    nn.summary(model, (None, 784))
    raises(ValueError, r"\[linear\]", nn.summary, model, (None, 783))
    assert [module.training for module in model.modules()] == modes
    assert all(module._hooks is None for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert mg.random.get_state() == state


def test_several_inputs_and_dtypes():
    class Pair(nn.Module):
        def forward(self, a, b):
            return mg.concat([a, b], axis=1)

    assert nn.summary(Pair(), [(None, 2), (None, 3)]).rows[0][:3] == ("Pair", (None, 5), 0)

    class Labels(nn.Module):
        def forward(self, x):
            assert x.dtype == mg.int64
            return nn.functional.one_hot(x, 4)

    assert nn.summary(Labels(), (None, 7), dtype="int64").rows[0].output_shape == (None, 7, 4)
    assert nn.summary(mlp().to("float64"), (None, 784), dtype="float64").total == 204042


def test_errors():
    refuses(ValueError, "summary", "expected lengths of 0 or more", nn.summary, mlp(), (None, -1))
    for shape, said in (
        ("ab", "'a'"), (5, "got 5"), (None, "got None"), ((None, 2.5), "2.5"), ([(2, "a"), (3,)], "'a'"),
        ([(None, 784), 3], "got 3"),
    ):  # fmt: skip
        refuses(TypeError, "summary", said, nn.summary, mlp(), shape)
    refuses(TypeError, "summary", "a tensor of indices in place of a shape", nn.summary, nn.Embedding(9, 2), (2, 5))
    refuses(TypeError, "summary", "got list", nn.summary, [mlp()], (None, 784))
