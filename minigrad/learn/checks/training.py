"""A training loop: its order, its modes, and an accuracy on the digits."""

import minigrad as mg
from minigrad import data, nn, optim
from minigrad.learn.checking import Failure, Part, mistakes
from minigrad.learn.stages import training as solution

HINTS = (
    """The order in one batch: optimizer.zero_grad(), loss = F.cross_entropy(model(images), labels), loss.backward(),
    optimizer.step().""",
    "loss.item() is the loss as a Python float. A list of tensors would keep every tape.",
    '(model(images).argmax(axis=-1) == labels) is a tensor of bools; .astype("float32").mean().item() is their share.',
    """For fit: Flatten, Linear(64, 64), LayerNorm, ReLU, Linear(64, 10) with Adam at 3e-3, batches of 32 and 15 epochs
    reach 97 %. DataLoader(ArrayDataset(images, labels), batch_size=32, shuffle=True) makes the batches.""",
)
ENOUGH = 0.95
LR = 0.5
MODEL = "x @ weight; in training mode 2 * x @ weight"


class Small(nn.Module):
    """A linear layer with dropout that says in which mode it ran."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(mg.tensor(weight))
        self.modes = set()

    def forward(self, x):
        self.modes.add("train" if self.training else "eval")
        if self.training:
            x = x * 2.0  # what dropout would change
        return x @ self.weight


class Counting(optim.SGD):
    """SGD that counts its steps."""

    count = 0

    def step(self):
        self.count += 1
        super().step()


def batches(draw):
    for steps, n in ((1, 1), (2, 2), (3, draw.size(3, 4))):
        yield draw(2, 3) / 8, draw(steps, n, 2) / 4, draw.rng.integers(0, 3, (steps, n))


def epoch_cases(draw):
    for weight, images, labels in batches(draw):
        yield {
            "call": "train_epoch(model, optimizer, batches)", "model": MODEL, "weight": weight,
            "optimizer": f"SGD of weight, lr = {LR}", "batches": "the pairs (images[i], labels[i])", "images": images,
            "labels": labels,
        }  # fmt: skip


def accuracy_cases(draw):
    for weight, images, labels in batches(draw):
        yield {
            "call": "accuracy(model, images, labels)", "model": MODEL, "weight": weight,
            "images": images.reshape(-1, 2), "labels": labels.reshape(-1),
        }  # fmt: skip


def epoch(train, call, model, weight, optimizer, batches, images, labels):
    """Return the weights after an epoch of a small model left in evaluation mode, the steps, and the mean loss."""
    model = Small(weight).eval()
    optimizer = Counting(model.parameters(), lr=LR)
    batches = [(mg.tensor(x), mg.tensor(y)) for x, y in zip(images, labels, strict=True)]
    loss = train(model, optimizer, batches)
    if not isinstance(loss, float):
        raise Failure(f"It returns a {type(loss).__name__}; it has to be a Python float. loss.item() is one.")
    return model.weight.detach().numpy().copy(), optimizer.count, loss


def score(accuracy, call, model, weight, images, labels):
    """Return the accuracy of a small model that was left in training mode, and whether something was recorded."""
    model = Small(weight).train()
    recorded = []
    model.register_forward_hook(lambda module, inputs, output: recorded.append(output.requires_grad))
    share = accuracy(model, mg.tensor(images), mg.tensor(labels))
    if not isinstance(share, float):
        raise Failure(f"It returns a {type(share).__name__}; it has to be a Python float. x.item() is one.")
    return share, "train" not in model.modes, not any(recorded)


def digits(draw):
    if draw.small:
        yield {"images": "1438 digits"}


def right_fit(images, labels):
    """Stands for any network that is good enough."""


def judge(fit, images):
    """ "at least 95 %", or a failure with the accuracy that was reached."""
    if fit is right_fit:
        return f"at least {ENOUGH:.0%}"
    images, labels = data.digits("train")[:]
    model = fit(images, labels)
    if not isinstance(model, nn.Module):
        raise Failure(f"fit returns a {type(model).__name__}; it has to return the trained network, an nn.Module.")
    try:
        share = solution.accuracy(model, *data.digits("test")[:])
    except Exception as error:
        raise Failure(f"The network that fit returns cannot be applied to images (N, 8, 8): {error}") from error
    if share < 0.25:
        raise Failure(
            f"{share:.1%} of the held-out images are right, hardly more than by guessing. Does the loss fall? If not, the "
            "optimizer may have other parameters than the network, the labels may be shuffled without the images, or the "
            "learning rate is far too large."
        )
    if share < ENOUGH:
        raise Failure(
            f"{share:.1%} of the held-out images are right; {ENOUGH:.0%} are needed. Print the loss of each epoch: if it still "
            "falls, train longer or with a larger learning rate."
        )
    return f"at least {ENOUGH:.0%}"


ZERO, STEP = "        optimizer.zero_grad()\n", "        optimizer.step()\n"
PARTS = [
    Part(
        "train_epoch", solution.train_epoch, epoch_cases, ("the weights after an epoch", "the number of steps", "the mean loss"),
        mistakes(solution.train_epoch, {
            """The gradients of earlier batches are still there: backward adds to them. Call optimizer.zero_grad() for every
            batch.""": {ZERO: ""},
            "The weights do not move: optimizer.step() is missing.": {STEP: ""},
            "There is one step after all batches, with the sum of their gradients. Take a step after each batch.":
                {ZERO: "", STEP: "", "    losses = []\n": f"    losses = []\n{ZERO[4:]}", "    return sum": f"{STEP[4:]}    return sum"},
            """Every step sees gradients of zero or none. backward() has to come after zero_grad() and before step(): is it there,
            and does nothing clear the gradients in between?""": {STEP: ZERO + STEP},
            "The step comes before the backward pass, so that it uses the gradients of the batch before.":
                {ZERO: "", STEP: "", "        loss.b": "        if losses:\n            optimizer.step()\n        loss.b"},
            "The model is in evaluation mode. Call model.train() first: dropout and batch norm depend on it.":
                {"    model.train()\n": ""},
            "The loss is the sum over the batch. The mean keeps the step independent of the batch size.":
                {"labels)\n        loss": 'labels, reduction="sum")\n        loss'},
            """cross_entropy contains the softmax. Give it the outputs of the model as they are; here the softmax is applied
            twice.""": {"model(images), labels": "mg.softmax(model(images), axis=-1), labels"},
            "Only the first batch is used. Is the return inside the loop?": {"in batches": "in batches[:1]"},
            "It is the loss of the last batch. Return the mean over all batches.": {"sum(losses) / len(losses)": "losses[-1]"},
            "It is the sum of the losses. Return their mean.": {" / len(losses)": ""},
        }),
        call=epoch,
    ),
    Part(
        "accuracy", solution.accuracy, accuracy_cases,
        ("the accuracy", "the model in evaluation mode", "nothing recorded"),
        mistakes(solution.accuracy, {
            "The model is in training mode, where dropout is on. Call model.eval() first.": {"    model.eval()\n": ""},
            "The tape records, which takes memory for nothing. Put the call of the model inside `with mg.no_grad():`.":
                {"mg.no_grad()": "mg.enable_grad()"},
            "It is the share of wrong images.": {"== labels": "!= labels"},
            "It is the number of right images. Divide by how many there are.": {".mean()": ".sum()"},
        }),
        call=score,
    ),
    Part("fit", right_fit, digits, ("the accuracy on new digits",), {}, call=judge, seconds=120),
]  # fmt: skip
