"""Kinds of objects that a dataset may contain, and the code that creates these objects.

No table lists which objects can be pickled, because the check tries to pickle each object.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from chirp_migrate.source.toml import parse_toml

__all__ = ["KINDS", "Kind"]


@dataclass(frozen=True)
class Kind:
    """The code that creates an object.

    Attributes:
        family: name of the group of similar kinds, for tables.
        name: name of the kind for tables.
        expression: expression that creates the object.
        imports: import statements that the expression needs.
        top: definitions at the top level of the module that the expression needs.
        local: statements that the expression needs before it, in the same function.
        is_called: whether the object can be called with one argument, as a transform or a ``collate_fn``.
    """

    family: str
    name: str
    expression: str
    imports: tuple[str, ...] = ()
    top: str = ""
    local: str = ""
    is_called: bool = False


#: All kinds, from ``kinds.toml``.
KINDS: tuple[Kind, ...] = tuple(
    Kind(family, **kind)
    for family, kinds in parse_toml(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
    for kind in kinds
)
