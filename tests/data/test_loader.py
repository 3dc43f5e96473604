"""DataLoader: the contents and order of batches, stopping and resuming, and the prefetching thread."""

import gc
import threading
import time
from itertools import chain

import numpy as np
import pytest
from checks import raises, refuses

import minigrad as mg
from minigrad import data

NUMBERS = data.ArrayDataset(np.arange(10))


def lists(loader):
    """Return the numbers in each batch of an epoch."""
    return [x.tolist() for (x,) in loader]


class Counted(data.Dataset):
    """Numbers that are computed one by one and counted, some of which fail."""

    def __init__(self, count, fails_at=()):
        self.count, self.fails_at, self.made = count, fails_at, []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.made.append(index)
        if index in self.fails_at:
            raise OSError(f"sample {index} cannot be read")
        return np.full(2, index)


def prefetching():
    return [thread for thread in threading.enumerate() if thread.name == "minigrad-prefetch"]


# ── datasets ──


def test_array_dataset():
    x, y = np.arange(12.0).reshape(4, 3), mg.tensor([5, 6, 7, 8])
    dataset = data.ArrayDataset(x, y)
    assert len(dataset) == 4
    assert [part.tolist() for part in dataset[1]] == [[3.0, 4.0, 5.0], 6]
    assert [part.tolist() for part in dataset[-1]] == [[9.0, 10.0, 11.0], 8]
    assert [part.tolist() for part in dataset[[2, 0]]] == [[[6.0, 7.0, 8.0], [0.0, 1.0, 2.0]], [7, 5]]
    assert [part.shape for part in dataset[1:3]] == [(2, 3), (2,)]
    assert [part.tolist() for part in dataset.batch([3, 3])] == [[[9.0, 10.0, 11.0]] * 2, [8, 8]]
    assert dataset.arrays[1].data_ptr() == y.data_ptr()
    assert dataset.arrays[0].dtype == mg.float64
    with pytest.raises(IndexError):
        dataset[4]


def test_texts_of_datasets_and_loaders():
    images = data.TensorDataset(mg.ones((60, 8, 8)), mg.arange(60))
    text = "TensorDataset(float32 (60, 8, 8), int64 (60,))"
    assert repr(images) == text
    part = data.Subset(images, [3, 1])
    assert repr(data.DataLoader(part, 2)) == f"DataLoader(Subset(2 of {text}), batch_size=2)"
    numbers = data.DataLoader([1] * 10**6, shuffle=True, seed=3)
    assert repr(numbers) == "DataLoader(list, batch_size=1, shuffle=True, seed=3)"


def test_batches_of_parameters_are_off_the_tape():
    dataset = data.ArrayDataset(mg.ones(3, requires_grad=True))
    assert not dataset.batch([0])[0].requires_grad
    assert not dataset[0][0].requires_grad


def test_array_dataset_errors():
    for arrays in ((), (3,), ([1, 2], [1]), ([1, 2], 3)):
        with pytest.raises(ValueError, match=r"\[ArrayDataset\] expected arrays of the same length, got shapes"):
            data.ArrayDataset(*arrays)
    raises(TypeError, "int8", data.ArrayDataset, np.zeros(3, np.int8))


def test_what_a_dataset_has_to_define():
    raises(NotImplementedError, r"\[Dataset\] __len__", len, data.Dataset())
    with pytest.raises(NotImplementedError, match=r"\[Dataset\] __getitem__"):
        data.Dataset()[0]


# ── batches ──


@pytest.mark.parametrize("size, drop_last, lengths", [
    (1, False, [1] * 10), (3, False, [3, 3, 3, 1]), (3, True, [3, 3, 3]), (5, True, [5, 5]), (99, False, [10]), (99, True, []),
])  # fmt: skip
@pytest.mark.parametrize("prefetch", [0, 2])
def test_sizes(size, drop_last, lengths, prefetch):
    loader = data.DataLoader(NUMBERS, size, drop_last=drop_last, prefetch=prefetch)
    found = lists(loader)
    assert len(loader) == len(lengths)
    assert [len(batch) for batch in found] == lengths
    assert list(chain(*found)) == list(range(sum(lengths)))


