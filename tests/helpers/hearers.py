"""Listeners to what a thread records and computes."""

import contextlib

from minigrad.engine.memory import listener


class Hearer(listener.Listener):
    """Keeps the operations it is told of, and where each of a backward pass begins and ends."""

    def __init__(self):
        self.heard = []

    def recorded(self, sequence, op, outs):
        self.heard.append(op)
        super().recorded(sequence, op, outs)

    def entered(self, sequence, op, grads):
        self.heard.append(f"{op} backward")

    def left(self, sequence):
        self.heard.append("left")


@contextlib.contextmanager
def told_to(hearer):
    """Run a block in which `hearer` listens to the thread; it must still be the last listener at the end."""
    listener.listen(hearer)
    yield hearer
    assert listener.last_listener() is hearer
    listener.stop_listening(hearer)
