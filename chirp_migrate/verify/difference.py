"""One difference between two trainings: a name for machines, a sentence for people."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Difference", "Equivalence"]


@dataclass(frozen=True)
class Difference:
    """What differs.

    Attributes:
        name: short and stable, such as ``validation-drops-samples`` (all are listed in docs/verify.md).
        entry_point: label of the entry point; ``""`` for what belongs to none, as the public API.
        text: what differs and where, without the entry point.
    """

    name: str
    entry_point: str
    text: str

    @property
    def message(self) -> str:
        """The whole sentence, entry point first."""
        return f"{self.entry_point}: {self.text}" if self.entry_point else self.text

    def to_json(self) -> dict[str, str]:
        """``{name, entry_point, message}``."""
        return {"name": self.name, "entry_point": self.entry_point, "message": self.message}


@dataclass(frozen=True)
class Equivalence:
    """What a comparison showed.

    Attributes:
        found: the differences; empty when both sides train the same.
        notes: what could not be compared, and why; and what is amiss on both sides alike.
        smallest_p: smallest adjusted p-value by entry point with augmentation.
    """

    found: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    smallest_p: dict[str, float] | None = None

    @property
    def differences(self) -> tuple[str, ...]:
        """One sentence for each difference."""
        return tuple(difference.message for difference in self.found)

    def joined(self, other: Equivalence) -> Equivalence:
        """Both comparisons as one."""
        smallest = {**(self.smallest_p or {}), **(other.smallest_p or {})} or self.smallest_p or other.smallest_p
        return Equivalence(self.found + other.found, self.notes + other.notes, smallest)
