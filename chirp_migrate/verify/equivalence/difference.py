"""One difference between two trainings: a name for machines, a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

__all__ = ["Difference", "Equivalence", "Noticed"]


class Difference(msgspec.Struct, frozen=True):
    """What is not the same training; part of what ``verify`` writes.

    Attributes:
        name: short and stable, such as ``validation-drops-samples`` (all are listed in docs/verify.md).
        entry_point: label of the entry point; ``""`` for what belongs to none, as the public API.
        message: what differs and where, one sentence, the entry point first.
    """

    name: str
    entry_point: str
    message: str

    @classmethod
    def of(cls, name: str, entry_point: str, text: str) -> Difference:
        """With a sentence that does not name the entry point yet."""
        return cls(name, entry_point, f"{entry_point}: {text}" if entry_point else text)


class Noticed(msgspec.Struct, frozen=True):
    """The smallest difference of a statistic that its test would have found in 9 of 10 verifications.

    Attributes:
        share: of the samples on the other side of some value, 0 to 1.
        shift: of all samples but those left alone, in the statistic's unit; None where none would be noticed.
        samples: before and after.
    """

    share: float
    shift: float | None
    samples: tuple[int, int]


@dataclass(frozen=True)
class Equivalence:
    """What a comparison showed.

    Attributes:
        found: the differences; empty when both sides train the same.
        notes: what could not be compared, and why; and what is amiss on both sides alike.
        smallest_p: smallest adjusted p-value by entry point with augmentation.
        noticed: entry point → statistic → what difference its test would have noticed.
        unrepeatable: entry points whose losses or batches two runs of the side before do not have in common.
    """

    found: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    smallest_p: dict[str, float] | None = None
    noticed: Mapping[str, Mapping[str, Noticed]] = field(default_factory=dict)
    unrepeatable: frozenset[str] = frozenset()

    @property
    def differences(self) -> tuple[str, ...]:
        """One sentence for each difference."""
        return tuple(difference.message for difference in self.found)

    def joined(self, other: Equivalence) -> Equivalence:
        """Both comparisons as one."""
        smallest = {**(self.smallest_p or {}), **(other.smallest_p or {})} or self.smallest_p or other.smallest_p
        noticed = {**self.noticed, **other.noticed}
        unrepeatable = self.unrepeatable | other.unrepeatable
        return Equivalence(self.found + other.found, self.notes + other.notes, smallest, noticed, unrepeatable)
