"""Random tensors: distributions, seeds, states; each value depends only on the seed and its position."""

import math

import numpy as np
import pytest
from checks import array, equals, refuses
from threaded import same_for_all_threads

import minigrad as mg

N = 200_003
DRAWS = {
    "uniform": lambda shape, dtype="float32", device=None: mg.random.uniform(shape=shape, dtype=dtype, device=device),
    "normal": lambda shape, dtype="float32", device=None: mg.random.normal(shape=shape, dtype=dtype, device=device),
    "randint": lambda shape, dtype=None, device=None: mg.random.randint(0, 1000, shape, device=device),
    "permutation": lambda shape, dtype=None, device=None: mg.random.permutation(math.prod(shape), device=device),
    "dropout": lambda shape, dtype="float32", device=None: mg.nn.functional.dropout(
        mg.ones(shape, dtype=dtype, device=device)
    ),
}


@pytest.fixture(autouse=True)
def seeded():
    mg.manual_seed(20)


def chi_square(counts, expected):
    """Check the counts within 5 standard deviations of their means."""
    freedom = len(counts) - 1
    return (((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)


# ── distributions ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform(dtype, device):
    """In [0, 1), every interval of a thousand as often as any other, neighbors independent."""
    x = array(mg.random.uniform(shape=N, dtype=dtype, device=device))
    assert x.dtype == dtype
    assert x.min() >= 0
    assert x.max() < 1
    assert abs(chi_square(np.histogram(x, 1000, (0, 1))[0], N / 1000)) < 5
    assert abs(chi_square(np.histogram((x * 2**12) % 1, 16, (0, 1))[0], N / 16)) < 5  # the low bits
    for lag in (1, 2, 3, 4):
        pairs = np.histogram2d(x[:-lag], x[lag:], 16, ((0, 1), (0, 1)))[0]
        assert abs(chi_square(pairs.reshape(-1), (N - lag) / 256)) < 5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bounds_of_uniform(dtype, device):
    """high is never reached, even by rounding."""
    x = array(mg.random.uniform(-3, 5, (N,), dtype=dtype, device=device))
    assert -3 <= x.min() < -2.99
    assert 4.99 < x.max() < 5
    assert abs(x.mean() - 1) < 5 * 8 / math.sqrt(12 * N)
    tight = array(mg.random.uniform(1e6, 1e6 + 1, (N,), dtype=dtype, device=device))
    assert tight.min() >= 1e6
    assert tight.max() < 1e6 + 1
    assert mg.random.uniform(2, 2, (3,), device=device).tolist() == [2, 2, 2]
    large = np.finfo(dtype).max
    wide = array(mg.random.uniform(-0.4 * large, 0.4 * large, (N,), dtype=dtype, device=device))
    assert abs(wide / large).max() <= 0.4
    assert len(set(wide.tolist())) > N / 2
    for low, high in ((-0.6 * large, 0.6 * large), (0, math.inf), (-math.inf, 0)):
        with pytest.raises(ValueError, match=rf"\[uniform\] expected a range that .*{dtype} holds, got "):
            mg.random.uniform(low, high, (2,), dtype=dtype, device=device)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal(dtype, device):
    """Four moments, the tails, the share of each tenth, and neighbors independent."""
    x = array(mg.random.normal(shape=N, dtype=dtype, device=device)).astype(np.float64)
    assert abs(x.mean()) < 5 / math.sqrt(N)
    assert abs(x.var() - 1) < 5 * math.sqrt(2 / N)
    assert abs((x**3).mean()) < 5 * math.sqrt(15 / N)
    assert abs((x**4).mean() - 3) < 5 * math.sqrt(96 / N)
    assert np.isfinite(x).all()
    assert 4 < np.abs(x).max() < 6
    share = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in np.linspace(-3, 3, 61)])
    counts = np.histogram(x, np.concatenate([[-np.inf], np.linspace(-3, 3, 61), [np.inf]]))[0]
    assert abs(chi_square(counts, N * np.diff(np.concatenate([[0], share, [1]])))) < 5
    for lag in (1, 2, 3):
        assert abs((x[:-lag] * x[lag:]).mean()) < 5 / math.sqrt(N)
        assert abs((x[:-lag] ** 2 * x[lag:] ** 2).mean() - 1) < 5 * math.sqrt(8 / N)
    y = array(mg.random.normal(7.0, 0.5, (N,), dtype=dtype, device=device)).astype(np.float64)
    assert abs(y.mean() - 7) < 5 * 0.5 / math.sqrt(N)
    assert abs(y.std() - 0.5) < 5 * 0.5 / math.sqrt(2 * N)
    assert mg.random.normal(3.0, 0.0, (2,), device=device).tolist() == [3, 3]


@pytest.mark.parametrize(("low", "high"), [(0, 2), (0, 10), (-5, 5), (7, 8), (0, 1000)])
def test_randint(low, high, device):
    """Every integer of the range as often as any other, none outside."""
    x = mg.random.randint(low, high, (N,), device=device)
    assert x.dtype == "int64"
    counts = np.bincount(array(x) - low, minlength=high - low)
    assert len(counts) == high - low
    if len(counts) > 1:
        assert abs(chi_square(counts, N / (high - low))) < 5


def test_randint_of_large_ranges(device):
    """Beyond 32 bits, up to all of int64."""
    for low, high in ((0, 3 * 2**40), (-(2**62), 2**62), (-(2**63), 2**63 - 1)):
        x = array(mg.random.randint(low, high, (N,), device=device)).astype(float)
        assert low <= x.min()
        assert x.max() <= high
        scaled = (x - low) / (float(high) - low)
        assert abs(chi_square(np.histogram(scaled, 64, (0, 1))[0], N / 64)) < 5
        assert abs(len(np.unique(x)) - N) <= 5 or high - low < 2**50


