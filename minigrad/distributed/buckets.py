"""Buckets: the gradients that `DataParallel` sends together, and the order in which it sends them."""

import zlib
from typing import Any

from minigrad.arrays.creation import empty
from minigrad.engine.tape.in_place import note_write
from minigrad.engine.tape.modes import no_grad
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.parameter import Parameter
from minigrad.ranks.communicator import world

ALIGNED = 16  # elements: every gradient in a bucket begins in a cache line of its own


def description(name: str, x: Tensor) -> str:
    return f"{name} {x.shape} {x.dtype} on {x.device.partition(':')[0]}"


class Bucket:
    """Gradients that are sent together."""

    def __init__(self, parameters: list[Parameter]) -> None:
        self.parameters, self.missing = parameters, len(parameters)
        self.flat: Tensor | None = None
        self.parts: list[Tensor] = []
        self.request: Any = None

    def send(self, engine: Any) -> None:
        """Begin the sum over the ranks, with zeros for gradients that are absent."""
        first = self.parameters[0]
        if len(self.parameters) == 1 and first.grad is not None and first.grad.is_contiguous():
            self.flat = first.grad
            note_write("DataParallel", self.flat)
            self.parts = [self.flat]
        else:
            sizes = [-(-p.size // ALIGNED) * ALIGNED for p in self.parameters]
            self.flat = empty(sum(sizes), dtype=first.dtype, device=first.device)
            at = 0
            for p, size in zip(self.parameters, sizes, strict=True):
                part = self.flat[at : at + p.size].reshape(p.shape)
                if p.grad is None:
                    part.zero_()
                else:
                    part.copy_(p.grad)
                self.parts.append(part)
                at += size
        self.request = engine.start(self.flat)

    def receive(self, size: int) -> None:
        """Finish the sum, and turn it into the mean."""
        self.request.wait()
        if self.flat is not None:
            self.flat *= 1 / size

    def reset(self) -> None:
        self.missing, self.flat, self.parts, self.request = len(self.parameters), None, [], None


class Plan:
    """The buckets of a list of parameters, and the state of the pass that fills them."""

    def __init__(self, named: list[tuple[str, Parameter]], limit: int) -> None:
        self.names = [name for name, _ in named]
        self.parameters = [p for _, p in named]
        self.key = key(self.parameters)
        self.text = "\n".join(description(name, p) for name, p in named)
        self.checksum = zlib.crc32(self.text.encode())
        self.buckets: list[Bucket] = []
        self.home: dict[int, Bucket] = {}
        self.arrived: set[int] = set()
        self.sent = 0
        open_buckets: dict[tuple[str, str], list[Parameter]] = {}

        def close(parameters: list[Parameter]) -> None:
            self.buckets.append(Bucket(parameters))
            self.home.update((id(p), self.buckets[-1]) for p in parameters)

        # backward tends to reach the last parameters first
        for p in reversed(self.parameters):
            kind = str(p.dtype), p.device
            if p.nbytes >= limit:
                close([p])
                continue
            group = open_buckets.setdefault(kind, [])
            group.append(p)
            if sum(member.nbytes for member in group) >= limit:
                close(open_buckets.pop(kind))
        for group in open_buckets.values():
            close(group)

    def send(self, all_of_them: bool = False) -> None:
        """Send the buckets that are full, up to the first that is not."""
        with no_grad():
            while self.sent < len(self.buckets) and (all_of_them or not self.buckets[self.sent].missing):
                bucket = self.buckets[self.sent]
                device = bucket.parameters[0].device
                bucket.send(world().engine(device, background=True))
                self.sent += 1

    def reset(self) -> None:
        """Forget the pass."""
        self.sent = 0
        self.arrived.clear()
        for bucket in self.buckets:
            bucket.reset()


def key(parameters: list[Parameter]) -> list[Any]:
    """Return all that a plan depends on."""
    return [(id(p), p.dtype, p.device) for p in parameters]
