"""A recording keeps the original values and times, and forwards events to other observers."""

import threading

import pytest
from checks import observed_by
from pages import shown

import minigrad as mg
from minigrad import viz
from minigrad.engine import tape


def test_values_are_those_of_their_time():
    """Neither a later write into a result nor an update of a leaf shows."""
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    with viz.record():
        y = x + 1
        z = y * 3
        with mg.no_grad():
            y.fill_(7.0)
        total = z.sum()
    with mg.no_grad():
        x.fill_(9.0)
    page = shown(viz.explore(total, names={"x": x}))
    assert page["add"]["outs"][0]["numbers"] == [[2.0, 3.0]]
    assert page["x"]["outs"][0]["numbers"] == [[1.0, 2.0]]


def test_the_newest_recording_counts_and_an_older_one_can_be_given():
    x = mg.tensor(2.0, requires_grad=True)
    with viz.record() as first:
        y = x * x
    with viz.record():
        _ = x + 1
    assert shown(viz.explore(y))["multiply"]["outs"] is None
    assert shown(viz.explore(y, recording=first))["multiply"]["outs"][0]["numbers"] == [[4.0]]


def test_recordings_nest_and_give_the_thread_back():
    """The outer block gets the inner one's events, and after an error there is no observer left."""
    x = mg.tensor(2.0, requires_grad=True)
    with viz.record() as outer:
        with viz.record() as inner:
            y = x.exp()
        z = y * 3
    assert len(inner.values) == 1
    assert len(outer.values) == 2
    assert shown(viz.explore(z, recording=outer))["exp"]["forward"] > 0
    with pytest.raises(mg.GradientError), viz.record() as broken:
        mg.ones(2).backward()
    _ = x.exp()
    assert broken.values == {}
    assert tape.set_observer(None) is None
    with pytest.raises(RuntimeError, match=r"\[record\] expected a block that is not open yet"), outer, outer:
        pass
    with pytest.raises(RuntimeError, match=r"\[record\] expected a block that is open"):
        viz.record().__exit__(None, None, None)
    assert tape.set_observer(None) is None


class Hearer:
    """An observer of a thread that forwards events to the previous observer."""

    def __init__(self):
        self.heard, self.before = [], None

    def tell(self, name, *told):
        self.heard.append((name, *(x for x in told if isinstance(x, str))))
        if self.before is not None:
            getattr(self.before, name)(*told)

    def recorded(self, *told):
        self.tell("recorded", *told)

    def entered(self, *told):
        self.tell("entered", *told)

    def left(self, *told):
        self.tell("left", *told)


@pytest.fixture
def hearer():
    """An observer that is always active."""
    with observed_by(Hearer()) as observer:
        yield observer


def test_an_observer_that_came_during_a_recording_goes_on_observing(hearer):
    """The recording remains as a silent link until it is the last one and gets an event."""
    x = mg.tensor(2.0, requires_grad=True)
    late = Hearer()
    with viz.record() as recording:
        late.before = tape.set_observer(late)
        x.exp()
    x.sin()
    with recording:  # again, while its first link is still there
        x.cos()
    noted = len(recording.values)
    x.tan()
    assert tape.set_observer(late.before) is late
    x.sinh()
    ops = ["exp", "sin", "cos", "tan"]
    assert late.heard == [("recorded", op) for op in ops]
    assert hearer.heard == [("recorded", op) for op in [*ops, "sinh"]]
    assert noted == len(recording.values) == 2


def test_a_profile_sees_what_follows_a_recording_in_another_thread():
    w = mg.tensor([1.0, 2.0], requires_grad=True)

    def work():
        with viz.record():
            w.exp()
        w.sin()

    with mg.profile() as p:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert {(event.op, event.phase) for event in p.events} == {("exp", "forward"), ("sin", "forward")}


def test_an_exploring_pass_is_forwarded_to_the_previous_observer(hearer):
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    viz.explore(loss)
    told = [entry for entry in hearer.heard if entry[0] in ("entered", "left")]
    assert told == [("entered", "sum"), ("left",), ("entered", "multiply"), ("left",), ("entered", "leaf"), ("left",)]
    assert hearer.heard[-1] == ("left",)
    x.exp()
    assert hearer.heard[-1] == ("recorded", "exp")


def test_a_profile_books_an_exploring_pass_as_a_backward_pass():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    loss = x.exp().sum()
    with mg.profile() as p:
        viz.explore(loss)
    assert ("exp", "backward") in {(event.op, event.phase) for event in p.events}