def test_no_samples():
    loader = data.DataLoader(data.ArrayDataset(np.zeros((0, 3))), 4)
    assert len(loader) == 0
    assert list(loader) == []


def test_datasets_of_samples_and_lists():
    assert [x.tolist() for x in data.DataLoader(Counted(3), 2)] == [[[0, 0], [1, 1]], [[2, 2]]]
    assert [x.tolist() for x in data.DataLoader([0.5, 1.5, 2.5], 2)] == [[0.5, 1.5], [2.5]]


class Table:
    """Rows as dicts; `batch` divides the table into batches, as in Hugging Face's datasets and grain."""

    def __init__(self, count):
        self.count, self.fetched = count, []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        assert type(index) is int
        return {"x": index / 2, "n": index}

    def batch(self, batch_size):
        return Table(-(-self.count // batch_size))


class FetchingTable(Table):
    def __getitems__(self, indices):
        assert type(indices) is list
        self.fetched.append(indices)
        return [self[index] for index in indices]


class FetchingDataset(data.Dataset):
    def __init__(self, table):
        self.table = table

    def __len__(self):
        return len(self.table)

    def __getitems__(self, indices):
        return self.table.__getitems__(indices)


@pytest.mark.parametrize("kind", [Table, FetchingTable, lambda count: FetchingDataset(FetchingTable(count))])
@pytest.mark.parametrize("size", [1, 2])
def test_datasets_whose_method_batch_means_something_else(kind, size):
    """Their samples are fetched one by one, or at once by PyTorch's method for that."""
    for collate in (None, lambda rows: {name: mg.tensor([row[name] for row in rows]) for name in rows[0]}):
        table = kind(4)
        (part,) = data.random_split(table, [4], seed=0)
        for dataset, order in ((table, range(4)), (data.Subset(table, [3, 1]), [3, 1]), (part, part.indices)):
            batches = list(data.DataLoader(dataset, size, collate=collate))
            assert [row["x"].dtype for row in batches] == [mg.float32] * len(batches)
            assert [row["x"].shape for row in batches] == [(size,)] * len(batches)
            assert [n for row in batches for n in row["n"].tolist()] == list(order)
            assert [x for row in batches for x in row["x"].tolist()] == [n / 2 for n in order]
        fetched = table.table.fetched if isinstance(table, FetchingDataset) else table.fetched
        assert {len(indices) for indices in fetched} == (set() if kind is Table else {size})


def test_custom_collate():
    assert list(data.DataLoader(NUMBERS, 4, collate=len)) == [4, 4, 2]
    found = list(data.DataLoader(["a", "b", "c"], 2, collate="".join))
    assert found == ["ab", "c"]


def test_arguments():
    for arguments, error in (
        ({"batch_size": 0}, ValueError), ({"batch_size": 1.5}, TypeError), ({"prefetch": -1}, ValueError),
        ({"seed": 0.5}, TypeError), ({"collate": 3}, TypeError),
    ):  # fmt: skip
        raises(error, rf"\[DataLoader\] expected .*{next(iter(arguments))}", data.DataLoader, NUMBERS, **arguments)
    refuses(TypeError, "DataLoader", ["expected a dataset", "got generator"], data.DataLoader, (x for x in range(3)))


# ── order ──


def test_the_order_follows_from_seed_and_epoch_alone():
    mg.manual_seed(1)
    first = data.DataLoader(NUMBERS, 3, shuffle=True, seed=5)
    epochs = [lists(first) for _ in range(3)]
    mg.manual_seed(2)
    second = data.DataLoader(NUMBERS, 3, shuffle=True, seed=5, prefetch=3)
    assert [lists(second) for _ in range(3)] == epochs
    assert all(sorted(chain(*epoch)) == list(range(10)) for epoch in epochs)
    assert len({str(epoch) for epoch in epochs}) == 3
    assert lists(data.DataLoader(NUMBERS, 3, shuffle=True, seed=6)) != epochs[0]


def test_orders_are_the_same_everywhere():
    """These constants must not change with the machine, the NumPy version or the release."""
    assert lists(data.DataLoader(NUMBERS, 10, shuffle=True, seed=0)) == [[0, 2, 9, 1, 8, 5, 4, 3, 6, 7]]


def test_every_order_is_as_likely():
    counts = np.zeros((4, 4))
    loader = data.DataLoader(data.ArrayDataset(np.arange(4)), 4, shuffle=True, seed=0)
    for _ in range(2000):
        counts[np.arange(4), lists(loader)[0]] += 1
    assert abs(counts / 2000 - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 2000)


def test_manual_seed_determines_the_seed():
    found = []
    for _ in range(2):
        mg.manual_seed(7)
        found.append(data.DataLoader(NUMBERS, 3, shuffle=True).seed)
    assert found[0] == found[1] != data.DataLoader(NUMBERS, 3, shuffle=True).seed


def test_negative_and_long_seeds():
    assert lists(data.DataLoader(NUMBERS, 10, shuffle=True, seed=-1)) == lists(
        data.DataLoader(NUMBERS, 10, shuffle=True, seed=2**64 - 1)
    )


# ── stopping and resuming ──


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("stop", range(9))
def test_resumed_anywhere(stop, prefetch):
    """After any batch of two epochs of four batches, a new loader with the state returns the rest."""
    whole = data.DataLoader(NUMBERS, 3, shuffle=True, seed=3)
    expected = [(epoch, x.tolist()) for epoch in range(3) for (x,) in whole]
    first, found = data.DataLoader(NUMBERS, 3, shuffle=True, seed=3, prefetch=prefetch), []
    state = first.state_dict()
    while len(found) < stop:
        epoch = first.epoch
        for (x,) in first:
            found.append((epoch, x.tolist()))
            state = first.state_dict()
            if len(found) == stop:
                break
    second = data.DataLoader(NUMBERS, 3, shuffle=True, seed=99, prefetch=prefetch)
    second.load_state_dict(state)
    while second.epoch < 3:
        epoch = second.epoch
        found += [(epoch, x.tolist()) for (x,) in second]
    assert found == expected


def test_a_state_after_the_last_batch_finishes_the_epoch():
    loader = data.DataLoader(NUMBERS, 5)
    for _ in loader:
        state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (0, 2)
    assert (loader.epoch, loader.position) == (1, 0)
    loader.load_state_dict(state)
    assert lists(loader) == []
    assert (loader.epoch, len(lists(loader))) == (1, 2)


def test_a_loop_left_early_is_not_continued():
    loader = data.DataLoader(NUMBERS, 3, shuffle=True, seed=0)
    epochs = [lists(loader) for _ in range(2)]
    again = data.DataLoader(NUMBERS, 3, shuffle=True, seed=0)
    (x,) = next(iter(again))
    assert x.tolist() == epochs[0][0]
    assert (again.epoch, again.position) == (0, 1)
    assert lists(again) == epochs[1]


def test_a_loop_left_early_is_continued_where_its_state_is_loaded():
    loader = data.DataLoader(NUMBERS, 3, shuffle=True, seed=0)
    epoch = lists(data.DataLoader(NUMBERS, 3, shuffle=True, seed=0))
    next(iter(loader))
    loader.load_state_dict(loader.state_dict())
    assert lists(loader) == epoch[1:]


@pytest.mark.parametrize("change, message", [
    ({"length": 11}, r"loader with \{'length': 10\}, got \{'length': 11\}"), ({"batch_size": 4}, "batch_size"),
    ({"shuffle": True}, "shuffle"), ({"drop_last": True}, "drop_last"), ({"position": 5}, "position from 0 to 4, got 5"),
    ({"position": -1}, "position"), ({"epoch": -1}, "epoch -1"), ({"more": 1}, "a state with seed"),
])  # fmt: skip
def test_states_that_do_not_fit(change, message):
    loader = data.DataLoader(NUMBERS, 3)
    before = loader.state_dict()
    raises(ValueError, rf"\[DataLoader\] expected .*{message}", loader.load_state_dict, {**before, **change})
    refuses(TypeError, "DataLoader", "expected an integer seed", loader.load_state_dict, {**before, "seed": "3"})
    assert loader.state_dict() == before
    refuses(ValueError, "DataLoader", "expected a state", loader.load_state_dict, None)


# ── the thread ──


def test_batches_are_made_ahead_but_not_further_than_asked_for():
    dataset = Counted(100)
    batches = iter(data.DataLoader(dataset, 10, prefetch=2))
    next(batches)
    end = time.monotonic() + 30
    while len(dataset.made) < 30 and time.monotonic() < end:
        time.sleep(0.001)
    time.sleep(0.05)
    assert dataset.made == list(range(30))  # the one that was returned, and two ahead
    batches.close()
    assert len(dataset.made) == 30


def test_without_a_thread_nothing_is_made_ahead():
    dataset = Counted(100)
    next(iter(data.DataLoader(dataset, 10)))
    assert dataset.made == list(range(10))
    assert prefetching() == []


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_errors_arrive_after_the_batches_before_them(prefetch):
    loader = data.DataLoader(Counted(10, fails_at={5}), 2, prefetch=prefetch)
    found = []
    with pytest.raises(OSError, match="sample 5 cannot be read") as caught:
        found += (x.tolist()[0][0] for x in loader)
    assert "__getitem__" in [entry.name for entry in caught.traceback]
    assert found == [0, 2]
    assert loader.position == 2
    del caught
    gc.collect()
    assert prefetching() == []


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_dataset_that_ends_the_iteration_is_an_error(prefetch):
    """StopIteration raised by a sample must not be taken for the end of the epoch."""

    class Short(Counted):
        def __getitem__(self, index):
            raise StopIteration

    raises(RuntimeError, "StopIteration", list, data.DataLoader(Short(3), prefetch=prefetch))


@pytest.mark.parametrize("way", ["break", "close", "garbage", "error", "end"])
def test_the_thread_ends_with_its_consumer(way):
    loader = data.DataLoader(Counted(1000), 2, prefetch=2)
    batches = iter(loader)
    next(batches)
    assert len(prefetching()) == 1
    if way == "break":
        for _ in batches:
            break
        del batches
    elif way == "close":
        batches.close()
    elif way == "garbage":
        cycle = [batches]
        cycle.append(cycle)
        del batches, cycle
        gc.collect()
    elif way == "error":
        with pytest.raises(ZeroDivisionError):
            batches.throw(ZeroDivisionError)
    else:
        list(batches)
    assert prefetching() == []


@pytest.mark.parametrize("line", range(40))
def test_the_loop_may_be_collected_at_any_line_of_the_thread(line):
    """Python may collect garbage anywhere, including in the thread itself between any two of its lines."""
    making, go_on, left = threading.Event(), threading.Event(), line

    class Samples(Counted):
        def __getitem__(self, index):
            if index == 1:
                making.set()
                go_on.wait(10)
            return index

    def trace(frame, event, arg):
        nonlocal left
        if go_on.is_set():
            left -= 1
            if left == 0:
                batches.clear()
        return trace

    threading.settrace(trace)
    try:
        batches = [iter(data.DataLoader(Samples(10), prefetch=3, collate=len))]
        next(batches[0])
    finally:
        threading.settrace(None)
    assert making.wait(10)
    (thread,) = prefetching()
    go_on.set()
    time.sleep(0.01)
    batches.clear()
    thread.join(5)
    assert not thread.is_alive(), f"the thread waits for itself after {line} lines"


def test_two_loops_at_once():
    loader = data.DataLoader(NUMBERS, 4, shuffle=True, seed=0, prefetch=1)
    expected = lists(data.DataLoader(NUMBERS, 4, shuffle=True, seed=0))
    pairs = [(x.tolist(), y.tolist()) for (x,), (y,) in zip(loader, loader, strict=True)]
    assert [x for x, _ in pairs] == expected
    assert [y for _, y in pairs] != expected
    assert sorted(chain(*(y for _, y in pairs))) == list(range(10))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_loop_within_a_loop(prefetch):
    """Each runs a whole epoch of its own from the beginning."""
    loader = data.DataLoader(NUMBERS, 4, shuffle=True, seed=0, prefetch=prefetch)
    other = data.DataLoader(NUMBERS, 4, shuffle=True, seed=0)
    epochs = [lists(other) for _ in range(5)]
    found = [(x.tolist(), lists(loader)) for (x,) in loader]
    assert found == list(zip(epochs[0], epochs[1:4], strict=True))
    assert (loader.epoch, loader.position) == (4, 0)
    assert lists(loader) == epochs[4]