def test_permutation(device):
    for n in (0, 1, 2, 1000):
        x = mg.random.permutation(n, device=device)
        assert x.dtype == "int64"
        assert sorted(x.tolist()) == list(range(n))
    counts = {}
    for _ in range(1200):
        order = tuple(mg.random.permutation(3, device=device).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert abs(chi_square(np.array(list(counts.values())), 200)) < 5


# ── the generator ─────────────────────────────────────────────────────────────────────────────────


def philox(counter, key):
    """Four words of Philox 4x32-10 (Salmon et al., 2011), written from the paper."""
    mask = 2**32 - 1
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (q >> 32) ^ b ^ k0, q & mask, (p >> 32) ^ d ^ k1, p & mask
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return a, b, c, d


@pytest.mark.parametrize(("counter", "key", "words"), [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
])  # fmt: skip
def test_known_answers(counter, key, words):
    """These are the test vectors that the authors publish with their library."""
    assert philox(counter, key) == words


@pytest.mark.parametrize("position", [0, 5, 2**32 - 2, 2**40])
@pytest.mark.parametrize("seed", [0, 1, 2**63 + 12345])
def test_uniform_is_philox(seed, position, device):
    """Value i is word i % 4 of block position + i/4, its high bits; float64 takes its low bits from a second stream."""
    blocks = [position + i for i in range(20)]
    words = [
        [w for b in blocks for w in philox((b % 2**32, b >> 32, stream, 0), (seed % 2**32, seed >> 32))]
        for stream in (0, 1)
    ]
    for dtype in ("float32", "float64"):
        mg.random.set_state({"seed": seed, "position": position})
        ours = mg.random.uniform(shape=80, dtype=dtype, device=device).tolist()
        if dtype == "float32":
            assert ours == [(w >> 8) / 2**24 for w in words[0]]
        else:
            assert ours == [((high << 32 | low) >> 11) / 2**53 for high, low in zip(*words, strict=True)]
        assert mg.random.get_state()["position"] >= position + 20


# ── the stream ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", DRAWS)
def test_seeds(name, device):
    """The same seed gives the same bits, another seed different ones; draws do not repeat."""
    found = []
    for seed in (5, 5, 6, -1, 2**64 - 1):
        mg.manual_seed(seed)
        found.append(array(DRAWS[name]((1000,), device=device)).copy())
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] != found[2]).any()
    np.testing.assert_array_equal(found[3], found[4])  # seeds are taken modulo 2⁶⁴
    assert (found[4] != array(DRAWS[name]((1000,), device=device))).any()


@pytest.mark.parametrize("name", DRAWS)
def test_states(name, device):
    """A state continues the stream where it was taken."""
    DRAWS[name]((17,), device=device)
    state = mg.random.get_state()
    first = [array(DRAWS[name]((n,), device=device)).copy() for n in (3, 100)]
    DRAWS[name]((5,), device=device)
    mg.random.set_state(state)
    for n, expected in zip((3, 100), first, strict=True):
        equals(DRAWS[name]((n,), device=device), expected)


@pytest.mark.parametrize("state, error", [
    (None, ValueError), ({}, ValueError), ({"seed": 1}, ValueError), ({"seed": 1, "position": 1.5}, TypeError), ({"seed": "1", "position": 1}, TypeError),
    ({"seed": -1, "position": 1}, ValueError), ({"seed": 1, "position": 2**64}, OverflowError), ({"seed": 2**64, "position": 1}, OverflowError),
])  # fmt: skip
def test_states_that_are_none(state, error):
    before = mg.random.get_state()
    with pytest.raises(error):
        mg.random.set_state(state)
    assert mg.random.get_state() == before


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_threads_change_nothing(name, dtype, device):
    same_for_all_threads(lambda: [mg.manual_seed(1) or DRAWS[name]((N,), dtype, device)])


@pytest.mark.parametrize("name", ["uniform", "normal", "randint"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_place_decides(name, dtype, device):
    """A longer draw begins with the shorter one, whatever the shape; the next draw overlaps with neither."""
    mg.manual_seed(9)
    short = array(DRAWS[name]((10,), dtype, device)).copy()
    following = array(DRAWS[name]((1000,), dtype, device)).copy()
    mg.manual_seed(9)
    long = array(DRAWS[name]((25, 4), dtype, device)).copy()
    np.testing.assert_array_equal(long.reshape(-1)[:10], short)
    assert not np.array_equal(following[:10], short)


def test_streams_of_calls_do_not_overlap(device):
    """No value of one draw comes back in the next one, whatever the sizes and dtypes."""
    seen = set()
    total = 0
    for n in (1, 2, 3, 4, 5, 7, 8, 9, 100, 1001):
        for dtype in ("float64", "float32"):
            values = array(mg.random.uniform(shape=n, dtype=dtype, device=device)).astype(np.float64) * 2.0**24
            seen.update(np.floor(values).tolist())
            total += n
    assert total - len(seen) <= 5  # among 2280 of 2²⁴ values, 0.2 collide by chance


def test_shapes(device):
    for draw in (mg.random.uniform, mg.random.normal):
        assert draw(device=device).shape == ()
        assert draw(shape=3, device=device).shape == (3,)
        assert draw(shape=(2, 0, 3), device=device).shape == (2, 0, 3)
        assert not draw(shape=3, device=device).requires_grad
    assert mg.random.randint(0, 5, device=device).shape == ()


def test_errors():
    refuses(ValueError, "uniform", "nan", mg.random.uniform, math.nan, 1, (3,))
    refuses(ValueError, "randint", ["3", "3"], mg.random.randint, 3, 3, (2,))
    refuses(TypeError, "normal", "bool", mg.random.normal, dtype="bool")
