"""nn.Transformer against PyTorch's: results, gradients, states in both directions, and how its weights begin."""

import numpy as np
import pytest
from checks import agree, array, near, refuses, tensor
from peers import exchange_state, torch

import minigrad as mg
from minigrad import nn


@pytest.mark.parametrize("options, unbatched", [
    ({}, False), ({"batch_first": True, "norm_first": True, "bias": False}, False), ({"activation": "gelu", "batch_first": True}, True),
])  # fmt: skip
def test_whole_transformer_as_in_pytorch(options, unbatched, device):
    rng = np.random.default_rng(0)
    ours = nn.Transformer(8, 2, 2, 1, 12, dropout=0.0, **options, dtype="float64").to(device)
    theirs = torch.nn.Transformer(8, 2, 2, 1, 12, dropout=0.0, **options, dtype=torch.float64)
    exchange_state(ours, theirs, rng)
    steps, batch = (5, 4), () if unbatched else (3,)
    shapes = [(*batch, n, 8) if options.get("batch_first") else (n, *batch, 8) for n in steps]
    inputs = [rng.standard_normal(shape) for shape in shapes]
    later = np.triu(np.ones((4, 4), dtype=bool), 1)
    padding = np.zeros((*batch, 5), dtype=bool)
    padding[..., 4:] = True
    for given in (
        {}, {"tgt_mask": later, "src_key_padding_mask": padding, "memory_key_padding_mask": padding},
        {"src_mask": rng.standard_normal((5, 5)), "memory_mask": rng.standard_normal((4, 5)), "tgt_is_causal": True, "tgt_mask": later},
    ):  # fmt: skip
        leaves = [tensor(x, device, True) for x in inputs]
        points = [torch.tensor(x, requires_grad=True) for x in inputs]
        y = ours(*leaves, **{k: tensor(v, device) if isinstance(v, np.ndarray) else v for k, v in given.items()})
        e = theirs(*points, **{k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in given.items()})
        near(y, e.detach().numpy(), rtol=1e-9, atol=1e-10)
        g = rng.standard_normal(y.shape)
        found = mg.grad(y, [*leaves, *ours.parameters()], tensor(g, device))
        exact = torch.autograd.grad(e, [*points, *theirs.parameters()], torch.tensor(g))
        agree(found, exact, rtol=1e-9, atol=1e-10)


def test_whole_transformer_begins_as_pytorchs_and_takes_other_parts():
    mg.manual_seed(0)
    model = nn.Transformer(64, 4, 1, 1, 96)
    for name, weight in model.named_parameters():
        if weight.ndim > 1:  # from U(-a, a) with a² = 6 / (inputs + outputs)
            a = (6 / sum(weight.shape)) ** 0.5
            assert 0.95 * a < abs(array(weight)).max() <= a, name
    assert not np.array_equal(*(array(layer.linear1.weight) for layer in nn.Transformer(8, 2, 2, 0, 8).encoder.layers))
    own = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 8), 1)
    assert nn.Transformer(64, 4, 1, 1, 8, custom_encoder=own).encoder is own
    causal = nn.Transformer.generate_square_subsequent_mask(3)
    x, y = mg.ones((2, 1, 64)), mg.random.normal(0.0, 1.0, (3, 1, 64))
    model.eval()
    expected = model(x, y, tgt_mask=causal)
    near(expected, array(model(x, y, tgt_is_causal=True)), rtol=1e-5, atol=1e-6)
    refuses(ValueError, "Transformer", "num_encoder_layers >= 0", nn.Transformer, 8, 2, -1)
