"""A recording keeps the original values and times, and forwards events to other observers."""

import pytest
from checks import refuses
from hearers import Hearer, told_to
from pages import shown
from threaded import in_threads

import minigrad as mg
from minigrad import viz
from minigrad.engine.memory import listener


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
    assert listener.last_listener() is None
    with pytest.raises(RuntimeError, match=r"\[record\] expected a block that is not open yet"), outer, outer:
        pass
    refuses(RuntimeError, "record", "expected a block that is open", viz.record().__exit__, None, None, None)
    assert listener.last_listener() is None


def test_a_listener_that_came_during_a_recording_goes_on_listening():
    """A recording may end before listeners that came later, and tells the earlier ones."""
    x = mg.tensor(2.0, requires_grad=True)
    late = Hearer()
    with told_to(Hearer()) as first:
        with viz.record() as recording:
            listener.listen(late)
            x.exp()
        x.sin()
        with recording:
            x.cos()
        assert listener.last_listener() is late
        listener.stop_listening(late)
        x.sinh()
    assert late.heard == ["exp", "sin", "cos"]
    assert first.heard == ["exp", "sin", "cos", "sinh"]
    assert len(recording.values) == 2
    refuses(RuntimeError, "stop_listening", "expected a listener of this thread", listener.stop_listening, late)


def test_a_profile_sees_what_follows_a_recording_in_another_thread():
    w = mg.tensor([1.0, 2.0], requires_grad=True)

    def work():
        with viz.record():
            w.exp()
        w.sin()

    with mg.profile() as p:
        in_threads(work)
    assert {(event.op, event.phase) for event in p.events} == {("exp", "forward"), ("sin", "forward")}


def test_an_exploring_pass_is_told_to_earlier_listeners():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    with told_to(Hearer()) as hearer:
        viz.explore((x * x).sum())
    assert hearer.heard == [
        *["multiply", "sum"],
        *[told for op in ("sum", "multiply", "leaf") for told in (f"{op} backward", "left")],
    ]


def test_a_profile_books_an_exploring_pass_as_a_backward_pass():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    loss = x.exp().sum()
    with mg.profile() as p:
        viz.explore(loss)
    assert ("exp", "backward") in {(event.op, event.phase) for event in p.events}
