"""Rates: the rates of an optimizer's parameter groups as products of one factor for each schedule."""

import math
from collections.abc import Sequence
from typing import Any


class Rates:
    """The rate of each group: a plain rate times value / base for each schedule of the optimizer.

    A schedule's value is a function of its own step count. The product is computed from all factors, not from the last
    product, so a factor may pass through 0. If anything but a schedule has set a rate (the user, `ReduceLROnPlateau`),
    the plain rate becomes the one that explains it. Where that would be a division by 0, the factors that are 0 count
    as 1 until their schedules change them. The factor of a schedule that is no longer stepped stays.
    """

    def __init__(self) -> None:
        self.groups: list[dict[str, Any]] = []  # the optimizer's
        self.plain: list[float] = []  # each group's rate if all factors were 1
        self.last: list[float] = []  # each group's rate as the product was when last computed
        # By the place of a schedule, its bases and values, one for each group.
        self.parts: dict[int, tuple[list[float], list[float]]] = {}
        self.places = 0

    def add(self, bases: Sequence[float]) -> int:
        """Return the place of a new schedule, whose factors are 1."""
        self._extend()
        self.places += 1
        self.parts[self.places] = (list(bases), list(bases))
        return self.places

    def replace(self, place: int, bases: Sequence[float], values: Sequence[float]) -> None:
        """Replace the factors of a schedule, which the rates of the groups already contain."""
        if place in self.parts:
            self._extend()
            self.parts[place] = (list(bases), list(values))
            self.last = [self.product(k) for k in range(len(self.plain))]

    def change(self, place: int, before: Sequence[float], values: Sequence[float]) -> list[float]:
        """Set the rates to a schedule's new values, unless these are as before; return the rates of all groups."""
        self.notice()
        if place in self.parts:
            for k, (old, new) in enumerate(zip(before, values, strict=True)):
                if new != old:
                    self.parts[place][1][k] = new
                    self._set(k)
        return self.now()

    def remove(self, place: int) -> None:
        """Remove the factors of a schedule from the rates."""
        self.notice()
        self.parts.pop(place, None)
        for k in range(len(self.plain)):
            self._set(k)

    def rebase(self, plain: Sequence[float]) -> None:
        """Set the plain rate of each group."""
        self._extend()
        self.plain = list(plain)
        for k in range(len(plain)):
            self._set(k)

    def load(self, place: int, bases: Sequence[float], values: Sequence[float], plain: Sequence[float]) -> None:
        """Restore a schedule's factors and the plain rates; set the rates that schedules alone have set so far."""
        if place in self.parts:
            self._extend()
            own = [k for k, rate in enumerate(self.now()) if rate == self.last[k]]
            self.plain[: len(plain)] = plain
            self.replace(place, bases, values)
            for k in own:
                self._set(k)

    def notice(self) -> None:
        """Take over the rates that something else has set."""
        for k, (rate, plain) in enumerate(zip(self.now(), self.explain(), strict=True)):
            if rate != self.last[k]:
                for bases, values in self.parts.values():
                    if k < len(bases) and _vanishes(values[k], bases[k]):
                        values[k] = bases[k]
                self.plain[k], self.last[k] = plain, rate

    def explain(self) -> list[float]:
        """Return the plain rates that explain the present ones."""
        self._extend()
        return [
            plain if rate == last else rate / math.prod(
                values[k] / bases[k] for bases, values in self.parts.values()
                if k < len(bases) and bases[k] and not _vanishes(values[k], bases[k])
            )
            for k, (rate, last, plain) in enumerate(zip(self.now(), self.last, self.plain, strict=True))
        ]  # fmt: skip

    def now(self) -> list[float]:
        """Return the rate of each group."""
        return [group["lr"] for group in self.groups]

    def product(self, k: int) -> float:
        """Return the rate of group k that its factors give."""
        rate = self.plain[k]
        for bases, values in self.parts.values():
            if k < len(bases):  # the group was added later, and the schedule has not been stepped since
                rate = values[k] if rate == bases[k] else rate * (values[k] / bases[k]) if bases[k] else rate
        return rate

    def _set(self, k: int) -> None:
        self.last[k] = self.groups[k]["lr"] = self.product(k)

    def _extend(self) -> None:
        """Include the groups that were added since."""
        for group in self.groups[len(self.plain) :]:
            start = group.get("initial_lr", group["lr"]) if not self.parts else group["lr"]
            self.plain.append(start)
            self.last.append(start)


def _vanishes(value: float, base: float) -> bool:
    return abs(value) < 1e-100 * abs(base)
